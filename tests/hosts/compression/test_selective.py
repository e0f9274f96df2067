"""Plans of compression: HiPress' shipped plan, and never worse than any rule for all gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weir.hosts.compression.codecs import make_codec
from weir.hosts.compression.measured_costs import coding_costs, with_links
from weir.hosts.compression.selective import (
    CommunicationCosts,
    Line,
    bert_base_sizes,
    choices,
    fitted,
    plan,
    vgg19_sizes,
    ways_of,
)
from weir.hosts.errors import InvalidTensor
from weir.tests.support.compression_costs import hipress_costs
from weir.tests.support.errors import raises

SIZES = vgg19_sizes()


def random_costs(seed: int) -> CommunicationCosts:
    rng = np.random.default_rng(seed)

    def line() -> Line:
        return Line(float(10 ** rng.uniform(-9, -5)), float(rng.uniform(0, 1)), float(rng.uniform(0, 1)))

    return CommunicationCosts(
        line(), line(), line(), 1 / 16, line(), line(), line(), line(), float(rng.uniform(0.2, 1))
    )


def test_the_sizes_are_the_models() -> None:
    assert (len(SIZES), sum(SIZES)) == (38, 143_667_240)
    assert (len(bert_base_sizes()), sum(bert_base_sizes())) == (199, 109_482_240)


@pytest.mark.parametrize(("codec", "length"), [("packed", 1.0), ("onebit", 4.0)])
def test_decoding_costs_are_by_the_length_of_codes(codec: str, length: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan asks for the time of decoding all codes that a worker receives, by their length; `length`: codes."""
    monkeypatch.setattr(
        "weir.hosts.compression.measured_costs.measure", lambda codec, size, clock: (1e-9 * size, 2e-9 * size)
    )
    costs = coding_costs(make_codec(codec), 4, [1000, 100_000], lambda: 0.0)
    assert costs.encode(50_000) == pytest.approx(0.05)
    assert costs.decode(costs.ratio * 50_000) == pytest.approx(0.1)
    assert costs.switch_ratio == pytest.approx(length * costs.ratio)
    linked = with_links(costs, 4, 1e9, 0.5)
    assert linked.send is not None
    assert linked.send(1e6) == pytest.approx(32.5)
    assert ways_of(linked) == ["server", "ring", "switch"]


@pytest.mark.parametrize(("nodes", "server", "ring"), [(4, 11, 11), (8, 10, 11), (16, 3, 10)])
def test_number_of_compressed_gradients_matches_shipped_plans(nodes: int, server: int, ring: int) -> None:
    costs = hipress_costs(nodes)
    assert sum(each.compressed for each in plan(replace(costs, send=None), nodes, SIZES)) == server
    assert sum(each.compressed for each in plan(replace(costs, gather=None), nodes, SIZES)) == ring


@pytest.mark.parametrize(
    ("size", "compressed", "parts"), [(1_179_648, True, 2), (589_824, False, 4), (102_760_448, True, 4)]
)
def test_the_shipped_plan_of_four_nodes_is_reproduced(size: int, compressed: bool, parts: int) -> None:
    (choice,) = plan(replace(hipress_costs(4), send=None), 4, [size])
    assert (choice.way, choice.compressed, choice.parts) == ("server", compressed, parts)


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_is_the_best_of_all_choices_and_rules(seed: int) -> None:
    costs, nodes = random_costs(seed), 2 + seed % 7
    planned = sum(each.time_ms for each in plan(costs, nodes, SIZES))
    for rule in (lambda _: True, lambda _: False, lambda size: size >= 262_144):
        for way in ways_of(costs):
            total = 0.0
            for size in SIZES:
                total += min(
                    choice.time_ms
                    for choice in choices(costs, nodes, size)
                    if choice.way == way and choice.compressed == rule(size)
                )
            assert planned <= total + 1e-9


def test_a_switch_hides_encoding_behind_longer_hops() -> None:
    costs = CommunicationCosts(Line(1e-6, 0), Line(1e-6, 0), Line(0, 0), 0.25, hop=Line(1e-5, 0), switch_ratio=0.25)
    times = {(choice.compressed, choice.parts): choice.time_ms for choice in choices(costs, 4, 1_000_000)}
    assert times[False, 1] == pytest.approx(10.0)
    assert times[False, 4] == pytest.approx(4 * 2.5)
    assert times[True, 1] == pytest.approx(1.0 + 2.5 + 0.25)
    assert times[True, 4] == pytest.approx(0.25 + 4 * 0.625 + 0.0625)


def test_costs_are_fitted_to_measured_times() -> None:
    line = fitted([1000, 2000, 4000], [1.0, 1.5, 2.5])
    assert line(3000) == pytest.approx(2.0)
    assert line(0) == pytest.approx(1.0)  # the floor
    assert Line(1.0, 0.5, 2.0)(1) == 2.0
    assert Line(1.0, 0.5, 2.0)(9) == 9.5
    with pytest.raises(InvalidTensor):
        fitted([5, 5], [1.0, 2.0])


def test_unplannable_gradients_are_refused() -> None:
    with raises(InvalidTensor, value=1):
        plan(hipress_costs(4), 1, SIZES)
    with raises(InvalidTensor, value=0):
        plan(hipress_costs(4), 4, [5, 0])
    with pytest.raises(InvalidTensor):
        plan(CommunicationCosts(Line(0, 0), Line(0, 0), Line(0, 0), 1.0), 4, [5])
