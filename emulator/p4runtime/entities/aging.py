"""Idle entries: which of a table's entries are due to be told (specification, "Table Idle Timeout Notification")."""

from __future__ import annotations

from ...entries import Match, TableEntry

Key = tuple[tuple[Match, ...], int]
"""Match and priority: what identifies an entry in its table."""


class Aging:
    """The entries of one table that have an idle timeout. It may be asked while entries are written."""

    def __init__(self) -> None:
        self._told_ns: dict[Key, int] = {}
        """When an entry was last told idle, in the switch's time; 0: never."""

    def __bool__(self) -> bool:
        """Return True if some entry has an idle timeout."""
        return bool(self._told_ns)

    def note(self, key: Key, idle_timeout_ns: int) -> None:
        """Set an entry's idle timeout in ns; 0: it has none."""
        if idle_timeout_ns:
            self._told_ns.setdefault(key, 0)
        else:
            self._told_ns.pop(key, None)

    def discard(self, key: Key) -> None:
        """Remove an entry that is deleted."""
        self._told_ns.pop(key, None)

    def due(self, idle: list[TableEntry], now_ns: int) -> list[TableEntry]:
        """Return those of the idle entries that were not told within their timeout; they count as told now."""
        due = []
        for entry in idle:
            key = entry.match, entry.priority
            told_ns = self._told_ns.get(key)
            if told_ns is not None and (not told_ns or now_ns - told_ns >= entry.idle_timeout_ns):
                due.append(entry)
                if key in self._told_ns:
                    self._told_ns[key] = now_ns
        return due
