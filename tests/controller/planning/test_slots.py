"""A switch's memory is never given twice, is given first-fit, and comes back."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.controller.errors import OutOfMemory
from weir.controller.planning.slots import NumberPool
from weir.tests.support.errors import raises

FIRST, SIZE = 1, 6
REQUESTS = [(owner, want) for owner in range(3) for want in (None, 1, 2, 3, SIZE, SIZE + 1)]
"""Possible requests, and None to give up a range."""


def free_pieces(owned: dict[int, range]) -> list[int]:
    """Lengths of the free runs of numbers."""
    used = {at for its in owned.values() for at in its}
    drawn = "".join("x" if index in used else "." for index in range(FIRST, FIRST + SIZE))
    return [len(run) for run in drawn.split("x") if run]


def test_a_request_gets_the_first_long_enough_gap() -> None:
    """Every request in every state that requests of three owners lead to."""
    todo: list[tuple[NumberPool, dict[int, range]]] = [(NumberPool("s1: slots", SIZE, FIRST), {})]
    seen = []
    while todo:
        before, owned_before = todo.pop()
        seen.append(owned_before)
        for owner, want in REQUESTS:
            pool, owned = deepcopy(before), dict(owned_before)
            if want is None:
                pool.release(owner)
                owned.pop(owner, None)
            elif owner not in owned:
                used = {at for its in owned.values() for at in its}
                fits = [
                    index
                    for index in range(FIRST, FIRST + SIZE - want + 1)
                    if used.isdisjoint(range(index, index + want))
                ]
                if fits:
                    assert pool.allot(owner, want) == fits[0]
                    owned[owner] = range(fits[0], fits[0] + want)
                else:
                    with raises(OutOfMemory, value=want):
                        pool.allot(owner, want)
            assert pool.free == SIZE - sum(map(len, owned.values()))
            gaps = free_pieces(owned)
            assert pool.largest_gap == max(gaps, default=0)
            assert [pool.pieces(size) for size in (1, 2, 3)] == [sum(gap // size for gap in gaps) for size in (1, 2, 3)]
            assert dict(pool.allotments) == {each: (its.start, len(its)) for each, its in owned.items()}
            if owned not in seen and all(owned != later for _, later in todo):
                todo.append((pool, owned))
    assert len(seen) > 700


def test_a_repeated_request_keeps_its_range_or_is_refused() -> None:
    pool = NumberPool("s1: slots", 16)
    assert pool.allot("a", 8) == pool.allot("a", 8) == 0
    with pytest.raises(ValueError, match="holds 8 and asks for 4"):
        pool.allot("a", 4)
    with pytest.raises(ValueError, match=r"holds 8 and asks for 16; free .*old range"):
        pool.allot("a", 16)
    large = NumberPool("s1: slots", 4096)
    assert [large.allot("a", int(size)) for size in ("1000", "1000")] == [0, 0]
    with pytest.raises(ValueError, match="asks for 0"):
        pool.allot("b", 0)
    with raises(OutOfMemory, value=9):
        pool.allot("b", 9)


@given(
    size=st.integers(1, 40),
    first=st.integers(0, 5),
    steps=st.lists(st.tuples(st.integers(0, 4), st.integers(-2, 50), st.integers(-1, 20)), max_size=40),
)
def test_a_range_can_be_reclaimed_while_free(size: int, first: int, steps: list[tuple[int, int, int]]) -> None:
    pool = NumberPool("s1: slots", size, first)
    owned: dict[int, range] = {}
    for owner, base, length in steps:
        wanted = range(base, base + length)
        within = first <= base and base + length <= first + size
        taken = any(base < held.stop and held.start < base + length for held in owned.values())
        if owner not in owned and length > 0 and within and not taken:
            pool.reoccupy(owner, base, length)
            owned[owner] = wanted
        else:
            with raises(OutOfMemory, value=(base, length)):
                pool.reoccupy(owner, base, length)
        assert dict(pool.allotments) == {o: (r.start, len(r)) for o, r in owned.items()}
