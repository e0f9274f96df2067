"""A run in Mininet: real processes, sockets and switches give every step the bits that the virtual fabric gives it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import yaml
from rich.console import Console

from weir.controller.congestion import WALL_CLOCK_LEASE_NS
from weir.controller.leases import HEARTBEATS_IN_A_LEASE
from weir.controller.p4runtime.tables import DROP_REASONS
from weir.experiments.backends.mininet_control import congestion_options
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.records import report
from weir.experiments.records.record import MininetResult, RunRecord
from weir.experiments.run import execute
from weir.tests.own_network import IN_ITS_OWN_NETWORK
from weir.tests.paths import ROOT
from weir.tests.processes import left_with, processes_with
from weir.tests.support.errors import raises
from weir.tests.topologies.mininet.test_mininet import LONG_ON_BMV2, started
from weir.topologies import dump_topology, leaf_spine
from weir.topologies.mininet.fabric import SwitchKind, obstacle

WEIR = [*IN_ITS_OWN_NETWORK, "-c", "from weir.cli.main import main; main()"]

RUN: dict[str, Any] = {
    "name": "short",
    "fabric": "fabric.yaml",
    "job": {"workers": ["h1", "h2", "h3"], "server": "h4", "window": 8, "slots": 16},
    "training": {"hidden": 32, "steps": 4},
    "background": [{"source": "h4", "destination": "h1", "rate": "50Mbit", "stop": "21ms"}],
    "control": {"warm_up": "10ms"},
    "heartbeats": {"to": "h5", "lease": "100ms"},
    "telemetry": {"collector": "h4", "watch": [{"mode": "md"}], "queues": {"depth_step": 8, "period": "10ms"}},
    "strategies": ["widest"],
}


def watched_by_top(command: list[str], seen: Path) -> tuple[str, list[dict[str, Any]]]:
    """Output of a program that makes a network of its own and ends well, with the states of its live page, which `weir
    top` has written to the file `seen` from within that network.
    """
    with seen.open("w") as lines, subprocess.Popen(command, cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True) as running:
        network = Path(f"/proc/{running.pid}/ns/net")
        while running.poll() is None and network.readlink() == Path("/proc/self/ns/net").readlink():
            time.sleep(0.01)
        top = ["nsenter", f"--net={network}", sys.executable, *WEIR[-2:], "top", "http://127.0.0.1:8265", "--json"]
        with subprocess.Popen(top, cwd=ROOT, stdout=lines) as watching:
            try:
                printed, said = running.communicate(timeout=240)
            finally:
                running.terminate()  # where it has not ended, it takes its fabric down
                watching.terminate()
    assert running.returncode == 0, said
    return printed, [json.loads(line) for line in seen.read_text().splitlines() if line.endswith("}")]


def assert_seen_live(states: list[dict[str, Any]]) -> None:
    """Check states of a run over the real fabric: its job, summed in the switches; every link, some with traffic;
    drops; events.
    """
    assert {state["fabric"] for state in states} == {"leaf-spine"}
    jobs = [job for state in states for job in state["jobs"]]
    assert {(tuple(job["workers"]), job["server"]) for job in jobs} == {(("h1", "h2", "h3"), "h4")}
    assert any(job["sums"] for job in jobs)
    assert {switch for job in jobs for switch in job["sums"]} <= {"s1", "s2", "s3", "s4"}
    assert {len(state["links"]) for state in states} == {12}
    assert any(view[0] > 0 for state in states for view in state["links"] if view is not None)
    assert set(states[-1]["drops"]) == set(DROP_REASONS)
    texts = {event["text"] for event in states[-1]["events"]}
    assert "short, widest, Mininet" in texts
    assert any(text.startswith("job 1 runs with 3 workers, summed at ") for text in texts)


def assert_in_time(real: MininetResult) -> None:
    """Check that all heartbeats of three workers and their server came within their deadline, and no host counted as
    dead.
    """
    beats = real.heartbeats
    assert beats is not None
    assert beats.sent == beats.delivered >= 4
    assert beats.lease_ms == 10_000
    deadline_ms = beats.lease_ms * (1 - 1 / HEARTBEATS_IN_A_LEASE)  # the next one is sent so long before
    assert 0 < beats.p999_ms <= beats.longest_ms <= deadline_ms
    assert (beats.taken_for_dead, beats.explained) == (0, 0)


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    dump_topology(leaf_spine(3, 1, 2, rate_bps=100_000_000), tmp_path / "fabric.yaml")
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(RUN))
    return path


def under(run_file: Path, **congestion: Any) -> RunConfig:
    return RunConfig.load(run_file).replaced("a test", congestion=congestion)


@pytest.mark.parametrize("law", ["dctcp", "hpcc", "delay", "loss", "fixed"])
def test_laws_that_processes_do_not_know_are_refused_beforehand(
    law: str, run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.experiments.run.obstacle", lambda _: None)

    config = RunConfig.load(run_file).replaced("a test", congestion={"law": law}, telemetry=None)
    with raises(ExperimentError, place="--fabric mininet", value=law):
        execute(config, run_file.parent, Console(quiet=True), SwitchKind.WEIR)


def test_process_windows_have_leases_for_a_busy_machine(run_file: Path) -> None:
    """A file's lease is of virtual time: 2 ms are less than a turn of a process."""
    for lease in ("2ms", "20ms", "1s"):
        config = under(run_file, lease=lease, bound=48)
        options = congestion_options(config)
        assert options.lease_ns == WALL_CLOCK_LEASE_NS == 100_000_000
        assert replace(options, lease_ns=config.congestion.lease) == config.congestion_options
    assert congestion_options(under(run_file, lease="0ms")).lease_ns == 0, "windows last where the file has it so"


