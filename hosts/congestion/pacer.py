"""When rounds may be sent: after the hold of a plan, and no two closer than its gap."""

from __future__ import annotations

from ...wire.control import Pacing


class Pacer:
    """One generation's; it begins when it is first asked."""

    def __init__(self, pacing: Pacing) -> None:
        self._pacing = pacing
        self._next_ns: int | None = None

    def begin(self, now_ns: int) -> bool:
        """The plan is here; whether that was not known yet."""
        if self._next_ns is not None:
            return False
        self._next_ns = now_ns + self._pacing.hold_ns
        return True

    @property
    def waits(self) -> bool:
        """Whether the plan's hold or lease is yet to begin, which it does with the plan and not with the first sum."""
        return self._next_ns is None and (self._pacing.hold_ns > 0 or self._pacing.lease_ns > 0)

    def room(self, now_ns: int) -> int | None:
        """How many rounds may be sent now; None: as many as the window allows."""
        if self._next_ns is None or now_ns < self._next_ns:
            return 0
        return 1 if self._pacing.gap_ns else None

    def sent(self, rounds: int, now_ns: int) -> None:
        """So many were sent."""
        if rounds and self._pacing.gap_ns:
            self._next_ns = now_ns + rounds * self._pacing.gap_ns

    def next_ns(self, now_ns: int) -> int | None:
        """When rounds may be sent that may not now; None where they may."""
        return self._next_ns if self._next_ns is not None and now_ns < self._next_ns else None
