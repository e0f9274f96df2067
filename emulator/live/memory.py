"""The record of the wall clock's loop, and the words that processes share with it."""

from __future__ import annotations

from typing import Final

import numpy as np

FUNCTIONS: Final = ("clock_gettime", "ppoll", "read", "write")
"""Functions of libc that the loop calls."""

LIVE: Final = np.dtype(
    [
        (name, "<i8")
        for name in (
            *FUNCTIONS,
            "origin_ns",  # of the clock, at which the fabric's time is 0
            "late_ns",  # by how much the earliest event may be overdue
            "behind_ns",  # time that was dropped, since events were overdue by more
            "turn_ns",  # shortest sleep while frames are under way
            "wake_fd",  # eventfd: a process has sent, or Python wants the loop
            "shared",  # address of the words below
            "scratch",
            "turns",
            "sleeps",
        )
    ]
)

SHARED_INTERRUPT: Final = 0
"""Not 0 while another thread wants the engine."""
SHARED_ATTENTION: Final = 8
"""Not 0 if Python has something for the loop."""
SHARED_WORDS: Final = 16
SCRATCH_WORDS: Final = 8

TAP_IN_HEAD: Final = 0
"""Frames that the process has written, ever. These words stand in the memory that both share, each in a cache line."""
TAP_IN_TAIL: Final = 8
"""Frames that the fabric has taken, ever."""
TAP_OUT_HEAD: Final = 16
"""Frames that the fabric has written, ever."""
TAP_OUT_TAIL: Final = 24
"""Frames whose rows the process has given back, ever."""

OP_LIVE: Final = 16
