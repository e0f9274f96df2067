"""State that a move, a loss or an end leaves behind: for the next controller, a replacement server, and the hosts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from weir.controller.controller import Controller, ControllerOptions, Message
from weir.controller.jobs.journal_file import JournalError, JournalFile
from weir.controller.p4runtime.session import SwitchSession
from weir.controller.placement import Placement, Problem
from weir.controller.planning.plan import FailurePolicy, JobSpec
from weir.tests.support.fake_switch import FakeSwitch, fake_switches, open_sessions
from weir.topologies.generators import leaf_spine
from weir.topologies.routing import Routes
from weir.wire.control import Abort, Held, Pause, Resume, ServerPlan

FABRIC = leaf_spine(2, 2, 2)
MS = 1_000_000
LEASE = 30 * MS
OPTIONS = ControllerOptions(probe_period_ns=10**12, solve_period_ns=0, retry_ns=20 * MS, lease_ns=LEASE)
WORKERS = ("h1", "h3")


class AtSpine:
    """Everyone sends to s3."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        return at("s3", problem.workers)


def at(switch: str, workers: tuple[str, ...] = WORKERS) -> Placement:
    return Placement(dict.fromkeys(workers, switch), {}, switch)


class RestartRig:
    """One controller after the other, on switches that stay."""

    def __init__(self, sessions: dict[str, SwitchSession], fakes: dict[str, FakeSwitch], journal: Path) -> None:
        self.sessions = sessions
        self.fakes = fakes
        self.path = journal
        self.journal = JournalFile(journal)
        self.controller = self._controller()

    def _controller(self) -> Controller:
        return Controller(FABRIC, Routes(FABRIC), self.sessions, AtSpine(), OPTIONS, journal=self.journal)

    def restart(self) -> None:
        """The controller dies, and the next one goes on from the journal."""
        self.journal.close()
        self.journal = JournalFile(self.path)
        self.controller = self._controller()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RestartRig]:
    names = (switch.name for switch in FABRIC.switches)
    async with fake_switches(names) as fakes, open_sessions(FABRIC, fakes) as sessions:
        rig = RestartRig(sessions, fakes, tmp_path / "journal")
        await rig.controller.start()
        yield rig
        rig.journal.close()


async def test_generations_continue_in_the_next_controller(rig: RestartRig) -> None:
    """Else rounds of the number's last job, which switches still hold, would pass for the new one's."""
    await rig.controller.admit(JobSpec(4, WORKERS), 0)
    rig.controller.moves.begin(4, 0)
    await rig.controller.tick(0)
    for host in WORKERS:
        rig.controller.moves.held(4, host, Held(1, 0))
    await rig.controller.tick(MS)
    assert rig.controller.jobs[4].plan.generation == 2
    await rig.controller.finish(4, MS)
    rig.restart()
    await rig.controller.admit(JobSpec(4, WORKERS), 2 * MS)
    assert rig.controller.jobs[4].plan.generation == 3


async def test_a_crash_during_a_refused_plan_leads_to_a_new_pause(
    rig: RestartRig,
) -> None:
    """The hosts are still in the generation that they are to leave, and would not follow another."""
    await rig.controller.admit(JobSpec(4, WORKERS), 0)
    rig.controller.moves.begin(4, 0, at("s4"))
    await rig.controller.tick(0)
    for host in WORKERS:
        rig.controller.moves.held(4, host, Held(1, 5))
    rig.fakes["s4"].refuse = lambda update: True
    assert await rig.controller.tick(MS) == []
    assert rig.controller.jobs[4].plan.generation == 2  # planned, and not told to anyone
    rig.controller.members.heartbeat(4, "h1", 0, MS)  # news, so that the job is written down as it is now
    assert await rig.controller.tick(2 * MS) == []
    rig.fakes["s4"].refuse = lambda update: False
    rig.restart()
    assert await rig.controller.tick(3 * MS) == [Message(host, Pause(4, 1)) for host in WORKERS]
    for host in WORKERS:
        rig.controller.moves.held(4, host, Held(1, 5))
    resumes = await rig.controller.tick(4 * MS)
    assert [(m.host, m.content.plan.generation) for m in resumes if isinstance(m.content, Resume)] == [
        ("h1", 2),
        ("h3", 2),
    ]


