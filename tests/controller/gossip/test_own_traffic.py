"""A job's own pulls as a part of the traffic that telemetry reports."""

from __future__ import annotations

import pytest

from weir.controller.gossip.errors import GossipError
from weir.controller.gossip.own_traffic import OwnTraffic
from weir.topologies import Endpoint

LINK = Endpoint("h2", 0)
RATES = {LINK: 8e6}
AVERAGE_NS = 20_000_000


def paths(source: str, destination: str) -> list[Endpoint]:
    return [LINK] if source == "h2" else []


def made(*pulls: tuple[int, int | None]) -> OwnTraffic:
    """Pulls of h1 from h2 of 10,000 bytes, with begin and end in ms."""
    own = OwnTraffic(10_000, AVERAGE_NS)
    for began_ms, ended_ms in pulls:
        own.begin("h1", "h2", began_ms * 1_000_000)
        if ended_ms is not None:
            own.end("h1", "h2", ended_ms * 1_000_000)
    return own


def test_a_link_that_pulls_keep_busy_carries_its_rate() -> None:
    pulls = [(first, first + 10) for first in range(0, 400, 10)]  # 80,000 bit in 10 ms each
    assert made(*pulls).on_links(paths, RATES, 400_000_000)[LINK] == pytest.approx(8e6, rel=1e-2)


def test_a_pull_under_way_counts_until_now() -> None:
    traffic = [made((0, None)).on_links(paths, RATES, now)[LINK] for now in (0, 5_000_000, 10_000_000)]
    assert traffic[0] == 0
    assert traffic[0] < traffic[1] < traffic[2] == pytest.approx(made((0, 10)).on_links(paths, RATES, 10_000_000)[LINK])


def test_ended_pulls_are_forgotten() -> None:
    own = made((0, 10))
    early, late = (own.on_links(paths, RATES, now)[LINK] for now in (10_000_000, 60_000_000))
    assert late == pytest.approx(early * 2.718281828 ** (-50 / 20), rel=1e-6)
    assert own.on_links(paths, RATES, 200_000_000) == {}


def test_shares_of_equal_paths_divide_the_traffic() -> None:
    own = made((0, 10))
    whole = own.on_links(paths, RATES, 10_000_000)[LINK]
    assert own.on_links(lambda *_: {LINK: 0.5}, RATES, 10_000_000)[LINK] == pytest.approx(whole / 2)


@pytest.mark.parametrize("name", ["message_bytes", "average_ns"])
def test_impossible_sizes_are_refused(name: str) -> None:
    with pytest.raises(GossipError) as refused:
        OwnTraffic(**{"message_bytes": 1, "average_ns": 1, name: 0})
    assert refused.value.place == name
