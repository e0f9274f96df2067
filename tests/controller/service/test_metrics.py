"""The page of metrics says what the controller knows, and is served over HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families

from weir.controller.controller import ControllerOptions
from weir.controller.errors import ControllerError
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.placement import Placement
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.controller.service import metrics
from weir.controller.service.heartbeats import HeartbeatReader
from weir.controller.service.metrics import serve, text
from weir.tests.controller.job_rig import MS, Fixed, JobRig, make_rig
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint
from weir.wire.control import JobReport
from weir.wire.heartbeat import Heartbeat

TOPOLOGY = leaf_spine(2, 2, 2, rate_bps=1_000_000_000)
OPTIONS = ControllerOptions(probe_period_ns=5 * MS, solve_period_ns=0, lease_ns=30 * MS)
AT_LEAF = Placement({"h1": "s1", "h2": "s1"}, {}, "s1")


@pytest.fixture
async def rig(pipeline: CompiledPipeline) -> AsyncIterator[JobRig]:
    async with make_rig(TOPOLOGY, pipeline, Fixed(AT_LEAF), OPTIONS) as rig:
        yield rig


def values(page: bytes) -> dict[str, float]:
    """Every sample by its name and label."""
    families = text_string_to_metric_families(page.decode())
    samples = [sample for family in families for sample in family.samples]
    return {"/".join((sample.name, *sample.labels.values())): sample.value for sample in samples}


async def test_the_page_says_what_is_known_of_links_switches_and_jobs(rig: JobRig) -> None:
    job = await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8, policy=FailurePolicy.WAIT))
    rig.submit(job, 1)
    await rig.run(40 * MS)
    rig.silent.add("h2")
    await rig.run(100 * MS)
    await rig.kill_switch("s4")
    await rig.run(150 * MS)
    now_ns = rig.fabric.now_ns
    page = values(text(rig.controller, now_ns))
    free = rig.topology.switch("s1").slots
    known = rig.controller.links.snapshot(now_ns).links
    for link, view in known.items():
        assert page[f"weir_link_bits_per_second/{link}"] == view.background_bps
        assert page[f"weir_link_load_ratio/{link}"] == view.background_bps / 1e9
        assert page[f"weir_link_queue_packets/{link}"] == view.queue_packets
        if view.age_ns is not None:
            assert page[f"weir_link_report_age_seconds/{link}"] == view.age_ns / 1e9
    assert len(known) > 6
    promised = {name: value for name, value in page.items() if name.startswith("weir_link_promised_packets/")}
    budgets = rig.controller.windows.budgets
    assert promised == {f"weir_link_promised_packets/{link}": int(budget.bound) for link, budget in budgets.items()}
    assert max(promised.values()) >= 8, "a window of the job"
    assert not any(name.startswith("weir_class_promised_packets/") for name in page)
    expected = {
        "weir_links_down": 0,  # nothing is known of the links of a switch that is lost
        "weir_switch_session_up/s1": 1,
        "weir_switch_session_up/s4": 0,
        "weir_switch_lost/s3": 0,
        "weir_switch_lost/s4": 1,
        "weir_switch_slots_free/s1": free - 16,
        "weir_switch_slots_free/s2": free,
        "weir_switch_session_openings_total/s1": 1,
        "weir_jobs": 1,
        "weir_jobs_admitted_total": 1,
        "weir_jobs_aborted_total": 0,
        "weir_moves_total": 1,
        "weir_leases": 1,
        "weir_leases_expired_total": 1,
        "weir_job_generation/7": 1,
        "weir_job_workers/7": 2,
        "weir_job_moving/7": 1,
        "weir_job_silent_workers/7": 1,
        "weir_job_link_streams/7": 4,
    }
    assert {name: page[name] for name in expected} == expected
    assert page["weir_switch_packet_outs_total/s1"] == rig.controller.switches.packet_outs_sent["s1"]
    assert page["weir_switch_packet_ins_total/s1"] > 0


async def test_bounds_of_traffic_classes_are_shown_by_link_and_class(rig: JobRig) -> None:
    await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8, classes=(4,)))
    page = values(text(rig.controller, rig.fabric.now_ns))
    bounds = rig.controller.windows.class_bounds
    assert {link for link, _ in bounds} == {Endpoint("s1", 1), Endpoint("s1", 2)}
    name = "weir_class_promised_packets/"
    assert {key: packets for key, packets in page.items() if key.startswith(name)} == {
        f"{name}{priority}/{link}": packets for (link, priority), packets in bounds.items()
    }


async def test_heartbeats_are_shown_by_job_and_rank_up_to_a_limit(rig: JobRig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8, policy=FailurePolicy.WAIT))
    heard = HeartbeatReader(TOPOLOGY, lambda _, host: host, late_ns=5 * MS)
    address = {name: int(TOPOLOGY.host(name).address) for name in ("h1", "h2", "h3")}

    def come(host: str, sequence: int, sent_ns: int, took_ns: int, job: int = 7) -> None:
        heard.read(
            address[host], Heartbeat(job, sequence, 1, waiting=True, sent_ns=sent_ns).pack(host), sent_ns + took_ns
        )

    come("h1", 1, 0, MS)
    come("h1", 3, 20 * MS, 9 * MS)
    come("h1", 2, 10 * MS, 25 * MS)
    come("h2", 1, 30 * MS, MS)
    come("h3", 1, 30 * MS, MS, job=8)  # a job that has ended
    heard.read(address["h2"], Heartbeat(7, 2, 1, waiting=True, sent_ns=0).pack("h1"), 0)
    heard.read(address["h2"], b"?", 0)
    assert "weir_heartbeats_received_total" not in values(text(rig.controller, 0))
    page = values(text(rig.controller, 41 * MS, heard))
    told = {name: value for name, value in page.items() if name.startswith("weir_heartbeat")}
    assert told == pytest.approx(
        {
            "weir_heartbeats_received_total": 4,
            "weir_heartbeats_late_total": 1,
            "weir_heartbeats_missing_total": 1,
            "weir_heartbeats_refused_total/damaged": 1,
            "weir_heartbeats_refused_total/token": 1,
            "weir_heartbeats_refused_total/sequence": 1,
            "weir_heartbeat_age_seconds/7/0": 0.012,
            "weir_heartbeat_age_seconds/7/1": 0.010,
            "weir_heartbeat_delay_seconds/7/0": 0.008,
            "weir_heartbeat_delay_seconds/7/1": 0,
        },
        abs=1e-5,
    )
    monkeypatch.setattr(metrics, "MAX_SEATS", 1)
    fewer = values(text(rig.controller, 41 * MS, heard))
    assert [name for name in fewer if name.startswith("weir_heartbeat_age")] == ["weir_heartbeat_age_seconds/7/0"]


async def test_the_dashboard_and_the_guide_match_the_metrics_page(rig: JobRig) -> None:
    heard = HeartbeatReader(TOPOLOGY, lambda _, host: host)
    families = text_string_to_metric_families(text(rig.controller, 0, heard).decode())
    had = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    asked = set(re.findall(r"weir_\w+", (ROOT / "docs" / "grafana.json").read_text()))
    assert len(asked) > 15
    assert asked - had == set()
    rows = re.findall(r"^\| (`weir_.*?) \|", (ROOT / "docs" / "telemetry.md").read_text(), re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(weir_\w+)", row)}
    assert told == had


async def test_the_page_is_served_and_nothing_else(rig: JobRig) -> None:
    async def ask(request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer

    async with serve(rig.controller, lambda: rig.fabric.now_ns, 0) as port:
        head, _, body = (await ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain")
        assert body == text(rig.controller, rig.fabric.now_ns)
        assert (await ask(b"GET /secrets HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 Not Found")
        assert (await ask(b"POST /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404 Not Found")
        assert await ask(b"\x16\x03\x01 no http") == b""
        with suppress(ConnectionError):
            assert await ask(b"x" * 100_000) == b""
        with raises(ControllerError, place="metrics", value=f"127.0.0.1:{port}"):
            async with serve(rig.controller, lambda: 0, port):
                pass


async def test_reported_progress_is_on_the_page_without_unknown_values(rig: JobRig) -> None:
    await rig.admit(JobSpec(7, ("h1", "h2"), slots=16, window=8))
    reports = rig.controller.jobs[7].reports
    names = (
        "step",
        "stage_steps_left",
        "loss",
        "accuracy",
        "step_compute_seconds",
        "step_exposed_seconds",
        "step_waiting_seconds",
        "step_bytes",
    )

    def reported() -> dict[str, float]:
        page = values(text(rig.controller, rig.fabric.now_ns))
        return {name: page[f"weir_job_{name}/7"] for name in names if f"weir_job_{name}/7" in page}

    assert reported() == {}
    reports.add(JobReport(5), 1)
    assert reported() == {"step": 5, "step_bytes": 0}
    reports.add(JobReport(9, 3, "decay", 0.5, 0.75, 4, 8_000_000_000, 2_000_000_000, 4_000, 1_000_000_000), 2)
    assert reported() == dict(zip(names, (9, 3, 0.5, 0.75, 2, 0.5, 0.25, 1_000), strict=True))
