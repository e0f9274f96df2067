"""Lower bound of a sum's duration: the reference for throughput.

A sum of C chunks brings C·N frames with lanes onto a link that N of its streams cross; each takes the time f there. The
first follows a round of exponents, and the last comes back to the workers: T_scale + T, round trips from the slowest
worker to the root in empty queues. Flows without a window have a share u of the link all the time. Other jobs and
yielding flows may use the rest, so with a share v of theirs only the frames are counted:

    achievable  =  max over links of  max(T_scale + T + C·N·f / (1 − u),  C·N·f / (1 − u − v))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...controller.planning.plan import SCALE_ROUND_BYTES, JobPlan, round_bytes, round_trip
from ...topologies import Endpoint, Routes
from .round_count import Rounds


@dataclass(frozen=True, slots=True)
class CarriedBytes:
    """Bytes carried by a link up to some time."""

    flows: int
    """Bytes of flows without a window."""
    rest: int
    """Bytes of all others, the job included."""


@dataclass(frozen=True, slots=True)
class SumTime:
    """Duration of a sum, with its lower bound."""

    took_ns: int
    achievable_ns: float | None
    """None where the job moved meanwhile."""

    @property
    def share(self) -> float:
        """Share of the achievable throughput, for a sum during which the job did not move."""
        assert self.achievable_ns is not None
        return self.achievable_ns / self.took_ns


class Achievable:
    """Achievable duration of one sum of a job, whose parts (one per root) have these plans and rounds.

    `carried` returns the bytes carried by links so far.
    """

    def __init__(
        self,
        routes: Routes,
        parts: Sequence[tuple[JobPlan, Rounds]],
        carried: Callable[[], Mapping[Endpoint, CarriedBytes]],
        *,
        beside_others: bool,
    ) -> None:
        """Begin with a sum that starts now.

        Args:
            routes: Routes of the fabric.
            parts: Plan and rounds of each part of the job, one part for each root.
            carried: Returns the bytes that each link has carried so far.
            beside_others: True if traffic beyond the job's own frames belongs to other jobs, or to yielding flows.
        """
        self._routes = routes
        self._parts = parts
        self._carried = carried
        self._before = carried()
        self._beside_others = beside_others

    def after_ns(self, took_ns: int) -> float:
        """Return the lower bound of the duration, given the actual one."""
        topology, after = self._routes.topology, self._carried()
        frame = round_bytes(topology)
        with_lanes, all_frames = dict[Endpoint, float](), dict[Endpoint, float]()
        for plan, rounds in self._parts:
            for link, streams in plan.streams.items():
                lanes, scales = streams * rounds.chunks * frame, streams * rounds.scales * SCALE_ROUND_BYTES
                with_lanes[link] = with_lanes.get(link, 0.0) + lanes
                all_frames[link] = all_frames.get(link, 0.0) + lanes + scales
        trips_ns = max(self._trips_ns(plan) for plan, _ in self._parts)
        longest_ns = 0.0
        for link, own_bytes in with_lanes.items():
            room = topology.link_at(link).rate_bps * took_ns / 8e9
            flows = (after[link].flows - self._before[link].flows) / room
            rest = 0.0
            if self._beside_others:
                rest = max(after[link].rest - self._before[link].rest - all_frames[link], 0.0) / room
            frames_ns, carried = 8e9 * own_bytes / topology.link_at(link).rate_bps, own_bytes / room
            beside_flows_ns = trips_ns + frames_ns / max(1 - flows, carried)
            longest_ns = max(longest_ns, beside_flows_ns, frames_ns / max(1 - flows - rest, carried))
        return longest_ns

    def _trips_ns(self, plan: JobPlan) -> int:
        """T_scale + T."""
        placement, topology = plan.placement, self._routes.topology
        parents = {**placement.aggregators, **placement.parents}
        trips = (round_trip(topology, self._routes, parents, worker, SCALE_ROUND_BYTES) for worker in plan.spec.workers)
        return max(ns for ns, _ in trips) + plan.round_trip_ns
