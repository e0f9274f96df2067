"""The state of every link and queue, whatever source its reports come from: rate, queue, latency, each with its age.

::

    probes ─┐
    XD ─────┼─▶ reports ─▶ LinkState ─▶ Snapshot ─▶ placement, congestion control, metrics, pages
    MD ─────┘

Reports come in batches and stay arrays throughout. A switch's byte counter and egress timestamp come from the same
packet, so a rate is a difference of two reports of one switch by that switch's own clock; clocks of different
switches are never compared. Ages are on the controller's clock.

* Average: time-aware, x ← x + w·(sample − x) with w = min(dt, T)/T (HPCC's, Li et al., SIGCOMM 2019, section 4); T is
  two periods.
* A counter that goes backwards or jumps by more than the link can carry has wrapped or its switch has restarted: the
  report becomes the new base line, and gives no rate.
* Reports tell depths and latencies in their switch's own units, packets or cells, microseconds or nanoseconds; so the
  records keep them, and whoever reads them gets packets and microseconds.
* A link whose newest report is older than three periods is stale: `snapshot` then uses its last good value and says so;
  a link never measured gets the mean load of the fresh ones, and is named too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ...topologies.model import Endpoint, Topology
from ...topologies.targets import Target
from ...wire.aggregation import message_bytes
from ...wire.frames import FRAME_HEADER_BYTES
from .link_records import CLASSES, LINK, QUEUE, REPORT
from .native_code import update_links
from .snapshot import LinkView, Snapshot

STALE_PERIODS: Final = 3


class ReportSource(Protocol):
    """Source of reports, with its statistics of lost ones. Arrays are indexed as LinkState's links; NaN: unknown."""

    def loss(self, now_ns: int) -> NDArray[np.float64]:
        """Share of packets lost on each link."""

    def reports_lost(self, now_ns: int) -> NDArray[np.float64]:
        """Share of each link's reports that did not arrive."""


