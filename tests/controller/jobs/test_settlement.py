"""Rounds that a DONE completes, in moves: settlements against plain sets, and jobs that move again and again."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.controller.jobs.migration import MigrationPhase, Move, MoveError, Settlement, settle
from weir.tests.support.errors import raises
from weir.wire.aggregation import MAX_ROUNDS
from weir.wire.control import Child, FinalRound, Held, Pause, Resume, ServerPlan, WorkerPlan

SERVER = 0x0A000901
SEEDS = st.integers(0, 2**32 - 1)


def held(first: int, *beyond: int, done: tuple[int, ...] = (), generation: int = 1) -> Held:
    return Held(generation, first, frozenset(beyond), frozenset(done))


def worker_plan(rank: int, workers: int, slots: int, generation: int) -> WorkerPlan:
    return WorkerPlan(3, generation, rank, workers, 0x0AFF0001, 1 << rank, slots, slots // 2)


def server_plan(slots: int, generation: int) -> ServerPlan:
    return ServerPlan(3, generation, slots, (Child(1, 0x0AFF0001),), 2)


# --- one settlement ---


def complete_rounds(answer: Held) -> set[int]:
    return {*range(answer.first_incomplete), *answer.complete}


def drawn(rng: random.Random, slots: int) -> tuple[dict[int, Held], dict[int, Held]]:
    """Workers' and servers' answers that the window allows."""
    base = rng.choice([0, 1, rng.randrange(5 * slots)])

    def answer(*, ends_by_done: bool) -> Held:
        within = {base + r for r in range(slots // 2) if rng.random() < rng.choice([0.2, 0.5, 0.9])}
        first = base
        while first in within:
            first += 1
        complete = {*range(first), *within}
        last = max(complete, default=-1)
        recent = {r for r in complete if r > last - slots}
        share = rng.choice([0.0, 0.3, 0.8, 1.0]) if ends_by_done else 0.0
        done = frozenset(r for r in recent if rng.random() < share)
        return Held(1, first, frozenset(r for r in within if r > first), done)

    workers = {10 + i: answer(ends_by_done=True) for i in range(rng.randrange(1, 6))}
    servers = {SERVER: answer(ends_by_done=False)} if rng.random() < 0.3 else {}
    return workers, servers


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS, slots=st.sampled_from([2, 4, 8, 16]))
def test_a_settlement_agrees_with_plain_sets(seed: int, slots: int) -> None:
    workers, servers = drawn(random.Random(seed), slots)
    everyone = workers | servers
    complete = {address: complete_rounds(answer) for address, answer in everyone.items()}
    results = {  # that a host still keeps
        address: {r for r in rounds - everyone[address].done if r > max(rounds) - slots}
        for address, rounds in complete.items()
    }
    somewhere = set().union(*complete.values())
    everywhere = set(range(10 * slots)).intersection(*(complete[address] for address in workers))
    again = {r for r in somewhere - everywhere if not any(r in rounds for rounds in results.values())}

    settlement = settle(workers, servers, slots)
    assert settlement.again == tuple(sorted(again))
    for address in workers:
        fetched = settlement.fetches[address]
        assert [final.round for final in fetched] == sorted(somewhere - again - complete[address])
        assert all(final.round in results[final.holder] for final in fetched)
    assert {r for r in range(max(somewhere, default=0) + 2) if settlement.is_final(r)} == somewhere - again
    assert settlement.least == min(answer.first_incomplete for answer in workers.values())
    assert all(r >= settlement.least for r in again), "a server that joins there sums them"
    assert [final.round for final in settlement.newest] == sorted(somewhere - again)[-1:]
    assert all(final.round in complete[final.holder] for final in settlement.newest)
    assert all(max(somewhere) < r + slots // 2 for r in again), "workers keep their numbers for as long"


@pytest.mark.parametrize(
    ("workers", "again", "fetches"),
    [
        # The round is done at 1, its result was lost on the way to 2.
        ({1: held(3, done=(2,)), 2: held(2)}, (2,), {1: (), 2: ()}),
        # 3 holds the result, so 2 fetches it and 1 stays done.
        ({1: held(3, done=(2,)), 2: held(2), 3: held(3)}, (), {1: (), 2: (FinalRound(2, 3),), 3: ()}),
        # All workers are done, the one that wanted the lanes was lost.
        ({1: held(3, done=(1, 2)), 2: held(3, done=(0, 1, 2))}, (), {1: (), 2: ()}),
        # 1 and 5 are lacked by a worker each, 3 by none; 2 is complete nowhere, and 4 is held.
        ({1: held(1, 3, 4, 5, done=(3, 5)), 2: held(2, 3, done=(1, 3))}, (1, 5), {1: (), 2: (FinalRound(4, 1),)}),
    ],
)
def test_rounds_that_no_host_holds_are_summed_again(
    workers: Mapping[int, Held], again: tuple[int, ...], fetches: Mapping[int, tuple[FinalRound, ...]]
) -> None:
    settlement = settle(workers, {}, slots=16)
    assert (settlement.again, settlement.fetches) == (again, fetches)


def test_a_server_holds_what_workers_are_done_with() -> None:
    settlement = settle({1: held(3, done=(2,)), 2: held(2)}, {SERVER: held(3)}, slots=16)
    assert (settlement.again, settlement.fetches) == ((), {1: (), 2: (FinalRound(2, SERVER),)})
    lags = settle({1: held(3, done=(1, 2)), 2: held(3, done=(1, 2))}, {SERVER: held(1)}, slots=16)
    assert (lags.again, lags.newest) == ((), (FinalRound(2, 1),)), "no worker lacks them, so nothing is left to sum"


@pytest.mark.parametrize("first", [5, 6])
def test_the_newest_final_round_is_none_of_those_summed_again(first: int) -> None:
    answers = {1: held(first, 7, 8, done=(5, 8)), 2: held(5)}
    settlement = settle(answers, {}, slots=16)
    assert settlement.newest == (FinalRound(7, 1),)
    assert settlement.again == ((5, 8) if first == 6 else (8,))
    assert not any(map(settlement.is_final, settlement.again))
    settlement = settle({1: held(2, done=(0, 1)), 2: held(0)}, {}, slots=16)
    assert (settlement.newest, settlement.again) == ((), (0, 1))


def test_done_counts_only_for_what_a_host_has_completed_of_late() -> None:
    assert settle({1: held(3, done=(3, 7, MAX_ROUNDS)), 2: held(3)}, {}, slots=4).again == ()
    assert settle({1: held(6, 9, done=(6, 7)), 2: held(6, 9)}, {}, slots=4).again == ()
    with raises(MoveError, value=5):  # 1 has completed 9, so of its last 4 rounds 5 is none
        settle({1: held(6, 9, done=(5,)), 2: held(5)}, {}, slots=4)
    assert settle({1: held(6, 8, done=(5,)), 2: held(5)}, {}, slots=4).again == (5,)


EXTREMES = (0, 1, 2, 5, 8, 63, 64, 65, 1 << 20, 1 << 32, MAX_ROUNDS - 1, MAX_ROUNDS)


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS)
def test_lies_cost_no_memory_and_stop_no_other_move(seed: int) -> None:
    rng, slots = random.Random(seed), 64

    def lie() -> Held:
        first, *numbers = (rng.choice(EXTREMES) for _ in range(rng.randrange(1, 12)))
        cut = rng.randrange(len(numbers) + 1)
        return held(first, *numbers[:cut], done=tuple(numbers[cut:]))

    workers = {address: lie() for address in range(1, rng.randrange(2, 5))}
    servers = {SERVER: lie()} if rng.random() < 0.3 else {}
    claimed = slots + sum(len(answer.complete) for answer in (workers | servers).values())
    try:
        settlement = settle(workers, servers, slots)
    except MoveError:
        return
    assert len(settlement.again) <= claimed
    assert all(len(rounds) + len(settlement.again) <= claimed for rounds in settlement.fetches.values())
    for round_ in settlement.again:
        assert any(round_ in answer.done for answer in (workers | servers).values())
        assert all(round_ != final.round for rounds in settlement.fetches.values() for final in rounds)


# --- jobs that move ---


@dataclass
class Worker:
    """A worker that follows the protocol: all that it has completed, and the results that its slots keep."""

    address: int
    slots: int
    generation: int = 1
    paused: bool = False
    complete: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    kept: dict[int, int] = field(default_factory=dict)
    to_fetch: dict[int, int] = field(default_factory=dict)

    @property
    def first(self) -> int:
        round_ = 0
        while round_ in self.complete:
            round_ += 1
        return round_

    def take(self, round_: int, *, result: bool) -> None:
        assert round_ not in self.complete
        self.complete.add(round_)
        self.kept.pop(round_ % self.slots, None)
        if result:
            self.kept[round_ % self.slots] = round_
        else:
            self.done.add(round_)

    def holds(self, round_: int) -> bool:
        return self.kept.get(round_ % self.slots) == round_

    def pause(self) -> Held:
        self.paused = True
        first, last = self.first, max(self.complete, default=-1)
        done = (r for r in self.done if r > last - self.slots)
        return Held(self.generation, first, frozenset(r for r in self.complete if r > first), frozenset(done))

    def resume(self, message: Resume) -> None:
        for round_ in message.again:
            if round_ in self.done:
                self.done.remove(round_)
                self.complete.remove(round_)
            assert round_ not in self.complete, f"{self.address:#x} contributes to round {round_}, which it holds"
        self.to_fetch = {final.round: final.holder for final in message.final}
        self.generation, self.paused = message.plan.generation, False


class Job:
    """A job whose network sums what all contribute, and delivers a result or a DONE to each worker, or nothing."""

    def __init__(self, seed: int, workers: int, slots: int, *, server: bool) -> None:
        self.rng = random.Random(seed)
        self.seed, self.slots, self.window = seed, slots, slots // 2
        self.workers = {10 + rank: Worker(10 + rank, slots) for rank in range(workers)}
        self.server = Worker(SERVER, slots) if server else None
        self.generation = 1
        self.sums: set[int] = set()
        """Sums of this generation, which the network repeats when it is asked."""
        self.again: list[int] = []
        """All rounds that moves have made incomplete again."""

    @property
    def hosts(self) -> dict[int, Worker]:
        return self.workers | ({} if self.server is None else {SERVER: self.server})

    def wants(self, address: int, round_: int) -> bool:
        return random.Random(hash((self.seed, address, round_))).random() < 0.4

    def step(self, until: int) -> bool:
        """One delivery at most; False if no delivery was possible."""
        rng, workers = self.rng, list(self.workers.values())
        limit = min(until, min(worker.first for worker in workers) + self.window)
        ready = all(w.generation == self.generation and not w.paused for w in self.hosts.values())
        if ready:
            last = max(max(w.complete, default=-1) for w in workers)
            for round_ in range(limit):
                if round_ not in self.sums and not any(round_ in w.complete or round_ in w.to_fetch for w in workers):
                    assert last < round_ + self.window, f"numbers of round {round_} are gone"
                    self.sums.add(round_)
                    if self.server is not None and round_ not in self.server.complete:
                        self.server.take(round_, result=True)
        choices = [
            (worker, round_)
            for worker in workers
            if not worker.paused and worker.generation == self.generation
            for round_ in range(worker.first, limit)
            if round_ not in worker.complete and (round_ in self.sums or worker.to_fetch.get(round_) in self.hosts)
        ]
        if not choices:
            return False
        worker, round_ = rng.choice(choices)
        if round_ in worker.to_fetch:
            assert self.hosts[worker.to_fetch.pop(round_)].holds(round_), f"no result of round {round_} there"
            worker.take(round_, result=True)
        else:
            worker.take(round_, result=self.wants(worker.address, round_) or rng.random() < 0.1)
        return True

    def plans(self, generation: int) -> dict[int, WorkerPlan | ServerPlan]:
        plans: dict[int, WorkerPlan | ServerPlan] = {
            address: worker_plan(rank, len(self.workers), self.slots, generation)
            for rank, address in enumerate(self.workers)
        }
        return plans if self.server is None else plans | {SERVER: server_plan(self.slots, generation)}

    def move(self, until: int) -> None:
        """Move with losses of messages and hosts, and restarts of the controller."""
        rng, now_ns = self.rng, 0
        servers = [] if self.server is None else [SERVER]
        begin = partial(Move, job=3, servers=servers, slots=self.slots, retry_ns=1)
        move = begin(generation=self.generation, workers=self.workers, now_ns=0)
        while True:
            match move.phase:
                case MigrationPhase.DONE:
                    return
                case MigrationPhase.SETTLING:
                    self.generation, self.sums = move.generation + 1, set()
                    settlement = move.settlement
                    assert settlement is not None
                    self.check(settlement)
                    move.settled(self.plans(self.generation), now_ns)
                case MigrationPhase.RESUMING if rng.random() < 0.1:
                    plans = self.plans(self.generation)
                    resumes = {address: (plans[address], final) for address, final in move.resumes.items()}
                    again = move.again
                    move = begin(generation=self.generation - 1, workers=self.workers, now_ns=now_ns)
                    move.restore(resumes, again, [], now_ns)
            for address, message in move.poll(now_ns):
                if rng.random() < 0.3:
                    continue
                host, answered = self.hosts[address], rng.random() < 0.7
                if isinstance(message, Pause):
                    if host.generation == message.generation and answered:
                        move.held(address, host.pause())
                    elif host.generation == message.generation:
                        host.pause()
                    continue
                assert isinstance(message, Resume)
                if host.generation < message.plan.generation:
                    host.resume(message)
                if answered:
                    move.resumed(address, host.generation)
            for _ in range(rng.randrange(4)):
                self.step(until)
            if len(self.workers) > 1 and move.phase is not MigrationPhase.DONE and rng.random() < 0.03:
                lost = rng.choice(list(self.workers))
                del self.workers[lost]
                move.mark_lost([lost], now_ns)
            now_ns += 1

    def check(self, settlement: Settlement) -> None:
        """A round is complete at all workers of the next generation, or at none."""
        self.again += settlement.again
        known = {
            address: (worker.complete - {*settlement.again}) | {final.round for final in settlement.fetches[address]}
            for address, worker in self.workers.items()
        }
        assert len({frozenset(rounds) for rounds in known.values()}) == 1


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, workers=st.integers(1, 5), slots=st.sampled_from([4, 8, 16]), server=st.booleans())
def test_jobs_end_with_all_rounds_over_any_moves(seed: int, workers: int, slots: int, server: bool) -> None:
    job, until = Job(seed, workers, slots, server=server), 4 * slots
    for _ in range(6):
        for _ in range(job.rng.randrange(2 * slots)):
            job.step(until)
        job.move(until)
    while job.step(until):
        pass
    assert all(worker.first == until for worker in job.workers.values())
    if server:
        assert job.again == [], "the server holds each round that a DONE ends"


def test_drawn_jobs_sum_rounds_again() -> None:
    """The test above covers what it is for."""
    again, twice = 0, 0
    for seed in range(60):
        job, until = Job(seed, 3, 8, server=False), 40
        for _ in range(6):
            for _ in range(job.rng.randrange(16)):
                job.step(until)
            job.move(until)
        again += len(job.again)
        twice += len(job.again) - len({*job.again})
    assert again > 20
    assert twice > 0, "a round that was to be summed again is so in the next generation, too"