@pytest.mark.parametrize("kind", LONG_ON_BMV2)
def test_sums_and_weights_are_the_virtual_fabrics_bit_for_bit(kind: SwitchKind, run_file: Path) -> None:
    command = [*WEIR, "run", str(run_file), "--fabric", "mininet", "--switch", kind, "--json", "--web", "8265"]
    printed, states = watched_by_top([*command, "--out", str(run_file.parent / "runs")], run_file.parent / "seen")
    assert_seen_live([state for state in states if state["doing"] == f"Mininet, {kind} switches"])
    values = json.loads(printed)
    record = RunRecord.load(Path(values.pop("folder")))
    assert record.model_dump(mode="json") == values
    (virtual,), (real,) = record.results, record.mininet
    assert len(real.sums) == 4
    assert (real.sums, real.weights) == (virtual.sums, virtual.weights)
    assert real.weights == record.reference_weights
    assert (real.strategy, real.switch, real.accuracy) == ("widest", kind, virtual.accuracy)
    assert any("background traffic is scaled to" in note for note in real.notes)
    (told,) = (note for note in real.notes if note.startswith("telemetry: "))
    reports = re.search(r"; (\d+) reports: (\d+) packets on links", told)
    assert reports is not None
    assert 0 < int(reports[1]) <= int(reports[2])  # they came to a socket of the host that is named for it
    assert_in_time(real)
    assert any(line.startswith("heartbeats in Mininet, ") for line in report.condition_lines(record))
    holds, text = report.mininet_claims(record)[0]
    assert holds
    assert f"in Mininet with {kind} switches" in text
    wrong = real.model_copy(update={"sums": [*real.sums[:-1], real.sums[0]]})
    assert not report.mininet_claims(record.model_copy(update={"mininet": [wrong]}))[0][0]


