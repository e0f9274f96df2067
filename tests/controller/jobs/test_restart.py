"""A controller dies at any moment and another goes on from the journal: jobs are not disturbed, moves are finished."""

from __future__ import annotations

import random
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from weir.controller.controller import Controller, ControllerOptions
from weir.controller.jobs.journal_file import JournalError, JournalFile, read_changes
from weir.controller.p4runtime.pipeline import CompiledPipeline
from weir.controller.p4runtime.session import SwitchSession
from weir.controller.placement import Placement
from weir.controller.placement.strategies import strategy
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.tests.controller import pure_rig
from weir.tests.controller.job_rig import MS, Fixed, JobRig, make_rig
from weir.tests.controller.jobs.test_migrator import with_pipes
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Endpoint
from weir.topologies.routing import Routes
from weir.wire.control import Pause, Resume

TOPOLOGY = leaf_spine(2, 2, 3, rate_bps=1_000_000_000)
WORKERS = ("h1", "h2", "h4")
SERVER, SPARE = "h5", "h3"
LEASE = 30 * MS
OPTIONS = ControllerOptions(
    probe_period_ns=5 * MS, solve_period_ns=0, retry_ns=2 * MS, lease_ns=LEASE, stuck_ns=40 * MS
)
AT_SERVER = Placement({"h1": "s1", "h2": "s1", "h4": SERVER}, {"s1": SERVER}, SERVER)
AT_SPINE = Placement(dict.fromkeys(WORKERS, "s3"), {}, "s3")
WIDEST = strategy("widest")


@pytest.fixture
async def rig(pipeline: CompiledPipeline, tmp_path: Path) -> AsyncIterator[JobRig]:
    async with make_rig(TOPOLOGY, pipeline, Fixed(AT_SERVER), OPTIONS, tmp_path / "journal") as rig:
        yield rig


def spec(number: int = 1, **more: object) -> JobSpec:
    how = {"server": SERVER, "slots": 16, "window": 8, **more}
    return JobSpec(number, WORKERS, **how)  # type: ignore[arg-type]


async def restart(rig: JobRig) -> Mapping[str, object]:
    await rig.stop_controller()
    return await rig.start_controller(WIDEST)


