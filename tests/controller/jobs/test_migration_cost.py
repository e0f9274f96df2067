"""Worth of moves: jobs that move by the rule compared with jobs that stay, over loads drawn with any duration."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

import pytest

from weir.controller.jobs.migration_cost import RISK, MigrationBudget, seconds_to_break_even
from weir.controller.placement import Placement

LOOK = 1.0
GAIN = 0.15
KEPT = 12
PLACES = tuple(Placement({"h1": f"s{n}"}, {}, f"s{n}") for n in range(3))


@dataclass(frozen=True)
class Case:
    """Duration of a step at each place, by observation, and cost of a move."""

    steps: list[list[float]]
    price: float


def drawn(seed: int, longest: float = 300.0) -> Case:
    """Loads at each place that last between a third of a look and very many; moves from cheap to very dear."""
    rng = random.Random(seed)
    lasting = longest ** rng.uniform(-0.2, 1.0)
    shared, periodic = rng.random() < 0.3, rng.random() < 0.3
    looks = 2000
    steps: list[list[float]] = []
    until, now = [0.0] * len(PLACES), [1.0] * len(PLACES)
    for look in range(looks):
        for place in range(len(PLACES)):
            while until[place] <= look:
                until[place] += lasting if periodic else lasting * rng.expovariate(1.0)
                now[place] = rng.choice((1.0, 1.0, rng.uniform(1.0, 1.5), rng.uniform(1.0, 4.0)))
                if shared:
                    until, now = [until[place]] * len(PLACES), [rng.uniform(1.0, 2.0) for _ in PLACES]
        steps.append(list(now))
    return Case(steps, 10 ** rng.uniform(-2, 1))


def by_the_rule(case: Case) -> tuple[float, int]:
    """Seconds lost against staying at the first place, and how many moves."""
    at, moved, lost, moves = 0, -1, 0.0, 0
    account = MigrationBudget.opened(PLACES[at], 0.0)
    for look in range(1, len(case.steps)):
        time, before = look * LOOK, case.steps[look - 1]
        # a reading shows the past at its end; a job works back to back
        lost += LOOK * (1 - before[0] / before[at])
        home = PLACES.index(account.baseline)
        account.update(time, before[home] / before[at] - 1)
        best = min(range(len(PLACES)), key=lambda place: before[place])
        past = case.steps[max(moved + 1, look - KEPT, 0) : look][::-1]
        saved = []
        for each in past:
            if not each[best] < (1 - GAIN) * each[at]:
                break
            saved.append(1 - each[best] / each[at])
        goal: int | None = None
        if len(saved) >= 2 and account.allows_a_move(time):
            if seconds_to_break_even(case.price, saved, [LOOK * age for age in range(len(saved))], LOOK) == 0:
                goal = best
        elif account.should_revert(time, case.price):
            goal = home
        if goal is not None:
            account.move(PLACES[goal], case.price)
            at, moved, moves = goal, look, moves + 1
            lost += case.price
    return lost, moves


def at_once(case: Case) -> float:
    """The same for a job that moves whenever another place is better by the last reading."""
    at, lost = 0, 0.0
    for before in case.steps[:-1]:
        lost += LOOK * (1 - before[0] / before[at])
        best = min(range(len(PLACES)), key=lambda place: before[place])
        if before[best] < (1 - GAIN) * before[at]:
            at, lost = best, lost + case.price
    return lost


@pytest.mark.parametrize("seed", range(0, 100, 10))
def test_moving_by_the_rule_is_never_worse_than_staying(seed: int) -> None:
    """The loss is at most a fiftieth of the time, three moves and an observation, for any loads and cost of moves."""
    for index in range(seed, seed + 10):
        case = drawn(index)
        lost, moves = by_the_rule(case)
        most = RISK * LOOK * len(case.steps) + 3 * case.price + LOOK
        assert lost <= most, f"seed {index}: {lost} s lost by {moves} moves"


def test_the_rule_gains_on_lasting_loads_and_loses_on_none() -> None:
    cases = [drawn(seed) for seed in range(60)]
    total = sum(len(case.steps) for case in cases)
    careful, rash = [by_the_rule(case)[0] for case in cases], [at_once(case) for case in cases]
    assert sum(careful) < -0.12 * total
    assert sum(careful) < 2 * sum(rash)
    assert max(rash) > 0.5 * len(cases[0].steps)  # so there are traps among the cases


def test_a_move_is_earned_when_staying_has_cost_as_much() -> None:
    assert seconds_to_break_even(3.0, [0.5], [0.0], 1.0) == 5.0  # half a second of the last one
    assert (
        seconds_to_break_even(3.0, [0.5, 0.5, 0.25], [0.0, 2.0, 4.0], 0.0) == 3.0
    )  # 2 · 0.5 + 2 · 0.25 are lost so far
    assert seconds_to_break_even(3.0, [0.5, 0.5, 0.25], [0.0, 2.0, 4.0], 1.0) == 2.0  # 1 · 0.25 of each of two more
    assert (
        seconds_to_break_even(3.0, [0.5, 0.5], [0.0, 1.0], 2.0) == 3.0
    )  # 2 · 0.5 before the first, 1 · 0.5 between the two
    assert seconds_to_break_even(1.5, [0.5, 0.5, 0.25, 0.25], [0.0, 2.0, 4.0, 9.0], 0.0) == 0.0


def test_a_move_without_a_gain_in_the_last_reading_is_not_earned() -> None:
    """Joint savings of several jobs may be such; earlier readings do not count."""
    assert seconds_to_break_even(1e-9, [0.0, 5.0], [0.0, 1.0], 1.0) == math.inf
    assert seconds_to_break_even(0.0, [-0.5], [0.0], 1.0) == math.inf
    assert (
        seconds_to_break_even(3.0, [0.5, -9.0, 9.0], [0.0, 1.0, 2.0], 1.0)
        == seconds_to_break_even(3.0, [0.5], [0.0], 1.0)
        == 5.0
    )


def test_a_job_whose_moves_did_not_pay_stays_or_goes_home() -> None:
    account = MigrationBudget.opened(PLACES[0], 0.0)
    assert (account.balance, account.behind, account.at_baseline) == (0.0, 0.0, True)
    assert account.allows_a_move(0.0)
    assert not account.should_revert(0.0, 0.0)
    account.move(PLACES[1], 1.0)
    account.update(10.0, 0.0)
    assert (account.balance, account.allows_a_move(10.0), account.allows_a_move(60.0)) == (-1.0, False, True)
    account.update(12.0, -0.5)
    assert not account.should_revert(12.0, 1.1)
    assert account.should_revert(12.0, 1.0)
    assert not account.should_revert(200.0, 1.0)  # there is time enough to look for something better
    account.update(14.0, 0.0)
    assert not account.should_revert(14.0, 0.0)  # for home is no better now
    account.update(16.0, 1.5)
    assert account.allows_a_move(16.0)
    account.move(PLACES[2], 1.0)
    assert (account.baseline, account.balance, account.behind) == (PLACES[1], -1.0, 0.0)


def test_home_is_a_moves_origin_unless_the_account_is_negative() -> None:
    account = MigrationBudget.opened(PLACES[0], 0.0)
    account.move(PLACES[1], 0.5)
    assert (account.baseline, account.at_baseline) == (PLACES[0], False)
    account.move(PLACES[2], 0.5)
    assert (account.baseline, account.balance) == (PLACES[0], -1.0)
    account.update(1.0, 1.0)
    account.move(PLACES[1], 0.5)  # nothing is won or lost
    assert (account.baseline, account.balance) == (PLACES[2], -0.5)
    account.update(2.0, 1.0)
    account.move(PLACES[0], 0.5)  # half a second is won
    assert (account.baseline, account.balance) == (PLACES[1], -0.5)
    account.move(replace(PLACES[1]), 0.0)
    assert account.at_baseline
