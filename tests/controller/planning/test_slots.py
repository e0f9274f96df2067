"""A switch's memory is never given twice, is given first-fit, and comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.controller.errors import OutOfMemory
from weir.controller.planning.slots import Pool

steps = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40), st.booleans()), max_size=60)


@given(size=st.integers(1, 100), first=st.integers(0, 5), steps=steps)
def test_ranges_never_overlap_and_a_request_fails_only_when_no_gap_is_long_enough(
    size: int, first: int, steps: list[tuple[int, int, bool]]
) -> None:
    pool = Pool("s1: slots", size, first)
    owned: dict[int, range] = {}

    def free() -> list[int]:
        used = {n for r in owned.values() for n in r}
        return [n for n in range(first, first + size) if n not in used]

    for owner, want, release in steps:
        if release:
            pool.release(owner)
            owned.pop(owner, None)
        elif owner not in owned:
            gaps = set(free())
            fits = [b for b in sorted(gaps) if all(b + i in gaps for i in range(want))]
            if fits:
                assert pool.allot(owner, want) == fits[0]
                owned[owner] = range(fits[0], fits[0] + want)
            else:
                with pytest.raises(OutOfMemory, match=f"asks for {want}"):
                    pool.allot(owner, want)
        assert pool.free == len(free())
        assert dict(pool.allotments) == {o: (r.start, len(r)) for o, r in owned.items()}


def test_asking_again_gives_the_same_range_and_another_size_is_refused() -> None:
    pool = Pool("s1: slots", 16)
    assert pool.allot("a", 8) == pool.allot("a", 8) == 0
    with pytest.raises(ValueError, match="holds 8 and asks for 4"):
        pool.allot("a", 4)
    with pytest.raises(ValueError, match="asks for 0"):
        pool.allot("b", 0)
    with pytest.raises(OutOfMemory, match="8 of 16 are free, the longest piece has 8"):
        pool.allot("b", 9)


@given(
    size=st.integers(1, 40),
    first=st.integers(0, 5),
    steps=st.lists(st.tuples(st.integers(0, 4), st.integers(-2, 50), st.integers(-1, 20)), max_size=40),
)
def test_a_range_is_had_again_where_it_is_free_and_its_owner_has_none(
    size: int, first: int, steps: list[tuple[int, int, int]]
) -> None:
    pool = Pool("s1: slots", size, first)
    owned: dict[int, range] = {}
    for owner, base, length in steps:
        wanted = range(base, base + length)
        within = first <= base and base + length <= first + size
        taken = any(base < held.stop and held.start < base + length for held in owned.values())
        if owner not in owned and length > 0 and within and not taken:
            pool.reoccupy(owner, base, length)
            owned[owner] = wanted
        else:
            with pytest.raises(OutOfMemory, match=f"{owner} had {length} at {base}, which is not free any more"):
                pool.reoccupy(owner, base, length)
        assert dict(pool.allotments) == {o: (r.start, len(r)) for o, r in owned.items()}
