"""Classes of an order, and their cut against all cuts."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from weir.controller.scheduling.classes import compressed_classes, leading_classes
from weir.controller.scheduling.errors import SchedulingError
from weir.tests.controller.scheduling.demands import demand, drawn


def test_first_tiers_have_a_class_each_and_others_the_lowest() -> None:
    order = (("a", "b"), ("c",), ("d",), ("e",))
    assert leading_classes(order, 3) == {"a": 2, "b": 2, "c": 1, "d": 0, "e": 0}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("classes", [1, 2, 3, 5])
def test_cut_separates_as_much_conflict_as_the_best_of_all_cuts(seed: int, classes: int) -> None:
    demands = drawn(seed, 6, 4)
    order = tuple((of_job.job,) for of_job in demands)
    wanted = {of_job.job: of_job.steps_left * of_job.link_seconds for of_job in demands}

    def separated(of: dict[str, int]) -> float:
        return sum(float(np.minimum(wanted[a], wanted[b]).sum()) for a, b in combinations(wanted, 2) if of[a] != of[b])

    cuts = combinations(range(1, 6), classes - 1)
    best = max(separated({f"j{index}": sum(index >= cut for cut in each) for index in range(6)}) for each in cuts)
    found = compressed_classes(order, demands, classes)
    assert separated(found) == pytest.approx(best)
    assert [found[job] for (job,) in order] == sorted(found.values(), reverse=True)
    assert set(found.values()) == set(range(classes))


def test_few_tiers_have_a_class_each() -> None:
    demands = [demand("a", [1.0]), demand("b", [1.0])]
    assert compressed_classes((("b",), ("a",)), demands, 5) == {"b": 4, "a": 3}


def test_no_class_is_refused() -> None:
    with pytest.raises(SchedulingError):
        leading_classes((("a",),), 0)
