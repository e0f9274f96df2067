"""A controller dies at any moment and another goes on from the journal: jobs are not disturbed, moves are finished."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from weir.controller.controller import Controller, Options
from weir.controller.jobs.journal_file import Journal, JournalError
from weir.controller.p4runtime.session import Pipeline, SwitchSession
from weir.controller.placement import Placement
from weir.controller.placement.strategies import strategy
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.tests.controller.job_rig import MS, Bench, Fixed, make_bench
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint
from weir.topologies.routing import Routes
from weir.wire.control import Pause, Resume

TOPOLOGY = leaf_spine(2, 2, 3, rate_bps=1_000_000_000)
WORKERS = ("h1", "h2", "h4")
SERVER, SPARE = "h5", "h3"
LEASE = 30 * MS
OPTIONS = Options(probe_period_ns=5 * MS, solve_period_ns=0, retry_ns=2 * MS, lease_ns=LEASE, stuck_ns=40 * MS)
AT_SERVER = Placement({"h1": "s1", "h2": "s1", "h4": SERVER}, {"s1": SERVER}, SERVER)
AT_SPINE = Placement(dict.fromkeys(WORKERS, "s3"), {}, "s3")
AGG = strategy("agg")


@pytest.fixture
async def bench(pipeline: Pipeline, tmp_path: Path) -> AsyncIterator[Bench]:
    async with make_bench(TOPOLOGY, pipeline, Fixed(AT_SERVER), OPTIONS, tmp_path / "journal") as bench:
        yield bench


def spec(number: int = 1, **more: object) -> JobSpec:
    how = {"server": SERVER, "slots": 16, "window": 8, **more}
    return JobSpec(number, WORKERS, **how)  # type: ignore[arg-type]


async def restart(bench: Bench) -> Mapping[str, object]:
    await bench.stop_controller()
    return await bench.start_controller(AGG)


async def test_running_jobs_are_not_disturbed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await bench.admit(spec())
    bench.controller.keep(1, {"tokens": {"h1": "secret"}})
    bench.controller.strategy = AGG
    other = await bench.admit(spec(2, slots=1024, window=512))
    third = await bench.admit(JobSpec(3, ("h3", "h6"), SERVER, slots=512, window=64))  # gets less
    bench.submit(job, 1, chunks=200)
    await bench.run(bench.fabric.now_ns + MS)
    assert not bench.is_idle(job)
    before, notes = dict(bench.controller.jobs), [bench.controller.note(number) for number in (1, 2, 3)]
    held = [bench.controller.memory.held(number) for number in (1, 2, 3)]
    writes = []
    monkeypatch.setattr(SwitchSession, "_write_batch", lambda self, updates: writes.append(updates))
    diffs = await restart(bench)
    assert (writes, [diff for diff in diffs.values() if diff]) == ([], [])
    assert set(diffs) == {"s1", "s2", "s3", "s4"}
    monkeypatch.undo()
    assert bench.controller.jobs == before
    assert bench.controller.kept(1) == {"tokens": {"h1": "secret"}}
    assert [bench.controller.note(number) for number in (1, 2, 3)] == notes
    assert [bench.controller.memory.held(number) for number in (1, 2, 3)] == held
    bench.submit(other, 2)
    bench.submit(third, 3)
    await bench.run(bench.fabric.now_ns + 200 * MS, job, other, third)
    for each in (job, other, third):
        assert each.take() == dict.fromkeys(each.workers, each.sum_of())
    assert [plan.generation for plan in bench.controller.jobs.values()] == [1, 1, 1]
    for number in (1, 2, 3):
        await bench.controller.finish(number)
    assert set(bench.controller.memory.jobs_that_fit(1024).values()) == {1}
    await restart(bench)
    assert bench.controller.jobs == {}
    assert await bench.controller.verify() == {}


async def test_what_cannot_be_written_down_is_not_said_and_is_done_once_it_can(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when a worker is lost; nobody would find it stuck."""
    bench.controller.options = replace(OPTIONS, stuck_ns=None)
    bench.controller.strategy = AGG
    job = await bench.admit(spec())
    bench.submit(job, 1)
    await bench.run(6 * MS)
    bench.silent.add("h2")
    bench.submit(job, 2)
    put, refusals = Journal.put, 5

    def full(journal: Journal, kind: str, key: str, value: object) -> None:
        nonlocal refusals
        if kind == "job" and refusals:
            refusals -= 1
            raise JournalError("no space left on device")
        put(journal, kind, key, value)

    said = len(bench.told)
    monkeypatch.setattr(Journal, "put", full)
    while refusals:
        with pytest.raises(JournalError):
            await bench.run(300 * MS, job)
        assert len(bench.told) == said
    await bench.run(300 * MS, job)
    assert set(bench.controller.jobs[1].workers) == {"h1", "h4"}
    sums = job.take(1)
    assert sums["h1"] == sums["h4"] is not None


async def test_many_hosts_that_join_at_once_are_one_line(bench: Bench, tmp_path: Path) -> None:
    await bench.admit(spec())
    await bench.run(6 * MS)
    lines = [line for line in (tmp_path / "journal").read_text().splitlines() if line.startswith('{"job"')]
    assert len(lines) == 2
    assert '"joined":["h1","h2","h4","h5"]' in lines[1]


