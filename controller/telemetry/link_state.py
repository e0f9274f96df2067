"""The state of every link, from probes: rate, queue, latency, each with its age, and loss.

Reports come in batches and stay arrays throughout. A switch's byte counter and egress timestamp come from the same
packet, so a rate is a difference of two reports of one switch by that switch's own clock; clocks of different
switches are never compared. A report's age counts from when its probe was sent.

* Average: time-aware, x ← x + w·(sample − x) with w = min(dt, T)/T (HPCC's, Li et al., SIGCOMM 2019, section 4).
* A counter that goes backwards or jumps by more than the link can carry has wrapped or its switch has restarted: the
  report becomes the new base line, and gives no rate.
* A link whose newest report is older than three periods is stale: `snapshot` then uses its last good value and says so;
  a link never measured gets the mean load of the fresh ones, and is named too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...topologies.model import Endpoint, Topology
from ...wire.int_md import parse_frames
from .link_native import LINK, LOST, NOT_SENT, OUTSTANDING, RECEIVED, REMEMBERED, REPORT, SENT, accept, take
from .loads import LinkLoad
from .probes import Probe

STALE_PERIODS: Final = 3


@dataclass(frozen=True, slots=True)
class LinkView:
    """What is known of one directed link."""

    background_bps: float
    """Traffic that is not excluded, in bit/s; at most the link's rate."""
    queue_packets: float
    latency_us: float
    loss: float
    """Of the least lossy probe that crosses it, over its last 16: an upper bound of what can be blamed on this
    link.
    """
    age_ns: int | None
    """Since the newest report's probe was sent; None: never measured."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All links that probes can see, at one time."""

    links: Mapping[Endpoint, LinkView]
    stale: frozenset[Endpoint]
    """The links whose newest report is too old, so that these are their last good values."""
    unmeasured: frozenset[Endpoint]
    """The links that no report has come of, so that they have the mean load of the others."""

    @property
    def loads(self) -> Mapping[Endpoint, LinkLoad]:
        """As placement takes them."""
        return {link: LinkLoad(view.background_bps, view.queue_packets) for link, view in self.links.items()}

    @property
    def is_fresh(self) -> bool:
        return not self.stale and not self.unmeasured

    def __str__(self) -> str:
        """What placement should know about its input, in a line."""
        if self.is_fresh:
            return f"telemetry of all {len(self.links)} links is fresh"
        parts = []
        if self.stale:
            parts.append(f"{len(self.stale)} stale, last good values used ({_some(self.stale)})")
        if self.unmeasured:
            parts.append(f"{len(self.unmeasured)} never measured, uniform load assumed ({_some(self.unmeasured)})")
        return f"telemetry of {len(self.links)} links: " + "; ".join(parts)


