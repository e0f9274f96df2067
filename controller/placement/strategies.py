"""The ways to place a job, by name, behind one interface.

ps      every worker sends to the parameter server
rack    a rack with two workers or more sums on its own leaf, the others send to the root
random  every worker takes one of the nodes that it may send to, at random
agg     the exact LP, over telemetry

The root is the parameter server, or, for all but ps, a switch where there is none. With rack and random the sums go
straight there, unless a node would get more children than it takes: then some workers or sums go by further switches.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from ...wire.aggregation import FAN_IN
from . import Placement, PlacementError, Problem, fitted
from .search import AggSearch


class Strategy(Protocol):
    """A way to place a job."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """A placement that passes `Placement.check`. Raises PlacementError where this way finds none."""


class ParameterServer:
    """No switch sums anything."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        if problem.server is None:
            raise PlacementError("strategy ps needs a parameter server and the job has none; name one, or use agg")
        if len(problem.workers) > FAN_IN:
            raise PlacementError(
                f"strategy ps sums at {problem.server} alone, which takes at most {FAN_IN} children, and the job has "
                f"{len(problem.workers)} workers; use rack, random or agg, which put switches in between"
            )
        placement = Placement(dict.fromkeys(problem.workers, problem.server), {}, problem.server)
        placement.check(problem)
        return placement


class RackOnly:
    """As SwitchML and ATP do within a rack: leaves sum, and each sends one stream to the root."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        wanted: dict[str, str] = {}
        for rack, workers in problem.racks.items():
            if len(workers) > 1 and problem.takes(rack):
                wanted.update(dict.fromkeys(workers, rack))
        return _nearest(problem, wanted)


class RandomSwitch:
    """A switch for every worker by lot, among those that it has one shortest path to and that have room."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        taken: dict[str, int] = {}
        wanted: dict[str, str] = {}
        for worker in problem.workers:
            eligible = [
                switch.name
                for switch in problem.topology.switches
                if problem.takes(switch.name)
                and problem.routes.unique_path(worker, switch.name) is not None
                and taken.get(switch.name, 0) < FAN_IN
            ]
            if eligible:
                wanted[worker] = rng.choice(eligible)
                taken[wanted[worker]] = taken.get(wanted[worker], 0) + 1
        return _nearest(problem, wanted)


@dataclass
class Agg:
    """The exact LP over the loads of all links (`controller.placement`)."""

    search: AggSearch = field(default_factory=AggSearch)

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        placement = self.search.place(problem)
        placement.check(problem)
        return placement


STRATEGIES: Final[Mapping[str, Callable[[], Strategy]]] = {
    "ps": ParameterServer,
    "rack": RackOnly,
    "random": RandomSwitch,
    "agg": Agg,
}


def strategy(name: str) -> Strategy:
    """A strategy by its name. Raises PlacementError, which lists the right ones, for an unknown one."""
    if name not in STRATEGIES:
        raise PlacementError(f'strategy "{name}" is unknown; there are {", ".join(sorted(STRATEGIES))}')
    return STRATEGIES[name]()


def _nearest(problem: Problem, wanted: Mapping[str, str]) -> Placement:
    """The placement with fan-in kept that is nearest to the wanted one."""
    placement = fitted(problem, wanted)
    placement.check(problem)
    return placement