@pytest.mark.parametrize("messages", [0, 2, 4, 6, 8])
async def test_a_move_is_finished_wherever_the_controller_died_in_it(bench: Bench, messages: int) -> None:
    """It dies when so many of a move's messages have reached their hosts; what it had said since is lost."""
    job = await bench.admit(spec())
    bench.submit(job, 2, chunks=40)
    await bench.run(MS // 2)
    assert not bench.is_idle(job)
    bench.controller.strategy = AGG
    bench.controller.move(1, bench.fabric.now_ns, AT_SERVER)
    tell, left = bench.tell, messages

    def tell_some(message: object) -> None:
        nonlocal left
        content = message.content  # type: ignore[attr-defined]
        if isinstance(content, Pause | Resume):
            if not left:
                return
            left -= 1
        tell(message)  # type: ignore[arg-type]

    bench.tell = tell_some  # type: ignore[method-assign]
    await bench.run(bench.fabric.now_ns + MS)
    await restart(bench)
    bench.tell = tell  # type: ignore[method-assign]
    await bench.run(bench.fabric.now_ns + 300 * MS, job)
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())
    assert await bench.controller.verify() == {}
    plan = bench.controller.jobs[1]
    assert {worker.core.plan.generation for worker in job.workers.values()} == {plan.generation}


async def test_who_died_while_the_controller_was_gone_is_lost_a_lease_later(bench: Bench) -> None:
    job = await bench.admit(spec())
    await bench.run(6 * MS)
    await bench.stop_controller()
    bench.silent.add("h2")
    bench.submit(job, 3)
    await bench.start_controller(AGG)
    await bench.run(bench.fabric.now_ns + 200 * MS, job)
    assert set(bench.controller.jobs[1].workers) == {"h1", "h4"}
    sums = job.take()
    assert sums["h1"] == sums["h4"] is not None


async def test_a_job_that_waits_still_waits_after_a_restart(bench: Bench) -> None:
    job = await bench.admit(spec(policy=FailurePolicy.WAIT))
    await bench.run(6 * MS)
    bench.submit(job, 4, chunks=40)
    await bench.run(bench.fabric.now_ns + MS // 4)
    bench.silent.add("h2")
    await bench.run(100 * MS)
    await restart(bench)
    await bench.run(200 * MS)
    assert "waits for h2 (rank 1), silent" in bench.controller.waiting_for(1, bench.fabric.now_ns)
    bench.silent.clear()
    await bench.run(500 * MS, job)
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())


@pytest.mark.parametrize("fails", ["link", "switch", "both"])
async def test_what_was_down_when_the_controller_died_is_so_until_it_answers(bench: Bench, fails: str) -> None:
    job = await bench.admit(spec())
    await bench.run(6 * MS)
    if fails != "switch":
        bench.fabric.set_link(("s1", 4), up=False)
    if fails != "link":
        await bench.kill_switch("s4")
    bench.submit(job, 5)
    await bench.run(200 * MS)
    down, lost = bench.controller.links_down, bench.controller.lost_switches
    assert (Endpoint("s1", 4) in down, lost) == (fails != "switch", frozenset({"s4"} if fails != "link" else ()))
    before = bench.controller.jobs[1]
    diffs = await restart(bench)
    assert (bench.controller.links_down, bench.controller.lost_switches) == (down, lost)
    assert [diff for diff in diffs.values() if diff] == []
    assert bench.controller.jobs[1] == before
    bench.fabric.set_link(("s1", 4), up=True)
    if fails != "link":
        await bench.restart_switch("s4")
    await bench.run(bench.fabric.now_ns + 100 * MS)
    assert (bench.controller.links_down, bench.controller.lost_switches) == (frozenset(), frozenset())
    bench.submit(job, 6)
    await bench.run(bench.fabric.now_ns + 300 * MS)
    sums = job.take(1)
    if fails == "both":  # s1 was alone: its workers went on without those behind s2
        assert set(bench.controller.jobs[1].workers) == {"h1", "h2"}
        assert sums["h1"] == sums["h2"] is not None
    else:
        assert sums == dict.fromkeys(WORKERS, job.sum_of())


async def test_a_controller_begins_without_a_switch_that_does_not_answer(bench: Bench) -> None:
    await bench.kill_switch("s3")
    await restart(bench)
    job = await bench.admit(spec(server=None))
    bench.submit(job, 6)
    await bench.run(bench.fabric.now_ns + 200 * MS, job)
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())
    assert "s3" not in bench.controller.jobs[1].switches
    await bench.run(bench.fabric.now_ns + 2 * LEASE)
    assert bench.controller.lost_switches == {"s3"}


@pytest.mark.parametrize(
    ("kind", "key", "value", "says"),
    [
        ("fabric", "name", "elsewhere", "it is of the fabric elsewhere, this is leaf-spine"),
        ("job", "4", {"spec": 1}, "job 4 cannot go on: "),
    ],
)
async def test_a_journal_that_does_not_fit_is_refused(
    bench: Bench, tmp_path: Path, kind: str, key: str, value: object, says: str
) -> None:
    with Journal(tmp_path / "other") as journal:
        journal.put(kind, key, value)
        with pytest.raises(JournalError, match=says):
            Controller(TOPOLOGY, Routes(TOPOLOGY), bench.controller.sessions, AGG, OPTIONS, journal=journal)
