"""Adasum, AdaCons and HiTopKComm under PyTorch: four ranks in two racks of an emulated fabric, each a process."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from weir.tests.hosts.torch.rig import Ranks, running_fabric
from weir.tests.support.seeds import few_of

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="PyTorch is not installed (pip install 'weir-fabric[torch]')"
)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with running_fabric() as told:
        forker = Ranks(told, "weir.tests.hosts.torch.adasum_scenarios")
        try:
            yield forker
        finally:
            forker.close()


def test_hooks_combine_each_parameter_as_the_formulas_do(ranks: Ranks) -> None:
    for found in ranks.play("hooks", 4):
        assert found == {"adasum": [True] * 6, "racks": [True] * 6, "adacons": [True] * 3}


def test_optimizers_combine_changes_or_gradients(ranks: Ranks) -> None:
    for found in ranks.play("optimizers", 4):
        assert found == [True] * 3 * (2 * 4 + 1)


def test_backward_passes_before_a_step_are_counted(ranks: Ranks) -> None:
    for refused, same in ranks.play("passes", 2):
        assert refused == "InvalidPlan"
        assert same


@pytest.mark.parametrize(
    ("scenario", "count"), [("three_ranks", 3), ("three_racks", 3), ("over_gloo", 2), ("unequal_racks", 3)]
)
def test_groups_that_cannot_be_are_refused_at_all_ranks(ranks: Ranks, scenario: str, count: int) -> None:
    assert [answer["error"] for answer in ranks.play(scenario, count)] == ["InvalidPlan"] * count


@pytest.mark.parametrize("scenario", few_of(["hitopk", "hitopk_over_gloo"], 1))
def test_largest_sums_of_racks_cross_and_the_rest_comes_next(ranks: Ranks, scenario: str) -> None:
    for found in ranks.play(scenario, 4):
        assert {what: holds for what, holds in found.items() if not holds} == {}
