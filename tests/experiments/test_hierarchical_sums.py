"""Exchanges between racks: results against NumPy, and times against the formula."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from weir.experiments.config import RunConfig
from weir.experiments.papers import PAPERS
from weir.experiments.repetition.hierarchical_sums import (
    Program,
    crossing,
    flat,
    formula_times_s,
    hierarchical,
    message_time_s,
    racks_of,
)
from weir.hosts.compression.mstopk import largest
from weir.hosts.numerics.quantization import Float32Array
from weir.tests.experiments.test_papers import recorded

SIZE = 1 << 13
SHARDS = 4


def config() -> RunConfig:
    return RunConfig.load(PAPERS["hitopkcomm"].files[0])


def inputs() -> list[Float32Array]:
    """Small integers, whose float32 sums are exact in any order."""
    rng = np.random.default_rng(46)
    return [rng.integers(-999, 1000, SIZE).astype(np.float32) for _ in range(8)]


def kept(values: Float32Array) -> Float32Array:
    out = np.zeros_like(values)
    at = largest(values, round(values.size / 100))
    out[at] = values[at]
    return out


def sum_of_largest(values: list[Float32Array]) -> Float32Array:
    """Sum over the racks of the largest numbers of each shard of their sums."""
    racks = [np.sum(values[:4], axis=0), np.sum(values[4:], axis=0)]
    total = np.zeros(SIZE, np.float32)
    for rack in racks:
        total += np.concatenate([kept(shard) for shard in np.split(rack, SHARDS)])
    return total


@pytest.mark.parametrize("program", [hierarchical, crossing])
def test_racks_exchange_the_dense_sum_of_their_sparse_shards(program: Program) -> None:
    values, racks = inputs(), racks_of(config())
    sums = [np.sum(values[:4], axis=0), np.sum(values[4:], axis=0)]
    given = [sums] * 8 if program is crossing else values
    _, results = asyncio.run(message_time_s(config(), program, racks, given))
    for result in results:
        assert np.array_equal(result, sum_of_largest(values))


def test_flat_exchanges_are_the_sum_of_all_ranks_largest() -> None:
    values, racks = inputs(), racks_of(config())
    _, results = asyncio.run(message_time_s(config(), flat, racks, values))
    assert all(np.array_equal(result, np.sum([kept(value) for value in values], axis=0)) for result in results)


def test_time_of_racks_follows_the_formula() -> None:
    time_s, _ = asyncio.run(message_time_s(config(), hierarchical, racks_of(config()), inputs()))
    assert time_s == pytest.approx(formula_times_s(config(), SIZE)["hitopkcomm"], rel=0.15)


def test_recorded_times_are_within_15_percent_of_the_formula() -> None:
    measured, formula = (
        recorded("hitopkcomm", "of it on the network"),
        recorded("hitopkcomm", "network time by the formula"),
    )
    assert {condition for condition, _ in measured} == {condition for condition, _ in formula}
    for (condition, contender), time_ms in measured.items():
        if contender == "hitopkcomm":
            assert time_ms == pytest.approx(formula[condition, contender], rel=0.15), condition