class Telemetry:
    """Collects the reports of a plan's probes."""

    def __init__(self, topology: Topology, probes: Sequence[Probe], *, period_ns: int) -> None:
        """T of the averages is two periods."""
        self.period_ns = period_ns
        self.rejected = 0
        """Packet-ins that were no probe of ours: malformed, unknown, or received before."""
        self.unknown_hops = 0
        """Reports of a node or port that the topology does not have."""
        self._time_constant_ns = 2 * period_ns
        self._shortest_ns = max(period_ns // 8, 1)
        self.links: tuple[Endpoint, ...] = tuple(e for e in topology.directed_links if topology.is_switch(e.node))
        self._capacity = np.array([topology.link_at(e).rate_bps / 8 for e in self.links])
        keys = np.array([topology.switch(e.node).device_id << 16 | e.port for e in self.links], np.int64)
        self._link_of_key = np.argsort(keys)
        self._keys = keys[self._link_of_key]
        self._state = np.zeros(len(self.links), LINK)
        self._next_sequence = 0
        self.follow(probes)

    def follow(self, probes: Sequence[Probe]) -> None:
        """Expect these probes from now on; what is known of the links stays. A link that none of them crosses is
        left out of snapshots: it is down.
        """
        self._sent = np.full((len(probes), REMEMBERED), np.array((-1, 0, NOT_SENT), SENT))
        index = {link: at for at, link in enumerate(self.links)}
        self._crosses = np.zeros((len(probes), len(self.links)), np.bool_)
        for probe in probes:
            self._crosses[probe.index, [index[link] for link in probe.certain]] = True
        self._watched: NDArray[np.bool_] = np.any(self._crosses, axis=0)

    @property
    def state(self) -> NDArray[np.void]:
        """LINK (n,): one record per entry of `links` (a copy)."""
        return self._state.copy()

    def send_all(self, now_ns: int) -> int:
        """All probes are being sent now; the sequence number that they carry."""
        sequence = self._next_sequence
        self._next_sequence += 1
        self._sent[:, sequence % REMEMBERED] = np.array((sequence, now_ns, OUTSTANDING), SENT)
        return sequence

    def receive(self, frames: Iterable[bytes], now_ns: int) -> int:
        """Take finished probes, as they came from the switches' CPU ports; how many reports of links were used."""
        batch = parse_frames(frames)
        reports = np.empty(len(batch.hops), REPORT)
        used: int
        used, strange, unknown = accept(
            batch.data, batch.each, batch.hops, self._sent, self._keys, self._link_of_key, reports
        )
        self.rejected += batch.rejected + strange
        self.unknown_hops += unknown
        self.expire(now_ns)
        reports = reports[:used]
        # of one link the oldest first, whatever order they came in; between links the order means nothing
        reports = reports[np.lexsort((reports["egress_ns"], reports["sent_ns"]))]
        take(reports, batch.hops, self._capacity, self._time_constant_ns, self._shortest_ns, self._state)
        return used

    def expire(self, now_ns: int) -> None:
        """Count as lost what has been outstanding for more than three periods."""
        waited = now_ns - self._sent["sent_ns"] > STALE_PERIODS * self.period_ns
        self._sent["fate"][waited & (self._sent["fate"] == OUTSTANDING)] = LOST

    def snapshot(self, now_ns: int, exclude: Mapping[Endpoint, float] | None = None) -> Snapshot:
        """The state of all links. `exclude` is traffic in bit/s per link to be left out, such as a job's own
        (`own_traffic`).
        """
        self.expire(now_ns)
        own = np.array([(exclude or {}).get(link, 0.0) / 8 for link in self.links])
        background = np.clip(self._state["rate"] - own, 0.0, self._capacity)
        age = now_ns - self._state["sent_ns"]
        unmeasured = self._watched & ~self._state["rated"]
        stale = self._watched & ~unmeasured & (age > STALE_PERIODS * self.period_ns)
        fresh = self._watched & ~unmeasured & ~stale
        if fresh.any():
            background[unmeasured] = (background[fresh] / self._capacity[fresh]).mean() * self._capacity[unmeasured]
        loss = self._loss()
        links = {
            link: LinkView(
                background_bps=8 * float(background[i]),
                queue_packets=float(self._state["queue"][i]),
                latency_us=float(self._state["latency_us"][i]),
                loss=float(loss[i]),
                age_ns=int(age[i]) if self._state["measured"][i] else None,
            )
            for i, link in enumerate(self.links)
            if self._watched[i]
        }
        return Snapshot(
            links,
            frozenset(self.links[i] for i in np.flatnonzero(stale)),
            frozenset(self.links[i] for i in np.flatnonzero(unmeasured)),
        )

    def _loss(self) -> NDArray[np.float64]:
        """(links,): the smallest share of lost probes among the probes that surely cross each link; 0 while none is
        decided.
        """
        lost = (self._sent["fate"] == LOST).sum(axis=1)
        decided = lost + (self._sent["fate"] == RECEIVED).sum(axis=1)
        share = np.where(decided > 0, lost / np.maximum(decided, 1), 0.0)
        worst: NDArray[np.float64] = np.where(self._crosses, share[:, None], np.inf).min(axis=0, initial=np.inf)
        worst[np.isinf(worst)] = 0.0
        return worst


def own_traffic(streams: Mapping[Endpoint, float], rounds_per_second: float, round_bytes: int) -> dict[Endpoint, float]:
    """bit/s that a job itself puts on each link: its streams there times its goodput in rounds.

    `streams` is a plan's (`JobPlan.streams`): where equal-cost routes leave open which link a stream takes, it is
    shared evenly, so that the sum over the equal links is right and each one's error is at most the stream. Repeated
    packets are not counted: they remain as background, which they are to everyone else.
    """
    return {link: count * rounds_per_second * round_bytes * 8 for link, count in streams.items()}


def _some(links: Iterable[Endpoint]) -> str:
    ordered = sorted(links)
    return ", ".join(map(str, ordered[:4])) + (", …" if len(ordered) > 4 else "")


def _load_native_code() -> None:
    """Have it made, or loaded, now: it takes seconds where it is made, and no lease is to run out meanwhile."""
    batch = parse_frames(())
    reports, nothing = np.empty(0, REPORT), np.empty(0, np.int64)
    accept(batch.data, batch.each, batch.hops, np.empty((0, REMEMBERED), SENT), nothing, nothing, reports)
    take(reports, batch.hops, np.empty(0), 1, 1, np.empty(0, LINK))


_load_native_code()
