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
from ...wire.int_md import HOP, UNAVAILABLE, Probes, parse_frames
from .loads import LinkLoad
from .probes import Probe, identities

STALE_PERIODS: Final = 3
_REMEMBERED: Final = 16
"""Of each probe, the last so many are remembered: for loss, and to refuse what comes twice."""

_NOT_SENT, _OUTSTANDING, _RECEIVED, _LOST = range(4)

LINK: Final = np.dtype(
    [
        ("measured", "?"),  # at least one report
        ("rated", "?"),  # at least one rate
        ("bytes_sent", "i8"),
        ("egress_ns", "i8"),  # the switch's clock
        ("sent_ns", "i8"),  # the controller's clock, when the newest report's probe was sent
        ("rate", "f8"),  # bytes/s
        ("queue", "f8"),  # packets
        ("latency_us", "f8"),
        ("reports", "i8"),
        ("resets", "i8"),
    ]
)


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
    """Last good values."""
    unmeasured: frozenset[Endpoint]
    """Uniform values."""

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
        self._order = np.argsort(keys)
        self._sorted_keys = keys[self._order]
        self._state = np.zeros(len(self.links), LINK)
        self._next_sequence = 0
        self.follow(probes)

    def follow(self, probes: Sequence[Probe]) -> None:
        """Expect these probes from now on; what is known of the links stays. A link that none of them crosses is
        left out of snapshots: it is down.
        """
        self._sent_ns = np.zeros((len(probes), _REMEMBERED), np.int64)
        self._sequence = np.full((len(probes), _REMEMBERED), -1, np.int64)
        self._fate = np.full((len(probes), _REMEMBERED), _NOT_SENT, np.int8)
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
        cell = sequence % _REMEMBERED
        self._sent_ns[:, cell] = now_ns
        self._sequence[:, cell] = sequence
        self._fate[:, cell] = _OUTSTANDING
        return sequence

    def receive(self, frames: Iterable[bytes], now_ns: int) -> int:
        """Take finished probes, as they came from the switches' CPU ports; how many reports of links were used."""
        batches, rejected = parse_frames(frames)
        self.rejected += rejected
        used = [self._accept(batch) for batch in batches]
        self.expire(now_ns)
        if not used:
            return 0
        hops = np.concatenate([h for h, _ in used])
        sent_ns = np.concatenate([s for _, s in used])
        return self._update(hops, sent_ns)

    def expire(self, now_ns: int) -> None:
        """Count as lost what has been outstanding for more than three periods."""
        late = (self._fate == _OUTSTANDING) & (now_ns - self._sent_ns > STALE_PERIODS * self.period_ns)
        self._fate[late] = _LOST

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
        lost = (self._fate == _LOST).sum(axis=1)
        decided = lost + (self._fate == _RECEIVED).sum(axis=1)
        share = np.where(decided > 0, lost / np.maximum(decided, 1), 0.0)
        worst: NDArray[np.float64] = np.where(self._crosses, share[:, None], np.inf).min(axis=0, initial=np.inf)
        worst[np.isinf(worst)] = 0.0
        return worst

    def _accept(self, batch: Probes) -> tuple[NDArray[np.void], NDArray[np.int64]]:
        """The hops of the probes that we have sent and not seen yet, flat, and when each one's probe was sent."""
        probe, sequence = identities(batch.payload)
        known = (probe >= 0) & (probe < len(self._sequence))
        row, cell = np.where(known, probe, 0), sequence % _REMEMBERED
        # late is not lost: one that was given up as lost still counts when it comes
        awaited = (self._fate[row, cell] == _OUTSTANDING) | (self._fate[row, cell] == _LOST)
        known &= (self._sequence[row, cell] == sequence) & awaited
        _, first = np.unique(row * (1 << 32) + sequence, return_index=True)
        once = np.zeros(len(batch), np.bool_)
        once[first] = True
        known &= once
        self.rejected += int(np.count_nonzero(~known))
        row, cell = row[known], cell[known]
        self._fate[row, cell] = _RECEIVED
        per_probe = batch.hops.shape[1]
        hops = _select(batch.hops.reshape(-1), np.flatnonzero(np.repeat(known, per_probe)))
        return hops, np.repeat(self._sent_ns[row, cell], per_probe)

    def _update(self, hops: NDArray[np.void], sent_ns: NDArray[np.int64]) -> int:
        link = self._find(hops["node_id"], hops["egress_port"])
        good = (link >= 0) & (hops["bytes_sent"] != UNAVAILABLE) & (hops["egress_ns"] != UNAVAILABLE)
        self.unknown_hops += int(np.count_nonzero(link < 0))
        order = np.flatnonzero(good)[np.lexsort((hops["egress_ns"][good], sent_ns[good], link[good]))]
        link, hops, sent_ns = link[order], _select(hops, order), sent_ns[order]
        # reports of one link are taken one after another, reports of all links at once
        _, first, count = np.unique(link, return_index=True, return_counts=True)
        for turn in range(int(count.max(initial=0))):
            at = first[count > turn] + turn
            self._take(link[at], _select(hops, at), sent_ns[at])
        return len(link)

    def _take(self, link: NDArray[np.int64], hops: NDArray[np.void], sent_ns: NDArray[np.int64]) -> None:
        """At most one report per link."""
        newest = self._state[link]
        in_order = ~newest["measured"] | (sent_ns > newest["sent_ns"])
        in_order |= (sent_ns == newest["sent_ns"]) & (hops["egress_ns"] >= newest["egress_ns"])
        link, hops, sent_ns = link[in_order], hops[in_order], sent_ns[in_order]
        state = self._state[link]
        known = state["measured"]
        dt = hops["egress_ns"] - state["egress_ns"]
        # differences of unsigned 64-bit counters, so that a wrapped one is right
        sent = (hops["bytes_sent"].astype(np.uint64) - state["bytes_sent"].astype(np.uint64)).astype(np.float64)
        possible = 2 * self._capacity[link] * dt * 1e-9 + 65_536
        steady = known & (dt >= self._shortest_ns) & (sent <= possible)
        # probes that cross a link right behind one another: the first has said it all
        twin = known & (dt >= 0) & ~steady & (sent <= possible)
        weight = np.clip(dt, 0, self._time_constant_ns) / self._time_constant_ns

        rate = np.divide(sent, dt * 1e-9, out=np.zeros(len(link)), where=steady)
        first_rate = steady & ~state["rated"]
        state["rate"] = np.where(steady, state["rate"] + weight * (rate - state["rate"]), state["rate"])
        state["rate"][first_rate] = rate[first_rate]
        for field, item in (("queue", "queue_packets"), ("latency_us", "latency_us")):
            sample = hops[item].astype(np.float64)
            there = hops[item] != UNAVAILABLE
            fresh_start = there & ~steady & ~twin
            state[field] = np.where(there & steady, state[field] + weight * (sample - state[field]), state[field])
            state[field][fresh_start] = sample[fresh_start]
        state["resets"] += known & ~steady & ~twin
        state["rated"] |= steady
        state["measured"] = True
        state["reports"] += 1
        for field in ("bytes_sent", "egress_ns"):
            state[field] = np.where(twin, state[field], hops[field])
        state["sent_ns"] = sent_ns
        self._state[link] = state

    def _find(self, node_id: NDArray[np.int64], port: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions in `links`; −1 for a port that is none of them."""
        keys = node_id << 16 | port
        at = np.minimum(np.searchsorted(self._sorted_keys, keys), len(self._sorted_keys) - 1)
        found: NDArray[np.int64] = np.where(self._sorted_keys[at] == keys, self._order[at], -1)
        return found


def _select(hops: NDArray[np.void], rows: NDArray[np.int64]) -> NDArray[np.void]:
    """`hops[rows]` of HOP (n,), whose fields all have 64 bits: NumPy is slow to copy records, not rows of numbers."""
    chosen: NDArray[np.void] = hops.view(np.int64).reshape(-1, HOP.itemsize // 8)[rows].view(HOP)[:, 0]
    return chosen


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
