"""Completion time of a round of gradients under a placement: the objective of every model and comparison.

Chunks are pipelined, so a job of D bytes takes as long as its slowest link, and then the latency of its longest path:

    T  =  max over links e with L_e > 0 of (L_e · D + O_e) · 8 / (c_e − b_e)
          +  max over workers of Σ (queue + propagation)

with L_e the job's streams on the directed link e, contributions up and results down, and O_e the bytes of the fabric's
other jobs there, which are counted as if all jobs summed at once. Background b_e does not yield, so only the rest of
the rate c_e counts, but never less than `MIN_SHARE` of it: telemetry is an average. With equal-cost hashing and
shares p_i < 1, a stream finds on its link itself and the others' means: L_e = Σ p_i + 1 − min p_i, which is the plain
count if every share is 1.

Internally, a link is its index in `Topology.directed_links`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from ....topologies.model import Endpoint
from ....topologies.routing import Routes
from .links import Floats, Ints, Links
from .loads import IDLE, LinkLoad
from .problem import Placement, PlacementError, Problem

MIN_SHARE: Final = 0.05
_ROUNDING: Final = 1e-12
QUEUED_PACKET_BITS: Final = 8 * 1500
"""Queue depths are in packets; each is taken for a full frame."""

Step = tuple[int, float]
"""A directed link, and the probability that a stream takes it."""


class LinkStreams:
    """The job's streams on every directed link, as they are added."""

    __slots__ = ("least", "total")

    def __init__(self, links: int) -> None:
        """Create empty streams on `links` links."""
        self.total = [0.0] * links
        """Σ p_i by link: how many streams take it, on average."""
        self.least = [1.0] * links
        """min p_i by link: the least probability of a stream that may take it; 1 where none does."""

    def add(self, steps: Iterable[Step]) -> None:
        """Add one stream, given the links that it may take and their probabilities."""
        total, least = self.total, self.least
        for link, share in steps:
            total[link] += share
            if share < least[link]:
                least[link] = share

    def loads(self) -> Floats:
        """Return L_e, (links,)."""
        loads: Floats = np.array(self.total) + 1.0 - np.array(self.least)
        return loads

    def load(self, link: int, more: int = 0, share: float = 1.0) -> float:
        """Return L_e, with `more` streams added that each take the link with probability `share`."""
        total = self.total[link] + more * share
        return total + 1.0 - min(self.least[link], share) if total else 0.0


