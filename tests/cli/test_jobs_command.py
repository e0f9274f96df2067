"""`weir jobs` against a running control service: register, list, end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from weir.cli import jobs
from weir.cli.controller import switch_addresses
from weir.experiments.errors import ExperimentError
from weir.tests.support.commands import weir_beside
from weir.tests.support.control_rig import ANSWER_S, TOPOLOGY, ServiceRig, rig
from weir.topologies.generators import leaf_spine
from weir.wire import control_pb2 as pb


async def weir(service: ServiceRig, *words: str) -> str:
    """Output of the command, however slow the machine is."""
    patient = ["--wait", "3600"] if "register" in words else []
    status, out, err = await weir_beside("jobs", *words, *patient, "--control", service.service.address)
    assert status == 0, err
    return out


async def test_a_job_is_registered_listed_and_ended() -> None:
    async with rig() as service:
        job = json.loads(await weir(service, "register", "h1", "h2", "--server", "h3", "--policy", "wait", "--json"))
        assert [(seat["host"], seat["rank"]) for seat in job["seats"]] == [("h1", 0), ("h2", 1), ("h3", None)]
        host = service.host()
        await host.say(join={"job": job["job"], "token": job["seats"][0]["token"]})
        await host.hear("joined")
        (listed,) = json.loads(await weir(service, "--json"))
        attending = [(entry["host"], entry["rank"], entry["attending"]) for entry in listed.pop("hosts")]
        assert attending == [("h1", 0, True), ("h2", 1, False), ("h3", None, False)]
        assert listed == {
            "job": job["job"],
            "generation": 1,
            "rounds": 0,
            "slots": 128,
            "window": 31,
            "policy": "wait",
            "switches": [],
            "waiting_for": "waits for rank 1 (h2), server (h3) to join",
            "stripes": [],
            "state": "running",
            "parent": None,
            "report": None,
            "ranking": {
                "order": "fair",
                "place": 1,
                "places": 1,
                "traffic_class": 4,
                "why": "no report yet; counts as one step",
            },
            "turns": None,
            "traffic_class": 1,
            "keeps_class": False,
        }
        shown = await weir(service)  # in a pipe, where tables have 80 columns
        assert "(h2)" in shown
        assert "…" not in shown.replace("(…): not attending", ""), "nothing is cut off"
        assert all(word in shown for word in ("(h3)", "wait ", "128", "the server"))
        plain = await weir(service, "register", "h1", "h2")
        (other,) = [each for each in json.loads(await weir(service, "--json")) if each["job"] != job["job"]]
        number, *_, first, second = [line.strip() for line in plain.splitlines() if line.strip()]
        assert number == f"job {other['job']}: 128 slots, window 62"
        for line, seat in ((first, ["h1", "rank", "0"]), (second, ["h2", "rank", "1"])):
            words = line.split()
            assert words[:3] == seat
            assert len(words) == 4, "the token is whole, in one line"
            assert len(words[3]) == len(job["seats"][0]["token"])
        assert max(len(line) for line in plain.splitlines() if not line.startswith("note: ")) <= 80
        await weir(service, "end", str(other["job"]))
        await weir(service, "end", str(job["job"]), "--reason", "enough")
        assert (await host.hear("ended")).reason == "enough"
        assert await weir(service) == "no jobs\n"


async def test_a_job_of_several_trees_is_registered_and_ended_as_one() -> None:
    async with rig(topology=leaf_spine(2, 2, 1, uplink_rate_bps=500_000_000), placed_by="widest") as service:
        job = json.loads(await weir(service, "register", "h1", "h2", "--stripes", "2", "--json"))
        assert [stripe["share"] for stripe in job["stripes"]] == [128, 128]
        numbers = [stripe["job"] for stripe in job["stripes"]]
        assert numbers[0] == job["job"]
        listed = json.loads(await weir(service, "--json"))
        assert [(entry["job"], entry["stripes"]) for entry in listed] == [
            (number, job["stripes"]) for number in numbers
        ]
        line = (
            f"jobs {numbers[0]}, {numbers[1]} are stripes of one: they share its chunks as 128 : 128, and end together"
        )
        assert line in (await weir(service)).splitlines()
        await weir(service, "end", str(numbers[1]))
        assert await weir(service) == "no jobs\n"
        assert line.split(":")[1] in await weir(service, "register", "h1", "h2", "--stripes", "2")


def test_switch_addresses_follow_the_options() -> None:
    assert switch_addresses(TOPOLOGY, ["s2=10.9.9.9:1"], 50_051) == {"s1": "127.0.0.1:50051", "s2": "10.9.9.9:1"}
    there = switch_addresses(TOPOLOGY, ["s2=10.9.9.9:1"], 50_051, Path("/run/weir"))
    assert there == {"s1": "unix:/run/weir/s1", "s2": "10.9.9.9:1"}
    for wrong in ("s3=127.0.0.1:1", "127.0.0.1:1"):
        with pytest.raises(
            ExperimentError, match=f'--switch "{wrong}" names no switch of leaf-spine; write it like s1='
        ):
            switch_addresses(TOPOLOGY, [wrong], 50_051)


async def test_leading_options_count_and_errors_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs._console, "width", 300)
    async with rig() as service:
        address = service.service.address

        async def weir_jobs(*words: str) -> str:
            status, out, err = await weir_beside("jobs", "--control", address, *words)
            assert status == 0, err
            return out

        job = json.loads(await weir_jobs("--json", "register", "h1", "h2"))
        assert service.controller.jobs.keys() == {job["job"]}
        service.service._seating.waits_for = lambda number, now_ns: "h2 failed: KeyError('[/x] [bold]')"  # type: ignore[method-assign]
        assert "KeyError('[/x] [bold]')" in await weir_jobs()
        monkeypatch.setenv("WEIR_CONTROL", "unix:/nowhere")
        await weir_jobs("end", str(job["job"]))
        assert service.controller.jobs == {}
        monkeypatch.setenv("WEIR_CONTROL", address)
        status, out, _ = await weir_beside("jobs", "--json")
        assert (status, json.loads(out)) == (0, [])


async def test_a_job_is_registered_by_size_and_listed_while_waiting() -> None:
    async with rig() as service:
        job = json.loads(await weir(service, "register", "--count", "3", "--server", "h4", "--json"))
        assert [seat["host"] for seat in job["seats"]] == ["h1", "h2", "h3", "h4"]
        waiting = asyncio.create_task(service.register(worker_count=2, server="h4", job=101))
        while not await service.queued():
            await asyncio.sleep(0.01)
        running, queued = json.loads(await weir(service, "--json"))
        assert (running["state"], queued["state"], queued["job"], queued["position"]) == ("running", "queued", 101, 1)
        assert "2 hosts with 1 accelerator are needed, 0 are free" in await weir(service)
        waiting.cancel()


async def test_a_client_is_told_where_its_queued_job_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_TOLD_AFTER_S", 0.0)
    async with rig() as service:
        await service.register(worker_count=3, server="h4", job=101)
        words = ("register", "--count", "2", "--server", "h4", "--wait", "3600", "--control", service.service.address)
        waiting = asyncio.create_task(weir_beside("jobs", *words))
        while not await service.queued():
            await asyncio.sleep(0.01)
        await service.end(101)
        status, out, err = await waiting
        assert (status, "rank 1" in out) == (0, True)
        assert "weir jobs" in err


async def test_a_job_without_workers_is_no_request() -> None:
    status, _, err = await weir_beside("jobs", "register", "--control", "unix:/nowhere")
    assert (status, "--count" in err) == (2, True)


async def test_a_job_keeps_the_traffic_class_that_it_was_given() -> None:
    async with rig() as service:
        fixed = json.loads(await weir(service, "register", "h1", "h2", "--traffic-class", "5", "--json"))["job"]
        other = json.loads(await weir(service, "register", "h1", "h2", "--json"))["job"]
        classes = {state.job: (state.traffic_class, state.keeps_class) for state in await service.jobs()}
        assert classes == {fixed: (5, True), other: (1, False)}
        (line,) = [line for line in (await weir(service)).splitlines() if "traffic class" in line]
        assert line == f"job {fixed}: traffic class 5 of 5 as long as it runs"
    for wrong in ("0", "6", "high"):
        status, _, err = await weir_beside("jobs", "register", "h1", "h2", "--traffic-class", wrong)
        assert (status, "--traffic-class" in err) == (2, True)


async def test_a_group_cannot_have_a_policy_or_priority_of_its_own() -> None:
    async with rig() as service:
        words = ("register", "h1", "h2", "--policy", "abort", "--priority", "3", "--json")
        parent = str(json.loads(await weir(service, *words))["job"])
        for name, wrong, right in (("policy", "continue", "abort"), ("priority", "0", "3")):
            own = ("jobs", "register", "h1", "--parent", parent, f"--{name}", wrong)
            status, _, err = await weir_beside(*own, "--control", service.service.address)
            assert (status, f"a group has the {name} of job {parent}, {right}" in err) == (2, True), err
        for given in ([], ["--policy", "abort", "--priority", "3"]):
            await weir(service, "register", "h1", "--parent", parent, *given)
        specs = [job.spec for job in service.controller.jobs.values()]
        assert [(spec.policy.value, spec.priority) for spec in specs] == [("abort", 3)] * 3


async def test_jobs_are_shown_with_class_order_stage_and_reason() -> None:
    async with rig(order="grouper") as service:
        registrations = [await service.register(workers=["h1", "h2"]) for _ in range(3)]
        hosts = [[await service.joined(registration, seat) for seat in range(2)] for registration in registrations]
        for host in (host for pair in hosts for host in pair):
            await host.hear("worker_plan")

        async def places(*told: tuple[str, int]) -> dict[int, tuple[int, int]]:
            """Places and classes of the jobs once these stages and steps left are listed."""
            for (first, _), (stage, left) in zip(hosts, told, strict=True):
                await first.say(report=pb.Report(step=5, steps=1, steps_left=left, stage=stage, compute_ns=10**7))
            async with asyncio.timeout(ANSWER_S):
                while True:
                    listed = json.loads(await weir(service, "--json"))
                    shown = [
                        entry["report"] and (entry["report"]["stage"], entry["report"]["steps_left"])
                        for entry in listed
                    ]
                    if shown == list(told) and all(
                        stage in each["ranking"]["why"] for each, (stage, _) in zip(listed, told, strict=True)
                    ):
                        return {
                            entry["job"]: (entry["ranking"]["place"], entry["ranking"]["traffic_class"])
                            for entry in listed
                        }
                    await asyncio.sleep(0.1)

        a, b, c = (registration.job for registration in registrations)
        assert await places(("ann/1", 10), ("bob/1", 50), ("ann/1", 20)) == {a: (1, 4), b: (2, 3), c: (1, 4)}
        assert await places(("ann/2", 90), ("bob/1", 50), ("ann/2", 90)) == {a: (2, 3), b: (1, 4), c: (2, 3)}
        shown = await weir(service)
        assert f"job {b}: place 1 of 2 by grouper, class 4: search bob, bob/1, 50 steps left" in shown
        assert "in turns" not in shown, "without exposed communication nothing is gained"
        for (first, _), (compute, exposed) in zip(hosts, ((10, 10), (30, 5), (10, 11)), strict=True):
            await first.say(report=pb.Report(step=6, steps=1, compute_ns=compute * 10**6, exposed_ns=exposed * 10**6))
        async with asyncio.timeout(ANSWER_S):
            while "in turns" not in (shown := await weir(service)) or f"jobs {a}, {c}:" not in shown:
                await asyncio.sleep(0.1)
        assert (
            f"jobs {a}, {c}: {41 / 21:.2f} times as fast in turns on the same devices, a step of each in 21 ms" in shown
        )


async def test_a_family_is_listed_in_one_line() -> None:
    async with rig() as service:
        first = await service.register(workers=["h1", "h2"], server="h3")
        groups = [await service.register(workers=[host], server="h3", parent=first.job) for host in ("h1", "h2")]
        listed = await weir(service)
        numbers = ", ".join(str(group.job) for group in groups)
        assert f"groups of job {first.job}, with its policy, priority and end: {numbers}\n" in listed
