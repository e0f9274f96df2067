"""A schedule played on a rig, and the verdict: every sum exact, the same everywhere, nothing stuck, nothing left."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from controller.placement import Placement, PlacementError, Problem
from controller.plan import JobSpec
from hosts import reference_sum
from hosts.quantization import (
    block_exponents,
    chunk_count,
    dequantize,
    quantize,
    scale_table,
    to_chunks,
)
from hosts.tensors import Reduced
from hosts.worker import WorkerCore
from tests.schedules.rig import MS, OPTIONS, PACE, Chosen, Control, Rig
from tests.schedules.schedule import (
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
from wire.aggregation import LANES

REST_NS = 100 * MS
"""Until all switches are back, and rid of a job that has ended."""
LIMIT_NS = 3_000 * MS
"""Of virtual time: a job that takes longer is stuck."""
Tensors = Sequence[Sequence[NDArray[np.float32]]]


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
        self.tensors = schedule.tensors()
        self.names = schedule.worker_names
        self.sums: dict[str, dict[int, Reduced]] = {name: {} for name in self.names}
        self.waiting = sorted(schedule.happenings, key=lambda h: h.rounds)
        self.seen = Seen(schedules=1)

    async def run(self) -> Seen:
        schedule, rig = self.schedule, self.rig
        if schedule.slots_before:
            rig.controller.memory.allot(0, [s.name for s in rig.topology.switches], schedule.slots_before)
        await rig.controller.start()
        self._damage()
        spec = JobSpec(
            schedule.job,
            self.names,
            schedule.server_name,
            schedule.slots,
            schedule.window,
            spares=schedule.spares,
        )
        await rig.admit(spec)
        for name in self.names:
            rig.after(0, lambda name=name: self._submit(name, 0))  # type: ignore[misc]
        await rig.run(self._finished, LIMIT_NS, repr(schedule), self._look)
        self.seen.longest_ns = rig.now_ns
        survivors = rig.workers(schedule.job)
        check_sums(self.tensors, self.names, {name: self.sums[name] for name in survivors})
        self._note(survivors)
        await rig.finish(schedule.job)
        rig.controller.memory.retain(0)
        rest_ns = rig.now_ns + REST_NS
        await rig.run(lambda: rig.now_ns >= rest_ns, LIMIT_NS, f"after the end of {schedule!r}")
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
                if topology.is_host(topology.peer(end).node):
                    self.rig.fabric.set_link((end.node, end.port), corrupt=damage.rate, both=False)

    def _submit(self, name: str, first: int) -> None:
        """Give a worker its next tensor, or all of them."""
        if name in self.rig.dead:
            return
        gap_ns = self.schedule.gap_ns
        rank = self.names.index(name)
        for number in range(first, first + 1 if gap_ns else len(self.tensors)):
            handle = self.rig.worker(name).submit(self.tensors[number][rank], name=f"t{number}", weight=1 << 4 * rank)
            assert handle == number
        self.rig.flush([name])
        self._collect(name)
        if gap_ns and first + 1 < len(self.tensors):
            self.rig.after(gap_ns, lambda: self._submit(name, first + 1))

    def _collect(self, name: str) -> None:
        worker = self.rig.worker(name)
        for handle in worker.pop_finished():
            reduced = worker.take(handle)
            assert reduced is not None
            self.sums[name][handle] = reduced

    def _finished(self) -> bool:
        job = self.schedule.job
        assert job not in self.rig.controller.aborted, self.rig.controller.aborted[job]
        return all(len(self.sums[name]) == len(self.tensors) for name in self.rig.workers(self.schedule.job))

    def _look(self) -> None:
        for name in self.rig.workers(self.schedule.job):
            self._collect(name)
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
                plan = rig.controller.jobs[job]
                server = plan.spec.server if server_root else None
                names = [switch.name for switch in rig.topology.switches]
                tree = draw_tree(self.rng, names, tuple(plan.workers), server, max(depth, server is None))
                rig.controller.move(job, rig.now_ns, tree)
            case KillServer():
                if (server := rig.controller.jobs[job].spec.server) is not None:
                    rig.kill(server)
            case Hang(rank=rank, for_ns=for_ns):
                rig.hang(self.names[rank], for_ns)
            case Kill(rank=rank):
                rig.kill(self.names[rank])
            case Restart(switch=switch, boot_ns=boot_ns):
                rig.restart(switch, boot_ns)
            case LinkDown(end=end, noticed_ns=noticed_ns, for_ns=for_ns):
                rig.take_down(end, noticed_ns, for_ns)

    def _note(self, survivors: Sequence[str]) -> None:
        rig, seen = self.rig, self.seen
        seen.sums += len(self.tensors) * len(survivors)
        seen.generations += rig.controller.jobs[self.schedule.job].generation
        for name, agent in rig.agents.items():
            counters = agent.core.counters
            assert counters.received == counters.accepted + counters.answered + counters.dropped, name
            seen.hosts.update(counters.drops)
            seen.hosts["retransmitted"] += counters.retransmitted
        for name in rig.switches:
            seen.switches.update(rig.drops(name))


def check_sums(tensors: Tensors, names: Sequence[str], sums: dict[str, dict[int, Reduced]]) -> None:
    """All survivors hold the same bits, and these are the exact sum over the workers that the weights tell.

    `sums` is by survivor and tensor. Worker i submitted with weight 16^i, so that the digits of a chunk's weight say
    who is in its sum, and how often.
    """
    everyone = range(len(names))
    alive = {names.index(name) for name in sums}
    for number, arrays in enumerate(tensors):
        one = sums[next(iter(sums))][number]
        for name, mine in sums.items():
            assert mine[number].array.tobytes() == one.array.tobytes(), f"tensor {number} differs at {name}"
            assert mine[number].weights.tobytes() == one.weights.tobytes(), f"weights of tensor {number} differ"
        assert one.array.shape == arrays[0].shape
        assert len(one.weights) == chunk_count(arrays[0].size)
        whole = sum(1 << 4 * rank for rank in everyone)
        if (one.weights == whole).all():
            assert one.array.tobytes() == reference_sum(arrays).tobytes(), f"tensor {number}: wrong sum"
            continue
        padded = np.zeros((len(one.weights), LANES), np.float32)
        padded.reshape(-1)[: one.array.size] = one.array
        for chunk, weight in enumerate(one.weights.tolist()):
            digits = [weight >> 4 * rank & 15 for rank in everyone]
            assert sum(digit << 4 * rank for rank, digit in enumerate(digits)) == weight
            assert set(digits) <= {0, 1}, f"tensor {number}, chunk {chunk}: a worker is in the sum twice: {digits}"
            adding = {rank for rank, digit in enumerate(digits) if digit}
            assert alive <= adding, f"tensor {number}, chunk {chunk}: of {alive}, only {adding} are in the sum"
            assert any(
                padded[chunk].tobytes() == exact.tobytes() for exact in _chunk_sums(arrays, chunk, adding, len(names))
            ), f"tensor {number}, chunk {chunk}: wrong sum over {adding}"


def _chunk_sums(
    arrays: Sequence[NDArray[np.float32]], chunk: int, adding: set[int], workers: int
) -> Iterator[NDArray[np.float32]]:
    """The exact sums of a chunk over `adding`.

    There may be several, since the chunk's exponent was agreed some rounds before, perhaps with workers that were lost
    in between; it sets the scale, hence the rounding.
    """
    scales = scale_table(workers)
    cut = [to_chunks(array, "tensor")[chunk : chunk + 1] for array in arrays]
    exponents = [block_exponents(one, "tensor", one.shape) for one in cut]
    lost = set(range(workers)) - adding
    for agreed in {
        int(max(exponents[rank][0] for rank in adding | set(others)))
        for count in range(len(lost) + 1)
        for others in itertools.combinations(sorted(lost), count)
    }:
        agreed_exponents = np.array([agreed], np.uint8)
        total = sum(quantize(cut[rank], agreed_exponents, scales) for rank in sorted(adding))
        yield dequantize(np.asarray(total, np.int32), agreed_exponents, scales)[0]
