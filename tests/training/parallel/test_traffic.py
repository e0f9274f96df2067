"""Formulas of the numbers that tensor parallelism moves, beside published ones."""

from __future__ import annotations

from fractions import Fraction

import pytest

from weir.training.parallel.traffic import Traffic, block_traffic, linear_traffic, megatron_traffic


def received(q: int, d: int, rows: int, width: int) -> float:
    return float(linear_traffic(q, d, rows, width, 4 * width).step.by_hosts)


@pytest.mark.parametrize(("factor", "ratio"), [(1, 0.59), (8, 1.05), (64, 1.92)])
def test_depth_pays_only_where_activations_outweigh_weights(factor: int, ratio: float) -> None:
    """64 ranks, a layer h to 4h: [8, 8, 1] moves this many times the numbers of [4, 4, 4]."""
    width = 4096
    found = received(8, 1, factor * width, width) / received(4, 4, factor * width, width)
    assert found == pytest.approx(ratio, abs=0.005)


def test_one_rank_of_each_row_moves_nothing() -> None:
    assert linear_traffic(1, 1, 6, 4, 8).step == Traffic()
    assert linear_traffic(1, 4, 8, 4, 8).step == Traffic(Fraction(6, 4) * 32, Fraction(32), Fraction(32))


def test_switches_halve_no_bytes_of_two_rows() -> None:
    """A rank of q = 2 sends as much in sums as it saves in broadcasts; from q = 3 on it sends less."""
    two, three, four = (linear_traffic(q, 1, 144, 144, 144).step for q in (2, 3, 4))
    assert two.up == two.by_hosts
    assert three.up < three.by_hosts
    assert four.up / four.by_hosts < three.up / three.by_hosts


def test_block_has_six_layers_and_megatron_column_four_sums() -> None:
    assert block_traffic(3, 2, 18, 9, 36).up == sum(
        linear_traffic(3, 2, 18, *sizes).step.up for sizes in [(9, 9)] * 4 + [(9, 36), (36, 9)]
    )
    assert megatron_traffic(8, 10, 4) == Traffic(Fraction(4 * 2 * 7 * 40, 8), Fraction(160), Fraction(160))