class LinkState:
    """State of a fabric's links (the egress ports of all switches) from reports."""

    def __init__(self, topology: Topology, *, period_ns: int) -> None:
        """A report of each link is expected every period."""
        self.period_ns = period_ns
        self.links: tuple[Endpoint, ...] = tuple(e for e in topology.directed_links if topology.is_switch(e.node))
        keys = np.array([topology.switch(e.node).device_id << 16 | e.port for e in self.links], np.int64)
        self.link_of_key: NDArray[np.int64] = np.argsort(keys)
        self.keys: NDArray[np.int64] = keys[self.link_of_key]
        """Node id ‖ port of each link, ascending; `link_of_key` has the links' indexes in the same order."""
        self._capacity = np.array([topology.link_at(e).rate_bps / 8 for e in self.links])
        self._state = np.zeros(len(self.links), LINK)
        self._queues = np.zeros((len(self.links), CLASSES), QUEUE)
        targets = [topology.switch(link.node).target for link in self.links]
        self._depth_unit, self._tick_us = np.array([units_of(target) for target in targets]).reshape(-1, 2).T
        self._bulk = np.arange(len(self.links)), np.array([target.bulk_priority for target in targets], np.int64)
        """The bulk queue of each link, in `_queues`."""
        self._watched = np.zeros(len(self.links), np.bool_)
        self._sources: list[ReportSource] = []
        self.into = (
            self._capacity.ctypes.data,
            2 * period_ns,
            max(period_ns // 8, 1),
            STALE_PERIODS * period_ns,
            self._state.ctypes.data,
            self._queues.ctypes.data,
            len(self.links),
        )
        """Destination of native code's updates, in the order of `link_native.update_links`."""

    @property
    def state(self) -> NDArray[np.void]:
        """LINK (n,): one record per entry of `links` (a copy)."""
        return self._state.copy()

    @property
    def queues(self) -> NDArray[np.void]:
        """QUEUE (n, classes): one record for each queue of each entry of `links` (a copy)."""
        queues = self._queues.copy()
        for depth in ("depth", "average", "high", "peak"):
            queues[depth] *= self._depth_unit[:, None]
        queues["sojourn_us"] *= self._tick_us[:, None]
        return queues

    @property
    def depths(self) -> NDArray[np.float64]:
        """(n,): packets in the bulk queue of each entry of `links`, by its newest report."""
        depths: NDArray[np.float64] = self._queues["depth"][self._bulk] * self._depth_unit
        return depths

    def pop_peaks(self) -> NDArray[np.float64]:
        """Return the greatest depth in packets (n, classes) that each queue was reported with since the last call."""
        peaks: NDArray[np.float64] = self._queues["peak"] * self._depth_unit[:, None]
        self._queues["peak"] = 0.0
        return peaks

    def pop_highs(self) -> NDArray[np.float64]:
        """Return `high`, (n, classes), of each queue, which from now on is counted from the present depth."""
        highs: NDArray[np.float64] = self.queues["high"]
        self._queues["high"] = self._queues["depth"]
        return highs

    def attach(self, source: ReportSource) -> None:
        """Ask this one, too, what is lost."""
        self._sources.append(source)

    def watch(self, links: Collection[Endpoint]) -> None:
        """Set the links of which reports are expected.

        Values of the others stay, but they are left out of snapshots: they are down, or not measured.
        """
        wanted = frozenset(links)
        self._watched[:] = [link in wanted for link in self.links]

    @property
    def watched(self) -> frozenset[Endpoint]:
        """The links of which reports are expected."""
        return frozenset(self.links[i] for i in np.flatnonzero(self._watched))

    def update(self, reports: NDArray[np.void]) -> None:
        """Update the links' state from REPORT (n,), of one link the oldest first."""
        assert reports.dtype == REPORT
        assert reports.flags.c_contiguous
        update_links(reports.ctypes.data, len(reports), *self.into)

    def stale(self, now_ns: int) -> frozenset[Endpoint]:
        """Return the watched links that have a rate and no report of the last three periods."""
        return frozenset(self.links[i] for i in np.flatnonzero(self._is_stale(now_ns)))

    def next_stale_ns(self, now_ns: int) -> int | None:
        """Return the time at which the next watched link becomes stale without a report until then; None if there is
        none.
        """
        known = self._state["at_ns"][self._watched & self._state["rated"]]
        ahead = known[known + STALE_PERIODS * self.period_ns >= now_ns]
        return int(ahead.min()) + STALE_PERIODS * self.period_ns + 1 if len(ahead) else None

    def snapshot(self, now_ns: int, exclude: Mapping[Endpoint, float] | None = None) -> Snapshot:
        """Return the state of all watched links. `exclude` is traffic in bit/s per link to be left out, such as a
        job's own (`own_traffic`).
        """
        state, bulk, watched = self._state, self._queues[self._bulk], self._watched
        own = np.zeros(len(self.links))
        if exclude:
            own[:] = [exclude.get(link, 0.0) / 8 for link in self.links]
        background = np.clip(state["rate"] - own, 0.0, self._capacity)
        age = now_ns - state["at_ns"]
        unmeasured = watched & ~state["rated"]
        stale = self._is_stale(now_ns)
        fresh = watched & ~unmeasured & ~stale
        if fresh.any():
            background[unmeasured] = (background[fresh] / self._capacity[fresh]).mean() * self._capacity[unmeasured]
        arriving = 1.0 - self._least([source.reports_lost(now_ns) for source in self._sources])
        freshness = np.clip(STALE_PERIODS - age / self.period_ns, 0.0, 1.0)
        columns = zip(
            (8 * state["rate"]).tolist(),
            (8 * background).tolist(),
            (bulk["average"] * self._depth_unit).tolist(),
            (bulk["sojourn_us"] * self._tick_us).tolist(),
            self._least([source.loss(now_ns) for source in self._sources]).tolist(),
            [a if measured else None for a, measured in zip(age.tolist(), state["measured"].tolist(), strict=True)],
            np.where(state["rated"], arriving * freshness, 0.0).tolist(),
            strict=True,
        )
        return Snapshot(
            {
                link: LinkView(*values)
                for link, values, seen in zip(self.links, columns, watched.tolist(), strict=True)
                if seen
            },
            frozenset(self.links[i] for i in np.flatnonzero(stale)),
            frozenset(self.links[i] for i in np.flatnonzero(unmeasured)),
        )

    def _is_stale(self, now_ns: int) -> NDArray[np.bool_]:
        stale: NDArray[np.bool_] = (
            self._watched & self._state["rated"] & (now_ns - self._state["at_ns"] > STALE_PERIODS * self.period_ns)
        )
        return stale

    def _least(self, shares: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Smallest value per link over the sources that know it; 0 if none does. Each is an upper bound of its own."""
        known = np.array([np.where(np.isnan(share), np.inf, share) for share in shares])
        least: NDArray[np.float64] = known.reshape(-1, len(self.links)).min(axis=0, initial=np.inf)
        least[np.isinf(least)] = 0.0
        return least


def units_of(target: Target) -> tuple[float, float]:
    """Return packets that a unit of such a switch's depths is, each the largest that a job sends through it, and
    microseconds that a unit of its waits is.
    """
    packet_bytes = FRAME_HEADER_BYTES + message_bytes(target.lanes)
    return 1 / target.queue_depth(1, packet_bytes), target.tick_ns / 1000


def own_traffic(
    streams: Mapping[Endpoint, float], rounds_per_second: float, round_bytes: float
) -> dict[Endpoint, float]:
    """Return the bit/s that a job itself puts on each link: its streams there times its goodput in rounds.

    `streams` is a plan's (`JobPlan.streams`): where it is not known which of equal links a stream takes, it is shared
    evenly, so that the sum over these links is right and each one's error is at most the stream. Repeated packets are
    not counted: they remain as background, which they are to everyone else.
    """
    return {link: count * rounds_per_second * round_bytes * 8 for link, count in streams.items()}
