"""Reference schemes of evaluations that are no strategies: they give no job a tree of its own, or only explain the
others' gains. Each has a description, and is refused by name wherever a job is to be placed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from .model.problem import PlacementError
from .model.strategy import Need, Strategy, StrategyDescription

RING: Final = "ring"
TWO_LEVEL_RING: Final = "two-level-ring"
HALVING_DOUBLING: Final = "halving-doubling"
STRIPED: Final = "striped"
BLIND_TOGETHER: Final = "blind-together"


def _refusing(name: str, why: str) -> Callable[[], Strategy]:
    def make() -> Strategy:
        raise PlacementError(f'strategy "{name}" places no job: {why}', value=name)

    return make


_OF_HOSTS: Final = {
    RING: "workers pass parts of the sum on from one to the next, rack by rack; no switch sums",
    TWO_LEVEL_RING: "a ring in each rack, and rings of one worker of each rack for the parts; no switch sums",
    HALVING_DOUBLING: "pairs of workers exchange halves, quarters … of the sum, near ones first; no switch sums",
}
OF_HOSTS: Final = frozenset(_OF_HOSTS)
"""All-reduces among workers, without switches that sum."""

REFERENCE_SCHEMES: Final[Mapping[str, StrategyDescription]] = {
    each.name: each
    for each in (
        *(
            StrategyDescription(
                name,
                name,
                summary,
                _refusing(name, "its hosts sum without switches; only weir evaluate compares it"),
                frozenset(),
            )
            for name, summary in _OF_HOSTS.items()
        ),
        StrategyDescription(
            STRIPED,
            "striped",
            "all jobs together, each over several trees, by one linear program, on arrivals and at every decision",
            _refusing(
                STRIPED,
                "it places all jobs together; weir place does so by --jobs and --stripes, and a job has several trees "
                "by weir jobs register --stripes, or stripes: in a run's file",
            ),
            frozenset({Need.ROOM, Need.TELEMETRY}),
            resolves=True,
            jointly=True,
        ),
        StrategyDescription(
            BLIND_TOGETHER,
            "blind, together",
            "`widest` without telemetry; running jobs are placed together by their known streams",
            _refusing(BLIND_TOGETHER, "it tells what looks at running jobs are worth without telemetry; name widest"),
            frozenset({Need.ROOM}),
            resolves=True,
            jointly=True,
        ),
    )
}
"""Descriptions by name; their `make` raises the error that explains this."""
