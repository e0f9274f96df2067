"""Time of a job's step, computed round by round as the protocol proceeds. Tests compare the packet fabric with it.

A step has P scale rounds without lanes and C rounds with them (docs/design.md §3.3). Let w rounds be in the network. A
worker i sends round r when two results have come: that of round r − w, and its chunk's exponent, from P rounds before.
The round is up at the root when the last contribution is, and comes down again. On the slowest link one round follows
the other:

    sent_r,i  =  max(done_{r−w},i, done_{r−P},i)
    up_r      =  max(max over i of (sent_r,i + u_i),  up_{r−1} + g)        done_r,i  =  up_r + d_i
    g         =  max over links of (L_e · B + O_e · B / D) · 8 / (c_e − b_e)

u_i and d_i are a worker's delays up and down without other rounds. Frames of a round that meet on a link wait for each
other once: results separated by a link are answered separately, so the wait on the way down does not recur on the way
up. Let m_i be the wait for the frames that meet, up or down, on a worker's hops. Then one number t is enough:

    t  =  max over i of (u_i + d_i + m_i)      up_r  =  max(up_{r−w} + t,  up_{r−P} + t,  up_{r−1} + g)

There are two exceptions:

- All workers send the first window's rounds at once. The faster ones' bursts go before the slowest one's frames
  (`_Tree.bursts`).
- Hosts may poll their frames at multiples of a time. They see results, and the server contributions, at the next one.

After the start-up the recursion is periodic, so its last stretch is extrapolated linearly.

A message takes the links that the switches' hash of its addresses chooses (`forwarding`). Nothing is lost and nothing
repeated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...topologies.model import Endpoint, Topology
from ..placement import Placement, PlacementCosts, Problem
from ..placement.model.cost import LinkStreams
from ..placement.model.links import Floats, Ints
from .plan import SCALE_ROUND_BYTES, JobSpec, hop_ways, max_streams_of, round_bytes, rounds_of_step

_SAME: Final = 1e-9
"""Paces that differ by this share or less are the same."""
_WINDOWS: Final = 8
"""Number of windows after which the recursion is periodic."""


@dataclass(frozen=True, slots=True)
class Step:
    """Contents of a job's step."""

    chunks: int
    """C: rounds with lanes."""
    scales: int
    """P = min(W, C): scale rounds, which go before them and carry exponents alone."""
    window: int
    """W: rounds from the oldest incomplete one on that a worker may have begun."""
    round_bytes: int
    """B: bytes of a frame with lanes."""
    poll_seconds: float = 0.0
    """Hosts look at what has come at multiples of this; 0: at once."""

    @classmethod
    def of(cls, spec: JobSpec, topology: Topology, poll_seconds: float = 0.0) -> Step:
        """That of one tensor with the job's bytes."""
        scales, chunks = rounds_of_step(spec, topology)
        return cls(chunks, scales, spec.window, round_bytes(topology), poll_seconds)


@dataclass(frozen=True, slots=True)
class Expected:
    """Predicted time of a step, with its parts."""

    seconds: float
    link_seconds: float
    """Time of the slowest link for a round with lanes."""
    slowest_link: Endpoint
    window: int
    """Rounds in the network: W, or the limit by the queue bound."""
    round_trip_seconds: float
    """Round-trip time of a round with lanes, in queues without other rounds."""

    @property
    def refill_seconds(self) -> float:
        """Time to sum again the rounds in the network."""
        return max(self.round_trip_seconds, self.window * self.link_seconds)

    @property
    def is_bound_by_window(self) -> bool:
        """True if the slowest link waits for the window."""
        return self.window * self.link_seconds < self.round_trip_seconds


@dataclass(frozen=True, slots=True)
class _Trip:
    """Times of rounds of one size, in seconds."""

    first: float
    """Up, where all workers send at once."""
    again: float
    """Up, after the last worker has the result that it waited for."""
    down: float
    """Time from the root to the last worker."""
    apart: float
    """Between two rounds, one after the other on the slowest link."""