class PlacementCosts:
    """The times of one problem. Raises PlacementError for a load that is no figure, or of a link that is not there."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.links = links = Links.of(problem.routes)
        self.seconds: Floats = 8 * problem.gradient_bytes / links.rate_bps
        """(links,): 8 D / ((c_e − b_e) (1 − p_e)), what one stream takes on each directed link."""
        self.wait, self.others, self._others_bytes = np.zeros((3, len(links.number)))
        """(links,) each: waiting time of a packet in seconds; time and bytes of the other jobs' streams."""
        self._latency: dict[tuple[str, str], float] = {}
        self._put(problem, _last_readings(problem, self.links), problem.others)
        self.others = self._others_bytes * self.seconds / problem.gradient_bytes

    def change(self, problem: Problem, changed: Collection[Endpoint]) -> None:
        """Update the times to this problem, which differs from the previous one only on these links.

        Nothing else is touched, so the time does not grow with the fabric. Raises PlacementError like the constructor,
        and then nothing has changed.
        """
        self._put(
            problem,
            _readings(problem, self.links, {link: problem.loads.get(link, IDLE) for link in changed}),
            {link: problem.others.get(link, 0.0) for link in changed},
        )
        at = [self.links.number[link] for link in changed]
        self.others[at] = self._others_bytes[at] * self.seconds[at] / problem.gradient_bytes
        self.problem, self._latency = problem, {}

    def _put(self, problem: Problem, readings: Readings, others: Mapping[Endpoint, float]) -> None:
        """Set the loads of these links: all of them or, if some value is not a number, none."""
        at, background, loss, wait = readings
        of_others, count = _others(problem, self.links, others)
        rate = self.links.rate_bps[at]
        self.seconds[at] = 8 * problem.gradient_bytes / np.maximum((rate - background) * (1 - loss), MIN_SHARE * rate)
        self.wait[at] = wait
        self._others_bytes[of_others] = count

    @property
    def with_one(self) -> Floats:
        """(links,): a link's time with one stream of this job, and all of the others."""
        return self.seconds + self.others

    @property
    def slowest_link_there_is(self) -> float:
        """No tree is slower, however many of its streams meet."""
        return float(self.seconds.max()) * len(self.problem.workers) + float(self.others.max())

    def seconds_of_pairs(self) -> Floats:
        """Return the time (pairs,) of one stream up and one result down between two linked switches."""
        return self.links.slowest_of_pairs(self.with_one)

    def seconds_of_pair(self, pair: int) -> float:
        """Return the same of one pair."""
        at = self.links.of_pair(pair)
        return float((self.seconds[at] + self.others[at]).max())

    def latency_of_pairs(self) -> Floats:
        """Return a packet's waiting and propagation time (pairs,), in the slower direction."""
        return self.links.slowest_of_pairs(self.wait + self.links.delay_seconds)

    def access_seconds(self, hosts: Iterable[str]) -> float:
        """Return the same between hosts and their switches, the slowest of them; 0 without any."""
        places = self.links.access_of(hosts)
        return float((self.seconds[places] + self.others[places]).max(initial=0.0))

    def streams_within(self, seconds: float) -> Floats:
        """Return the number of streams (links,) that each link carries in this time; the same for a share 1e-12
        less.
        """
        return np.floor(np.maximum(seconds * (1 + _ROUNDING) - self.others, 0.0) / self.seconds)

    def link_seconds(self, link: int, load: float) -> float:
        """Return T_e, what a packet waits in the egress queue included: strictly increasing in the load."""
        return float(self.wait[link] + self.others[link] + load * self.seconds[link])

    def latency_seconds(self, source: str, destination: str) -> float:
        """Return queues and propagation of the slowest of the equal-cost paths."""
        if source == destination:
            return 0.0
        if (source, destination) not in self._latency:
            topology, number, delays = self.problem.topology, self.links.number, self.links.delay_seconds
            links = [Endpoint(source, port) for port in self.problem.routes.next_hops(source, destination)]
            self._latency[source, destination] = max(
                float(self.wait[number[link]] + delays[number[link]])
                + self.latency_seconds(topology.peer(link).node, destination)
                for link in links
            )
        return self._latency[source, destination]

    def steps(self, child: str, parent: str) -> tuple[Step, ...]:
        """Return links of a stream from child to parent, and of its result on the way back."""
        if (known := self.links.steps.get((child, parent))) is None:
            shares = self.problem.routes.shares
            both = (*shares(child, parent).items(), *shares(parent, child).items())
            known = self.links.steps[child, parent] = tuple((self.links.number[link], share) for link, share in both)
        return known

    def streams(self, edges: Iterable[tuple[str, str]] = ()) -> LinkStreams:
        """Return those of every (child, parent), and nothing else."""
        streams = LinkStreams(len(self.links.number))
        for child, parent in edges:
            streams.add(self.steps(child, parent))
        return streams

    def loads(self, placement: Placement) -> Floats:
        """Return L_e (links,) of all streams of a placement.

        Most workers send to their own switch, and so without hashing: their streams are counted all at once.
        """
        links, sent = self.links, placement.aggregators
        rack = {} if self.problem.routes.down else links.rack
        own = [host for host, node in sent.items() if rack.get(host) == node]
        others = [edge for edge in sent.items() if rack.get(edge[0]) != edge[1]]
        steps = [step for edge in (*others, *placement.parents.items()) for step in self.steps(*edge)]
        at = np.array([link for link, _ in steps], np.int64)
        shares = np.array([share for _, share in steps])
        least = np.ones(len(links.number))
        np.minimum.at(least, at, shares)
        loads: Floats = np.bincount(at, shares, len(least)) + 1.0 - least
        loads[links.access_of(own)] += 1.0
        return loads

    def slowest_link_seconds(self, placement: Placement) -> float:
        """Return the first part of T."""
        load = self.loads(placement)
        return float((load * self.seconds + self.others)[load.nonzero()].max(initial=0.0))

    def longest_path_seconds(self, placement: Placement) -> float:
        """Return the second part of T."""
        round_trip = {placement.root: 0.0}

        def of(node: str) -> float:
            if node not in round_trip:
                above = placement.parents[node] if node in placement.parents else placement.aggregators[node]
                there_and_back = self.latency_seconds(node, above) + self.latency_seconds(above, node)
                round_trip[node] = there_and_back + of(above)
            return round_trip[node]

        return max(of(worker) for worker in placement.aggregators)

    def completion_seconds(self, placement: Placement) -> float:
        """Return T of the formula above, in seconds."""
        return self.slowest_link_seconds(placement) + self.longest_path_seconds(placement)


