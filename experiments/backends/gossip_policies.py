"""Gossip policies of a job's workers, computed from the newest state of all links."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...controller.gossip.errors import GossipError
from ...controller.gossip.own_traffic import OwnTraffic
from ...controller.gossip.policies import POLICIES
from ...controller.gossip.policy import GossipPolicy
from ...controller.gossip.publisher import PolicyPublisher
from ...controller.gossip.rates import EndToEndAverages, Paths, pair_seconds, transfer_seconds
from ...controller.telemetry.snapshot import Snapshot
from ...topologies import Endpoint, Routes, Topology

Floats = NDArray[np.float64]

Show = Callable[[str, Sequence[str], GossipPolicy], object]
"""Show a policy: its name, its workers' hosts in the order of its rows, and itself."""

_log = logging.getLogger(__name__)


class PublishedPolicies:
    """Policies by name and source of times, with the contract of `training.mode.PullPolicies`.

    Workers see a new policy at once; those from the workers' own measurements are computed again after a period.
    """

    def __init__(
        self,
        topology: Topology,
        hosts: Sequence[str],
        message_bytes: int,
        *,
        now_ns: Callable[[], int],
        snapshot: Callable[[Mapping[Endpoint, float]], Snapshot],
        compute_s: Callable[[], Floats],
        period_ns: int,
        measured_period_ns: int,
        among: Sequence[int] | None = None,
        paths: Paths | None = None,
        show: Show | None = None,
    ) -> None:
        """Take what policies are computed from.

        Args:
            topology: The fabric.
            hosts: Hosts of the workers, by rank.
            message_bytes: Bytes of a worker's weights on the wire.
            now_ns: Clock of the run.
            snapshot: State of all links, as telemetry has it, without this traffic in bit/s.
            compute_s: (workers,) seconds that each worker computes.
            period_ns: Time between two looks at the telemetry.
            measured_period_ns: Time between two looks at the workers' measurements.
            among: Ranks that exchange; None: all.
            paths: Links between two hosts; None: any shortest path.
            show: Called with each policy that workers begin to use; None: nobody looks.
        """
        self._topology, self._hosts, self._bytes = topology, hosts, message_bytes
        self._now_ns, self._snapshot, self._compute_s = now_ns, snapshot, compute_s
        self._period_ns = {"telemetry": period_ns, "measured": measured_period_ns}
        self._among = np.asarray(range(len(hosts)) if among is None else among)
        self._paths = Routes(topology).shares if paths is None else paths
        self._averages = EndToEndAverages(len(hosts))
        self._show = show
        self._own = OwnTraffic(message_bytes, 2 * period_ns)
        self._rates_bps = {end: float(link.rate_bps) for link in topology.links for end in link.ends}
        self._publishers: dict[tuple[str, str], PolicyPublisher] = {}
        self._looked_ns: dict[tuple[str, str], int] = {}
        self.published: list[tuple[int, str, GossipPolicy]] = []
        """Instant, name and policy of every version, for plots."""

    def row(self, rank: int, policy: str, source: str) -> tuple[Floats, Floats]:
        """Return one worker's probabilities and pull weights, float64 (n,) each by rank; renewed once per period of
        the source.
        """
        key, now_ns = (policy, source), self._now_ns()
        if key not in self._publishers:
            self._publishers[key] = PolicyPublisher(POLICIES.describe(policy).compute)
            self._looked_ns[key] = -self._period_ns[source]
        publisher = self._publishers[key]
        if now_ns - self._looked_ns[key] >= self._period_ns[source]:
            self._looked_ns[key] = now_ns
            before = publisher.policy
            if (new := self._updated(publisher, self._seconds(source))) is not None:
                self.published.append((now_ns, policy, new))
            if self._show is not None and publisher.policy is not None and publisher.policy is not before:
                name = "uniform" if new is None else policy
                self._show(name, [self._hosts[each] for each in self._among], publisher.policy)
        assert publisher.policy is not None
        probabilities, weights = np.zeros(len(self._hosts)), np.zeros(len(self._hosts))
        index = int(np.flatnonzero(self._among == rank)[0])
        probabilities[self._among] = publisher.policy.probabilities[index]
        weights[self._among] = publisher.policy.damped().pull_weights[index]
        return probabilities, weights

    def _updated(self, publisher: PolicyPublisher, seconds: Floats) -> GossipPolicy | None:
        """Return a new policy; where a policy has no answer, the last one stays, or uniform gossip to begin with."""
        try:
            return publisher.update(seconds)
        except GossipError as error:
            _log.warning("%s; the policy before it stays", error)
            if publisher.policy is None:
                publisher.policy = POLICIES["uniform"].compute(seconds)
            return None

    def pulling(self, rank: int, peer: int) -> None:
        """Record that a pull from a peer begins, whose traffic is the job's own."""
        self._own.begin(self._hosts[rank], self._hosts[peer], self._now_ns())

    def failed(self, rank: int, peer: int) -> None:
        """Record that the pull under way has failed."""
        self._own.end(self._hosts[rank], self._hosts[peer], self._now_ns())

    def pulled(self, rank: int, peer: int, duration_ns: int) -> None:
        """Record the duration in ns of one pull from a peer, from which the next policies are computed."""
        self._own.end(self._hosts[rank], self._hosts[peer], self._now_ns())
        self._averages.observe(rank, peer, duration_ns * 1e-9)

    def _seconds(self, source: str) -> Floats:
        chosen = np.ix_(self._among, self._among)
        if source == "measured":
            transfers = self._averages.transfers_s[chosen]
        else:
            hosts = [self._hosts[rank] for rank in self._among]
            own_bps = self._own.on_links(self._paths, self._rates_bps, self._now_ns())
            transfers = transfer_seconds(self._topology, self._snapshot(own_bps), hosts, self._bytes, self._paths)
        return pair_seconds(self._compute_s()[self._among], transfers)
