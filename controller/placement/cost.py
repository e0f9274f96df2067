"""How long a round of gradients takes under a placement: what the LP minimises and every strategy is compared by.

Chunks are pipelined, so a job of D bytes takes as long as its slowest link, and then the latency of its longest path:

    T  =  max over directed links e of L_e · 8 D / (c_e − b_e)  +  max over workers of Σ (queue + propagation)

with L_e the job's streams on e, contributions up and results down. Background b_e does not yield, so what is left of
the rate c_e counts, but never less than `LEAST_SHARE` of it: telemetry is an average. Where equal-cost hashing decides,
with shares p_i < 1, a stream finds on its link itself and the others' means: L_e = Σ p_i + 1 − min p_i, which is the
plain count where every share is 1.

Inside, a link is its place in `Topology.directed_links`, for a search asks for their times millions of times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...topologies.model import Endpoint
from ..telemetry.loads import IDLE
from .problem import Placement, Problem

LEAST_SHARE: Final = 0.05
QUEUED_PACKET_BITS: Final = 8 * 1500
"""Queue depths are in packets; each is taken for a full frame."""

Step = tuple[int, float]
"""A directed link, and the probability that a stream takes it."""


class Streams:
    """The job's streams on every directed link, as they are added."""

    __slots__ = ("least", "total")

    def __init__(self, links: int) -> None:
        """None yet, on so many links."""
        self.total = [0.0] * links
        """Σ p_i."""
        self.least = [1.0] * links
        """min p_i."""

    def add(self, steps: Iterable[Step]) -> None:
        """One stream more."""
        total, least = self.total, self.least
        for link, share in steps:
            total[link] += share
            if share < least[link]:
                least[link] = share

    def copy(self) -> Streams:
        twin = Streams(0)
        twin.total, twin.least = self.total.copy(), self.least.copy()
        return twin

    def load(self, link: int, more: int = 0, share: float = 1.0) -> float:
        """L_e, with `more` streams added that each take the link with probability `share`."""
        total = self.total[link] + more * share
        return total + 1.0 - min(self.least[link], share) if total else 0.0


class Costs:
    """The times of one problem."""

    def __init__(self, problem: Problem) -> None:
        topology = problem.topology
        self.problem = problem
        self._number = {link: number for number, link in enumerate(topology.directed_links)}
        self._seconds: list[float] = []
        self._wait: list[float] = []
        for link in topology.directed_links:
            rate, load = topology.link_at(link).rate_bps, problem.loads.get(link, IDLE)
            self._seconds.append(8 * problem.gradient_bytes / max(rate - load.background_bps, LEAST_SHARE * rate))
            self._wait.append(load.queue_packets * QUEUED_PACKET_BITS / rate)
        self._latency: dict[tuple[str, str], float] = {}
        self._steps: dict[tuple[str, str], tuple[Step, ...]] = {}

    def seconds_per_stream(self, link: Endpoint) -> float:
        """8 D / (c_e − b_e)."""
        return self._seconds[self._number[link]]

    def link_seconds(self, link: int, load: float) -> float:
        """T_e, what a packet waits in the egress queue included: strictly increasing in the load."""
        return self._wait[link] + load * self._seconds[link]

    def offer(self, streams: Streams, steps: Iterable[Step]) -> tuple[float, float]:
        """`link_seconds` of all these steps with one stream more, which takes them: the largest, and the sum."""
        total, least, wait, each = streams.total, streams.least, self._wait, self._seconds
        slowest = together = 0.0
        for link, share in steps:
            # link_seconds(link, streams.load(link, 1, share)), without the calls
            low = least[link]
            seconds = wait[link] + (total[link] + share + 1.0 - (low if low < share else share)) * each[link]
            together += seconds
            if seconds > slowest:
                slowest = seconds
        return slowest, together

    def latency_seconds(self, source: str, destination: str) -> float:
        """Queues and propagation of the slowest of the equal-cost paths."""
        if source == destination:
            return 0.0
        if (source, destination) not in self._latency:
            topology = self.problem.topology
            links = [Endpoint(source, port) for port in self.problem.routes.next_hops(source, destination)]
            self._latency[source, destination] = max(
                self._wait[self._number[link]]
                + topology.link_at(link).delay_ns * 1e-9
                + self.latency_seconds(topology.peer(link).node, destination)
                for link in links
            )
        return self._latency[source, destination]

    def steps(self, child: str, parent: str) -> tuple[Step, ...]:
        """What a stream from child to parent takes, and its result on the way back."""
        if (known := self._steps.get((child, parent))) is None:
            shares = self.problem.routes.shares
            both = (*shares(child, parent).items(), *shares(parent, child).items())
            known = self._steps[child, parent] = tuple((self._number[link], share) for link, share in both)
        return known

    def streams(self, edges: Iterable[tuple[str, str]] = ()) -> Streams:
        """Those of every (child, parent), and nothing else."""
        streams = Streams(len(self._number))
        for child, parent in edges:
            streams.add(self.steps(child, parent))
        return streams

    def slowest_link_seconds(self, placement: Placement) -> float:
        """The first part of T."""
        return self._slowest(self.streams(placement.edges))

    def completion_seconds(self, placement: Placement) -> float:
        """T of the formula above."""
        return self.weigh(placement)[0]

    def weigh(self, placement: Placement) -> tuple[float, float]:
        """T, and the seconds that all streams take on all their links, one after another."""
        streams = self.streams(placement.edges)
        work = sum(total * seconds for total, seconds in zip(streams.total, self._seconds, strict=True))
        round_trip = {placement.root: 0.0}

        def of(node: str) -> float:
            if node not in round_trip:
                above = placement.parents[node] if node in placement.parents else placement.aggregators[node]
                there_and_back = self.latency_seconds(node, above) + self.latency_seconds(above, node)
                round_trip[node] = there_and_back + of(above)
            return round_trip[node]

        return self._slowest(streams) + max(of(worker) for worker in placement.aggregators), work

    def _slowest(self, streams: Streams) -> float:
        return max(streams.load(link) * seconds for link, seconds in enumerate(self._seconds))


def predicted_completion_time(placement: Placement, problem: Problem) -> float:
    """Seconds that one round of gradients takes, from the first byte sent to the last result received."""
    return Costs(problem).completion_seconds(placement)


def should_move(current: Placement, proposed: Placement, problem: Problem, gain: float = 0.15) -> bool:
    """Whether `proposed` is predicted faster than `current` by more than the share `gain`: a move costs a pause."""
    costs = Costs(problem)
    return costs.completion_seconds(proposed) < (1 - gain) * costs.completion_seconds(current)
