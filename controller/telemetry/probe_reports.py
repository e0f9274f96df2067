"""Probes as a source of reports: sent probes, returned ones and their readings, lost ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...topologies.model import Endpoint
from .link_state import STALE_PERIODS, LinkState
from .probe_native import LOST, NOT_SENT, OUTSTANDING, RECEIVED, REMEMBERED, SENT, TALLY, collect
from .probes import SEQUENCES, Probe, probe_bytes

LOSS_PROBES: Final = 16
"""Number of a path's newest probes, received or lost, whose lost share is its loss."""


class ProbeReports:
    """Keeps the books of a plan's probes, and brings what they report into the links' state."""

    def __init__(self, state: LinkState, probes: Sequence[Probe]) -> None:
        self._links = state
        self._next_sequence = 0
        self._tally = np.zeros(1, TALLY)
        self._cost = np.zeros((len(state.links), 2), np.int64)
        self._gone = np.zeros((len(state.links), 2), np.int64)
        """Packets and bytes of probes that are no longer waited for, on all links that they surely cross."""
        self._sent = np.zeros((0, REMEMBERED), SENT)
        self._lengths = np.zeros((0, len(state.links)), np.uint16)
        self.expect(probes)
        state.attach(self)

    @property
    def rejected(self) -> int:
        """Packet-ins that were no probe of ours: malformed, unknown, or received before."""
        return int(self._tally["rejected"][0])

    @property
    def unknown_hops(self) -> int:
        """Reports of a node or port that the topology does not have."""
        return int(self._tally["unknown_hops"][0])

    @property
    def cost(self) -> NDArray[np.int64]:
        """(links, 2): packets and bytes of probes, Ethernet header included, by the ports that sent them on (a copy).

        A lost probe counts on all links that it surely crosses, as it is not known where it was lost.
        """
        return self._cost + self._gone + self._load((self._sent["fate"] == LOST).sum(axis=1))

    def expect(self, probes: Sequence[Probe]) -> None:
        """Expect these probes from now on. A link that none of them crosses is down and no longer watched."""
        self._give_up(slice(None))
        self._sent = np.full((len(probes), REMEMBERED), np.array((-1, 0, NOT_SENT), SENT))
        index = {link: at for at, link in enumerate(self._links.links)}
        self._delays_ns = np.zeros(len(probes), np.int64)
        self._lengths = np.zeros((len(probes), len(index)), np.uint16)
        """(probes, links): bytes of each probe on the links that it surely crosses; 0 on others."""
        for probe in probes:
            lengths = [probe_bytes(hop) for hop in range(1, len(probe.certain) + 1)]
            self._lengths[probe.index, [index[link] for link in probe.certain]] = lengths
        self._crosses = self._lengths > 0
        self._links.watch({link for probe in probes for link in probe.certain})
        self._books = (
            self._sent.ctypes.data,
            len(self._sent),
            self._links.keys.ctypes.data,
            self._links.link_of_key.ctypes.data,
            len(self._links.keys),
            self._tally.ctypes.data,
            self._cost.ctypes.data,
            self._delays_ns.ctypes.data,
            *self._links.into,
        )

    def send_all(self, now_ns: int) -> int:
        """Note that all probes are sent now; return the sequence number that they carry."""
        sequence = self._next_sequence
        self._next_sequence = (sequence + 1) % SEQUENCES
        self._give_up(slice(sequence % REMEMBERED, sequence % REMEMBERED + 1))
        self._sent[:, sequence % REMEMBERED] = np.array((sequence, now_ns, OUTSTANDING), SENT)
        return sequence

    def receive(self, frames: Iterable[bytes], now_ns: int) -> int:
        """Use returned probes from the switches' CPU ports; return the number of link reports that were used."""
        together = list(frames)
        ends = np.array(list(map(len, together)), np.int64).cumsum()
        collect(b"".join(together), ends.ctypes.data, len(together), now_ns, self._lost_before(now_ns), *self._books)
        return int(self._tally["used"][0])

    def loss(self, now_ns: int) -> NDArray[np.float64]:
        """Return, by link (links,), the smallest share of lost probes among the probes that surely cross each link;
        0 while none is decided.

        A probe is lost when it takes three periods longer than the newest that came by its path: behind a queue that
        holds it for many periods it is late.
        """
        late = self._sent["sent_ns"] < self._lost_before(now_ns) - self._delays_ns[:, None]
        self._sent["fate"][late & (self._sent["fate"] == OUTSTANDING)] = LOST
        newest_first = (self._next_sequence - 1 - np.arange(REMEMBERED)) % REMEMBERED
        fate = self._sent["fate"][:, newest_first]
        known = (fate == LOST) | (fate == RECEIVED)
        known &= known.cumsum(axis=1) <= LOSS_PROBES
        lost, decided = (known & (fate == LOST)).sum(axis=1), known.sum(axis=1)
        share = np.where(decided > 0, lost / np.maximum(decided, 1), 0.0)
        worst: NDArray[np.float64] = np.where(self._crosses, share[:, None], np.inf).min(axis=0, initial=np.inf)
        worst[np.isinf(worst)] = np.nan
        return worst

    def crossed(self, since_ns: int) -> frozenset[Endpoint]:
        """Return the links that some probe crossed for certain, if it was sent since then and has come back."""
        back = ((self._sent["fate"] == RECEIVED) & (self._sent["sent_ns"] >= since_ns)).any(axis=1)
        return frozenset(self._links.links[index] for index in np.flatnonzero(self._crosses[back].any(axis=0)))

    def reports_lost(self, now_ns: int) -> NDArray[np.float64]:
        """Return the share of lost reports (links,): that of lost probes."""
        return self.loss(now_ns)

    def _give_up(self, columns: slice) -> None:
        """Count the probes of these columns that have not come back as lost; they are forgotten next."""
        lost = (self._sent["fate"][:, columns] == LOST) | (self._sent["fate"][:, columns] == OUTSTANDING)
        if lost.any():
            self._gone += self._load(lost.sum(axis=1))

    def _load(self, count: NDArray[np.int64]) -> NDArray[np.int64]:
        """(links, 2): packets and bytes of so many of each probe, on the links that it surely crosses."""
        return np.stack([count @ self._crosses, count @ self._lengths], axis=1)

    def _lost_before(self, now_ns: int) -> int:
        """Time before which sent probes without a return are lost, if their path has delayed none so far."""
        return now_ns - STALE_PERIODS * self._links.period_ns


def _load_native_code() -> None:
    """Have it made, or loaded, now: it takes seconds where it is made, and no lease is to run out meanwhile."""
    nothing, tally = np.zeros(1, np.int64), np.zeros(1, TALLY)
    at = nothing.ctypes.data
    collect(b"", at, 0, 0, 0, at, 0, at, at, 0, tally.ctypes.data, at, at, at, 1, 1, 1, at, at, 0)


_load_native_code()
