"""Groups against all groupings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from weir.controller.scheduling.errors import SchedulingError
from weir.controller.scheduling.pairs import Phases, groups, period_seconds, speed_up


def phases(compute: float, exposed: float, links: Sequence[float] = (0.0,)) -> Phases:
    return Phases(compute, exposed, np.array(links))


def pairings(names: list[str]) -> Iterator[list[tuple[str, ...]]]:
    """All ways to pair names, or to leave them alone."""
    if not names:
        yield []
        return
    first, *rest = names
    for others in pairings(rest):
        yield [(first,), *others]
    for partner in rest:
        for others in pairings([name for name in rest if name != partner]):
            yield [(first, partner), *others]


@pytest.mark.parametrize(("share", "expected"), [(0.2, 1.2), (0.5, 1.5), (1.0, 2.0)])
def test_two_equal_jobs_gain_their_share_of_communication(share: float, expected: float) -> None:
    assert speed_up([phases(1, share), phases(1, share)]) == pytest.approx(expected)


def test_a_shared_link_bounds_the_period() -> None:
    assert period_seconds([phases(1, 1, [1.5]), phases(1, 1, [1.0])]) == 2.5


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_the_best_of_all_pairings(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = {
        f"j{index}": phases(rng.uniform(0.1, 2), rng.uniform(0.1, 2), [*rng.uniform(0, 1, 3)]) for index in range(6)
    }

    def seconds(found: list[tuple[str, ...]]) -> float:
        return sum(period_seconds([jobs[name] for name in group]) for group in found)

    found = groups(jobs)
    assert sorted(name for group in found for name in group) == sorted(jobs)
    assert seconds(found) == pytest.approx(min(seconds(pairing) for pairing in pairings([*jobs])))


def test_groups_of_four_are_pairs_of_pairs() -> None:
    jobs = {f"j{index}": phases(1, 3) for index in range(4)}
    assert [sorted(group) for group in groups(jobs, 4)] == [["j0", "j1", "j2", "j3"]]
    assert len(groups(jobs, 1)) == 4


def test_a_job_that_never_communicates_stays_alone() -> None:
    assert sorted(groups({"a": phases(1, 0), "b": phases(1, 0)})) == [("a",), ("b",)]


def test_groups_of_three_are_refused() -> None:
    with pytest.raises(SchedulingError):
        groups({"a": phases(1, 1)}, 3)
