"""Generations of a reused number continue to count, beyond those in which earlier hosts may still send."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from weir.controller.planning.generations import GenerationHistory
from weir.wire.aggregation import FIRST_GENERATION, GENERATIONS

ALL = range(FIRST_GENERATION, GENERATIONS)


def generation(number: int) -> int:
    """Generation of the job's nth plan."""
    return ALL[(number - 1) % len(ALL)]


@given(before=st.integers(0, 600), left=st.sets(st.sampled_from(ALL), min_size=1, max_size=len(ALL) - 1))
def test_the_next_is_the_first_that_nobody_may_send_in(before: int, left: set[int]) -> None:
    history = GenerationHistory(before)
    history.pass_by(left)
    first = next(number for number in count(max(before, *left) + 1) if generation(number) not in left)
    assert history.count == first - 1
    assert history.next() == generation(first)


def test_a_job_may_begin_in_the_last_generation() -> None:
    history = GenerationHistory()
    history.go(ALL[-1], ["s1"])
    assert (history.count, history.last_used) == (len(ALL), {"s1": len(ALL)})
    assert history.next() == ALL[0]


def test_it_ends_where_every_one_is_left_behind() -> None:
    history = GenerationHistory(7)
    history.pass_by(frozenset(ALL))
    assert history.count >= len(ALL)
