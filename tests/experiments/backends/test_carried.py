"""Traffic that a fabric has carried, against a calculation by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from weir.experiments.backends import carried
from weir.experiments.backends.carried import CarriedTraffic
from weir.topologies import Endpoint, leaf_spine

TOPOLOGY = leaf_spine(2, 1, 1, rate_bps=1_000_000_000, uplink_rate_bps=100_000_000)
UP, DOWN = Endpoint("h1", 0), Endpoint("s1", 1)
ACROSS = Endpoint("s1", 2)


class Fabric:
    topology = TOPOLOGY

    def __init__(self, **_: Any) -> None: ...

    def link_bytes(self) -> dict[Endpoint, int]:
        return {UP: 3_000_000, DOWN: 5_000_000, ACROSS: 1_000_000, Endpoint("s3", 1): 10}


def of(
    finished: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, fabric: object = None
) -> CarriedTraffic | None:
    monkeypatch.setattr(carried, "RealTimeFabric", Fabric)
    service = SimpleNamespace(finished_calls=lambda: finished)
    live: Any = SimpleNamespace(fabric=fabric or Fabric(), service=service)
    return CarriedTraffic.of(live)


def test_slowest_link_and_two_round_trips_per_sum_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    found = of([(10, 50_000), (4, 1_000_000)], monkeypatch)
    assert found is not None
    assert (found.bytes, found.sums) == (8_000_000, 14)
    # 1 MB at 100 Mbit/s takes longer than 5 MB at 1 Gbit/s
    assert found.seconds == pytest.approx(0.08 + 10 * 2 * 50e-6 + 4 * 2 * 1e-3)
    assert str(found).startswith("8 MB in 14 sums; ")
    assert " take 89 ms " in str(found)


def test_nothing_is_said_without_sums_or_for_a_real_fabric(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of([], monkeypatch) is None
    assert of([(1, 1)], monkeypatch, fabric=object()) is None