async def test_a_spare_takes_over_where_the_slowest_worker_is(rig: RestartRig) -> None:
    await rig.controller.admit(JobSpec(4, WORKERS, server="h2", spares=("h4",)), 0)
    for host in (*WORKERS, "h2", "h4"):
        rig.controller.members.heartbeat(4, host, 0, 0)
    rig.controller.members.fail(4, "h2", "its disk is full", 0)
    await rig.controller.tick(0)
    rig.controller.moves.held(4, "h1", Held(1, 7))
    rig.controller.moves.held(4, "h3", Held(1, 5))
    (takes_over,) = [m for m in await rig.controller.tick(MS) if isinstance(m.content, ServerPlan)]
    assert takes_over.host == "h4"
    assert isinstance(takes_over.content, ServerPlan)
    assert (takes_over.content.generation, takes_over.content.first_round) == (2, 5)


async def test_a_spare_that_nobody_has_heard_of_does_not_take_over(rig: RestartRig) -> None:
    await rig.controller.admit(JobSpec(4, ("h1",), server="h2", spares=("h3", "h4")), 0)
    for host in ("h1", "h2", "h4"):
        rig.controller.members.heartbeat(4, host, 0, 0)
    rig.controller.members.fail(4, "h2", "its disk is full", 0)
    spec = rig.controller.jobs[4].spec
    assert (spec.server, spec.spares) == ("h4", ("h3",))


async def has_moved(rig: RestartRig) -> None:
    """Job 4, with a server and a spare, has just gone on in generation 2, by the answer that was heard last."""
    await rig.controller.admit(JobSpec(4, WORKERS, server="h2", spares=("h4",)), 0)
    for host in (*WORKERS, "h2", "h4"):
        rig.controller.members.heartbeat(4, host, 0, 0)
    rig.controller.moves.begin(4, 0)
    await rig.controller.tick(0)
    hosts = (*WORKERS, "h2")
    for host in hosts:
        rig.controller.moves.held(4, host, Held(1, 5))
    await rig.controller.tick(MS)
    for host in hosts:
        rig.controller.moves.resumed(4, host, 2, MS)


async def test_a_loss_right_after_a_move_is_not_forgotten(rig: RestartRig) -> None:
    await has_moved(rig)
    rig.controller.members.fail(4, "h3", "its disk is full", MS)
    assert await rig.controller.tick(MS) == [Message(host, Pause(4, 2)) for host in ("h1", "h2")]


async def test_a_spare_replaces_a_server_lost_right_after_a_move(rig: RestartRig) -> None:
    await has_moved(rig)
    rig.controller.members.fail(4, "h2", "its disk is full", MS)
    assert await rig.controller.tick(MS) == [Message(host, Pause(4, 2)) for host in WORKERS]
    for host in WORKERS:
        rig.controller.moves.held(4, host, Held(2, 7))
    (takes_over,) = [m for m in await rig.controller.tick(2 * MS) if isinstance(m.content, ServerPlan)]
    assert (takes_over.host, takes_over.content.generation) == ("h4", 3)  # type: ignore[union-attr]


async def test_a_switch_restarted_right_after_a_move_is_not_forgotten(rig: RestartRig) -> None:
    await has_moved(rig)
    rig.controller.moves.renew(["s3"])
    assert await rig.controller.tick(MS) == [Message(host, Pause(4, 2)) for host in ("h1", "h2", "h3")]


async def test_a_lost_switch_that_is_back_at_a_start_is_used_at_once(rig: RestartRig) -> None:
    rig.journal.put("fabric", "lost", ["s3"])
    session, fake = rig.sessions["s3"], rig.fakes["s3"]
    fake.hangs_up = True
    fake.break_stream()
    async with asyncio.timeout(60):
        while session.is_up:
            await asyncio.sleep(0)
    rig.restart()
    assert rig.controller.switches.lost == {"s3"}
    fake.hangs_up = False
    async with asyncio.timeout(60):
        await session.until_primary()
    await rig.controller.start(MS)
    await rig.controller.admit(JobSpec(4, WORKERS), MS)
    assert rig.controller.jobs[4].plan.placement == at("s3")


async def test_single_messages_are_sent_after_a_failed_journal_write(
    rig: RestartRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.controller.admit(JobSpec(4, WORKERS, policy=FailurePolicy.ABORT), 0)
    rig.controller.members.fail(4, "h1", "its disk is full", 0)
    assert "job 4 is aborted: rank 0 (h1) failed: its disk is full, and the job's policy is to abort" in caplog.text

    def full(journal: JournalFile, kind: str, key: str, value: object) -> None:
        raise JournalError("no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(JournalFile, "put", full)
        with pytest.raises(JournalError):
            await rig.controller.tick(0)
    why = "rank 0 (h1) failed: its disk is full, and the job's policy is to abort"
    assert await rig.controller.tick(MS) == [Message(host, Abort(4, why)) for host in WORKERS]
    assert await rig.controller.tick(2 * MS) == []
