"""A schedule played on a rig, and the verdict: every sum exact, the same everywhere, nothing stuck, nothing left."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from weir.controller.placement import Placement, PlacementError, Problem
from weir.controller.planning.plan import JobSpec
from weir.hosts.protocol.worker import WorkerCore
from weir.tests.p4src.emulated_node import AGGREGATION
from weir.tests.schedules.rig import MS, OPTIONS, PACE, Chosen, Control, ScheduleRig
from weir.tests.schedules.schedule import (
    Before,
    Beside,
    Hang,
    Happening,
    Kill,
    KillServer,
    LinkDown,
    MoveTo,
    Restart,
    Schedule,
    draw_tree,
    fabric_named,
    other_key,
)
from weir.tests.schedules.sums import Summing, draw_tensors, draw_wanted
from weir.wire.aggregation import CHUNKS

REST_NS = 100 * MS
"""Until all switches are back, and rid of a job that has ended."""
LIMIT_NS = 3_000 * MS
"""Limit of virtual time: a job that takes longer is stuck."""


@dataclass
class Seen:
    """Events that one or many schedules met; a fault that never happens proves nothing."""

    schedules: int = 0
    sums: int = 0
    generations: int = 0
    longest_ns: int = 0
    """Longest virtual time."""
    hosts: Counter[str] = field(default_factory=Counter)
    switches: Counter[str] = field(default_factory=Counter)
    happenings: Counter[str] = field(default_factory=Counter)

    def __iadd__(self, other: Seen) -> Seen:
        self.schedules += other.schedules
        self.sums += other.sums
        self.generations += other.generations
        self.longest_ns = max(self.longest_ns, other.longest_ns)
        self.hosts += other.hosts
        self.switches += other.switches
        self.happenings += other.happenings
        return self


async def play(schedule: Schedule, worker_core: type[WorkerCore] = WorkerCore) -> Seen:
    """Raises AssertionError when anything is not as it must be."""
    topology, routes = fabric_named(schedule.fabric)
    rng = random.Random(f"play {schedule.seed}")

    def choose(problem: Problem) -> Placement:
        server = problem.server if schedule.server_root else None
        room = [switch.name for switch in topology.switches if problem.takes(switch.name)]
        if not room and server is None:
            raise PlacementError("no switch has room")
        return draw_tree(rng, room, problem.workers, server, max(schedule.depth, server is None))

    rig = ScheduleRig(
        topology,
        Chosen(choose),
        seed=schedule.seed,
        routes=routes,
        options=OPTIONS if schedule.may_stand_still else replace(OPTIONS, stuck_ns=None),
        control=Control(loss=schedule.control_loss),
        pace=replace(PACE, first_round=schedule.first_round),
        poll_ns=schedule.poll_ns,
        link={
            "loss": schedule.loss,
            "duplicate": schedule.duplicate,
            "reorder": schedule.reorder,
            "reorder_ns": schedule.reorder_ns,
        },
        worker_core=worker_core,
        paired_flips=schedule.paired_flips,
    )
    try:
        return await _Play(schedule, rig, rng).run()
    finally:
        rig.close()


class _Play:
    def __init__(self, schedule: Schedule, rig: ScheduleRig, rng: random.Random) -> None:
        self.schedule = schedule
        self.rig = rig
        self.rng = rng
        self.names = schedule.worker_names
        self.spec = JobSpec(
            schedule.job,
            self.names,
            schedule.server_name,
            schedule.slots,
            schedule.window,
            spares=schedule.spares,
            key=schedule.key,
        )
        tensors = draw_tensors(schedule.seed, schedule.sizes, schedule.workers)
        wanted = draw_wanted(schedule.seed, tensors)
        self.summing = Summing(rig, self.spec, tensors, heavy=schedule.heavy, wanted=wanted)
        self.beside: Summing | None = None
        self.waiting = sorted(schedule.happenings, key=lambda h: h.rounds)
        self.seen = Seen(schedules=1)

    async def run(self) -> Seen:
        schedule, rig = self.schedule, self.rig
        if schedule.slots_before:
            self._take_memory()
        await rig.controller.start()
        self._damage()
        if schedule.before is not None:
            await self._come_after(schedule.before)
        begun_ns = rig.now_ns
        await rig.admit(self.spec)
        if schedule.beside is not None:
            await self._stand_beside(schedule.beside)
        for name in self.names:
            self._submit(name, 0)
        await rig.run(lambda: self._finished, LIMIT_NS, repr(schedule), self._look)
        self.seen.longest_ns = rig.now_ns - begun_ns
        self.summing.check()
        self._note()
        if self.beside is not None:
            self.beside.check()
            await rig.finish(self.beside.job)
        await rig.finish(schedule.job)
        rig.controller.planner.memory.retain(0)
        await rig.rest(REST_NS)
        await rig.check_empty()
        return self.seen

    async def _come_after(self, before: Before) -> None:
        """Slots of switches hold rounds of another job when this one begins, and packets of it may be under way."""
        rig, seed = self.rig, self.schedule.seed
        self.seen.happenings[before.how] += 1
        if before.how == "dirty":
            self._make_dirty()
            return
        extra = self.schedule.idle_hosts[:1] if before.extra else ()
        workers = (*self.names, *extra)[-8:]
        spec = replace(self.spec, job=before.job, workers=workers, spares=(), key=other_key(self.spec.key))
        await rig.admit(spec)
        tensors = draw_tensors(seed + 1, (*self.schedule.sizes, 4000), len(spec.workers))
        summing = Summing(rig, spec, tensors)
        summing.submit_all()

        def far_enough() -> bool:
            return max(rig.worker(spec.job, name).rounds_complete for name in spec.workers) >= before.rounds

        await rig.run(far_enough, LIMIT_NS, f"before {self.schedule}", summing.collect)
        if before.how == "ended":
            await rig.finish(spec.job)
        else:
            rig.dismiss(spec.job, but=extra)
            await rig.replace_controller()
            if self.schedule.slots_before:
                self._take_memory()

    def _make_dirty(self) -> None:
        """Every slot has a round of another job, or of a generation of this one that is over for long."""
        rng = np.random.default_rng([self.schedule.seed, 2])
        for switch in self.rig.switches.values():
            assert switch.state is not None
            registers = switch.state.registers
            rounds = registers[f"{AGGREGATION}.slot_round"].values
            count = len(rounds)
            ours = rng.random(count) < 0.5
            others = (self.schedule.job + rng.integers(2, 4, count)) % 0xFFFF + 1
            jobs = np.where(ours, self.schedule.job, others).astype(np.uint64)
            generations = np.where(ours, rng.integers(100, 256, count), rng.integers(1, 4, count)).astype(np.uint64)
            near = self.schedule.first_round + rng.integers(0, 40, count) * rng.integers(0, 2, count)
            slots = np.arange(count) - self.schedule.slots_before
            chunks = near + (slots - near) % self.schedule.slots
            rounds[:] = jobs << 48 | generations << 40 | (chunks % CHUNKS).astype(np.uint64) << 8
            registers[f"{AGGREGATION}.slot_contributors"].values[:] = rng.integers(0, 1 << 8, count)
            for part in ("weight", "exponent", "check"):
                registers[f"{AGGREGATION}.header_sums.{part}"].values[:] = rng.integers(0, 1 << 8, count)
            registers[f"{AGGREGATION}.lane_sums.lane_0"].values[:] = rng.integers(0, 1 << 20, count)

    def _take_memory(self) -> None:
        memory = self.rig.controller.planner.memory
        memory.allot(0, [s.name for s in self.rig.topology.switches], self.schedule.slots_before)

    async def _stand_beside(self, beside: Beside) -> None:
        self.seen.happenings["beside"] += 1
        spec = JobSpec(beside.job, beside.workers, beside.server, beside.slots, beside.slots // 2, key=beside.key)
        await self.rig.admit(spec)
        tensors = draw_tensors(self.schedule.seed + 2, beside.sizes, len(spec.workers))
        self.beside = Summing(self.rig, spec, tensors)
        self.beside.submit_all()

    @property
    def _finished(self) -> bool:
        return self.summing.finished and (self.beside is None or self.beside.finished)

    def _damage(self) -> None:
        damage = self.schedule.damage
        if damage is None:
            return
        topology = self.rig.topology
        if damage.way == "up":
            self.rig.fabric.set_link((self.names[damage.host], 0), corrupt=damage.rate, both=False)
            return
        for link in topology.links:
            for end in link.ends:
                up = damage.way == "everywhere" and topology.is_host(end.node)
                if up or topology.is_host(topology.peer(end).node):
                    self.rig.fabric.set_link(end, corrupt=damage.rate, both=False)

    def _submit(self, name: str, number: int) -> None:
        """Give a worker its next tensor, or all of them."""
        count, gap_ns = len(self.schedule.sizes), self.schedule.gap_ns
        self.summing.submit(name, range(number, number + 1 if gap_ns else count))
        if gap_ns and number + 1 < count:
            self.rig.after(gap_ns, lambda: self._submit(name, number + 1))

    def _look(self) -> None:
        self.summing.collect()
        if self.beside is not None:
            self.beside.collect()
        if not self.waiting:
            return
        job = self.schedule.job
        fastest = max(self.rig.worker(job, name).rounds_complete for name in self.rig.workers(job))
        while self.waiting and self.waiting[0].rounds <= fastest:
            happening = self.waiting.pop(0)
            self.rig.after(happening.delay_ns, lambda happening=happening: self._happen(happening))  # type: ignore[misc]

    def _happen(self, happening: Happening) -> None:
        rig, job = self.rig, self.schedule.job
        if job not in rig.controller.jobs:
            return
        self.seen.happenings[type(happening).__name__] += 1
        match happening:
            case MoveTo(depth=depth, server_root=server_root):
                plan = rig.controller.jobs[job].plan
                server = plan.spec.server if server_root else None
                names = [switch.name for switch in rig.topology.switches]
                tree = draw_tree(self.rng, names, tuple(plan.workers), server, max(depth, server is None))
                rig.controller.moves.begin(job, rig.now_ns, tree)
            case KillServer():
                if (server := rig.controller.jobs[job].plan.spec.server) is not None:
                    rig.kill(server, self._reach(server))
            case Hang(rank=rank, for_ns=for_ns):
                rig.hang(self.names[rank], for_ns, self._reach(self.names[rank]))
            case Kill(rank=rank, whole=whole):
                rig.kill(self.names[rank], self._reach(self.names[rank]) if whole else job)
            case Restart(switch=switch, boot_ns=boot_ns):
                rig.restart(switch, boot_ns)
            case LinkDown(end=end, noticed_ns=noticed_ns, for_ns=for_ns):
                rig.take_down(end, noticed_ns, for_ns)

    def _reach(self, host: str) -> int | None:
        """Job whose process fails with a host; None: all of them. Of the other job one worker must survive."""
        beside = self.schedule.beside
        return self.schedule.job if beside is not None and host == beside.workers[0] else None

    def _note(self) -> None:
        rig, seen = self.rig, self.seen
        seen.sums += len(self.schedule.sizes) * len(rig.workers(self.schedule.job))
        seen.generations += rig.controller.jobs[self.schedule.job].plan.generation
        seen.happenings["paired flips"] += rig.flips.count
        for seat, agent in rig.agents.items():
            counters = agent.core.counters
            assert counters.received == counters.accepted + counters.answered + counters.dropped, seat
            seen.hosts.update(counters.drops)
            seen.hosts["retransmitted"] += counters.retransmitted
        for name in rig.switches:
            seen.switches.update(rig.drops(name))
