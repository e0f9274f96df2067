"""Results of a job's last rounds, which every worker and parameter server keeps: the source of fetched final rounds."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...wire.aggregation import LANES, MessageType
from ...wire.fields import REDUCED
from ..array_types import BoolArray, IntArray
from .messages import ROW, Messages, MessageWriter

_DONE: Final = int(MessageType.DONE)  # a plain integer: NumPy compares it faster
NO_ROUND: Final = np.iinfo(np.int64).min
"""Marks a place without a round; below any round number, so that it compares as older."""


class RoundStore:
    """A ring of `size` places (a power of two): round r has place r mod size. All arrays are indexed by place, which is
    their first axis but in `reduced`.
    """

    def __init__(self, size: int, lanes: int = LANES) -> None:
        self.size = size
        self.mask = size - 1
        self.round = np.full(size, NO_ROUND, np.int64)
        """The round whose complete result is kept here, or NO_ROUND."""
        self.has_lanes = np.zeros(size, np.bool_)
        self.done = np.zeros(size, np.bool_)
        """True for a round that is complete without its result: a DONE has ended it."""
        self.reduced = np.tile([[field.neutral] for field in REDUCED], size)
        """(len(REDUCED), size): the reduced header fields of each place's round, as `Messages.reduced` has them."""
        self.lanes = np.zeros((size, lanes), np.int32)

    def grown(self, size: int) -> RoundStore:
        """This store with at least `size` places; complete results move along. It never shrinks, so nothing is lost."""
        if size <= self.size:
            return self
        larger = RoundStore(size, self.lanes.shape[1])
        old = np.flatnonzero(self.round != NO_ROUND)
        new = self.round[old] & larger.mask
        for name in ("round", "has_lanes", "done", "lanes"):
            getattr(larger, name)[new] = getattr(self, name)[old]
        larger.reduced[:, new] = self.reduced[:, old]
        return larger

    def holds(self, rounds: IntArray) -> BoolArray:
        """Return whether each round is complete, as far as that is kept."""
        kept: BoolArray = self.round[rounds & self.mask] == rounds
        return kept

    def has_results(self, rounds: IntArray) -> BoolArray:
        """Return whether the result of each round is kept, which is not so for rounds that a DONE has ended."""
        kept: BoolArray = self.holds(rounds) & ~self.done[rounds & self.mask]
        return kept

    def reopen(self, rounds: IntArray) -> IntArray:
        """Take those of the rounds that a DONE has ended for incomplete again, and return them."""
        ended: IntArray = rounds[self.holds(rounds) & self.done[rounds & self.mask]]
        self.round[ended & self.mask] = NO_ROUND
        self.done[ended & self.mask] = False
        return ended

    def put(self, places: IntArray, rounds: IntArray | int, messages: Messages) -> None:
        """Keep what these messages carry as the results of rounds, or, of NO_ROUND, as sums that are being made."""
        self.round[places] = rounds
        self.has_lanes[places] = messages.lanes is not None
        self.done[places] = messages.kinds == _DONE
        self.reduced[:, places] = messages.reduced
        if messages.lanes is not None:
            self.lanes[places] = messages.lanes

    def pass_over(self, rounds: IntArray) -> None:
        """Mark rounds that no host sums any more as complete, without a result."""
        places = rounds & self.mask
        self.round[places] = rounds
        self.has_lanes[places] = self.done[places] = False
        self.reduced[:, places] = [[field.neutral] for field in REDUCED]
        self.lanes[places] = 0

    def write(
        self,
        writer: MessageWriter,
        kind: MessageType,
        places: NDArray[np.intp] | IntArray,
        contributors: int,
        flags: IntArray | int = 0,
    ) -> NDArray[np.uint8]:
        """Write messages with the results kept at these places.

        Args:
            writer: Writer of the messages.
            kind: Type of the messages; one with lanes only for rounds that have them.
            places: Places, (n,).
            contributors: Bitmap of the receiving node's children; 0 in answers to FETCH.
            flags: Flags to set in addition to those of the results, for all messages or (n,).

        Returns:
            UDP payloads, uint8 (n, size).
        """
        reduced = self.reduced.take(places, 1)
        reduced[ROW["flags"]] |= flags
        return writer.write(
            kind,
            self.round[places],
            contributors=contributors,
            reduced=reduced,
            lanes=self.lanes[places] if kind.has_lanes else None,
        )
