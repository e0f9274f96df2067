"""Leases: a member that is silent for longer than its lease is lost. Pure; the caller passes the time."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from .errors import ControllerError

Key = TypeVar("Key", bound=Hashable)

HEARTBEATS_IN_A_LEASE: Final = 4
"""Number of heartbeats that a host sends per lease."""


class Leases(Generic[Key]):
    """One lease per key, all of the same length. A lease begins with its first renewal and ends once: when it runs
    out, or is ended.
    """

    def __init__(self, lease_ns: int | None) -> None:
        """None: leases never run out. Raises ControllerError for a length that is not positive."""
        if lease_ns is not None and lease_ns < 1:
            raise ControllerError(
                f"{lease_ns} must be positive, or None for no leases", place="lease_ns", value=lease_ns
            )
        self.lease_ns = lease_ns
        self._renewed_ns: dict[Key, int] = {}

    def renew(self, key: Key, now_ns: int) -> None:
        """Begin or extend a key's lease at a time in ns."""
        self._renewed_ns[key] = now_ns

    def renew_all(self, now_ns: int) -> None:
        """Renew all leases that have begun and not ended."""
        self._renewed_ns = dict.fromkeys(self._renewed_ns, now_ns)

    def end(self, key: Key) -> None:
        """End the lease of a key, if it has one."""
        self._renewed_ns.pop(key, None)

    def lives(self, key: Key) -> bool:
        """Return True if the lease has begun and not ended."""
        return key in self._renewed_ns

    def expire(self, now_ns: int) -> list[Key]:
        """Remove the leases that have run out, and return them; the longest silent comes first."""
        if self.lease_ns is None:
            return []
        out = [key for key, renewed_ns in self._renewed_ns.items() if now_ns - renewed_ns >= self.lease_ns]
        out.sort(key=self._renewed_ns.__getitem__)
        for key in out:
            del self._renewed_ns[key]
        return out

    @property
    def deadline_ns(self) -> int | None:
        """When the next one runs out, if it is not renewed."""
        if self.lease_ns is None or not self._renewed_ns:
            return None
        return min(self._renewed_ns.values()) + self.lease_ns

    def __len__(self) -> int:
        return len(self._renewed_ns)