@pytest.mark.long
@pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")
def test_queues_and_heartbeats_keep_their_bounds_in_int_reports(run_file: Path) -> None:
    """Three workers send to one server in another rack over a link of 20 Mbit/s, and every change of a queue's depth is
    reported; heartbeats go the same way to a host next to the server. In real time a late round may be sent again, and
    its copy may wait as well.
    """
    dump_topology(leaf_spine(2, 1, 3, rate_bps=20_000_000), run_file.parent / "fabric.yaml")
    run = {
        **RUN,
        "job": {**RUN["job"], "window": 32, "slots": 64},
        "training": {"hidden": 128, "steps": 20},
        "background": [],
        "congestion": {"bound": 48},
        "telemetry": {"watch": [], "queues": {"depth_step": 1}},
        "strategies": ["ps"],
    }
    run_file.write_text(yaml.safe_dump(run))
    command = [*WEIR, "run", str(run_file), "--fabric", "mininet", "--out", str(run_file.parent / "runs"), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr  # the depths of the virtual fabric
    (real,) = RunRecord.load(Path(json.loads(done.stdout)["folder"])).mininet
    port = "s1-p4"  # to the spine
    bound = real.promised[port]
    assert bound is not None
    assert bound <= 48
    assert 0 < real.deepest[port] <= bound + real.resends  # how many meet depends on the machine
    if not real.resends:
        assert real.broken == []
    assert_in_time(real)


@pytest.mark.long
@pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")
@pytest.mark.parametrize(
    ("job", "strategies", "roots"),
    [
        ({"workers": ["h1", "h2", "h3"]}, ["widest"], [{"s1", "s2", "s3", "s4"}]),
        ({"workers": ["h1", "h3"], "servers": ["h2", "h4"]}, ["ps", "widest"], [{"h2"}, {"h4"}]),
    ],
    ids=["switch", "servers"],
)
def test_other_roots_than_one_server_give_the_same_bits(
    job: dict[str, Any], strategies: list[str], roots: list[set[str]], run_file: Path
) -> None:
    job = {**job, "window": 8, "slots": 16}
    run_file.write_text(yaml.safe_dump({**RUN, "job": job, "background": [], "strategies": strategies}))
    command = [*WEIR, "run", str(run_file), "--fabric", "mininet", "--out", str(run_file.parent / "runs"), "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    record = RunRecord.load(Path(json.loads(done.stdout)["folder"]))
    assert [real.strategy for real in record.mininet] == strategies
    for virtual, real in zip(record.results, record.mininet, strict=True):
        assert len(real.sums) == 4
        assert (real.sums, real.weights) == (virtual.sums, virtual.weights)
        assert real.weights == record.reference_weights
        for result in (virtual, real):
            for tree, possible in zip(result.trees, roots, strict=True):
                (root,) = set(tree.values()) - tree.keys()
                assert root in possible
                assert set(job["workers"]) <= tree.keys()


@pytest.mark.long
@pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_and_leaves_nothing(number: signal.Signals, run_file: Path) -> None:
    """A terminal sends Ctrl-C's SIGINT to the whole group; the job's processes are not to complain of it."""
    run_file.write_text(yaml.safe_dump({**RUN, "training": {"hidden": 4, "steps": 100_000}, "strategies": ["ps"]}))
    mark = f"WEIR_TEST_MARK={run_file.parent}"
    code = (
        "import asyncio, sys; from pathlib import Path; from weir.experiments.config import RunConfig;"
        "from weir.experiments.backends.mininet import run_in_mininet;"
        "from weir.experiments.records.record import StrategyResult;"
        "from weir.topologies.mininet.fabric import MininetFabric;"
        "config = RunConfig.load(Path(sys.argv[1]));"
        "virtual = StrategyResult.model_construct(strategy='ps', iteration_ns=[1] * config.training.steps)\n"
        "with MininetFabric(config.topology) as fabric:\n"
        "    asyncio.run(run_in_mininet(config, virtual, fabric, 1, lambda steps: print(steps, flush=True)))"
    )
    with started([*IN_ITS_OWN_NETWORK, "-c", code, str(run_file)], run_file.parent) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if not any(int(line) for line in process.stdout):  # the workers have completed a step
            raise AssertionError(process.stderr.read())
        assert sum("weir.experiments.backends.worker_process" in command for command in processes_with(mark)) == 3
        os.killpg(process.pid, number)
        _, complaints = process.communicate(timeout=120)
    assert process.returncode == (128 + number if number == signal.SIGTERM else -number), complaints
    assert "traffic_process" not in complaints
    assert "never retrieved" not in complaints
    assert left_with(mark) == []


def test_without_root_it_says_so_before_it_begins(
    run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    config = RunConfig.load(run_file)
    with raises(ExperimentError, place="--fabric mininet", value=None):
        execute(config, tmp_path / "runs", Console(quiet=True), SwitchKind.WEIR)
    assert not (tmp_path / "runs").exists()