Readings = tuple[Ints, Floats, Floats, Floats]
"""(loads,) each: the directed link's place, background in bit/s, loss, and seconds that a packet waits."""
_LAST: WeakKeyDictionary[Routes, tuple[Mapping[Endpoint, LinkLoad], Readings]] = WeakKeyDictionary()
"""Last loads of each fabric, which all jobs that are decided together share."""


def _last_readings(problem: Problem, links: Links) -> Readings:
    """`_readings` of the problem's loads; those of the last problem if they are the same object."""
    loads, readings = _LAST.get(problem.routes, (None, None))
    if readings is None or loads is not problem.loads:
        readings = _readings(problem, links, problem.loads)
        _LAST[problem.routes] = problem.loads, readings
    return readings


def _readings(problem: Problem, links: Links, loads: Mapping[Endpoint, LinkLoad]) -> Readings:
    """Readings of these loads, as arrays."""
    for link in loads:
        if link not in links.number:
            raise PlacementError(
                f"it is no port with a link in {problem.topology.name}", place=f"loads of {link}", value=link
            )
    at = np.array([links.number[link] for link in loads], np.int64)
    background = np.array([load.background_bps for load in loads.values()], np.float64)
    loss = np.array([load.loss for load in loads.values()], np.float64)
    rates = links.rate_bps[at].tolist()
    wait = np.array([_wait(load, rate) for load, rate in zip(loads.values(), rates, strict=True)], np.float64)
    sound = np.isfinite(background), background >= 0, np.isfinite(wait), wait >= 0, loss >= 0, loss <= 1
    wrong = ~np.logical_and.reduce(sound)
    if wrong.any():
        link, load = list(loads.items())[int(wrong.argmax())]
        raise PlacementError(
            f"background_bps {load.background_bps}, queue_packets {load.queue_packets}; both are figures of 0 and "
            f"above, as is latency_seconds ({load.latency_seconds}); loss ({load.loss}) is 0…1; leave out a link "
            "without a reading",
            place=f"loads of {link}",
            value=load,
        )
    return at, background, loss, wait


def _wait(load: LinkLoad, rate_bps: float) -> float:
    """Waiting time of a packet in the egress queue, as measured, or else from its depth."""
    if load.latency_seconds is not None:
        return load.latency_seconds
    return load.queue_packets * QUEUED_PACKET_BITS / rate_bps


def _others(problem: Problem, links: Links, others: Mapping[Endpoint, float]) -> tuple[Ints, Floats]:
    """(others,) each: the directed link's place, and other jobs' bytes there."""
    for link, count in others.items():
        if link not in links.number or not (math.isfinite(count) and count >= 0):
            raise PlacementError(
                f"{count} bytes; it is 0 or more, and on a port with a link of {problem.topology.name}",
                place=f"other jobs' traffic on {link}",
                value=count,
            )
    return np.array([links.number[link] for link in others], np.int64), np.array([*others.values()], np.float64)


def predicted_completion_time(placement: Placement, problem: Problem) -> float:
    """Return seconds that one round of gradients takes, from the first byte sent to the last result received."""
    return PlacementCosts(problem).completion_seconds(placement)
