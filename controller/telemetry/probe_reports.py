"""Probes as a source of reports: sent probes, returned ones and their readings, lost ones.

A probe of the plan crosses several links. While its newest ones are lost, a probe for each link of its path is sent in
its place, so that a dead link hides no other. These add no packet to any link: each has one in place of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...topologies.model import Endpoint
from ...wire.int_md import HOP, KEPT_ITEMS, PROBE
from .link_records import REPORT
from .link_state import STALE_PERIODS, LinkState
from .native_code import collect
from .probe_format import SEQUENCES, probe_bytes
from .probe_records import COPIES, LOST, NOT_SENT, OUTSTANDING, RECEIVED, RECENT, REMEMBERED, SENT, TALLY
from .probes import Probe

LOSS_PROBES: Final = 16
"""Number of a path's newest probes, received or lost, whose lost share is its loss."""
_FIRST_TRIAL: Final = 4
"""Periods after which a divided probe is sent whole again, once; each time it is lost, twice as many."""
_LAST_TRIAL: Final = 32


class ProbeReports:
    """Keeps the books of a plan's probes, and brings what they report into the links' state."""

    def __init__(self, state: LinkState, probes: Sequence[Probe], parts: Sequence[Probe] = ()) -> None:
        """Expect `probes`; `parts` are the probes of one link each that replace lost ones (`link_probes`)."""
        self._links = state
        self._next_sequence = 0
        self._periods = 0
        self._tally = np.zeros(1, TALLY)
        self._layout = np.zeros(KEPT_ITEMS, np.int64)
        self._cost = np.zeros((len(state.links), 2), np.int64)
        self._gone = np.zeros((len(state.links), 2))
        """Packets and bytes of probes that are no longer waited for, on the links that they crossed presumably."""
        self._sent = np.zeros((0, REMEMBERED), SENT)
        self._whole = 0
        self.expect(probes, parts)
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

        A copy that a link made counts on the links behind it. A lost probe counts on each link of its path with the
        probability that it was lost no earlier, by the losses of the links.
        """
        lost = (self._sent["fate"] == LOST).sum(axis=1)
        return self._cost + np.rint(self._gone + self._load(lost)).astype(np.int64)

    def expect(self, probes: Sequence[Probe], parts: Sequence[Probe] = ()) -> None:
        """Expect these probes from now on. A link that none of them crosses is down and no longer watched."""
        if self._whole:
            self._give_up(slice(None))
        self._whole, count = len(probes), len(probes) + len(parts)
        self._sent = np.full((count, REMEMBERED), np.array((-1, 0, NOT_SENT), SENT))
        self._delays_ns = np.zeros(count, np.int64)
        self._copies = np.zeros((count, RECENT), COPIES)
        self._copies["sequence"] = -1
        index = {link: at for at, link in enumerate(self._links.links)}
        self._link_of_part = np.array([index[part.certain[0]] for part in parts], np.int64)
        self._paths = np.full((len(probes), max([1, *(len(probe.certain) for probe in probes)])), len(index), np.int64)
        """(probes, hops): links that each surely crosses, in order; the number of links behind the last."""
        self._crosses = np.zeros((len(probes), len(index)), np.bool_)
        for row, probe in enumerate(probes):
            path = [index[link] for link in probe.certain]
            self._paths[row, : len(path)] = path
            self._crosses[row, path] = True
        self._crossed = self._crosses.any(axis=0)
        can_divide = np.array([len(probe.certain) > 1 for probe in probes], np.bool_)
        self._can_divide = can_divide if len(parts) else np.zeros_like(can_divide)
        self._divided = np.zeros(len(probes), np.bool_)
        """True if parts are sent in place of a probe."""
        self._trial_at = np.zeros(len(probes), np.int64)
        self._trial_wait = np.zeros(len(probes), np.int64)
        self.due: NDArray[np.int64] = np.zeros(0, np.int64)
        """Indexes of the probes that `send_all` has chosen; parts follow those of the plan."""
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
            self._copies.ctypes.data,
            *self._links.into,
        )

    def send_all(self, now_ns: int) -> int:
        """Set `due`, the probes that are sent now; return the sequence number that they carry."""
        self._mark_lost(now_ns)
        self._choose()
        sequence = self._next_sequence
        self._next_sequence = (sequence + 1) % SEQUENCES
        self._periods += 1
        column = sequence % REMEMBERED
        self._give_up(slice(column, column + 1))
        self._sent[:, column] = np.array((-1, 0, NOT_SENT), SENT)
        self._sent[self.due, column] = np.array((sequence, now_ns, OUTSTANDING), SENT)
        return sequence

    def receive(self, frames: Iterable[bytes], now_ns: int) -> int:
        """Use returned probes from the switches' CPU ports; return the number of link reports that were used."""
        together = list(frames)
        ends = np.array(list(map(len, together)), np.int64).cumsum()
        data = b"".join(together)
        probes, words = np.empty(len(together), PROBE), len(data) // 4  # a hop has a word at least
        hops, reports, order = np.empty(words, HOP), np.empty(words, REPORT), np.empty((2, words), np.int64)
        room = (self._layout, probes, hops, reports, order)
        collect(
            data,
            ends.ctypes.data,
            len(together),
            now_ns,
            self._lost_before(now_ns),
            *(array.ctypes.data for array in room),
            *self._books,
        )
        return int(self._tally["used"][0])

    def loss(self, now_ns: int) -> NDArray[np.float64]:
        """Return, by link (links,), the smallest share of lost probes among the probes that surely cross each link;
        0 while none is decided.

        A probe is lost when it takes three periods longer than the newest that came by its path: behind a queue that
        holds it for many periods it is late.
        """
        self._mark_lost(now_ns)
        return self._loss()

    def crossed(self, since_ns: int) -> frozenset[Endpoint]:
        """Return the links that some probe crossed for certain, if it was sent since then and has come back."""
        back = ((self._sent["fate"] == RECEIVED) & (self._sent["sent_ns"] >= since_ns)).any(axis=1)
        indexes = {*np.flatnonzero(self._crosses[back[: self._whole]].any(axis=0)).tolist()}
        indexes |= {*self._link_of_part[back[self._whole :]].tolist()}
        return frozenset(self._links.links[index] for index in indexes)

    def reports_lost(self, now_ns: int) -> NDArray[np.float64]:
        """Return the share of lost reports (links,): that of lost probes."""
        return self.loss(now_ns)

    def _choose(self) -> None:
        """Set `due`: the probes of the plan, or the parts of those whose newest two are lost."""
        fate = self._newest_first()[: self._whole]
        decided = (fate == LOST) | (fate == RECEIVED)
        place = decided.cumsum(axis=1)
        newest, second = (((place == number) & decided & (fate == LOST)).any(axis=1) for number in (1, 2))
        unknown = ~decided.any(axis=1)
        before = self._divided
        divided = self._can_divide & ((newest & (second | before)) | (unknown & before))
        self._divided = divided
        self._trial_wait[divided & ~before] = _FIRST_TRIAL
        self._trial_at[divided & ~before] = self._periods + _FIRST_TRIAL
        trial = divided & (self._periods >= self._trial_at)
        self._trial_wait[trial] = np.minimum(2 * self._trial_wait[trial], _LAST_TRIAL)
        self._trial_at[trial] = self._periods + self._trial_wait[trial]
        in_parts = divided & ~trial
        crossed = np.any(self._crosses[in_parts], axis=0)
        parts = crossed[self._link_of_part]
        self.due = np.concatenate([np.flatnonzero(~in_parts), self._whole + np.flatnonzero(parts)])

    def _newest_first(self) -> NDArray[np.int8]:
        """(probes and parts, REMEMBERED): fate of each, the newest first."""
        fate: NDArray[np.int8] = self._sent["fate"][:, (self._next_sequence - 1 - np.arange(REMEMBERED)) % REMEMBERED]
        return fate

    def _loss(self) -> NDArray[np.float64]:
        """(links,): see `loss`."""
        whole, parts = self._shares_lost()
        # what is divided says less of its links than its parts do
        present = self._least(np.where(self._divided, np.inf, whole))
        crossed = np.any(self._crosses[self._divided], axis=0)
        in_parts = crossed[self._link_of_part]
        np.minimum.at(present, self._link_of_part[in_parts], parts[in_parts])
        worst: NDArray[np.float64] = np.where(np.isinf(present), self._least(whole), present)
        worst[np.isinf(worst)] = 0.0
        worst[~self._crossed] = np.nan
        return worst

    def _shares_lost(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(probes,), (parts,): lost share of the newest that are decided; infinite if none is."""
        fate = self._newest_first()
        known = (fate == LOST) | (fate == RECEIVED)
        known &= known.cumsum(axis=1) <= LOSS_PROBES
        lost, decided = (known & (fate == LOST)).sum(axis=1), known.sum(axis=1)
        share = np.where(decided > 0, lost / np.maximum(decided, 1), np.inf)
        return share[: self._whole], share[self._whole :]

    def _least(self, whole: NDArray[np.float64]) -> NDArray[np.float64]:
        """(links,): the smallest share of the plan's probes that surely cross each; infinite if there is none."""
        least: NDArray[np.float64] = np.where(self._crosses, whole[:, None], np.inf).min(axis=0, initial=np.inf)
        return least

    def _mark_lost(self, now_ns: int) -> None:
        late = self._sent["sent_ns"] < self._lost_before(now_ns) - self._delays_ns[:, None]
        self._sent["fate"][late & (self._sent["fate"] == OUTSTANDING)] = LOST

    def _give_up(self, columns: slice) -> None:
        """Count the probes of these columns that have not come back as lost; they are forgotten next."""
        lost = (self._sent["fate"][:, columns] == LOST) | (self._sent["fate"][:, columns] == OUTSTANDING)
        if lost.any():
            self._gone += self._load(lost.sum(axis=1))

    def _load(self, lost: NDArray[np.int64]) -> NDArray[np.float64]:
        """(links, 2): expected packets and bytes of so many lost ones of each probe, on the links of their paths."""
        links, hops = len(self._links.links), self._paths.shape[1]
        whole, parts = self._shares_lost()
        least = self._least(whole)
        np.minimum.at(least, self._link_of_part, parts)
        least[np.isinf(least)] = 0.0
        loss = np.append(least, 0.0)[self._paths]
        arrives = np.cumprod(np.hstack([np.ones((self._whole, 1)), 1 - loss]), axis=1)
        through = arrives[:, -1:]
        unexplained = through >= 1  # by all that is known it should have come: it may have been lost anywhere
        share = np.where(unexplained, 1.0, (arrives[:, :-1] - through) / np.maximum(1 - through, 1e-12))
        packets = lost[: self._whole, None] * share
        load = np.zeros((links + 1, 2))
        np.add.at(load[:, 0], self._paths, packets)
        np.add.at(load[:, 1], self._paths, packets * [probe_bytes(hop) for hop in range(1, hops + 1)])
        np.add.at(load[:, 0], self._link_of_part, lost[self._whole :])
        np.add.at(load[:, 1], self._link_of_part, lost[self._whole :] * probe_bytes(1))
        return load[:links]

    def _lost_before(self, now_ns: int) -> int:
        """Time before which sent probes without a return are lost, if their path has delayed none so far."""
        return now_ns - STALE_PERIODS * self._links.period_ns
