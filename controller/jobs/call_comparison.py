"""Comparison of all workers' collective calls: missing ranks and different calls. No clock, no I/O.

::

    a worker waits for long, or finds that calls differ ──Calls(asks)──▶ CallComparison ──▶ ask all others
    every other worker                                  ──Calls────────▶       └──▶ text for all, once all have answered
                                                                                    or ANSWER_NS has passed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ...wire.control import CALLS_DIFFER, CallRecord, Calls

ANSWER_NS: Final = 1_000_000_000
"""Time after which a worker that has not answered is named."""


class CallComparison:
    """The comparison of one job's workers that is under way, if any."""

    def __init__(self) -> None:
        self._calls: dict[int, Calls] = {}
        self._begun_ns: int | None = None
        self._asked_by = 0

    def receive(self, rank: int, calls: Calls, now_ns: int, *, asks: bool) -> bool:
        """Record a worker's calls.

        Args:
            rank: Rank of the worker.
            calls: Its calls.
            now_ns: Present time, in ns.
            asks: True if the worker requests a comparison; False if it answers one.

        Returns:
            True if the other workers are to be asked for their calls now.
        """
        begins = asks and self._begun_ns is None
        if begins:
            self._begun_ns, self._asked_by = now_ns, rank
            self._calls = {}
        self._calls[rank] = calls
        return begins

    @property
    def under_way(self) -> bool:
        """True if a worker has asked and has no result yet."""
        return self._begun_ns is not None

    def result(self, workers: Mapping[int, str], now_ns: int) -> tuple[str, int] | None:
        """End the comparison if all workers have answered, or time is up.

        Args:
            workers: Hosts of the workers that take part, by rank.
            now_ns: Present time.

        Returns:
            The result for people, and the rank that asked; None if there is none now.
        """
        if self._begun_ns is None:
            return None
        calls = {rank: its for rank, its in self._calls.items() if rank in workers}
        if len(calls) < len(workers) and now_ns - self._begun_ns < ANSWER_NS:
            return None
        self._begun_ns = None
        waits = any(its.awaited is not None for its in calls.values())
        return (compared(calls, workers), self._asked_by) if waits else None


def compared(calls: Mapping[int, Calls], workers: Mapping[int, str]) -> str:
    """Return one sentence on the calls of a job's workers.

    Args:
        calls: Last calls of the workers that have answered, by rank; at least one of them waits.
        workers: Hosts of all workers, by rank.
    """
    first, end = max(its.first for its in calls.values()), max(its.made for its in calls.values())
    for number in range(first, end):
        made = {rank: call for rank, its in calls.items() if (call := its.get(number)) is not None}
        if len(set(made.values())) > 1:
            return f"{CALLS_DIFFER} in call {number + 1} of the job: {_groups(made, workers)}"
    awaited = min(its.awaited for its in calls.values() if its.awaited is not None)
    what = next((str(call) for its in calls.values() if (call := its.get(awaited)) is not None), f"call {awaited + 1}")
    have = [rank for rank, its in calls.items() if its.made > awaited]
    lacking = [rank for rank in calls if rank not in have]
    silent = [rank for rank in workers if rank not in calls]
    reasons = []
    if lacking:
        reasons.append(f"{_each(lacking, workers)}: {'they have' if len(lacking) > 1 else 'it has'} not called {what}")
    if silent:
        reasons.append(f"{_each(silent, workers)}: {'they do' if len(silent) > 1 else 'it does'} not answer")
    if not reasons:
        return f"all workers have called {what}, but no result comes through the fabric"
    called = "have" if lacking else f"have called {what}"
    own = f"; {_named(have, workers)} {called if len(have) > 1 else called.replace('have', 'has', 1)}"
    return f"waiting for {', '.join(reasons)}{own if have else ''}"


def _groups(made: Mapping[int, CallRecord], workers: Mapping[int, str]) -> str:
    """Ranks by what they have called, the smallest group first; only what differs is spelt out."""
    ranks: dict[CallRecord, list[int]] = {}
    for rank, call in sorted(made.items()):
        ranks.setdefault(call, []).append(rank)
    common = frozenset.intersection(*(frozenset(call.details) for call in ranks))
    names = {str(call) for call in ranks}
    told = []
    for call, its in sorted(ranks.items(), key=lambda item: len(item[1])):
        details = ", ".join(detail for detail in call.details if detail not in common)
        words = ", ".join(filter(None, [str(call) if len(names) > 1 else "", details]))
        told.append(f"{_named(its, workers)}: {words or str(call)}")
    where = f"{names.pop()}, " if len(names) == 1 else ""
    return where + "; ".join(told)


def _named(ranks: Iterable[int], workers: Mapping[int, str]) -> str:
    """One rank with its host; several without."""
    several = sorted(ranks)
    return _each(several, workers) if len(several) == 1 else f"ranks {', '.join(map(str, several))}"


def _each(ranks: Iterable[int], workers: Mapping[int, str]) -> str:
    """Every rank with its host."""
    return ", ".join(f"rank {rank} ({workers[rank]})" for rank in sorted(ranks))