async def test_running_jobs_are_not_disturbed(rig: JobRig, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await rig.admit(spec())
    rig.controller.jobs.keep(1, {"tokens": {"h1": "secret"}})
    rig.controller.planner.strategy = WIDEST
    other = await rig.admit(spec(2, slots=1024, window=512))
    third = await rig.admit(JobSpec(3, ("h3", "h6"), SERVER, slots=512, window=64))  # gets less
    rig.submit(job, 1, chunks=200)
    await rig.run(rig.fabric.now_ns + MS)
    assert not rig.is_idle(job)
    before = {number: running.plan for number, running in rig.controller.jobs.items()}
    notes = [rig.controller.jobs[number].note for number in (1, 2, 3)]
    held = [rig.controller.planner.memory.held(number) for number in (1, 2, 3)]
    writes = []
    monkeypatch.setattr(SwitchSession, "_write_batch", lambda self, updates: writes.append(updates))
    diffs = await restart(rig)
    assert (writes, [diff for diff in diffs.values() if diff]) == ([], [])
    assert set(diffs) == {"s1", "s2", "s3", "s4"}
    monkeypatch.undo()
    assert {number: running.plan for number, running in rig.controller.jobs.items()} == before
    assert rig.controller.jobs[1].kept == {"tokens": {"h1": "secret"}}
    assert [rig.controller.jobs[number].note for number in (1, 2, 3)] == notes
    assert [rig.controller.planner.memory.held(number) for number in (1, 2, 3)] == held
    rig.submit(other, 2)
    rig.submit(third, 3)
    await rig.run(rig.fabric.now_ns + 200 * MS, job, other, third)
    for each in (job, other, third):
        assert each.take() == dict.fromkeys(each.workers, each.sum_of())
    assert [running.plan.generation for running in rig.controller.jobs.values()] == [1, 1, 1]
    for number in (1, 2, 3):
        await rig.controller.finish(number)
    assert set(rig.controller.planner.memory.jobs_that_fit(1024).values()) == {1}
    await restart(rig)
    assert rig.controller.jobs == {}
    assert await rig.controller.verify() == {}


@pytest.mark.parametrize(
    "journal",
    ["another's in between", *(pytest.param(journal, marks=pytest.mark.long) for journal in ("none", "deleted"))],
)
async def test_a_controller_that_forgot_lets_no_old_sum_out(rig: JobRig, tmp_path: Path, journal: str) -> None:
    """Same number, hosts and slots: rounds of the old job would pass for complete ones of the new."""
    rig.controller.planner.strategy = Fixed(AT_SPINE)
    old = await rig.admit(spec(7))
    rig.submit(old, 1, chunks=4)
    await rig.run(rig.fabric.now_ns + 200 * MS, old)
    assert old.take() == dict.fromkeys(WORKERS, old.sum_of())
    in_force = rig.controller.jobs[7].plan.generation
    if journal == "deleted":
        await rig.controller.finish(7)
    await rig.stop_controller()
    match journal:
        case "none":
            rig.journal = None
        case "deleted":
            (tmp_path / "journal").unlink()
        case _:
            rig.journal = tmp_path / "other"
            await rig.start_controller(Fixed(AT_SPINE))
            await rig.stop_controller()
            rig.journal = tmp_path / "third"
    await rig.start_controller(Fixed(AT_SPINE))
    assert not rig.controller.jobs
    new = await rig.admit(spec(7))
    rig.submit(new, 2, chunks=4)
    assert new.sum_of() != old.sum_of()
    await rig.run(rig.fabric.now_ns + 200 * MS, new)
    assert new.take() == dict.fromkeys(WORKERS, new.sum_of())
    if journal == "none":  # hosts of the old job may not know yet that it is no more
        assert rig.controller.jobs[7].plan.generation != in_force


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, *range(100, 130)])
async def test_a_controller_that_forgets_lets_no_wrong_sum_out(pipeline: CompiledPipeline, seed: int) -> None:
    """Again and again, with a job under way or done, whose packets are still in the fabric and its hosts gone."""
    rng = random.Random(seed)
    async with make_rig(TOPOLOGY, pipeline, Fixed(AT_SPINE), OPTIONS) as rig:
        for _ in range(6):
            rig.controller.planner.strategy = Fixed(rng.choice([AT_SPINE, AT_SERVER]))
            job = await rig.admit(spec(7))
            rig.submit(job, rng.randrange(1 << 30), chunks=rng.choice([1, 4, 20]))
            to_its_end = rng.random() < 0.5
            await rig.run(rig.fabric.now_ns + (400 * MS if to_its_end else rng.randrange(1, 300_000)), job)
            sums, right = job.take(), job.sum_of()
            assert set(sums.values()) <= {None, right}
            if to_its_end:
                assert sums == dict.fromkeys(WORKERS, right)
            await rig.stop_controller()
            await rig.start_controller(Fixed(AT_SPINE))


async def test_a_job_survives_another_controllers_use_of_its_switches(rig: JobRig, tmp_path: Path) -> None:
    """That one knew nothing of the job, took its entries away and used its number."""
    rig.controller.planner.strategy = Fixed(AT_SPINE)
    job = await rig.admit(spec(7))
    rig.submit(job, 1)
    await rig.run(rig.fabric.now_ns + 200 * MS, job)
    await rig.stop_controller()
    rig.journal = None
    await rig.start_controller(Fixed(AT_SPINE))
    await rig.stop_controller()
    rig.journal = tmp_path / "journal"
    await rig.start_controller(Fixed(AT_SPINE))
    rig.submit(job, 2)
    await rig.run(rig.fabric.now_ns + 200 * MS, job)
    assert job.take(1) == dict.fromkeys(WORKERS, job.sum_of())
    assert rig.controller.jobs[7].plan.generation == 2
    assert await rig.controller.verify() == {}


