"""Records of sent probes and of what came back, as native code and NumPy share them."""

from __future__ import annotations

from typing import Final

import numpy as np

from .probe_format import MAX_HOPS

REMEMBERED: Final = 64
"""Number of probes of a kind that are tracked: a later one counts when it comes, and duplicates are refused."""

NOT_SENT, OUTSTANDING, RECEIVED, LOST = range(4)

SENT: Final = np.dtype([("sequence", "i8"), ("sent_ns", "i8"), ("fate", "i1")])
"""Fate of one probe; −1: nothing was sent."""

RECENT: Final = 16
"""Number of probes of a kind whose counters are kept, by which copies are recognised."""

COPIES: Final = np.dtype([("sequence", "i8"), ("bytes_sent", "i8", (MAX_HOPS,))])
"""A probe that has come, and the counter of bytes that it had at each of its hops."""

TALLY: Final = np.dtype([("used", "i8"), ("rejected", "i8"), ("unknown_hops", "i8")])
"""Counts of used reports, of frames that were no probe of ours, and of hops with an unknown node or port."""
