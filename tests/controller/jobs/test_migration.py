"""Pause, settle, resume: nothing that is final is lost or summed again, whatever each host happens to hold."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.controller.jobs.migration import MigrationPhase, Move, MoveError, NoSurvivor, settle
from weir.tests.support.errors import raises
from weir.wire.aggregation import MAX_ROUNDS
from weir.wire.control import Child, FinalRound, Held, Pause, Resume, ServerPlan, WorkerPlan

SERVER = 0x0A000901
GENERATION = 7


def worker_plan(rank: int, workers: int, slots: int, generation: int = GENERATION + 1) -> WorkerPlan:
    return WorkerPlan(3, generation, rank, workers, 0x0AFF0001, 1 << rank, slots, slots // 2)


def phase(move: Move) -> MigrationPhase:
    """Now: a type checker takes an attribute that was asserted once for lasting."""
    return move.phase


def again_in(move: Move) -> tuple[int, ...]:
    """Now, as `phase`."""
    return move.again


def server_plan(slots: int) -> ServerPlan:
    return ServerPlan(3, GENERATION + 1, slots, (Child(1, 0x0AFF0001),), 2)


@dataclass
class Host:
    """Completed rounds of a worker or server, under the protocol's window."""

    done: set[int] = field(default_factory=set)

    @property
    def first_incomplete(self) -> int:
        round_ = 0
        while round_ in self.done:
            round_ += 1
        return round_

    def keeps(self, round_: int, slots: int) -> bool:
        """A cache indexed by slot: a round is kept until a newer one of its slot is done."""
        return round_ in self.done and not any(r > round_ and (r - round_) % slots == 0 for r in self.done)

    def held(self) -> Held:
        first = self.first_incomplete
        return Held(GENERATION, first, frozenset(r for r in self.done if r > first))


def run(seed: int, workers: int, slots: int, steps: int, with_server: bool) -> tuple[list[Host], Host | None]:
    """A job in flight: a round may complete at a host once every worker's window has reached it."""
    rng = random.Random(seed)
    hosts = [Host() for _ in range(workers)]
    server = Host() if with_server else None
    window = slots // 2
    for _ in range(steps):
        reachable = min(host.first_incomplete for host in hosts) + window
        host = rng.choice(hosts)
        open_rounds = [r for r in range(reachable) if r not in host.done]
        if not open_rounds:
            continue
        round_ = rng.choice(open_rounds) if rng.random() < 0.5 else open_rounds[0]
        if server is not None:  # a result comes from the server, which therefore completed the round first
            server.done.add(round_)
        host.done.add(round_)
    return hosts, server


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    workers=st.integers(1, 6),
    slots=st.sampled_from([2, 4, 8, 16]),
    steps=st.integers(0, 150),
    with_server=st.booleans(),
)
def test_after_a_move_all_workers_hold_the_same_final_rounds(
    seed: int, workers: int, slots: int, steps: int, with_server: bool
) -> None:
    hosts, server = run(seed, workers, slots, steps, with_server)
    everyone = {10 + i: host for i, host in enumerate(hosts)}
    servers = {SERVER: server} if server is not None else {}
    final = set().union(*(host.done for host in [*everyone.values(), *servers.values()]))

    move = Move(job=3, generation=GENERATION, workers=everyone, servers=servers, slots=slots, now_ns=0, retry_ns=10)
    assert move.poll(0) == [(a, Pause(3, GENERATION)) for a in sorted([*everyone, *servers])]
    for address, host in (everyone | servers).items():
        assert phase(move) is MigrationPhase.PAUSING
        move.held(address, host.held())
    assert phase(move) is MigrationPhase.SETTLING
    assert move.settlement is not None

    plans: dict[int, WorkerPlan | ServerPlan] = {
        address: worker_plan(rank, workers, slots) for rank, address in enumerate(everyone)
    }
    if servers:
        plans[SERVER] = server_plan(slots)
    move.settled(plans, 1)
    for address, message in move.poll(1):
        assert isinstance(message, Resume)
        assert message.plan == plans[address]
        if address in everyone:
            for fetch in message.final:
                assert (everyone | servers)[fetch.holder].keeps(fetch.round, slots), fetch
                assert fetch.round not in everyone[address].done
                assert fetch.holder != address
        else:
            assert [fetch.round for fetch in message.final] == ([max(final)] if final else [])
        move.resumed(address, GENERATION + 1)
    assert phase(move) is MigrationPhase.DONE

    for address, host in everyone.items():
        fetched = {fetch.round for fetch in move.settlement.fetches[address]}
        assert host.done | fetched == final
    assert {r for r in range(max(final, default=0) + 2) if move.settlement.is_final(r)} == final


