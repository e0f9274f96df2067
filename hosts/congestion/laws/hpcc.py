"""HPCC's law, which reads INT (Li et al., "HPCC: High Precision Congestion Control", SIGCOMM 2019, algorithm 1).

A link's bytes in flight, as a share of what it carries in a base round trip T: u' = min(q, q')/(C·T) + txRate/C, with
its current queue q and the previously reported one q'. U follows the largest u' on the way, by the weight τ/T of the
time τ between the two. With U ≥ η, or after five steps of growth, W = W_c/(U/η) + W_AI, else W = W_c + W_AI; W_c is the
value of W one round trip ago, and W_AI = (1 − η)·C·T/N. Rounds leave at the pace of W/T: bursts would make queues of
their own, and a window of whole rounds alone may be most of a round too small.

Contributions carry INT-MD, and a result brings the stack of the contribution that completed its round, plus the entries
that switches have pushed on its way back. Each result thus describes its round's slowest way. Times come from the
switches' clocks; a clock is compared only with itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....wire.aggregation import AGGREGATION_PORT
from ....wire.control import Pacing
from ....wire.int_messages import depths, link_request, read_links
from ..law import Feedback, LawDescription, Link, Setting, WindowLaw

TARGET: Final = 0.95
"""η: the share of a link that is to be used."""
MAX_STEPS: Final = 5
"""maxStage: so often the window grows by W_AI alone."""
CLOCK_NS: Final = 1_000
"""Resolution of switches' clocks."""


class Reading(NamedTuple):
    """INT reading of one link."""

    egress_ns: int
    """When the packet that says so left for it, on the switch's clock."""
    queue_packets: int
    bytes_sent: int
    """Before that packet, since the switch came up."""


class Hpcc(WindowLaw):
    """Window by the links' own readings."""

    def __init__(self, rates_bps: Mapping[Link, float], *, round_bytes: int, flows: int, hops: int) -> None:
        """`rates_bps` has the links whose INT is believed. `flows` is N: streams that are expected to share a link;
        `round_bytes` a round's frame without INT; `hops` how many switches may put in what their link says.
        """
        self.int_header = link_request(AGGREGATION_PORT, hops)
        self.unread = 0
        """Results with lanes without INT, or with such as cannot be read: damaged, of unknown links, or not whole."""
        self._byte_ns = {link: 8e9 / rate_bps for link, rate_bps in rates_bps.items()}
        self._round_bytes = round_bytes
        self._flows = flows
        self.begin(Pacing(), 0)

    def begin(self, pacing: Pacing, now_ns: int) -> None:
        self._window = self._reference = float(pacing.window)
        self._trip_ns: int | None = None
        self._told: dict[Link, Reading] = {}
        self._utilisation: float | None = None
        self._steps = 0
        self._come = 0  # results, ever
        self._reference_end = 0  # so many have come when all is back that was under way as W_c was set

    def update(self, feedback: Feedback) -> None:
        self._come += feedback.rounds
        if feedback.round_trip_ns is None:  # a tensor begins, with rounds that fill no link, or rounds were repaired
            self._told.clear()
            return
        self._trip_ns = max(1, min(feedback.round_trip_ns, self._trip_ns or feedback.round_trip_ns))
        headers = feedback.int_headers
        if headers is None:
            self.unread += feedback.rounds
            return
        readings, frame_bytes = self._read(headers), self._round_bytes + headers.shape[1]
        if self._measure(readings, frame_bytes, self._trip_ns):
            product = self._trip_ns / max(self._byte_ns[link] for link in readings) / frame_bytes
            self._adjust(product, feedback.in_flight)

    def _read(self, headers: NDArray[np.uint8]) -> dict[Link, Reading]:
        """Newest reading of each link in the results."""
        hops, whole = read_links(headers, AGGREGATION_PORT)
        readings: dict[Link, Reading] = {}
        columns = [hops["node_id"], hops["egress_port"], hops["egress_ns"], depths(hops), hops["bytes_sent"]]
        for good, *stack in zip(whole.tolist(), *(column.tolist() for column in columns), strict=True):
            said = {(node, port): Reading(*rest) for node, port, *rest in zip(*stack, strict=True)}
            if not good or not said or not said.keys() <= self._byte_ns.keys():
                self.unread += 1
                continue
            readings |= {link: new for link, new in said.items() if link not in readings or new > readings[link]}
        return readings

    def _measure(self, readings: Mapping[Link, Reading], frame_bytes: int, trip_ns: int) -> bool:
        """U from two readings of each link; whether there were two of any."""
        shares = []
        for link, new in readings.items():
            old, self._told[link] = self._told.get(link), new
            if old is None or new.egress_ns <= old.egress_ns:  # or it has overtaken the one that was heard before
                continue
            passed_ns, sent = new.egress_ns - old.egress_ns, new.bytes_sent - old.bytes_sent
            byte_ns = self._byte_ns[link]
            if 0 <= sent * byte_ns <= passed_ns + CLOCK_NS + frame_bytes * byte_ns:  # else its switch came up anew
                queue = min(old.queue_packets, new.queue_packets) * frame_bytes
                shares.append((queue * byte_ns / trip_ns + sent * byte_ns / passed_ns, passed_ns))
        if not shares:
            return False
        most, passed_ns = max(shares)
        if self._utilisation is None:
            self._utilisation = most
        self._utilisation += min(passed_ns, trip_ns) / trip_ns * (most - self._utilisation)
        return True

    def _adjust(self, product: float, in_flight: int) -> None:
        """W, and a round trip after the last time W_c, from U and C·T in rounds."""
        assert self._utilisation is not None
        growth = (1 - TARGET) * product / self._flows
        cut = self._utilisation >= TARGET or self._steps >= MAX_STEPS
        window = self._reference / (self._utilisation / TARGET) if cut and self._utilisation else self._reference
        window = min(window + growth, max(product, 1.0))
        if self._come > self._reference_end:  # rounds sent under W_c have begun to come back
            self._steps = 0 if cut else self._steps + 1
            self._reference = window
            self._reference_end = self._come + in_flight
        self._window = window

    def on_loss(self, rounds: int, now_ns: int) -> None:
        """Do nothing: links report their load themselves."""

    def window(self, now_ns: int) -> int:
        """Return the window in rounds. A round may begin while less than W is in the network; the pace makes it W on
        mean.
        """
        return ceil(self._window)

    @property
    def gap_ns(self) -> int:
        return 0 if self._trip_ns is None else int(self._trip_ns / self._window)


def _of(setting: Setting) -> Hpcc:
    return Hpcc(setting.rates_bps, round_bytes=setting.round_bytes, flows=setting.streams, hops=setting.hops)


DESCRIPTION: Final = LawDescription("hpcc", "links' INT readings", _of, reads_int=True)
