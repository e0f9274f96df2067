"""The ways to place a job, by name, behind one interface.

ps      every worker sends to the parameter server
rack    a rack with two workers or more sums on its own leaf, the others send to the server
random  every worker takes one of the nodes that it may send to, at random
agg     the exact LP, over telemetry
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from controller.placement import Placement, PlacementError, Problem
from controller.placement.search import AggSearch
from wire.aggregation import FAN_IN


class Strategy(Protocol):
    """A way to place a job."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        """A placement that passes `Placement.check`. Raises PlacementError where this way finds none."""


class ParameterServer:
    """No switch sums anything."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        return _checked("ps", problem, dict.fromkeys(problem.workers, _server("ps", problem)))


class RackOnly:
    """As SwitchML and ATP do within a rack: leaves sum, and each sends one stream to the server."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        server = _server("rack", problem)
        aggregators: dict[str, str] = {}
        for rack, workers in problem.racks.items():
            sums = len(workers) > 1 and problem.takes(rack)
            aggregators.update(dict.fromkeys(workers, rack if sums else server))
        return _checked("rack", problem, aggregators)


class RandomSwitch:
    """A switch for every worker by lot, among those that it has one shortest path to and that have room."""

    def place(self, problem: Problem, rng: random.Random) -> Placement:
        server = _server("random", problem)
        taken: dict[str, int] = {}
        aggregators: dict[str, str] = {}
        for worker in problem.workers:
            eligible = [
                switch.name
                for switch in problem.topology.switches
                if problem.takes(switch.name)
                and problem.routes.unique_path(worker, switch.name) is not None
                and taken.get(switch.name, 0) < FAN_IN
            ]
            aggregators[worker] = rng.choice(eligible) if eligible else server
            taken[aggregators[worker]] = taken.get(aggregators[worker], 0) + 1
        return _checked("random", problem, aggregators)


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


def _server(name: str, problem: Problem) -> str:
    if problem.server is None:
        raise PlacementError(f"strategy {name} needs a parameter server and the job has none; name one, or use agg")
    return problem.server


def _checked(name: str, problem: Problem, aggregators: dict[str, str]) -> Placement:
    """Every switch in use sends its sum to the server."""
    server = _server(name, problem)
    parents = dict.fromkeys(sorted(set(aggregators.values()) - {server}), server)
    placement = Placement(aggregators, parents, server)
    placement.check(problem)
    return placement