def test_requests_repeat_until_answered_and_answers_count_once() -> None:
    move = Move(job=3, generation=GENERATION, workers=[1, 2], slots=4, now_ns=100, retry_ns=10)
    assert [a for a, _ in move.poll(100)] == [1, 2]
    assert move.poll(105) == []
    assert move.deadline_ns == 110
    move.held(1, Held(GENERATION, 2))
    move.held(1, Held(GENERATION, 3))  # a doubled answer must not change what is final
    assert [a for a, _ in move.poll(110)] == [2]
    move.held(2, Held(GENERATION, 1))
    assert move.settlement is not None
    assert [(f.round, f.holder) for f in move.settlement.fetches[2]] == [(1, 1)]
    move.settled({1: worker_plan(0, 2, 4), 2: worker_plan(1, 2, 4)}, 200)
    assert move.resumes == {1: (), 2: (FinalRound(1, 1),)}
    assert [a for a, _ in move.poll(200)] == [1, 2]
    move.resumed(1, GENERATION + 1)
    assert [a for a, _ in move.poll(210)] == [2]
    move.resumed(2, GENERATION + 1)
    assert phase(move) is MigrationPhase.DONE
    assert move.deadline_ns is None


def test_a_worker_that_never_answers_is_given_up() -> None:
    move = Move(job=3, generation=GENERATION, workers=[1, 2, 3], slots=4, now_ns=0, patience_ns=1000, retry_ns=10)
    move.held(1, Held(GENERATION, 5))
    move.held(2, Held(GENERATION, 4, frozenset({5})))
    move.poll(999)
    assert phase(move) is MigrationPhase.PAUSING
    move.poll(1000)
    assert move.lost == {3}
    assert move.survivors == {1, 2}
    assert move.settlement is not None
    assert [(f.round, f.holder) for f in move.settlement.fetches[2]] == [(4, 1)]
    assert [f.round for f in move.settlement.fetches[1]] == [5]
    move.held(3, Held(GENERATION, 9))  # too late: it is out
    assert not move.settlement.is_final(8)


def test_a_loss_during_resumes_leads_to_the_next_generation() -> None:
    move = Move(job=3, generation=GENERATION, workers=[1, 2, 3], slots=4, now_ns=0, retry_ns=10, patience_ns=100)
    for address in (1, 2, 3):
        move.held(address, Held(GENERATION, 2))
    move.settled({address: worker_plan(rank, 3, 4) for rank, address in enumerate((1, 2, 3))}, 0)
    resumes = dict(move.poll(0))
    move.resumed(1, GENERATION + 1)
    move.poll(100)  # 2 and 3 have not confirmed within the patience: 1 alone goes on
    assert (move.lost, move.survivors, move.generation) == (frozenset({2, 3}), frozenset({1}), GENERATION + 1)

    move = Move(job=3, generation=GENERATION, workers=[1, 2, 3], slots=4, now_ns=0, retry_ns=10)
    for address in (1, 2, 3):
        move.held(address, Held(GENERATION, 2))
    move.settled({address: worker_plan(rank, 3, 4) for rank, address in enumerate((1, 2, 3))}, 0)
    move.resumed(1, GENERATION + 1)
    move.mark_lost([3], 50)
    assert phase(move) is MigrationPhase.PAUSING
    again = Pause(3, GENERATION + 1)
    assert move.poll(50) == [(2, resumes[2]), (1, again), (2, again)]  # a host leaves only where it is: 2 resumes first
    move.held(1, Held(GENERATION, 2))  # a late copy of its earlier answer
    move.held(1, Held(GENERATION + 1, 3))
    assert move.poll(60) == [(2, resumes[2]), (2, again)]
    move.resumed(2, GENERATION + 1)
    assert move.poll(70) == [(2, again)]
    move.held(2, Held(GENERATION + 1, 2))
    assert move.settlement is not None
    assert move.settlement.fetches == {1: (), 2: (FinalRound(2, 1),)}  # rounds that 1 completed meanwhile are final
    move.settled({a: worker_plan(r, 3, 4, GENERATION + 2) for r, a in enumerate((1, 2))}, 80)
    for address in (1, 2):
        move.resumed(address, GENERATION + 1)  # late copies
        assert phase(move) is MigrationPhase.RESUMING
        move.resumed(address, GENERATION + 2)
    assert phase(move) is MigrationPhase.DONE


