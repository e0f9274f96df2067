"""Record of a rank's calls, with which ranks that wait for long find out that their calls differ.

A call that goes through the switches at one rank and over Gloo at another, or over Gloo as another call, would be
waited for until its time-out, which is half an hour in PyTorch. So a rank that has waited for some seconds puts its
last calls into the store and reads those of other waiting ranks::

    rank 0   … 7: all_reduce SUM of 5000 torch.float32 through the switches
    rank 1   … 7: broadcast of 7 torch.int64 over Gloo

Nothing is exchanged while calls are answered. Ranks that are busy elsewhere publish nothing; the others wait for them.

A rank that goes on after a call that was refused at it alone is out of step with the others. So the number of refused
calls is part of what ranks compare: here, and in the signatures of sums (docs/design.md §3.3). Calls over Gloo that
are answered at once are not compared.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import torch

from ..errors import CallMismatch, HostError, InvalidTensor

_log = logging.getLogger(__name__)

LOOK_S: Final = 0.5
"""Between two looks at the store, and at whether the group has failed, of a rank that waits."""
_PATIENCE_S: Final = 5.0
_STALL_S: Final = 10.0
"""Wait after which one rank logs who is waited for."""
_KEPT: Final = 64
"""Number of calls that ranks publish: more than any rank can have in flight beyond another's."""
Told = tuple[int, str, str, bool]
"""A published call: number, kind, words, and whether it is in flight."""


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Group = TypeVar("_Group", bound="LoggedGroup")


class LoggedGroup(Protocol):
    """A group whose calls are recorded."""

    _calls: GroupCallLog


