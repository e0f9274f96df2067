"""How long a round of gradients takes under a placement: what the LP minimises and every strategy is compared by.

Chunks are pipelined, so a job of D bytes takes as long as its slowest link, and then the latency of its longest path:

    T  =  max over directed links e of L_e · 8 D / (c_e − b_e)  +  max over workers of Σ (queue + propagation)

with L_e the job's streams on e, contributions up and results down. Background b_e does not yield, so what is left of
the rate c_e counts, but never less than `LEAST_SHARE` of it: telemetry is an average. Where equal-cost hashing decides,
with shares p_i < 1, a stream finds on its link itself and the others' means: L_e = Σ p_i + 1 − min p_i, which is the
plain count where every share is 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from controller.placement.problem import IDLE, Placement, Problem
from topologies.model import Endpoint

LEAST_SHARE: Final = 0.05
QUEUED_PACKET_BITS: Final = 8 * 1500
"""Queue depths are in packets; each is taken for a full frame."""


@dataclass(slots=True)
class Streams:
    """The job's streams on every directed link, as they are added."""

    total: dict[Endpoint, float] = field(default_factory=dict)
    """Σ p_i."""
    least: dict[Endpoint, float] = field(default_factory=dict)
    """min p_i."""

    def add(self, shares: Mapping[Endpoint, float]) -> None:
        self.add_steps(shares.items())

    def add_steps(self, steps: Iterable[tuple[Endpoint, float]]) -> None:
        for link, share in steps:
            self.total[link] = self.total.get(link, 0.0) + share
            self.least[link] = min(self.least.get(link, 1.0), share)

    def copy(self) -> Streams:
        return Streams(dict(self.total), dict(self.least))

    def load(self, link: Endpoint, more: float = 0.0, share: float = 1.0) -> float:
        """L_e, with `more` streams added that each take the link with probability `share`."""
        total = self.total.get(link, 0.0) + more * share
        return total + 1.0 - min(self.least.get(link, 1.0), share) if total else 0.0


class Costs:
    """The times of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._seconds: dict[Endpoint, float] = {}
        self._wait: dict[Endpoint, float] = {}
        self._latency: dict[tuple[str, str], float] = {}

    def seconds_per_stream(self, link: Endpoint) -> float:
        """8 D / (c_e − b_e)."""
        if link not in self._seconds:
            rate = self.problem.topology.link_at(link).rate_bps
            left = max(rate - self.problem.loads.get(link, IDLE).background_bps, LEAST_SHARE * rate)
            self._seconds[link] = 8 * self.problem.gradient_bytes / left
        return self._seconds[link]

    def queue_seconds(self, link: Endpoint) -> float:
        """What a packet waits in the egress queue."""
        if link not in self._wait:
            rate = self.problem.topology.link_at(link).rate_bps
            self._wait[link] = self.problem.loads.get(link, IDLE).queue_packets * QUEUED_PACKET_BITS / rate
        return self._wait[link]

    def link_seconds(self, link: Endpoint, load: float) -> float:
        """T_e: strictly increasing in the load."""
        return self.queue_seconds(link) + load * self.seconds_per_stream(link)

    def latency_seconds(self, source: str, destination: str) -> float:
        """Queues and propagation of the slowest of the equal-cost paths."""
        if source == destination:
            return 0.0
        if (source, destination) not in self._latency:
            topology = self.problem.topology
            links = [Endpoint(source, port) for port in self.problem.routes.next_hops(source, destination)]
            self._latency[source, destination] = max(
                self.queue_seconds(link)
                + topology.link_at(link).delay_ns * 1e-9
                + self.latency_seconds(topology.peer(link).node, destination)
                for link in links
            )
        return self._latency[source, destination]

    def streams(self, edges: Iterable[tuple[str, str]]) -> Streams:
        """Both directions of every (child, parent)."""
        streams = Streams()
        for child, parent in edges:
            streams.add(self.problem.routes.shares(child, parent))
            streams.add(self.problem.routes.shares(parent, child))
        return streams

    def completion_seconds(self, placement: Placement) -> float:
        """T of the formula above."""
        streams = self.streams((*placement.aggregators.items(), *placement.parents.items()))
        slowest = max(streams.load(link) * self.seconds_per_stream(link) for link in streams.total)
        round_trip = {placement.root: 0.0}

        def of(node: str) -> float:
            if node not in round_trip:
                above = placement.parents[node] if node in placement.parents else placement.aggregators[node]
                there_and_back = self.latency_seconds(node, above) + self.latency_seconds(above, node)
                round_trip[node] = there_and_back + of(above)
            return round_trip[node]

        return slowest + max(of(worker) for worker in placement.aggregators)


def predicted_completion_time(placement: Placement, problem: Problem) -> float:
    """Seconds that one round of gradients takes, from the first byte sent to the last result received."""
    return Costs(problem).completion_seconds(placement)


def should_move(current: Placement, proposed: Placement, problem: Problem, gain: float = 0.15) -> bool:
    """Whether `proposed` is predicted faster than `current` by more than the share `gain`: a move costs a pause."""
    costs = Costs(problem)
    return costs.completion_seconds(proposed) < (1 - gain) * costs.completion_seconds(current)