def expected_step(
    problem: Problem, placement: Placement, step: Step, bound: int | None = None, *, ways_known: bool = True
) -> Expected:
    """Predict the time of a step under a placement.

    Args:
        problem: Fabric, loads and workers.
        placement: The job's tree.
        step: Contents of the step.
        bound: Queue bound in packets.
        ways_known: True if switches choose among equal next hops by their tables' hash, not at random.
    """
    costs = PlacementCosts(problem)
    window = step.window if bound is None else min(step.window, _allowed(problem, placement, bound))
    tree = _Tree(costs, placement, ways_known)
    with_lanes, without = (tree.trip(size) for size in (step.round_bytes, SCALE_ROUND_BYTES))
    at_host = problem.topology.is_host(placement.root)
    rounds = step.scales + step.chunks
    played = min(rounds, step.scales + _WINDOWS * max(window, step.scales))
    bursts = tree.bursts(min(window, step.scales), step.round_bytes)
    done = _done(step, window, with_lanes, without, at_host, played, bursts)
    seconds = done[-1]
    if played < rounds:
        stretch = min(played - step.scales, 4 * window)
        seconds += (rounds - played) * (done[-1] - done[-1 - stretch]) / stretch
    round_trip = with_lanes.again + with_lanes.down
    return Expected(seconds, with_lanes.apart, tree.slowest_link, window, round_trip)


def _done(
    step: Step, window: int, with_lanes: _Trip, without: _Trip, at_host: bool, played: int, bursts: Floats
) -> list[float]:
    """When each round's result is seen by the last worker; `bursts` is `_Tree.bursts`."""
    poll = step.poll_seconds

    def seen(time: float) -> float:
        return math.ceil(time / poll - 1e-9) * poll if poll else time

    done: list[float] = []
    up_before = down_before = -math.inf
    for round_ in range(played):
        trip = without if round_ < step.scales else with_lanes
        up = trip.first
        if (awaited := round_ - (min(window, step.scales) if round_ >= step.scales else window)) >= 0:
            up = done[awaited] + trip.again
        if 0 <= (place := round_ - step.scales) < len(bursts):
            up = max(up, done[0] + float(bursts[place]))
        up_before = max(up, up_before + trip.apart)
        at_root = seen(up_before) if at_host else up_before
        down_before = max(at_root + trip.down, down_before + trip.apart)
        done.append(seen(down_before))
    return done


