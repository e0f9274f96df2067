"""A schedule played on a rig, and the verdict: every sum exact, the same everywhere, nothing stuck, nothing left."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from weir.controller.placement import Placement, PlacementError, Problem
from weir.controller.planning.plan import JobSpec
from weir.hosts.protocol.worker import WorkerCore
from weir.tests.schedules.rig import MS, OPTIONS, PACE, Chosen, Control, Rig
from weir.tests.schedules.schedule import (
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
)
from weir.tests.schedules.sums import Summing, draw_tensors

REST_NS = 100 * MS
"""Until all switches are back, and rid of a job that has ended."""
LIMIT_NS = 3_000 * MS
"""Of virtual time: a job that takes longer is stuck."""


@dataclass
class Seen:
    """What one or many schedules came to meet; a fault that never happens proves nothing."""

    schedules: int = 0
    sums: int = 0
    generations: int = 0
    longest_ns: int = 0
    """Of virtual time."""
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

    rig = Rig(
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
    )
    try:
        return await _Play(schedule, rig, rng).run()
    finally:
        rig.close()


class _Play:
    def __init__(self, schedule: Schedule, rig: Rig, rng: random.Random) -> None:
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
        self.summing = Summing(rig, self.spec, draw_tensors(schedule.seed, schedule.sizes, schedule.workers))
        self.waiting = sorted(schedule.happenings, key=lambda h: h.rounds)
        self.seen = Seen(schedules=1)

    async def run(self) -> Seen:
        schedule, rig = self.schedule, self.rig
        if schedule.slots_before:
            rig.controller.planner.memory.allot(0, [s.name for s in rig.topology.switches], schedule.slots_before)
        await rig.controller.start()
        self._damage()
        await rig.admit(self.spec)
        for name in self.names:
            self._submit(name, 0)
        await rig.run(lambda: self.summing.finished, LIMIT_NS, repr(schedule), self._look)
        self.seen.longest_ns = rig.now_ns
        self.summing.check()
        self._note()
        await rig.finish(schedule.job)
        rig.controller.planner.memory.retain(0)
        await rig.rest(REST_NS)
        await rig.check_empty()
        return self.seen

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
        if not self.waiting:
            return
        fastest = max(self.rig.worker(name).rounds_complete for name in self.rig.workers(self.schedule.job))
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
                    rig.kill(server)
            case Hang(rank=rank, for_ns=for_ns):
                rig.hang(self.names[rank], for_ns)
            case Kill(rank=rank):
                rig.kill(self.names[rank])
            case Restart(switch=switch, boot_ns=boot_ns):
                rig.restart(switch, boot_ns)
            case LinkDown(end=end, noticed_ns=noticed_ns, for_ns=for_ns):
                rig.take_down(end, noticed_ns, for_ns)

    def _note(self) -> None:
        rig, seen = self.rig, self.seen
        seen.sums += len(self.schedule.sizes) * len(rig.workers(self.schedule.job))
        seen.generations += rig.controller.jobs[self.schedule.job].plan.generation
        for name, agent in rig.agents.items():
            counters = agent.core.counters
            assert counters.received == counters.accepted + counters.answered + counters.dropped, name
            seen.hosts.update(counters.drops)
            seen.hosts["retransmitted"] += counters.retransmitted
        for name in rig.switches:
            seen.switches.update(rig.drops(name))