async def test_changes_that_cannot_be_journalled_wait_until_they_can(
    rig: JobRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full when a worker is lost; the loss must not be forgotten."""
    rig.controller.moves.options = replace(OPTIONS, stuck_ns=None)
    rig.controller.planner.strategy = WIDEST
    job = await rig.admit(spec())
    rig.submit(job, 1)
    await rig.run(6 * MS)
    rig.silent.add("h2")
    rig.submit(job, 2)
    put, refusals = JournalFile.put, 5

    def full(journal: JournalFile, kind: str, key: str, value: object) -> None:
        nonlocal refusals
        if kind == "job" and refusals:
            refusals -= 1
            raise JournalError("no space left on device")
        put(journal, kind, key, value)

    said = len(rig.told)
    monkeypatch.setattr(JournalFile, "put", full)
    while refusals:
        with pytest.raises(JournalError):
            await rig.run(300 * MS, job)
        assert len(rig.told) == said
    await rig.run(300 * MS, job)
    assert set(rig.controller.jobs[1].plan.workers) == {"h1", "h4"}
    sums = job.take(1)
    assert sums["h1"] == sums["h4"] is not None


async def test_many_hosts_that_join_at_once_are_one_line(rig: JobRig, tmp_path: Path) -> None:
    await rig.admit(spec())
    await rig.run(6 * MS)
    changes, _ = read_changes((tmp_path / "journal").read_bytes(), "journal")
    records = [value for kind, _, value in changes if kind == "job"]
    assert len(records) == 2
    assert records[1]["joined"] == ["h1", "h2", "h4", "h5"]


@pytest.mark.parametrize(
    "messages", [6, *(pytest.param(messages, marks=pytest.mark.long) for messages in (0, 2, 4, 8))]
)
async def test_a_move_is_finished_wherever_the_controller_died_in_it(rig: JobRig, messages: int) -> None:
    """The controller dies when this number of a move's messages have reached their hosts; later messages are lost."""
    job = await rig.admit(spec())
    await rig.run(500 * MS)
    rig.submit(job, 2, chunks=40)
    await rig.run(rig.fabric.now_ns + MS // 2)
    assert not rig.is_idle(job)
    rig.controller.planner.strategy = WIDEST
    rig.controller.moves.begin(1, rig.fabric.now_ns, AT_SERVER)
    tell, left = rig.tell, messages

    def tell_some(message: object) -> None:
        nonlocal left
        content = message.content  # type: ignore[attr-defined]
        if isinstance(content, Pause | Resume):
            if not left:
                return
            left -= 1
        tell(message)  # type: ignore[arg-type]

    rig.tell = tell_some  # type: ignore[method-assign]
    await rig.run(rig.fabric.now_ns + MS)
    await restart(rig)
    rig.tell = tell  # type: ignore[method-assign]
    await rig.run(rig.fabric.now_ns + 300 * MS, job)
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())
    assert await rig.controller.verify() == {}
    plan = rig.controller.jobs[1].plan
    assert {worker.core.plan.generation for worker in job.workers.values()} == {plan.generation}
    assert max(rig.controller.moves.pauses_ns, default=0) < 300 * MS  # by these moves are weighed


async def test_a_host_that_died_in_the_gap_is_lost_a_lease_later(rig: JobRig) -> None:
    job = await rig.admit(spec())
    await rig.run(6 * MS)
    await rig.stop_controller()
    rig.silent.add("h2")
    rig.submit(job, 3)
    await rig.start_controller(WIDEST)
    await rig.run(rig.fabric.now_ns + 200 * MS, job)
    assert set(rig.controller.jobs[1].plan.workers) == {"h1", "h4"}
    sums = job.take()
    assert sums["h1"] == sums["h4"] is not None


async def test_the_next_controller_waits_for_hosts_yet_to_join(rig: JobRig) -> None:
    """No lease runs for a worker that has not joined."""
    rig.silent.add("h4")
    job = await rig.admit(spec())
    await rig.run(6 * MS)
    await restart(rig)
    await rig.run(rig.fabric.now_ns + 5 * LEASE)
    assert set(rig.controller.jobs[1].plan.workers) == set(WORKERS)
    assert rig.controller.jobs[1].joined == {"h1", "h2", SERVER}
    rig.silent.clear()
    rig.submit(job, 6)
    await rig.run(rig.fabric.now_ns + 500 * MS, job)
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())