def test_the_default_retry_interval_is_50_ms() -> None:
    move = Move(job=3, generation=GENERATION, workers=[1], slots=4, now_ns=0)
    move.poll(0)
    assert move.deadline_ns == 50_000_000


def test_patience_restarts_with_each_step() -> None:
    move = Move(job=3, generation=GENERATION, workers=[1, 2, 3], slots=4, now_ns=0, retry_ns=10, patience_ns=100)
    for address in (1, 2, 3):
        move.held(address, Held(GENERATION, 2))
    move.settled({address: worker_plan(rank, 3, 4) for rank, address in enumerate((1, 2, 3))}, 20)
    move.resumed(1, GENERATION + 1)
    move.poll(119)
    assert (move.lost, move.deadline_ns) == (frozenset(), 120)
    move.mark_lost([9], 119)
    assert (phase(move), move.generation) == (MigrationPhase.RESUMING, GENERATION)
    move.mark_lost([3], 119)
    assert (phase(move), move.deadline_ns) == (MigrationPhase.PAUSING, 119)
    assert [a for a, _ in move.poll(119)] == [2, 1, 2]
    move.held(2, Held(GENERATION + 1, 2))  # so it has resumed before
    assert move.resumes == {}
    assert move.poll(129) == [(1, Pause(3, GENERATION + 1))]
    move.poll(218)
    assert (move.lost, move.deadline_ns) == (frozenset({3}), 219)
    move.poll(219)
    assert (phase(move), move.survivors) == (MigrationPhase.SETTLING, frozenset({2}))
    move.settled({2: worker_plan(1, 3, 4, GENERATION + 2)}, 220)
    move.resumed(2, GENERATION + 2)
    move.mark_lost([2], 230)
    assert (phase(move), move.lost) == (MigrationPhase.DONE, frozenset({1, 3}))


def test_a_host_lost_before_its_plan_takes_its_results_along() -> None:
    move = Move(job=3, generation=GENERATION, workers=[1, 2, 3], slots=4, now_ns=0, retry_ns=10)
    move.held(1, Held(GENERATION, 2))
    move.held(3, Held(GENERATION, 3))
    move.mark_lost([3], 0)
    assert phase(move) is MigrationPhase.PAUSING
    move.held(2, Held(GENERATION, 1))
    assert move.settlement is not None
    assert not move.settlement.is_final(2)
    move.mark_lost([1, 9], 0)  # 9 takes no part
    assert (move.phase, move.generation) == (MigrationPhase.SETTLING, GENERATION)
    assert not move.settlement.is_final(1)
    with pytest.raises(NoSurvivor):
        move.mark_lost([2], 0)


def test_a_worker_behind_by_all_kept_results_fetches_them_all() -> None:
    settlement = settle({1: Held(GENERATION, 6), 2: Held(GENERATION, 2)}, {}, slots=4)
    assert settlement.fetches == {1: (), 2: tuple(FinalRound(round_, 1) for round_ in (2, 3, 4, 5))}
    assert (settlement.least, settlement.newest) == (2, (FinalRound(5, 1),))


def test_the_newest_final_round_is_told_from_the_first_on() -> None:
    assert settle({1: Held(GENERATION, 0)}, {}, slots=4).newest == ()
    assert settle({1: Held(GENERATION, 1)}, {}, slots=4).newest == (FinalRound(0, 1),)
    assert settle({1: Held(GENERATION, 1, frozenset({3}))}, {}, slots=4).newest == (FinalRound(3, 1),)


@pytest.mark.parametrize("taken_up", [False, True])
def test_a_server_that_joined_takes_part_in_what_follows(taken_up: bool) -> None:
    move = Move(job=3, generation=GENERATION, workers=[1, 2], slots=4, now_ns=0, retry_ns=10)
    plans: dict[int, WorkerPlan | ServerPlan] = {
        1: worker_plan(0, 2, 4),
        2: worker_plan(1, 2, 4),
        SERVER: server_plan(4),
    }
    if taken_up:
        move.restore({address: (plan, ()) for address, plan in plans.items()}, (), [SERVER], 0)
    else:
        for address in (1, 2):
            move.held(address, Held(GENERATION, 2))
        move.settled(plans, 0, [SERVER])
    assert dict(move.poll(0)) == {1: Resume(plans[1]), 2: Resume(plans[2]), SERVER: plans[SERVER]}
    assert move.resumes == {1: (), 2: (), SERVER: ()}
    for address in (1, SERVER):
        move.resumed(address, GENERATION + 1)
    move.mark_lost([2], 5)
    assert [address for address, _ in move.poll(5)] == [1, SERVER]


