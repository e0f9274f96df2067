"""The control service: its guarantees to hosts and operators on registering, attending and ending a job."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import socket
import stat
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
import pytest

from weir.controller.controller import Controller
from weir.controller.errors import ControllerError, NotPrimary
from weir.controller.jobs.journal_file import JournalError
from weir.controller.planning.plan import JobSpec
from weir.controller.service.limits import Limits
from weir.controller.service.runner import Runner
from weir.controller.service.seating import Seating
from weir.controller.service.seats import JobSeats
from weir.controller.service.service import ControlService, claim_path
from weir.hosts.drivers.control_client import ControlClient
from weir.tests.support.control_rig import TOPOLOGY, ServiceRig, certificates, refusal, rig
from weir.tests.support.errors import raises
from weir.tests.support.socket_modes import first_modes
from weir.topologies.generators import leaf_spine
from weir.wire import control_pb2 as pb
from weir.wire.aggregation import MAX_ROUNDS
from weir.wire.control import KEY_BYTES, JobReport, Pacing, Resume, WorkerPlan
from weir.wire.control_messages import ATTEND, REGISTER, read_report, read_to_host, report_message
from weir.wire.frames import BULK_PRIORITY, DSCP_CONTROL

WORKERS = ["h1", "h2"]
SERVER = "h3"


@pytest.fixture
async def service() -> AsyncIterator[ServiceRig]:
    async with rig() as running:
        yield running


async def test_a_job_from_registration_to_its_end(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS, server=SERVER, slots=32)
    seats = [(seat.host, seat.rank if seat.HasField("rank") else None) for seat in registration.seats]
    assert seats == [("h1", 0), ("h2", 1), ("h3", None)]
    assert len({seat.token for seat in registration.seats}) == 3
    assert (registration.slots, registration.window, registration.note) == (32, 16, "")

    first = await service.joined(registration, 0)
    joined = await first.hear("joined")
    assert (joined.host, joined.address) == ("h1", int(TOPOLOGY.host("h1").address))
    assert (joined.heartbeat_ns, joined.heartbeats_to) == (1_000_000_000, 0), "one a second, by this stream"
    waiting = await first.hear("waiting")
    assert waiting.reason == "waits for rank 1 (h2), server (h3) to join"
    server = await service.joined(registration, 2)
    second = await service.joined(registration, 1)

    plan = read_to_host(pb.ToHost(worker_plan=await first.hear("worker_plan")))
    address = int(TOPOLOGY.host(SERVER).address)
    assert isinstance(plan, WorkerPlan)
    members = tuple(int(TOPOLOGY.host(host).address) for host in WORKERS)
    pacing = Pacing(window=16, round_trip_ns=plan.pacing.round_trip_ns)
    assert plan == WorkerPlan(
        *(registration.job, 1, 0, 2, address, 1, 32, 16),
        members=members,
        key=plan.key,
        pacing=pacing,
        presents=True,
    )
    assert pacing.round_trip_ns > 0
    assert len(bytes.fromhex(plan.key)) == KEY_BYTES
    other = read_to_host(pb.ToHost(worker_plan=await second.hear("worker_plan")))
    assert other == replace(plan, rank=1, child_bit=2)
    children = (await server.hear("server_plan")).children
    assert [(child.bit, child.address) for child in children] == [
        (1, int(TOPOLOGY.host("h1").address)),
        (2, int(TOPOLOGY.host("h2").address)),
    ]

    await first.say(heartbeat=pb.Heartbeat(rounds=7, waiting=True))
    await second.say(heartbeat=pb.Heartbeat(rounds=5, waiting=False))
    while (state := (await service.jobs())[0]).rounds < 5:
        await asyncio.sleep(0.01)
    assert [(host.host, host.attending, host.rounds) for host in state.hosts] == [
        ("h1", True, 7),
        ("h2", True, 5),
        ("h3", True, 0),
    ]
    assert (state.job, state.generation, list(state.switches)) == (registration.job, 1, [])

    await service.end(registration.job, "enough")
    for host in (first, second, server):
        assert (await host.hear("ended")).reason == "enough"
        assert await host.end() == (grpc.StatusCode.OK, "")
    assert await service.jobs() == []
    assert service.controller.jobs == {}
    late = await service.joined(registration, 0)
    assert (await late.hear("ended")).reason == "enough"


async def test_reports_of_progress_are_listed_and_kept(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS, server=SERVER)
    first = await service.joined(registration, 0)
    assert not (await service.jobs())[0].HasField("report")
    full = JobReport(4, 6, "warm-up", 0.5, 0.25, 2, 3_000, 2_000, 512)
    for report in (JobReport(2), full):
        await first.say(report=report_message(report))
    while not (state := (await service.jobs())[0]).HasField("report") or state.report.step < 4:
        await asyncio.sleep(0.01)
    assert read_report(state.report) == full
    reports = service.controller.jobs[registration.job].reports
    assert [report for _, report in reports.curve] == [JobReport(2), full]


@pytest.mark.parametrize(("seat", "report"), [(0, {"step": 1, "steps": 0}), (2, {"step": 1, "steps": 1})])
async def test_a_report_that_is_invalid_or_a_servers_ends_its_stream(
    service: ServiceRig, seat: int, report: dict[str, Any]
) -> None:
    registration = await service.register(workers=WORKERS, server=SERVER)
    host = await service.joined(registration, seat)
    await host.say(report=pb.Report(**report))
    code, _ = await host.end()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert not (await service.jobs())[0].HasField("report")


@pytest.mark.parametrize(
    "message",
    [
        {"heartbeat": pb.Heartbeat(rounds=MAX_ROUNDS + 1)},
        {"held": pb.Held(generation=1, first_incomplete=(1 << 64) - 1)},
        {"held": pb.Held(generation=1, complete=[1, MAX_ROUNDS + 1])},
        {"held": pb.Held(generation=1, first_incomplete=2, done=[1, MAX_ROUNDS + 1])},
    ],
)
async def test_a_claim_of_more_rounds_than_may_be_ends_its_stream(service: ServiceRig, message: dict[str, Any]) -> None:
    """Arithmetic on them would fail, and end the controller for all jobs."""
    registration = await service.register(workers=WORKERS)
    host = await service.joined(registration, 0)
    await host.say(heartbeat=pb.Heartbeat(rounds=MAX_ROUNDS))
    await host.say(**message)
    assert (await host.end())[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert (await service.jobs())[0].hosts[0].rounds == MAX_ROUNDS


async def test_workers_that_are_done_wait_for_each_other(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS)
    hosts = [await service.joined(registration, rank) for rank in range(2)]
    for host in hosts:
        await host.hear("worker_plan")
    await hosts[0].say(leave=pb.Leave())
    await hosts[0].say(heartbeat=pb.Heartbeat(rounds=3))
    while (await service.jobs())[0].hosts[0].rounds < 3:
        await asyncio.sleep(0.01)
    await hosts[1].say(leave=pb.Leave())
    for host in hosts:
        assert (await host.hear("ended")).reason == "all workers have left"
    assert service.controller.jobs == {}


async def test_a_job_ends_when_all_but_lost_workers_have_left(service: ServiceRig) -> None:
    """A finished worker need not wait until the job has paused for the others, nor stay for any."""
    registration = await service.register(workers=WORKERS)
    hosts = [await service.joined(registration, rank) for rank in range(2)]
    for host in hosts:
        await host.hear("worker_plan")
        await host.say(resumed=pb.Resumed(generation=1))
    await hosts[0].say(leave=pb.Leave())
    await hosts[0].say(heartbeat=pb.Heartbeat(rounds=3))
    while (await service.jobs())[0].hosts[0].rounds < 3:
        await asyncio.sleep(0.01)
    service.controller.members.fail(registration.job, "h2", "gone", time.monotonic_ns())
    assert (await hosts[0].hear("ended")).reason == "all workers have left"
    assert service.controller.jobs == {}


async def test_a_finished_host_ends_a_job_about_to_drop_the_others(service: ServiceRig) -> None:
    _announce_nothing(service)
    registration = await service.register(workers=WORKERS)
    hosts = [await service.joined(registration, rank) for rank in range(2)]
    for host in hosts:
        await host.hear("worker_plan")
        await host.say(resumed=pb.Resumed(generation=1))
    service.controller.members.fail(registration.job, "h2", "gone", time.monotonic_ns())
    await hosts[0].hear("pause")
    await hosts[0].say(leave=pb.Leave())
    assert (await hosts[0].hear("ended")).reason == "all workers have left"


async def test_the_last_of_a_jobs_hosts_to_join_starts_it(service: ServiceRig) -> None:
    _announce_nothing(service)
    registration = await service.register(workers=WORKERS)
    for host in [await service.joined(registration, rank) for rank in range(2)]:
        assert (await host.hear("worker_plan")).generation == 1


def _announce_nothing(service: ServiceRig) -> None:
    """Else what is looked at twice a second may do what is due at once."""
    (announcing,) = [task for task in service.service._tasks if task.get_name() == "announcements"]
    announcing.cancel()


async def test_a_returning_host_gets_the_unchanged_awaited_event(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS)
    for _ in range(2):
        host = await service.joined(registration, 0)
        assert (await host.hear("waiting")).reason == "waits for rank 1 (h2) to join"


async def test_joining_a_job_that_just_ended_gives_the_reason(service: ServiceRig) -> None:
    _announce_nothing(service)
    registration = await service.register(workers=WORKERS)
    await service.controller.finish(registration.job, time.monotonic_ns())
    late = await service.joined(registration, 0)
    assert (await late.hear("ended")).reason == "no worker is left"
    assert await late.end() == (grpc.StatusCode.OK, "")


async def test_how_the_last_thousand_jobs_ended_is_remembered(service: ServiceRig) -> None:
    """A number that is used again counts from its last end."""
    seating = Seating(service.controller, Mock(Runner), Limits())
    for number in (*range(1, 1_001), 1, 1_001):
        seating.add(JobSeats(number, {}))
        await seating.end(number, "enough", 0)
    assert [*seating.ended] == [*range(3, 1_001), 1, 1_001]


@pytest.mark.parametrize("started", [False, True])
def test_seats_outlive_the_controller(started: bool) -> None:
    """A host that had a plan, as all but spares have in a started job, may hold sums by then."""
    seats = JobSeats.assign(JobSpec(9, ("h1", "h2"), SERVER, spares=("h4",)))
    seats.started, seats.stripes = started, {9: 3, 12: 1}
    again = JobSeats.from_json(9, json.loads(json.dumps(seats.as_json())))
    assert again.as_json() == seats.as_json()
    assert {host for host, seat in again.seats.items() if seat.ran} == ({"h1", "h2", SERVER} if started else set())


async def test_an_awaited_event_is_logged_once_and_the_start_is_kept(
    service: ServiceRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Mock(wraps=service.service._seating.announce)
    monkeypatch.setattr(service.service._seating, "announce", looks)
    begun_s = time.monotonic()
    registration = await service.register(workers=WORKERS)

    def kept() -> bool:
        seats = service.controller.jobs[registration.job].kept
        return JobSeats.from_json(registration.job, seats).started

    first = await service.joined(registration, 0)
    assert (await first.hear("waiting")).reason == "waits for rank 1 (h2) to join"
    await asyncio.sleep(1.2)  # two looks more
    assert not kept()
    assert looks.call_count <= 1 + (time.monotonic() - begun_s) / 0.5
    await service.joined(registration, 1)
    told = []
    message = await first.call.read()
    while isinstance(message, pb.ToHost) and message.WhichOneof("content") == "waiting":
        told.append(message.waiting.reason)
        message = await first.call.read()
    assert isinstance(message, pb.ToHost)
    assert told in ([], ["waits for rank 1 (h2) to join"]), "the second time if a look came between register and join"
    assert message.WhichOneof("content") == "worker_plan"
    while not kept():
        await asyncio.sleep(0.01)


async def test_hosts_get_plans_only_after_they_are_journalled(service: ServiceRig) -> None:
    """Under any load: the next controller must not answer for running hosts as if they did not run."""
    registration = await service.register(workers=WORKERS)
    running = service.controller.jobs[registration.job]
    done = asyncio.Event()

    async def busy(now_ns: int) -> None:
        await done.wait()

    working = asyncio.create_task(service.service._runner.call(busy))
    hosts = [await service.joined(registration, rank) for rank in range(2)]
    for host in hosts:
        await host.hear("joined")
    plans = [asyncio.create_task(host.hear("worker_plan")) for host in hosts]
    await asyncio.wait(plans, timeout=0.1)
    assert [plan.done() for plan in plans] == [False, False]
    done.set()
    await working
    await asyncio.gather(*plans)
    assert JobSeats.from_json(registration.job, running.kept).started
    assert running.joined == {*WORKERS}


async def test_a_job_starts_when_that_can_be_written_down(service: ServiceRig, monkeypatch: pytest.MonkeyPatch) -> None:
    _announce_nothing(service)
    registration = await service.register(workers=WORKERS)
    runner, announce = service.service._runner, service.service._seating.announce

    def full() -> None:
        raise JournalError("journal: No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(service.controller.jobs, "write_journal", full)
        hosts = [await service.joined(registration, rank) for rank in range(2)]
        for host in hosts:
            await host.hear("joined")
        plans = [asyncio.create_task(host.hear("worker_plan")) for host in hosts]
        with pytest.raises(JournalError):
            await runner.call(announce)
        await asyncio.wait(plans, timeout=0.1)
        assert [plan.done() for plan in plans] == [False, False]
        assert not service.controller.jobs[registration.job].kept["started"], "nor does a later record say so"
    await runner.call(announce)
    assert [plan.generation for plan in await asyncio.gather(*plans)] == [1, 1]


@pytest.mark.parametrize("joins", ["after the move", "in the middle of it"])
async def test_a_job_moved_before_its_start_begins_at_its_new_place(joins: str) -> None:
    """Those present have no plan to leave, so they receive no request to leave one."""
    async with rig(placed_by="widest") as service:
        registration = await service.register(workers=WORKERS, server=SERVER)
        running = service.controller.jobs[registration.job]
        hosts = [await service.joined(registration, seat) for seat in (0, 2)]
        held_up = joins == "in the middle of it"
        for switch in service.switches.values():
            switch.refuse = lambda update: held_up
        service.service._runner.post(lambda now_ns: service.controller.moves.begin(registration.job, now_ns))
        while running.plan.generation == 1 or (running.move is not None and not held_up):
            await asyncio.sleep(0.01)
        hosts.insert(1, await service.joined(registration, 1))
        if held_up:
            await asyncio.sleep(0.1)
            assert running.move is not None
            held_up = False
        for host, kind in zip(hosts, ("worker_plan", "worker_plan", "server_plan"), strict=True):
            kinds = []
            while kind not in kinds:
                message = await host.call.read()
                assert isinstance(message, pb.ToHost)
                kinds.append(message.WhichOneof("content"))
            assert not {"pause", "resume"} & {*kinds}
            assert getattr(message, kind).generation == 2
            await host.say(resumed=pb.Resumed(generation=2))


async def test_a_job_starts_without_those_whom_it_has_lost_before(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS)
    first = await service.joined(registration, 0)
    await first.hear("waiting")
    service.service._runner.post(
        lambda now_ns: service.controller.members.fail(registration.job, "h2", "no way leads to it", now_ns)
    )
    assert (await first.hear("worker_plan")).generation == 2
    second = await service.joined(registration, 1)
    await second.say(heartbeat=pb.Heartbeat())
    assert (
        await second.hear("abort")
    ).reason == "rank 1 (h2) failed: no way leads to it; the job went on without rank 1 (h2)"


IMPOSSIBLE_JOBS: list[tuple[Any, str]] = [
    ({"workers": []}, "one worker at least"),
    ({"workers": ["h1", "h1"]}, "every host once"),
    ({"workers": ["h1", "h9"]}, 'no host "h9"; there are h1, h2, h3, h4'),
    ({"workers": ["h1"], "server": "s1"}, 'no host "s1"'),
    ({"workers": ["h1"], "slots": 48}, "slots 48 is not a power of two"),
    ({"workers": ["h1"], "slots": 65_536}, "slots 65536 is not a power of two in 2…32768"),
    ({"workers": ["h1"], "slots": 16, "window": 9}, "window 9 is not in 1…8"),
    ({"workers": ["h1"], "job": 65_536}, "a job's number is 1…65535"),
    ({"workers": ["h1"], "policy": 7}, "policy 7 is unknown; supported: CONTINUE, WAIT, ABORT"),
    ({"workers": ["h1"], "min_workers": 2}, "min_workers 2 is not in 1…1"),
    ({"workers": ["h1"], "stripes": 17}, "stripes 17 is not in 1…16"),
    (
        {"workers": ["h1"], "server": "h2", "stripes": 2},
        "stripes have switches as roots; leave out server h2, or stripes",
    ),
    *(
        ({"workers": ["h1"], "weight": weight}, f"weight {weight:g} is not in 0.001…1000")
        for weight in (-1.0, 5e-324, 0.0009, 1001.0, 1e308, float("inf"), float("nan"))
    ),
    ({"workers": ["h1"], "priority": 8}, "priority 8 is not in 0…7"),
    *(
        ({"workers": ["h1"], "gradient_bytes": size}, f"{size} is not in 1…1125899906842624")
        for size in ((1 << 50) + 1, (1 << 64) - 1)
    ),
]
"""Fields of a registration, and words of the refusal."""


async def test_an_impossible_job_is_refused(service: ServiceRig) -> None:
    for fields, words in IMPOSSIBLE_JOBS:
        given, details = await refusal(service.register(**fields))
        assert (given, words in details) == (grpc.StatusCode.INVALID_ARGUMENT, True), (fields, details)
        assert service.controller.jobs == {}


async def test_a_job_whose_seats_cannot_be_kept_is_not_there(
    service: ServiceRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(job: int, data: Any) -> None:
        raise ControllerError("journal: no space left on device")

    monkeypatch.setattr(service.controller.jobs, "keep", full)
    given, details = await refusal(service.register(workers=WORKERS, job=9))
    assert (given, details) == (grpc.StatusCode.INTERNAL, "journal: no space left on device")
    assert service.controller.jobs == {}
    assert await service.controller.verify() == {}


async def test_once_the_controller_has_ended_everyone_is_told(
    service: ServiceRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def taken_over(now_ns: int) -> list[Any]:
        raise NotPrimary(("s1",))

    monkeypatch.setattr(service.controller, "tick", taken_over)
    monkeypatch.setattr(Controller, "deadline_ns", 0)
    refused = (grpc.StatusCode.UNAVAILABLE, f"the controller has ended: {NotPrimary(('s1',))}")
    with suppress(NotPrimary):
        await asyncio.wait_for(service.service.wait(), 60)
    assert await refusal(service.register(workers=WORKERS)) == refused
    await service.service.__aexit__(None, None, None)
    assert "the controller has ended: another controller has taken over s1" in caplog.text


async def test_the_end_of_a_service_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async with rig():
        pass
    assert "the controller has ended" not in caplog.text


@pytest.mark.parametrize(("lease_ns", "silence_ms"), [(None, 10_000), (400_000_000, 1_000), (20_000_000_000, 20_000)])
async def test_connections_are_watched_as_closely_as_leases_are(
    monkeypatch: pytest.MonkeyPatch, lease_ns: int | None, silence_ms: int
) -> None:
    """gRPC's options: pings a lease apart, and a lease for their answers, but never less than a second."""
    built = Mock(wraps=grpc.aio.server)
    monkeypatch.setattr(grpc.aio, "server", built)
    async with rig(lease_ns=lease_ns, limits=Limits(first_words_s=2.5)):
        options = dict(built.call_args.kwargs["options"])
    pings = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")
    assert {name: options[name] for name in pings} == dict.fromkeys(pings, silence_ms)
    assert options["grpc.server_handshake_timeout_ms"] == 2_500
    assert options["grpc.max_connection_idle_ms"] == 300_000, "five minutes"