class _Tree:
    """A placement's hops, as the links that their messages take."""

    def __init__(self, costs: PlacementCosts, placement: Placement, ways_known: bool) -> None:
        self._costs = costs
        routes, number = costs.problem.routes, costs.links.number
        edges = placement.edges
        workers = tuple(dict.fromkeys((*costs.problem.workers, *placement.aggregators)))
        if ways_known:
            both = list(hop_ways(routes, workers, edges))
        else:
            both = [(routes.shares(child, parent), routes.shares(parent, child)) for child, parent in edges]
        ways = [way for side in zip(*both, strict=True) for way in side]
        self._starts: Ints = np.cumsum([0, *map(len, ways)])
        """(2 hops + 1,): where each hop's links begin, first all ways up and then all ways down."""
        self._at: Ints = np.array([number[link] for way in ways for link in way])
        """Links of each path, by hop and side."""
        self._share: Floats = np.array([share for way in ways for share in way.values()])
        """The probability that it is taken."""
        up = slice(self._starts[len(edges)])
        down = slice(self._starts[len(edges)], None)
        self._meeting: Floats = np.concatenate(
            [np.maximum(self._loads(side)[self._at[side]] - 1, 0) for side in (up, down)]
        )
        """Other frames of the same round that meet the stream's on its links."""
        loads = self._loads(slice(None))
        self._seconds: Floats = np.where(loads > 0, loads * costs.seconds + costs.others, 0.0)
        """(links,): each link's time for the step's bytes."""
        place = {child: index for index, (child, _) in enumerate(edges)}
        self._above: Ints = np.array([place.get(parent, len(edges)) for _, parent in edges])
        """(hops,): the hop that follows; their number at the root."""
        self._workers = len(placement.aggregators)

    @property
    def slowest_link(self) -> Endpoint:
        return self._costs.problem.topology.directed_links[int(self._seconds.argmax())]

    def trip(self, frame_bytes: int) -> _Trip:
        """Return times of rounds with frames of this size."""
        costs = self._costs
        frame = 8 * frame_bytes / costs.links.rate_bps
        alone = frame + costs.links.delay_seconds + costs.wait
        starts = self._starts[:-1]
        up, down = np.add.reduceat(alone[self._at] * self._share, starts).reshape(2, -1)
        met_up, met_down = np.maximum.reduceat(self._meeting * frame[self._at], starts).reshape(2, -1)
        by_hop = np.stack([up + met_up, down + met_down, up + down + np.maximum(met_up, met_down)])
        first, last, both = self._to_root(by_hop).max(axis=1).tolist()
        return _Trip(first, both - last, last, float(self._seconds.max()) * frame_bytes / costs.problem.gradient_bytes)

    def bursts(self, rounds: int, frame_bytes: int) -> Floats:
        """Return times after the first scale round's result, before which rounds of the first window cannot be up.

        Streams meet on a link that came there at different paces, as from hosts with links of different rates. A stream
        that is k times as fast as the slowest has sent min(rounds, k·(j + 1)) frames when the slowest one's frame j
        comes, and all of them go before it.

        Args:
            rounds: Rounds of the first window.
            frame_bytes: Bytes of a frame with lanes.

        Returns:
            (rounds,): seconds; of the slowest link, 0 where all streams are equally fast.
        """
        least = np.zeros(rounds)
        frames = np.arange(1, rounds + 1)[:, None]
        for link, paces in self._paces().items():
            slowest = max(paces)
            if slowest <= min(paces) * (1 + _SAME):
                continue
            before = np.minimum(frames * (slowest / np.array(paces)), rounds).sum(axis=1)
            least = np.maximum(least, before * float(self._costs.seconds[link]))
        return least * (frame_bytes / self._costs.problem.gradient_bytes)

    def _paces(self) -> dict[int, list[float]]:
        """Seconds between the frames of each stream that comes to a link from another one, on the way up, by link."""
        hops, seconds = len(self._above), self._costs.seconds
        entering: dict[int, list[int]] = {}
        for hop, above in enumerate(self._above.tolist()):
            entering.setdefault(above, []).append(hop)
        paces: dict[int, list[float]] = {}
        left: dict[int, float] = {}
        for hop in self._from_workers(entering):
            pace = max((left[child] for child in entering.get(hop, ())), default=0.0)
            for link in self._at[self._starts[hop] : self._starts[hop + 1]].tolist():
                if pace:
                    paces.setdefault(link, []).append(pace)
                pace = max(pace, float(seconds[link]))
            left[hop] = pace
        assert len(left) == hops
        return paces

    def _from_workers(self, entering: Mapping[int, Sequence[int]]) -> list[int]:
        """All hops, each after those that enter its lower end."""
        order = list(entering.get(len(self._above), ()))
        for hop in order:
            order += entering.get(hop, ())
        return order[::-1]

    def _to_root(self, by_hop: Floats) -> Floats:
        """(k, hops) → (k, workers): the sums over each worker's hops."""
        hops = len(self._above)
        at = np.arange(self._workers)
        total = np.zeros((len(by_hop), self._workers))
        while (below := at < hops).any():
            total[:, below] += by_hop[:, at[below]]
            at[below] = self._above[at[below]]
        return total

    def _loads(self, part: slice) -> Floats:
        """(links,): L_e of these ways."""
        streams = LinkStreams(len(self._costs.links.number))
        streams.add(zip(self._at[part].tolist(), self._share[part].tolist(), strict=True))
        return streams.loads()


def _allowed(problem: Problem, placement: Placement, bound: int) -> int:
    """Rounds in the network that the queues on the path allow a job, without other jobs."""
    return min(
        max(bound // count, 1)
        for link, count in max_streams_of(problem.routes, placement.edges).items()
        if problem.topology.is_switch(link.node)
    )