@pytest.mark.parametrize("taken_up", [False, True])
def test_rounds_without_a_result_are_incomplete_again_at_all_workers(taken_up: bool) -> None:
    """2 is lost while not all have resumed, so the rounds are still to be summed in the generation after the next."""
    move = Move(job=3, generation=GENERATION, workers=[1, 2, 3], servers=[SERVER], slots=8, now_ns=0, retry_ns=10)
    move.held(1, Held(GENERATION, 4, done=frozenset({2, 3})))
    for address in (2, 3, SERVER):
        move.held(address, Held(GENERATION, 2))
    plans: dict[int, WorkerPlan | ServerPlan] = {a: worker_plan(rank, 3, 8) for rank, a in enumerate((1, 2, 3))}
    plans[SERVER] = server_plan(8)
    assert again_in(move) == ()
    move.settled(plans, 0)
    assert again_in(move) == (2, 3)
    if taken_up:
        resumes = {address: (plans[address], final) for address, final in move.resumes.items()}
        move = Move(job=3, generation=GENERATION, workers=[1, 2, 3], servers=[SERVER], slots=8, now_ns=0, retry_ns=10)
        move.restore(resumes, (2, 3), [], 0)
    expected = {address: Resume(plans[address], (), (2, 3)) for address in (1, 2, 3)}
    assert dict(move.poll(0)) == expected | {SERVER: Resume(plans[SERVER], (FinalRound(1, 1),))}
    for address in (1, SERVER):
        move.resumed(address, GENERATION + 1)
    move.mark_lost([2], 5)
    assert again_in(move) == (2, 3)
    again = Pause(3, GENERATION + 1)
    assert move.poll(5) == [(3, Resume(plans[3], (), (2, 3))), (1, again), (3, again), (SERVER, again)]
    for address in (1, SERVER):
        move.held(address, Held(GENERATION + 1, 2))
    move.held(3, Held(GENERATION + 1, 2))
    assert move.settlement is not None
    assert (move.settlement.again, move.settlement.least, again_in(move)) == ((), 2, ())
    assert not any(map(move.settlement.is_final, (2, 3)))


def test_a_final_round_that_is_lost_stops_the_move() -> None:
    with raises(MoveError, value=1):
        settle({1: Held(GENERATION, 6), 2: Held(GENERATION, 1)}, {}, slots=4)


def test_steps_out_of_order_and_unfit_plans_are_refused() -> None:
    move = Move(job=3, generation=255, workers=[1], slots=4, now_ns=0, retry_ns=10)
    with raises(MoveError, value=MigrationPhase.PAUSING):
        move.settled({}, 0)
    with raises(MoveError, value=9):
        move.held(9, Held(255, 0))
    move.held(1, Held(255, 0))
    with raises(MoveError, value=set()):
        move.settled({}, 0)
    with raises(MoveError, value=(2, 4)):
        move.settled({1: worker_plan(0, 1, 4, generation=2)}, 0)
    for slots in (2, 8):
        with raises(MoveError, value=(1, slots)):
            move.settled({1: worker_plan(0, 1, slots, generation=1)}, 0)
    move.settled({1: worker_plan(0, 1, 4, generation=1)}, 0)  # generation 0 is skipped
    for workers, servers in (([], [1]), ([1, 2], [2])):
        with pytest.raises(MoveError, match=r"needs workers.* both worker and server"):
            Move(job=3, generation=1, workers=workers, servers=servers, slots=4, now_ns=0, retry_ns=10)
    with pytest.raises(NoSurvivor):
        Move(job=3, generation=1, workers=[1], slots=4, now_ns=0, patience_ns=1, retry_ns=10).poll(5)


def test_a_host_that_lies_about_what_it_holds_costs_no_memory() -> None:
    with raises(MoveError, value=5):
        settle({1: Held(1, MAX_ROUNDS), 2: Held(1, 5)}, {}, 64)
    with raises(MoveError, value=5):
        settle({1: Held(1, 5)}, {2: Held(1, MAX_ROUNDS)}, 64)
