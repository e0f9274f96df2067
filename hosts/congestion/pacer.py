"""When rounds may be sent: after the hold of a plan, no two closer than its gap, and at the pace of a law.

A plan's gap is kept by every two rounds: queues are promised by it. A law's is kept on mean: a host that looks seldom
sends at once what has come due since it looked, but nothing for the time in which it had nothing to send.
"""

from __future__ import annotations

from ...wire.control import Pacing


class Pacer:
    """One generation's; it begins when it is first asked."""

    def __init__(self, pacing: Pacing) -> None:
        self._pacing = pacing
        self._next_ns: int | None = None
        self._law_gap_ns = 0
        self._waiting = False
        """Whether rounds wait for their turn."""

    def begin(self, now_ns: int) -> bool:
        """The plan is here; whether that was not known yet."""
        if self._next_ns is not None:
            return False
        self._next_ns = now_ns + self._pacing.hold_ns
        return True

    @property
    def waits(self) -> bool:
        """Whether the plan's hold or lease is yet to begin, which it does with the plan and not with the first sum."""
        return self._next_ns is None and bool(self._pacing.hold_ns or self._pacing.lease_ns)

    def follow(self, law_gap_ns: int) -> None:
        """The law's pace from now on; 0: it has none."""
        self._law_gap_ns = law_gap_ns

    def room(self, now_ns: int) -> int | None:
        """How many rounds may be sent now; None: as many as the window allows."""
        if self._next_ns is None or now_ns < self._next_ns:
            return 0
        if self._pacing.gap_ns:
            return 1
        if not self._law_gap_ns:
            return None
        return 1 + (now_ns - self._due_ns(now_ns)) // self._law_gap_ns

    def sent(self, rounds: int, now_ns: int) -> None:
        """So many were sent."""
        if not rounds:
            return
        if self._law_gap_ns:
            self._next_ns = self._due_ns(now_ns) + rounds * self._law_gap_ns
        if self._pacing.gap_ns:
            assert self._next_ns is not None
            self._next_ns = max(self._next_ns, now_ns + rounds * self._pacing.gap_ns)

    def wait(self, *, waiting: bool) -> None:
        """All that may be sent now is; whether more would be, were it its turn."""
        self._waiting = waiting

    def next_ns(self, now_ns: int) -> int | None:
        """When rounds may be sent that may not now; None where they may."""
        return self._next_ns if self._next_ns is not None and now_ns < self._next_ns else None

    def _due_ns(self, now_ns: int) -> int:
        """Since when the next round has been due: what waits, since it has had its turn, all else since now."""
        assert self._next_ns is not None
        return self._next_ns if self._waiting else now_ns
