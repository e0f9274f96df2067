"""Send times of rounds: after the hold of a plan, no two closer than its gap, and at the pace of a law.

A plan's gap holds between any two rounds, as queue bounds rely on it. A law's holds on average: a host that polls
rarely sends at once all rounds due since its last poll, but none for time in which it had nothing to send.

If a buffer on the way cannot take a round of every worker, each worker has its own time within each gap: results reach
all at once, and rounds that all sent then would be dropped again and again.
"""

from __future__ import annotations

from ...wire.control import Pacing


class Pacer:
    """One generation's; it begins when it is first asked."""

    def __init__(self, pacing: Pacing, *, rank: int = 0, workers: int = 1) -> None:
        """Begin with the plan's pacing, for this one of the job's workers."""
        self._pacing = pacing
        self._next_ns: int | None = None
        self._has_turns = pacing.gap_ns > 0 and pacing.round_trip_ns == 0 and workers > 1
        self._phase_ns = pacing.gap_ns * rank // workers
        self._turn_ns = pacing.gap_ns // workers
        self._law_gap_ns = 0
        self._waiting = False
        """True if rounds wait for their turn."""

    def begin(self, now_ns: int) -> bool:
        """Note that the plan has arrived; return True at the first call."""
        if self._next_ns is not None:
            return False
        self._next_ns = now_ns + self._pacing.hold_ns + (self._phase_ns if self._has_turns else 0)
        return True

    @property
    def waits(self) -> bool:
        """True if the plan's hold, lease or turns have not begun; they begin with the plan, not with the first sum."""
        pacing = self._pacing
        return self._next_ns is None and bool(
            pacing.hold_ns or pacing.lease_ns or pacing.round_trip_ns or self._has_turns
        )

    def set_gap(self, law_gap_ns: int) -> None:
        """Set the time in ns between two rounds that the law asks for; 0: none."""
        self._law_gap_ns = law_gap_ns

    def room(self, now_ns: int) -> int | None:
        """Return the number of rounds that may be sent now; None: as many as the window allows."""
        if self._next_ns is None or now_ns < self._next_ns:
            return 0
        if self._has_turns and now_ns > self._next_ns + self._turn_ns:
            missed = (now_ns - self._next_ns - 1) // self._pacing.gap_ns + 1
            self._next_ns += missed * self._pacing.gap_ns
            return 0
        if self._pacing.gap_ns:
            return 1
        if not self._law_gap_ns:
            return None
        return 1 + (now_ns - self._due_ns(now_ns)) // self._law_gap_ns

    def sent(self, rounds: int, now_ns: int) -> None:
        """Record that rounds were sent."""
        if not rounds:
            return
        if self._law_gap_ns:
            self._next_ns = self._due_ns(now_ns) + rounds * self._law_gap_ns
        if self._pacing.gap_ns:
            assert self._next_ns is not None
            since_ns = self._next_ns if self._has_turns else now_ns
            self._next_ns = max(self._next_ns, since_ns + rounds * self._pacing.gap_ns)

    def wait(self, *, waiting: bool) -> None:
        """All that may be sent now is; whether more would be, were it its turn."""
        self._waiting = waiting

    def next_ns(self, now_ns: int) -> int | None:
        """Return the time in ns at which rounds may be sent that may not be now; None if they may."""
        return self._next_ns if self._next_ns is not None and now_ns < self._next_ns else None

    def _due_ns(self, now_ns: int) -> int:
        """Time since which the next round has been due: for waiting rounds their turn, for others now."""
        assert self._next_ns is not None
        return self._next_ns if self._waiting else now_ns