def counts_refusals(
    call: Callable[Concatenate[_Group, _Arguments], _Result],
) -> Callable[Concatenate[_Group, _Arguments], _Result]:
    """Decorate a collective call of a group: if it raises before anything is sent, it counts as refused."""

    @wraps(call)
    def counted(group: _Group, /, *words: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        before = group._calls.refused
        try:
            return call(group, *words, **named)
        except Exception as error:
            if isinstance(error, InvalidTensor) or not isinstance(error, HostError):  # else the group has failed
                group._calls.refused = before + 1  # also if the call consists of others, which have counted
            raise

    return counted


@dataclass(slots=True)
class RankCall:
    """One collective call of this rank."""

    number: int
    kind: str
    """Description of the call, which must be the same at all ranks."""
    description: str
    """The call in words, as errors have it."""
    since_s: float
    work: weakref.ref[Any] | None
    """The work object until it is complete. A work object that the script has dropped is waited for by no one."""

    def pending(self) -> bool:
        """True if the call is still in flight."""
        work = self.work() if self.work is not None else None
        if work is None or work.is_completed():
            self.work = None
        return self.work is not None


class GroupCallLog:
    """One rank's collective calls in one group; thread-safe."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, host: str) -> None:
        """`timeout` is the group's: ranks compare well before it."""
        # a connection of its own, where there are connections: a thread that waits must not hold up the others
        self._store = store.clone() if hasattr(store, "clone") else store
        self._rank = rank
        self._size = size
        self._store.set(f"hosts/{rank}", host)
        self._stalled_s = min(_STALL_S, timeout.total_seconds() / 2)
        self._stall = ""
        self._patience_s = min(_PATIENCE_S, timeout.total_seconds() / 4)
        self._lock = threading.Lock()
        self._calls: deque[RankCall] = deque(maxlen=_KEPT)
        self._number = 0
        self.refused = 0
        """Number of calls that were refused at this rank."""
        self._next_s = 0.0
        self._found: CallMismatch | None = None
        self._found_s = 0.0

    def note(self, kind: str, description: str, work: Any) -> None:
        """Record this rank's next call.

        Args:
            kind: Kind of the call.
            description: Description that ranks compare.
            work: Its work object, of which a weak reference is kept.
        """
        with self._lock:
            self._number += 1
            if self.refused:
                kind = f"{kind}, {self.refused} refused"
                description = f"{description}, refused calls before: {self.refused}"
            self._calls.append(RankCall(self._number, kind, description, time.monotonic(), weakref.ref(work)))

    def refuse(self, work: Any) -> None:
        """Count a recorded call as refused: its work has found that nothing was sent."""
        with self._lock:
            self.refused += 1
            for call in self._calls:
                if call.work is not None and call.work() is work:
                    call.kind += ", refused"
                    call.description += ", which was refused"

    @property
    def found(self) -> CallMismatch | None:
        """The difference between the calls, once found: the reason that a call over Gloo fails whose peers have given
        up.
        """
        return self._found

    def poll(self) -> CallMismatch | None:
        """Check whether the ranks' calls differ; called by waiting threads at any rate.

        The error is returned some checks after it was found, so that all waiting ranks can find it before the store is
        gone.
        """
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._next_s:
                return None
            self._next_s = now_s + LOOK_S
            if self._found is not None and now_s > self._found_s + 3 * LOOK_S:
                return self._found
            waiting = next((call for call in self._calls if call.pending()), None)
            if waiting is None:
                self._stall = ""
            if waiting is None or now_s - waiting.since_s < self._patience_s:
                return None
            told = json.dumps([(call.number, call.kind, call.description, call.pending()) for call in self._calls])
        try:
            self._store.set(f"calls/{self._rank}", told)
            others = {rank: self._announced(rank) for rank in range(self._size) if rank != self._rank}
        except RuntimeError:  # the store is gone, with the process that had it
            return None
        differing = {rank: theirs for rank, calls in others.items() if (theirs := _differing(waiting, calls))}
        if differing:
            self._found_s = now_s if self._found is None else self._found_s
            self._found = CallMismatch(self._compared(waiting, differing, others))
        elif now_s - waiting.since_s >= self._stalled_s:
            self._log_absent(waiting, others)
        return None

    @property
    def stall(self) -> str:
        """Names of the ranks that are waited for, once that has taken long; else empty."""
        return self._stall

    def _compared(self, waiting: RankCall, differing: Mapping[int, str], others: Mapping[int, Sequence[Told]]) -> str:
        """The ranks by their calls."""
        called = {self._rank: waiting.description, **differing}
        called |= {rank: waiting.description for rank, calls in others.items() if rank not in called and calls}
        return f"the ranks' calls differ in call {waiting.number} of the group: {ranks_by_words(called, self._named)}"

    def _log_absent(self, waiting: RankCall, others: Mapping[int, Sequence[Told]]) -> None:
        """Find the ranks that are not in a call; the lowest rank that is there logs them, once."""
        there = [self._rank, *(rank for rank, calls in others.items() if any(n >= waiting.number for n, *_ in calls))]
        absent = [rank for rank in others if rank not in there]
        what = f"call {waiting.number} of the group, {waiting.description}"
        text = ""
        if absent:
            names = ", ".join(self._named([rank]) for rank in absent)
            they_are, are = ("they are" if len(absent) > 1 else "it is"), ("are" if len(there) > 1 else "is")
            text = f"waiting for {names}: {they_are} not in {what}; {self._named(there)} {are}"
        if text and text != self._stall and self._rank == min(there):
            _log.warning("%s", text)
        self._stall = text

    def _named(self, ranks: Sequence[int]) -> str:
        """One rank with its host; several without."""
        if len(ranks) > 1:
            return ranks_named(ranks)
        key = f"hosts/{ranks[0]}"
        host = self._store.get(key).decode() if self._store.check([key]) else "unknown host"
        return f"rank {ranks[0]} ({host})"

    def _announced(self, rank: int) -> list[Told]:
        """Calls that another rank has put into the store; empty if it has not waited."""
        key = f"calls/{rank}"
        if not self._store.check([key]):
            return []
        calls: list[Told] = json.loads(self._store.get(key))
        return calls


def ranks_named(ranks: Sequence[int]) -> str:
    """Return the names of ranks in words."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, sorted(ranks)))}"


def ranks_by_words(said: Mapping[int, str], named: Callable[[Sequence[int]], str] = ranks_named) -> str:
    """Return the ranks grouped by their words, the smallest group first."""
    groups: dict[str, list[int]] = {}
    for rank, words in sorted(said.items()):
        groups.setdefault(words, []).append(rank)
    return "; ".join(f"{named(ranks)}: {words}" for words, ranks in sorted(groups.items(), key=lambda g: len(g[1])))


def _differing(waiting: RankCall, calls: Sequence[Told]) -> str | None:
    """Return the call that a rank has made in place of the one that is waited for.

    Calls of several threads may change places: a call that is in the list, and in flight or later, is the same one.

    Returns:
        The call in words; None if the rank has not come to it, or has made the same call.
    """
    theirs = next(((kind, what) for number, kind, what, _ in calls if number == waiting.number), None)
    if theirs is None:
        return None
    if any(kind == waiting.kind and (pending or number >= waiting.number) for number, kind, _, pending in calls):
        return None
    return theirs[1]


def described(name: str, *words: Any) -> str:
    """Return a call in words: its name, its operation, and how many numbers of which type it is given."""
    parts = next((tensors for word in reversed(words[:2]) if (tensors := _tensors(word))), [])  # inputs come second
    operations = [getattr(word, "reduceOp", None) for word in words]
    operation = next((getattr(operator, "op", operator) for operator in operations if operator is not None), None)
    named = f"{name} {operation.name}" if operation is not None else name
    return f"{named} of {sum(part.numel() for part in parts)} {parts[0].dtype}" if parts else named


def _tensors(word: Any) -> list[torch.Tensor]:
    if isinstance(word, torch.Tensor):
        return [word]
    return [part for element in word for part in _tensors(element)] if isinstance(word, list | tuple) else []