async def test_a_job_that_waits_still_waits_after_a_restart(rig: JobRig) -> None:
    job = await rig.admit(spec(policy=FailurePolicy.WAIT))
    await rig.run(6 * MS)
    rig.submit(job, 4, chunks=40)
    await rig.run(rig.fabric.now_ns + MS // 4)
    rig.silent.add("h2")
    await rig.run(100 * MS)
    await restart(rig)
    await rig.run(200 * MS)
    assert "waits for rank 1 (h2), silent" in rig.controller.jobs.waiting_for(1, rig.fabric.now_ns)
    rig.silent.clear()
    await rig.run(500 * MS, job)
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())


@pytest.mark.parametrize(
    "fails", ["both", *(pytest.param(fails, marks=pytest.mark.long) for fails in ("link", "switch"))]
)
async def test_links_down_at_a_crash_stay_down_until_they_answer(rig: JobRig, fails: str) -> None:
    job = await rig.admit(spec())
    await rig.run(6 * MS)
    if fails != "switch":
        rig.fabric.set_link(("s1", 4), up=False)
    if fails != "link":
        await rig.kill_switch("s4")
    rig.submit(job, 5)
    await rig.run(200 * MS)
    down, lost = rig.controller.prober.link_watch.down, rig.controller.switches.lost
    assert (Endpoint("s1", 4) in down, lost) == (fails != "switch", frozenset({"s4"} if fails != "link" else ()))
    before = rig.controller.jobs[1].plan
    diffs = await restart(rig)
    assert (rig.controller.prober.link_watch.down, rig.controller.switches.lost) == (down, lost)
    after = rig.controller.jobs[1].plan
    if fails == "both":  # no way is left, and the plan is laid by all ways again: which was lost first, nobody knows
        assert (after.spec, after.placement, after.generation) == (before.spec, before.placement, before.generation)
    else:
        assert [diff for diff in diffs.values() if diff] == []
        assert after == before
    rig.fabric.set_link(("s1", 4), up=True)
    if fails != "link":
        await rig.restart_switch("s4")
    await rig.run(rig.fabric.now_ns + 100 * MS)
    assert (rig.controller.prober.link_watch.down, rig.controller.switches.lost) == (frozenset(), frozenset())
    rig.submit(job, 6)
    await rig.run(rig.fabric.now_ns + 300 * MS)
    sums = job.take(1)
    if fails == "both":  # s1 was alone: its workers went on without those behind s2
        assert set(rig.controller.jobs[1].plan.workers) == {"h1", "h2"}
        assert sums["h1"] == sums["h2"] is not None
    else:
        assert sums == dict.fromkeys(WORKERS, job.sum_of())


