"""Flow model of tensor parallelism: loads of collectives on links, times of phases, and where depth pays."""

from __future__ import annotations

import pytest

from weir.experiments.repetition.tensor_parallel import (
    DIVISIONS,
    HOSTS_PER_LEAF,
    RATE_BPS,
    WIDTH,
    HashedFabric,
    step_seconds,
)

MEGABYTE = 1e6
SECONDS = 8 * MEGABYTE / RATE_BPS
"""Duration of a megabyte on a link."""


@pytest.fixture(scope="module")
def fabric() -> HashedFabric:
    return HashedFabric(seed=1)


def test_collectives_on_separate_links_do_not_delay_each_other(fabric: HashedFabric) -> None:
    apart = [(fabric.chain([0, 1, 2]), MEGABYTE), (fabric.chain([3, 4]), MEGABYTE)]
    assert fabric.seconds(apart) == pytest.approx(SECONDS)
    assert fabric.seconds([]) == fabric.seconds([(fabric.chain([0]), MEGABYTE)]) == 0


def test_a_shared_link_is_divided_until_the_shorter_stream_ends(fabric: HashedFabric) -> None:
    shared = [(fabric.chain([0, 1]), MEGABYTE), (fabric.chain([0, 2]), 3 * MEGABYTE)]
    assert fabric.seconds(shared) == pytest.approx(4 * SECONDS)


def test_switches_copy_once_per_link_and_add_in_reverse(fabric: HashedFabric) -> None:
    inside, outside = range(1, HOSTS_PER_LEAF), [HOSTS_PER_LEAF, HOSTS_PER_LEAF + 1]
    copies = fabric.copies(0, [*inside, *outside])
    hosts = 1 + len(inside) + len(outside)
    assert len(copies) == hosts + 2  # and a leaf's link to a spine and from there
    assert set(copies.values()) == {1.0}
    sums = fabric.sums(0, inside)
    assert {fabric.reverse[link] for link in sums} == set(fabric.copies(0, inside))
    assert fabric.seconds([(copies, MEGABYTE)]) == pytest.approx(SECONDS)


def test_a_ring_in_one_leaf_takes_what_each_rank_sends(fabric: HashedFabric) -> None:
    assert fabric.seconds([(fabric.ring(range(HOSTS_PER_LEAF)), MEGABYTE)]) == pytest.approx(SECONDS)


def test_depth_pays_from_about_eight_rows_per_column_on(fabric: HashedFabric) -> None:
    for factor, pays in ((4, False), (16, True)):
        times = {name: step_seconds(fabric, DIVISIONS[name], factor * WIDTH) for name in ("optimus", "tesseract")}
        assert (times["tesseract"] < times["optimus"]) == pays