async def test_numbers_are_given_once(service: ServiceRig) -> None:
    await service.register(workers=WORKERS, job=9)
    assert await refusal(service.register(workers=["h4"], job=9)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "job 9 runs already; give every job its own number",
    )
    picked = {(await service.register(workers=["h4"])).job for _ in range(6)}
    assert max(picked) < 1 << 15, "bmv2 takes no multicast group from there on, and a job's number is its group's"
    assert len(picked) == 6
    assert 9 not in picked


async def test_a_picked_number_is_not_of_a_running_or_recent_job(
    service: ServiceRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (5, 6):
        await service.register(workers=WORKERS, job=number)
    await service.end(6)
    drawn = iter([4, 5, 5, 4, 7])
    monkeypatch.setattr(secrets, "randbelow", lambda _: next(drawn))
    assert (await service.register(workers=["h4"])).job == 8
    monkeypatch.setattr(secrets, "randbelow", lambda below: below - 1)
    assert (await service.register(workers=["h4"])).job == (1 << 15) - 1


async def test_no_host_waits_before_it_reported(service: ServiceRig) -> None:
    """Otherwise a worker that left before the others' first heartbeat would be removed from the job at once."""
    registration = await service.register(workers=WORKERS)
    hosts = [await service.joined(registration, rank) for rank in range(2)]
    for host in hosts:
        await host.hear("worker_plan")
    running = service.controller.jobs[registration.job]
    assert {host: progress.rounds for host, progress in running.progress.items()} == dict.fromkeys(WORKERS, 0)
    assert not running.someone_waits


async def test_a_host_without_a_seat_is_refused(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS, job=9)
    cases = [
        (pb.FromHost(join=pb.Join(job=8, token="x")), "NOT_FOUND", "no job 8; there are 9"),
        (pb.FromHost(join=pb.Join(job=9, token="x")), "PERMISSION_DENIED", "the token is none of its seats'"),
        (pb.FromHost(join=pb.Join(job=9)), "PERMISSION_DENIED", "the token is none of its seats'"),
        (pb.FromHost(heartbeat=pb.Heartbeat()), "INVALID_ARGUMENT", "this stream began with heartbeat"),
        (pb.FromHost(), "INVALID_ARGUMENT", "this stream began with nothing"),
    ]
    for message, code, words in cases:
        host = service.host()
        await host.call.write(message)
        given, details = await host.end()
        assert given.name == code
        assert words in details
    host = await service.joined(registration, 0)
    await host.say(join=pb.Join(job=9, token=registration.seats[0].token))
    code_, details = await host.end()
    assert code_ is grpc.StatusCode.INVALID_ARGUMENT
    assert "join has no place in a stream that has begun" in details
    assert await refusal(service.end(8)) == (grpc.StatusCode.NOT_FOUND, "no job 8; there are 9")


async def test_a_host_that_is_not_heard_any_more_is_told(
    service: ServiceRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*what: Any) -> None:
        raise KeyError("of the controller's own making")

    registration = await service.register(workers=WORKERS, job=9)
    host = await service.joined(registration, 0)
    await host.hear("joined")
    monkeypatch.setattr(service.service._seating, "on_message", fail)
    await host.say(heartbeat=pb.Heartbeat())
    code, details = await host.end()
    assert code is grpc.StatusCode.INTERNAL
    assert details.startswith("job 9: rank 0 (h1) is not heard any more, for the controller failed: KeyError(")
    assert "of the controller's own making" in caplog.text


async def test_a_stream_replaced_by_another_is_ignored(service: ServiceRig) -> None:
    """Not even what it had said before it was told so."""
    registration = await service.register(workers=WORKERS)
    join = pb.FromHost(join=pb.Join(job=registration.job, token=registration.seats[0].token))
    said: asyncio.Queue[pb.FromHost] = asyncio.Queue()

    async def speak() -> AsyncIterator[pb.FromHost]:
        yield join
        while True:
            yield await said.get()

    async def join_and_wait() -> AsyncIterator[pb.FromHost]:
        yield join
        await asyncio.Event().wait()

    nobody: Any = None  # the stream only needs its context to abort
    old = service.service.attend(speak(), nobody)
    assert (await anext(old)).WhichOneof("content") == "joined"
    said.put_nowait(pb.FromHost(heartbeat=pb.Heartbeat(rounds=3)))
    while (await service.jobs())[0].hosts[0].rounds < 3:
        await asyncio.sleep(0.01)
    said.put_nowait(pb.FromHost(heartbeat=pb.Heartbeat(rounds=7)))
    new = service.service.attend(join_and_wait(), nobody)
    assert (await anext(new)).WhichOneof("content") == "joined"  # in the same turn of the loop: nobody was heard yet
    while not said.empty():
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (await service.jobs())[0].hosts[0].rounds == 3
    await old.aclose()  # type: ignore[attr-defined]
    await new.aclose()  # type: ignore[attr-defined]
    for _ in range(10):
        await asyncio.sleep(0)
    readers = [task for task in asyncio.all_tasks() if task.get_name().startswith(f"job {registration.job}: ")]
    assert not readers, "nobody reads a stream that is over"


async def test_hosts_have_a_whole_lease_to_return_after_any_start() -> None:
    lease_ns = 600 * 10**9
    async with rig(lease_ns=lease_ns) as service:
        registration = await service.register(workers=WORKERS)
        await service.service.__aexit__(None, None, None)
        controller = service.controller
        for host in WORKERS:  # as `restore_jobs` does at the beginning of a start that takes longer than a lease
            controller.jobs.leases.renew((registration.job, host), time.monotonic_ns() - 2 * lease_ns)
        async with ControlService(controller, address="127.0.0.1:0", allow_anyone=True) as second:
            while (deadline_ns := controller.deadline_ns) < second.now_ns():
                await asyncio.sleep(0.01)  # the first tick
            assert deadline_ns > second.now_ns()
            assert list(controller.jobs.living(registration.job, WORKERS)) == WORKERS
            assert controller.jobs.counts.leases_expired == 0


async def test_bytes_that_are_no_message_harm_nobody(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS)
    host = await service.joined(registration, 0)
    for method in (REGISTER, "/weir.control.v1.Control/Unknown"):
        garbage: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = service.channel.unary_unary(method)
        await refusal(garbage(b"\xff\xff\xff"))
    stream: grpc.aio.StreamStreamCall[bytes, bytes] = service.channel.stream_stream(ATTEND)()
    await stream.write(b"\xff\xff\xff")
    assert await stream.code() is not grpc.StatusCode.OK
    await service.joined(registration, 1)
    await host.hear("worker_plan")


async def test_a_seat_has_one_holder_and_a_lost_stream_may_come_back(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS)
    first = await service.joined(registration, 0)
    again = await service.joined(registration, 0)
    assert (await first.end())[0] is grpc.StatusCode.ABORTED
    other = await service.joined(registration, 1)
    await again.hear("worker_plan")
    await other.hear("worker_plan")
    again.call.cancel()
    once_more = await service.joined(registration, 0)  # the plan was on its way when the stream broke
    await once_more.hear("worker_plan")
    await once_more.say(heartbeat=pb.Heartbeat(rounds=1, waiting=True))
    while not (await service.jobs())[0].hosts[0].rounds:
        await asyncio.sleep(0.01)
    new = await service.joined(registration, 0)  # a process that was started anew
    code, details = await new.end()
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "rank 0 (h1) ran already" in details


async def test_the_others_hear_of_a_silent_worker() -> None:
    async with rig(lease_ns=400_000_000) as service:
        registration = await service.register(workers=["h1", "h2", "h4"], policy=pb.ABORT)
        hosts = [await service.joined(registration, rank) for rank in range(3)]
        for host in hosts:
            assert (await host.hear("joined")).heartbeat_ns == 100_000_000, "four to a lease"
            await host.hear("worker_plan")
            await host.say(heartbeat=pb.Heartbeat(rounds=1, waiting=True))

        async def beat(host: Any) -> None:
            while True:
                await host.say(heartbeat=pb.Heartbeat(rounds=1, waiting=True))
                await asyncio.sleep(0.05)

        beating = [asyncio.create_task(beat(host)) for host in hosts[:2]]
        for host in hosts[:2]:
            abort = await host.hear("abort")
            assert abort.job == registration.job
            assert "h4" in abort.reason
        for task in beating:
            task.cancel()
        while await service.jobs():
            await asyncio.sleep(0.01)
        assert service.controller.jobs == {}


async def test_a_host_that_returns_too_late_gets_the_reason() -> None:
    async with rig(lease_ns=300_000_000) as service:
        registration = await service.register(workers=WORKERS)
        hosts = [await service.joined(registration, rank) for rank in range(2)]
        for host in hosts:
            await host.hear("worker_plan")
        while await service.jobs():
            await asyncio.sleep(0.01)
        for rank in range(2):
            late = await service.joined(registration, rank)
            reason = (await late.hear("abort")).reason
            assert "was silent for 0.3 s" in reason
            assert reason.endswith("no worker is left")


NAN = "InvalidTensor: tensor 'loss': element 3 is nan"


@pytest.mark.parametrize(
    ("policy", "least", "says"),
    [
        (pb.ABORT, 1, f"rank 1 (h2) failed: {NAN}, and the job's policy is to abort"),
        (pb.WAIT, 1, f"rank 1 (h2) failed: {NAN}; it cannot come back, for which the job's policy would wait"),
        (pb.CONTINUE, 2, f"rank 1 (h2) failed: {NAN}; 1 workers are left, and it needs 2"),
    ],
)
async def test_the_others_are_told_at_once_what_a_worker_failed_by(
    service: ServiceRig, policy: int, least: int, says: str
) -> None:
    """No lease is in force here: without the message they would wait for ever."""
    registration = await service.register(workers=WORKERS, server=SERVER, policy=policy, min_workers=least)
    hosts = [await service.joined(registration, seat) for seat in range(3)]
    for host, plan in zip(hosts, ("worker_plan", "worker_plan", "server_plan"), strict=True):
        await host.hear(plan)
        await host.say(resumed=pb.Resumed(generation=1))
    await hosts[1].say(leave=pb.Leave(reason=NAN))
    for host in (hosts[0], hosts[2]):
        assert (await host.hear("abort")).reason == says
        assert await host.end() == (grpc.StatusCode.OK, "")
    assert service.controller.jobs == {}


async def test_hosts_hear_of_a_new_class_and_again_when_they_return(service: ServiceRig) -> None:
    """A host whose stream was broken may have missed the change."""
    registration = await service.register(workers=WORKERS)
    hosts = [await service.joined(registration, rank) for rank in range(2)]
    for host in hosts:
        assert (await host.hear("worker_plan")).traffic_class == BULK_PRIORITY
        await host.say(resumed=pb.Resumed(generation=1))
    service.controller.classify(registration.job, 4, 0)
    for host in hosts:
        assert (await host.hear("traffic_class")).priority == 4
    hosts[0].call.cancel()
    again = service.host()
    await again.say(join=pb.Join(job=registration.job, token=registration.seats[0].token, generation=1))
    assert (await again.hear("traffic_class")).priority == 4


async def test_a_host_seated_again_gets_the_same_plan() -> None:
    async with rig(topology=leaf_spine(2, 2, 2), placed_by="widest") as service:
        registration = await service.register(workers=WORKERS, server=SERVER)
        for kind, number in (("worker_plan", 0), ("server_plan", 2)):
            hosts = [await service.joined(registration, seat) for seat in range(3)]
            first = await hosts[number].hear(kind)
            hosts[number].call.cancel()
            again = await service.joined(registration, number)
            assert await again.hear(kind) == first
            for host in (*hosts, again):
                host.call.cancel()


async def test_a_host_that_fails_before_the_start_can_be_replaced(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS)
    first = await service.joined(registration, 0)
    await first.hear("joined")
    await first.say(leave=pb.Leave(reason=NAN))
    await first.end()
    hosts = [await service.joined(registration, rank) for rank in range(2)]
    for rank, host in enumerate(hosts):
        assert (await host.hear("worker_plan")).rank == rank
    assert service.controller.jobs[registration.job].gone == {}


async def test_an_unfit_plan_at_one_worker_is_reported_at_once(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS, policy=pb.ABORT)
    hosts = [await service.joined(registration, rank) for rank in range(2)]
    for host in hosts:
        await host.hear("worker_plan")
    await hosts[0].say(leave=pb.Leave(reason="cannot bind 10.0.1.1:22341: Address already in use"))
    assert (await hosts[1].hear("abort")).reason.startswith(
        "rank 0 (h1) failed: cannot bind 10.0.1.1:22341: Address already"
    )


async def test_a_spare_that_has_taken_over_and_fails_is_lost_at_once(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS, server=SERVER, spares=["h4"])
    hosts = [await service.joined(registration, seat) for seat in range(4)]
    for host, kind in zip(hosts[:3], ("worker_plan", "worker_plan", "server_plan"), strict=True):
        await host.hear(kind)
        await host.say(resumed=pb.Resumed(generation=1))
    gone = service.controller.jobs[registration.job].gone
    await hosts[2].say(leave=pb.Leave(reason=NAN))
    for host in hosts[:2]:
        await host.hear("pause")
        await host.say(held=pb.Held(generation=1, first_incomplete=1))
    assert (await hosts[3].hear("server_plan")).generation == 2
    for host in (*hosts[:2], hosts[3]):
        await host.say(resumed=pb.Resumed(generation=2))
    assert gone == {"h3": f"server (h3) failed: {NAN}"}
    await hosts[3].say(leave=pb.Leave(reason="its disk is full"))
    async with asyncio.timeout(20):
        while "h4" not in gone:
            await asyncio.sleep(0.01)
    assert gone["h4"] == "server (h4) failed: its disk is full"


async def test_the_next_controller_knows_that_a_spare_has_taken_over(service: ServiceRig) -> None:
    """It then holds sums: after a restart, it is lost to the job. A spare that does not serve yet has none."""
    registration = await service.register(workers=WORKERS, server=SERVER, spares=["h4"])
    hosts = [await service.joined(registration, seat) for seat in range(4)]
    for host, kind in zip(hosts[:3], ("worker_plan", "worker_plan", "server_plan"), strict=True):
        await host.hear(kind)
        await host.say(resumed=pb.Resumed(generation=1))

    def ran_by_then() -> set[str]:
        seats = Seating(service.controller, Mock(Runner), Limits()).jobs[registration.job]
        return {host for host, seat in seats.seats.items() if seat.ran}

    await hosts[3].say(heartbeat=pb.Heartbeat(rounds=1))
    while not (await service.jobs())[0].hosts[3].rounds:
        await asyncio.sleep(0.01)
    assert ran_by_then() == {*WORKERS, SERVER}
    await hosts[2].say(leave=pb.Leave(reason=NAN))
    for host in hosts[:2]:
        await host.hear("pause")
    assert ran_by_then() == {*WORKERS, SERVER}
    for host in hosts[:2]:
        await host.say(held=pb.Held(generation=1, first_incomplete=1))
    await hosts[3].hear("server_plan")
    for host in (*hosts[:2], hosts[3]):
        await host.say(resumed=pb.Resumed(generation=2))
    running = service.controller.jobs[registration.job]
    while running.newcomer is not None:
        await asyncio.sleep(0.01)
    assert ran_by_then() == {*WORKERS, SERVER, "h4"}


@pytest.mark.parametrize("in_mid_move", [False, True])
async def test_a_spare_that_is_started_anew_has_lost_nothing(service: ServiceRig, in_mid_move: bool) -> None:
    """Nor gets it, where it is about to take over, the plan of the generation that the others leave."""
    registration = await service.register(workers=WORKERS, server=SERVER, spares=["h4"])
    hosts = [await service.joined(registration, seat) for seat in range(4)]
    for host, kind in zip(hosts[:3], ("worker_plan", "worker_plan", "server_plan"), strict=True):
        await host.hear(kind)
        await host.say(resumed=pb.Resumed(generation=1))
    await hosts[3].say(heartbeat=pb.Heartbeat(rounds=1))
    while not (await service.jobs())[0].hosts[3].rounds:
        await asyncio.sleep(0.01)
    if not in_mid_move:
        new = await service.joined(registration, 3)
        await new.hear("joined")
    await hosts[2].say(leave=pb.Leave(reason=NAN))
    for host in hosts[:2]:
        await host.hear("pause")
    if in_mid_move:
        new = await service.joined(registration, 3)
        await new.hear("joined")
    for host in hosts[:2]:
        await host.say(held=pb.Held(generation=1, first_incomplete=1))
    assert (await new.hear("server_plan")).generation == 2


@pytest.mark.parametrize("at_ns", [4, 1 << 50])
async def test_an_unattended_job_ends_after_its_time_and_not_before(at_ns: int) -> None:
    """The limit holds for any time of the clock: from 2⁵⁰ − 1 to 2⁵⁰ ns is one nanosecond."""
    async with rig(limits=Limits(unattended_ns=1 << 30)) as service:
        _announce_nothing(service)
        registration = await service.register(workers=WORKERS)
        seating = service.service._seating
        seating.jobs[registration.job].attended_ns = at_ns - 1
        for now_ns, runs in ((at_ns, True), (at_ns + (1 << 30) - 2, True), (at_ns + (1 << 30) - 1, False)):
            await seating._end_unattended(now_ns)
            assert (registration.job in seating.jobs) is runs


async def test_a_failing_journal_does_not_end_the_controller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(limits=Limits(unattended_ns=200_000_000)) as service:
        registration = await service.register(workers=WORKERS)

        def full() -> None:
            raise JournalError("journal: No space left on device")

        with monkeypatch.context() as disk:
            disk.setattr(service.controller, "_write_journal", full)
            while "No space left on device" not in caplog.text:
                await asyncio.sleep(0.05)
            await asyncio.sleep(1)
        while await service.jobs():
            await asyncio.sleep(0.05)
        late = await service.joined(registration, 0)
        assert "no host has attended it" in (await late.hear("ended")).reason
        assert (await service.register(workers=WORKERS)).job


async def test_a_number_is_free_in_the_moment_its_job_is_aborted(service: ServiceRig) -> None:
    first = await service.register(job=7, workers=WORKERS, policy=pb.ABORT)
    hosts = [await service.joined(first, rank) for rank in range(2)]
    for host in hosts:
        await host.hear("worker_plan")

    async def busy(now_ns: int) -> None:
        await asyncio.sleep(0.3)

    working = asyncio.create_task(service.service._runner.call(busy))
    await asyncio.sleep(0.1)
    await hosts[0].say(leave=pb.Leave(reason=NAN))
    await asyncio.sleep(0.1)
    second = await service.register(job=7, workers=["h1", "h4"])
    await working
    assert (await hosts[1].hear("abort")).reason == f"rank 0 (h1) failed: {NAN}, and the job's policy is to abort"
    for rank, host in enumerate([await service.joined(second, rank) for rank in range(2)]):
        assert (await host.hear("worker_plan")).rank == rank


async def test_a_lost_worker_and_the_others_get_their_reasons(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS)
    lost, other = [await service.joined(registration, rank) for rank in range(2)]
    for host in (lost, other):
        await host.hear("worker_plan")
        await host.say(resumed=pb.Resumed(generation=1))
    service.controller.members.fail(registration.job, "h1", "gone", time.monotonic_ns())
    await other.hear("pause")
    await other.say(held=pb.Held(generation=1, first_incomplete=1))
    await other.hear("resume")
    await other.say(resumed=pb.Resumed(generation=2))
    await lost.say(heartbeat=pb.Heartbeat(rounds=1))
    reason = (await lost.hear("abort")).reason
    assert reason == "rank 0 (h1) failed: gone; the job went on without rank 0 (h1)"
    await other.say(leave=pb.Leave())
    assert (await other.hear("ended")).reason == "all workers have left"
    assert service.controller.jobs == {}
    late = [await service.joined(registration, rank) for rank in range(2)]
    assert (await late[0].hear("abort")).reason == reason
    assert (await late[1].hear("ended")).reason == "all workers have left"


async def test_a_worker_that_left_gets_the_reason_of_the_abort(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS, server=SERVER, policy=pb.ABORT)
    hosts = [await service.joined(registration, seat) for seat in range(3)]
    for host, plan in zip(hosts, ("worker_plan", "worker_plan", "server_plan"), strict=True):
        await host.hear(plan)
        await host.say(resumed=pb.Resumed(generation=1))
    await hosts[0].say(leave=pb.Leave())
    await hosts[0].call.done_writing()
    while "h1" not in service.controller.jobs[registration.job].left:
        await asyncio.sleep(0.01)
    await hosts[1].say(leave=pb.Leave(reason=NAN))
    reason = (await hosts[2].hear("abort")).reason
    assert reason.startswith(f"rank 1 (h2) failed: {NAN}")
    late = await service.joined(registration, 0)
    assert (await late.hear("abort")).reason == reason


async def test_how_a_job_ended_is_told_to_its_hosts_alone(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS)
    await service.end(registration.job, "enough")
    stranger = service.host()
    await stranger.say(join=pb.Join(job=registration.job, token="made up"))
    assert (await stranger.end())[0] == grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("again", [False, True])
async def test_the_others_go_on_at_once_without_a_worker_that_fails(service: ServiceRig, again: bool) -> None:
    """Or one that comes back without what it knew."""
    registration = await service.register(workers=WORKERS)
    hosts = [await service.joined(registration, rank) for rank in range(2)]
    for host in hosts:
        await host.hear("worker_plan")
        await host.say(resumed=pb.Resumed(generation=1))
        await host.say(heartbeat=pb.Heartbeat(rounds=1, waiting=True))
    while not all(host.rounds for host in (await service.jobs())[0].hosts):
        await asyncio.sleep(0.01)
    if again:
        code, details = await (await service.joined(registration, 1)).end()
        assert (code, "rank 1 (h2) ran already" in details) == (grpc.StatusCode.FAILED_PRECONDITION, True)
    else:
        await hosts[1].say(leave=pb.Leave(reason=NAN))
    assert (await hosts[0].hear("pause")).generation == 1
    await hosts[0].say(held=pb.Held(generation=1, first_incomplete=1))
    resume = read_to_host(pb.ToHost(resume=await hosts[0].hear("resume")))
    assert isinstance(resume, Resume)
    assert (resume.plan.generation, list(service.controller.jobs[registration.job].plan.workers)) == (2, ["h1"])


@pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:9561", "0.0.0.0:9561", "[::]:9561", "example.org:9561"])
async def test_a_port_without_tls_is_served_only_on_request(service: ServiceRig, address: str) -> None:
    with raises(ControllerError, place="control service", value=address):
        ControlService(service.controller, address=address)
    ControlService(service.controller, address=address, allow_anyone=True)


@pytest.mark.parametrize("address", ["unix:", "9561", "127.0.0.1:99999", "unix:" + 120 * "x"])
async def test_an_address_that_is_none(service: ServiceRig, address: str) -> None:
    with raises(ControllerError, place="control service", value=address):
        ControlService(service.controller, address=address)


async def test_a_port_that_is_taken(service: ServiceRig) -> None:
    with raises(ControllerError, place="control service", value=service.service.address):
        await ControlService(service.controller, address=service.service.address, allow_anyone=True).__aenter__()


async def test_a_path_serves_too(tmp_path: Path) -> None:
    async with rig(address=f"unix:{tmp_path}/new/control") as service:
        assert (await service.register(workers=WORKERS, job=3)).job == 3
        path = tmp_path / "new" / "control"
        assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
        with raises(ControllerError, place="control service", value=f"unix:{path}"):  # nor is it taken away
            await ControlService(service.controller, address=f"unix:{path}").__aenter__()
        assert (await service.jobs())[0].job == 3


async def test_a_path_is_this_users_alone_from_its_first_moment(tmp_path: Path) -> None:
    """The socket accepts connections before its mode is set."""
    folder = tmp_path / "new"
    folder.mkdir(mode=0o755)
    with first_modes() as modes:
        async with rig(address=f"unix:{folder}/control"):
            assert stat.S_IMODE((folder / "control").stat().st_mode) == 0o600
    assert [mode & 0o077 for mode in modes] == [0]


@pytest.mark.parametrize("kept", [{"seats": []}, {"seats": [["h1", 0]], "started": True}, {"seats": 1, "started": 1}])
async def test_seats_of_a_journal_that_are_none_are_refused(service: ServiceRig, kept: dict[str, Any]) -> None:
    """The error names the job, for journals of any version of Weir."""
    registration = await service.register(workers=WORKERS)
    service.controller.jobs.keep(registration.job, kept)
    with pytest.raises(JournalError, match=f"^job {registration.job} cannot go on: "):
        ControlService(service.controller)


async def test_a_job_whose_tokens_nobody_was_told_is_ended(service: ServiceRig) -> None:
    """The controller died between its admission and its seats."""
    await service.controller.admit(JobSpec(9, ("h1", "h2"), SERVER), 0)
    runner = Mock(Runner)
    Seating(service.controller, runner, Limits())
    ((end,), _) = runner.post.call_args
    await end(0)
    assert service.controller.jobs == {}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes the certificates, is not installed")
async def test_with_tls_only_those_with_a_certificate_are_heard(tmp_path: Path) -> None:
    ours, theirs = certificates(tmp_path, "ours"), certificates(tmp_path, "theirs")
    async with rig(tls=ours, client=ours) as service:
        assert (await service.register(workers=WORKERS, job=3)).job == 3
        stranger = replace(theirs, authority=ours.authority)
        for credentials in (None, stranger):
            channel = (
                grpc.aio.insecure_channel(service.service.address)
                if credentials is None
                else grpc.aio.secure_channel(service.service.address, credentials.channel_credentials())
            )
            async with channel:
                call: grpc.aio.UnaryUnaryMultiCallable[pb.RegisterRequest, bytes] = channel.unary_unary(
                    REGISTER, request_serializer=pb.RegisterRequest.SerializeToString
                )
                assert (await refusal(call(pb.RegisterRequest(workers=["h4"]), timeout=5)))[0] is (
                    grpc.StatusCode.UNAVAILABLE
                )
        assert list(service.controller.jobs) == [3]
    with raises(ControllerError, place=f"control service: {tmp_path / 'absent.key'}"):
        async with rig(tls=replace(ours, key=tmp_path / "absent.key")):
            pass


async def test_both_sides_packets_are_of_the_control_class(service: ServiceRig) -> None:
    """Across the fabric they do not wait behind gradients. The rig's own channel does not request this."""

    def ends() -> dict[tuple[int, int], int]:
        """DSCP by the ports of each connection of this process, its own first."""
        found = {}
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as each:
                if each.family in (socket.AF_INET, socket.AF_INET6):
                    ports = each.getsockname()[1], each.getpeername()[1]
                    found[ports] = each.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2
        return found

    await service.jobs()
    port, before = int(service.service.address.rpartition(":")[2]), ends()
    with ControlClient(service.service.address) as client:
        assert await asyncio.to_thread(client.jobs) == []
        (own,) = [ports for ports in ends().keys() - before.keys() if ports[1] == port]
        assert ends()[own] == DSCP_CONTROL
        assert ends()[own[::-1]] == DSCP_CONTROL


async def test_connections_beyond_the_limit_are_closed() -> None:
    """A stranger that opens as many as it can."""
    limits = Limits(connections=3)
    async with rig(limits=limits) as service:
        assert await service.jobs() == []
        host, _, port = service.service.address.rpartition(":")
        with ExitStack() as stack:
            closed = 0
            for _ in range(8):
                reader, writer = await asyncio.open_connection(host, int(port))
                stack.callback(writer.close)
                with suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(0.5):
                        closed += await reader.read(1 << 16) == b""
            assert closed >= 8 - limits.connections
            assert await service.jobs() == []


def test_connections_leave_half_of_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 4096))
    assert (Limits().accepted, Limits(connections=9).accepted) == (128, 9)


@pytest.mark.parametrize("mode", [0o770, 0o757])
async def test_a_socket_that_others_can_replace_is_not_served(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    address = f"unix:{folder}/control"
    with raises(ControllerError, place="control service", value=address):
        claim_path(address)
    folder.chmod(0o1777)  # as the folder for temporary files
    claim_path(address)


async def test_a_host_message_on_which_the_controller_fails_ends_that_job_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig(contains_failures=True) as service:
        broken, other = [await service.register(workers=WORKERS) for _ in range(2)]
        heartbeat = service.controller.members.heartbeat

        def planted(job: int, *arguments: Any, **options: Any) -> None:
            if job == broken.job:
                raise ZeroDivisionError("planted")
            heartbeat(job, *arguments, **options)

        monkeypatch.setattr(service.controller.members, "heartbeat", planted)
        hosts = [await service.joined(broken, rank) for rank in range(2)]
        for host in hosts:
            assert "ZeroDivisionError" in (await host.hear("abort")).reason
        assert [job.job for job in await service.jobs()] == [other.job]
        for host in [await service.joined(other, rank) for rank in range(2)]:
            assert await host.hear("worker_plan")