@pytest.mark.parametrize(
    ("workers", "port"), [pytest.param(("h1", "h2"), 8, marks=pytest.mark.long), (("h1", "h3"), 136)]
)
async def test_a_job_on_a_chip_survives_changed_pipes(
    pipeline: CompiledPipeline, tmp_path: Path, workers: tuple[str, ...], port: int
) -> None:
    """A down link makes the children come in by several pipes, or only then by one: the job moves, or stays."""
    topology, splits = with_pipes(), port == 8
    before = pure_rig.PureRig(topology, OPTIONS, path=tmp_path / "journal")
    down = frozenset({Endpoint("s1", port), topology.peer(Endpoint("s1", port))})
    if not splits:
        before.planner.update_topology(down, ())
    plan = before.add(JobSpec(1, workers, slots=16, window=8), Placement(dict.fromkeys(workers, "s1"), {}, "s1")).plan
    before.jobs.journal.change(1)
    before.jobs.write_journal()
    before.jobs.journal.write_fabric(down, ())
    sessions = {
        node.name: SwitchSession(node.name, "127.0.0.1:1", device_id=node.device_id, pipeline=pipeline)
        for node in topology.switches
    }
    shutil.copy(tmp_path / "journal", tmp_path / "left")
    with JournalFile(tmp_path / "left") as journal:
        job = Controller(topology, Routes(topology), sessions, WIDEST, OPTIONS, journal=journal).jobs[1]
    assert job.plan == plan
    assert (job.move is not None) == splits


async def test_a_controller_begins_without_an_unresponsive_switch(rig: JobRig) -> None:
    await rig.kill_switch("s3")
    await restart(rig)
    job = await rig.admit(spec(server=None))
    rig.submit(job, 6)
    await rig.run(rig.fabric.now_ns + 200 * MS, job)
    assert job.take() == dict.fromkeys(WORKERS, job.sum_of())
    assert "s3" not in rig.controller.jobs[1].plan.switches
    await rig.run(rig.fabric.now_ns + 2 * LEASE)
    assert rig.controller.switches.lost == {"s3"}


@pytest.mark.parametrize(
    ("kind", "key", "value", "says"),
    [
        ("fabric", "name", "elsewhere", "it is of the fabric elsewhere, this is leaf-spine"),
        (
            "fabric",
            "owner",
            "nobody",
            "the controller's owner cannot be read: .*'nobody'; go on with the version",
        ),
        ("fabric", "owner", 1 << 40, "the controller's owner cannot be read: 1099511627776 is not in 1…1099511627775"),
        ("fabric", "owner", 0, "the controller's owner cannot be read: 0 is not in 1…1099511627775"),
        ("fabric", "owner", [1], "the controller's owner cannot be read: "),
        ("fabric", "down", ["s1-p1"], "the links that were down cannot be read: "),
        ("fabric", "down", [["s1", "p1"]], "the links that were down cannot be read: "),
        ("fabric", "lost", 3, "the switches that were lost cannot be read: "),
        ("number", "four", {"count": 1, "last_used": {}}, "a free number cannot be read: .*'four'"),
        ("number", "4", 7, "the history of number 4 cannot be read: "),
        ("number", "4", {"generations": 7}, "the history of number 4 cannot be read: .*'generations'"),
        ("number", "4", {"count": "many"}, "the history of number 4 cannot be read: "),
        ("number", "4", {"count": 1, "last_used": ["s1"]}, "the history of number 4 cannot be read: "),
        ("job", "4", {"spec": 1}, "job 4 cannot go on: "),
        ("job", "four", {"spec": 1}, "job four cannot go on: "),
        ("job", "4", [], "job 4 cannot go on: "),
    ],
)
def test_a_journal_that_does_not_fit_is_refused(
    pipeline: CompiledPipeline, tmp_path: Path, kind: str, key: str, value: object, says: str
) -> None:
    """The error names the entry, for journals of any version of Weir."""
    sessions = {
        node.name: SwitchSession(node.name, "127.0.0.1:1", device_id=node.device_id, pipeline=pipeline)
        for node in TOPOLOGY.switches
    }
    with JournalFile(tmp_path / "other") as journal:
        journal.put(kind, key, value)
        with pytest.raises(JournalError, match=f"^journal {tmp_path}/other: {says}"):
            Controller(TOPOLOGY, Routes(TOPOLOGY), sessions, WIDEST, OPTIONS, journal=journal)
