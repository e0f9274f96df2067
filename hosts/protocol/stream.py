"""Rounds of a worker's tensors, one tensor after the other: complete ones, and those to be sent next.

append ─▶ [ tensor │ tensor │ tensor ]
           ▲ base     ▲ following   ▲ end
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...wire.aggregation import MessageType
from ..array_types import BoolArray, IntArray
from ..numerics.tensors import Tensor
from .rounds import RoundStore

_SCALE: Final = int(MessageType.SCALE)
_CONTRIBUTION: Final = int(MessageType.CONTRIBUTION)
_PRESENT: Final = int(MessageType.PRESENT)
_NO_ROUNDS: IntArray = np.empty(0, np.int64)


class TensorStream:
    """The tensors that are not summed yet, by their rounds."""

    def __init__(self, first_round: int) -> None:
        self.base = first_round
        """The lowest round that is not complete."""
        self.end = first_round
        """The first round that belongs to no tensor yet."""
        self.tensors: list[Tensor] = []
        """Tensors in order of submission, without those whose rounds are all below the base."""
        self._ended: list[Tensor] = []  # tensors below it, some of whose rounds may have to be summed again
        self._starts: list[int] = []
        self._lanes = np.empty((0, 0), np.int32)  # scratch
        self.restart()

    def restart(self) -> None:
        """Begin a new generation: rounds that are not complete count as not sent."""
        self._following = self.base  # no round from here on was looked at
        self._held_back = _NO_ROUNDS  # rounds below it that could not be sent when looked at

    def append(self, tensor: Tensor) -> None:
        """Take a tensor whose rounds start at the end."""
        self.tensors.append(tensor)
        self._starts.append(tensor.start)
        self.end = tensor.end

    def cut_before(self, tensor: Tensor, store: RoundStore) -> None:
        """End in front of this tensor; the rounds of this one and of all later ones are passed over."""
        kept = [earlier for earlier in self.tensors if earlier.handle < tensor.handle]
        self.end = max((earlier.end for earlier in kept), default=self.base)
        self.tensors, self._starts = kept, [earlier.start for earlier in kept]
        ahead = np.arange(self.base, self.end)
        store.pass_over(ahead[~self.has(ahead) & ~store.holds(ahead)])
        self._following = min(self._following, self.end)
        self._held_back = self._held_back[self.has(self._held_back)]

    def has(self, rounds: IntArray) -> BoolArray:
        """Return whether each round is one of a tensor that is summed here."""
        among = np.zeros(len(rounds), np.bool_)
        for tensor in self.tensors:
            among |= (rounds >= tensor.start) & (rounds < tensor.end)
        return among

    def agree_again(self, store: RoundStore, fetched: IntArray, lead: int) -> IntArray:
        """Sum the chunks without a final sum in rounds behind the last final one, by exponents that are agreed there.

        All workers of a generation know the same final rounds, so that all lay the same rounds. The rounds in between
        that are of no more use are passed over.

        Args:
            store: the complete rounds.
            fetched: final rounds that are not complete here.
            lead: as in `Tensor.place`.

        Returns:
            The rounds that are still to be fetched.
        """
        held = store.round[store.round >= self.base]
        beyond = max([self.base, *(held + 1).tolist(), *(fetched + 1).tolist()])
        ahead = np.arange(self.base, beyond)
        complete = store.holds(ahead)
        final = complete | np.isin(ahead, fetched)
        useful = np.zeros(len(ahead), np.bool_)
        self.end = beyond
        earlier: list[Tensor] = []
        later: list[Tensor] = []
        for tensor in self.tensors:
            rounds = np.arange(tensor.start, tensor.end)
            inside = (rounds >= self.base) & (rounds < beyond)
            places = rounds[inside] - self.base
            known = rounds < self.base
            known[inside] = final[places]
            again, of_use = tensor.agree_again(known, self.end, lead)
            useful[places] = of_use[inside]
            if again is not None:
                known[inside] = complete[places]
                dropped = int(np.count_nonzero(~of_use & ~known))
                tensor.count_rounds(again.end - again.start - dropped)
                tensor.end_at(beyond)
                later.append(again)
                self.end = again.end
            if tensor.start < tensor.end:
                earlier.append(tensor)
        still = fetched[useful[fetched - self.base]]
        store.pass_over(ahead[~useful & ~complete])
        self.tensors = [*earlier, *later]
        self._starts = [each.start for each in self.tensors]
        self.advance(store)
        self.restart()
        return still

    def advance(self, store: RoundStore) -> None:
        """Move the base behind the rounds that are complete, and let go of the tensors below it."""
        ahead = np.arange(self.base, self.base + store.size)
        complete = int((store.round[ahead & store.mask] != ahead).argmax())
        self.base = min(self.base + complete, self.end)
        gone = 0
        while gone < len(self.tensors) and self.tensors[gone].end <= self.base:
            gone += 1
        if gone:
            self._ended += [tensor for tensor in self.tensors[:gone] if not tensor.wants_all]
            del self.tensors[:gone], self._starts[:gone]
        if self._ended and self._ended[0].end <= self.surely_final(store):
            self._ended = [tensor for tensor in self._ended if tensor.end > self.surely_final(store)]

    def surely_final(self, store: RoundStore) -> int:
        """Return the round below which all workers have all results that they want.

        A worker contributes to a round when it has all results that are a window older, and the round below the base
        has everyone's contribution. A window is at most half of the places of a store.
        """
        return self.base - store.size // 2

    def reopen(self, rounds: IntArray) -> None:
        """Take rounds, ascending, for incomplete again that have been completed without a result."""
        first = int(rounds[0])
        if first < self.base:
            self.base = first
            self.tensors = [*(tensor for tensor in self._ended if tensor.end > first), *self.tensors]
            self._ended = [tensor for tensor in self._ended if tensor.end <= first]
            self._starts = [tensor.start for tensor in self.tensors]
        for tensor in self.tensors:
            tensor.count_rounds(int(np.count_nonzero((rounds >= tensor.start) & (rounds < tensor.end))))

    def split(self, rounds: IntArray) -> list[tuple[Tensor, IntArray | slice]]:
        """Return the tensors that these rounds belong to, each with the selection of its rounds."""
        if len(self.tensors) == 1:
            return [(self.tensors[0], slice(None))]
        numbers = rounds.tolist()
        highest = max(numbers)
        first = bisect_right(self._starts, min(numbers)) - 1
        if highest < self.tensors[first].end:
            return [(self.tensors[first], slice(None))]
        parts: list[tuple[Tensor, IntArray | slice]] = []
        for tensor in self.tensors[first : bisect_right(self._starts, highest)]:
            rows = np.flatnonzero((rounds >= tensor.start) & (rounds < tensor.end))
            if len(rows):
                parts.append((tensor, rows))
        return parts

    # --- sending ---

    def sendable(self, room: int, span: int, store: RoundStore) -> IntArray:
        """Return at most `room` rounds that are neither complete nor sent, and whose exponent is agreed.

        Args:
            room: number of rounds.
            span: number of rounds from the base on that are examined.
            store: the complete rounds.
        """
        held_back = self._held_back
        sendable: list[IntArray] = []
        if room and len(held_back):
            ready = np.flatnonzero(self._exponents_known(held_back, store))[:room]
            sendable.append(held_back[ready])
            held_back = np.delete(held_back, ready)
            room -= len(ready)
        limit = min(self.base + span, self.end)
        while room and self._following < limit:
            rounds: IntArray = np.arange(self._following, min(self._following + room, limit))
            self._following += len(rounds)
            complete = store.holds(rounds)
            if np.count_nonzero(complete):
                rounds = rounds[~complete]
            if not len(rounds):
                continue
            known = self._exponents_known(rounds, store)
            if np.count_nonzero(known) < len(rounds):
                held_back = np.concatenate([held_back, rounds[~known]])
                rounds = rounds[known]
            sendable.append(rounds)
            room -= len(rounds)
        self._held_back = held_back
        if len(sendable) == 1:
            return sendable[0]
        return np.concatenate(sendable) if sendable else _NO_ROUNDS

    def holds_older(self, number: int, store: RoundStore) -> bool:
        """Return whether a round older than this one was passed over and could be sent by now."""
        older = self._held_back[self._held_back < number]
        return bool(len(older) and np.count_nonzero(self._exponents_known(older, store)))

    def _exponents_known(self, rounds: IntArray, store: RoundStore) -> BoolArray:
        """Mask of the rounds (ascending) that carry no lanes, or whose chunk's exponent is agreed."""
        known = np.ones(len(rounds), np.bool_)
        for tensor, rows in self.split(rounds):
            scale_rounds = rounds[rows] - tensor.scale_rounds
            if scale_rounds[-1] >= self.base:
                known[rows] = (scale_rounds < max(tensor.start, self.base)) | store.holds(scale_rounds)
        return known

    def kinds(self, rounds: IntArray, *, presents: bool) -> IntArray:
        """Return the type of this worker's message for each round: SCALE, CONTRIBUTION or, if `presents`, PRESENT."""
        kinds = np.empty(len(rounds), np.int64)
        nothing = _PRESENT if presents else _CONTRIBUTION
        for tensor, rows in self.split(rounds):
            local = rounds[rows] - tensor.start
            kinds[rows] = np.where(
                local < tensor.scale_rounds, _SCALE, np.where(tensor.adds_to(local), _CONTRIBUTION, nothing)
            )
        return kinds

    def wanted(self, rounds: IntArray) -> BoolArray | bool:
        """Return whether this worker needs the results of rounds; one bool if it needs all."""
        parts = self.split(rounds)
        if all(tensor.wants_all for tensor, _ in parts):
            return True
        wanted = np.empty(len(rounds), np.bool_)
        for tensor, rows in parts:
            wanted[rows] = tensor.wants(rounds[rows] - tensor.start)
        return wanted

    def may_wrap(self, rounds: IntArray) -> BoolArray | bool:
        """Return the mask of the rounds with lanes in which a lane's sum may wrap; one bool if all are alike."""
        parts = self.split(rounds)
        if len(parts) == 1:
            return parts[0][0].may_wrap
        wraps = np.empty(len(rounds), np.bool_)
        for tensor, rows in parts:
            wraps[rows] = tensor.may_wrap
        return wraps

    def contents(
        self, rounds: IntArray, with_lanes: bool
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint32], NDArray[np.int32] | None]:
        """Return this worker's contributions to rounds that it all sends lanes for, or none.

        Returns:
            Biased exponents (k,), weights (k,), and lanes (k, lanes), valid until the next call, or None.
        """
        count = len(rounds)
        exponents = np.empty(count, np.uint8)
        weights = np.empty(count, np.uint32)
        if with_lanes and len(self._lanes) < count:
            self._lanes = np.empty((count, self.tensors[0].message_lanes), np.int32)
        lanes = self._lanes[:count] if with_lanes else None
        for tensor, rows in self.split(rounds):
            local = rounds[rows] - tensor.start
            exponents[rows] = tensor.exponents(local)
            weights[rows] = tensor.weights(local)
            if lanes is None:
                continue
            if isinstance(rows, slice):
                tensor.lanes(local, lanes[rows])
            else:
                lanes[rows] = tensor.lanes(local)
        return exponents, weights, lanes
