"""Arrows for background flows in the pictures of a run: few enough to be told apart, and none left out in silence."""

from __future__ import annotations

from weir.experiments.config.background import SteadyFlow, YieldingFlow
from weir.experiments.records.drawing import MAX_ARROWS, arrows_of
from weir.topologies.drawing import DrawnFlow


def steady(source: str, destination: str, rate: str = "10Mbit") -> SteadyFlow:
    return SteadyFlow.model_validate({"source": source, "destination": destination, "rate": rate})


def test_single_flows_keep_rate_or_kind() -> None:
    other = YieldingFlow.model_validate({"source": "h1", "destination": "h2", "kind": "yielding"})
    assert arrows_of([steady("h1", "h2"), other]) == (
        [DrawnFlow("h1", "h2", "10Mbit"), DrawnFlow("h1", "h2", "yields")],
        "",
    )


def test_flows_of_a_pair_share_an_arrow() -> None:
    flows = [steady("h1", "h2"), steady("h2", "h1"), *(steady("h1", "h2", "20Mbit") for _ in range(1_000))]
    assert arrows_of(flows) == ([DrawnFlow("h1", "h2", "1001 flows, 20010Mbit"), DrawnFlow("h2", "h1", "10Mbit")], "")


def test_pairs_beyond_the_maximum_are_counted() -> None:
    flows = [steady(f"h{n}", f"h{n + 1}") for n in range(MAX_ARROWS + 5) for _ in range(1 + (n > 4))]
    arrows, note = arrows_of(flows)
    assert len(arrows) == MAX_ARROWS
    assert all(arrow.label == "2 flows, 20Mbit" for arrow in arrows)
    assert note == " (and 5 flows between other hosts)"
