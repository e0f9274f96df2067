"""The switches of a controller: the lost ones, and the known contents of each.

A switch is lost once its session has been broken for longer than a lease. It comes back when its session does; its
contents are then read and corrected. If an entry was missing, the switch has restarted, and its registers are empty as
well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ..errors import ControllerError, NotPrimary, SwitchLost, SwitchUnreachable
from ..leases import Leases
from .entries import SwitchState
from .reconcile import Diff, verify, write_difference
from .session import SwitchSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """Switches that have been lost, or have come back, since the last look."""

    lost: frozenset[str]
    back: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.lost or self.back)


class Switches:
    """All switches of one fabric, by name. `sessions` must be open; the caller that opened them closes them."""

    def __init__(self, sessions: Mapping[str, SwitchSession], lease_ns: int | None, retry_ns: int, now_ns: int) -> None:
        """Create the state of all switches, none of which is lost.

        Args:
            sessions: Open session of each switch, by name.
            lease_ns: Time after which a switch with a broken session counts as lost, in ns; None: never.
            retry_ns: Time after which a refused write is tried again, in ns.
            now_ns: Present time, in ns.
        """
        self.sessions = sessions
        self.lost: frozenset[str] = frozenset()
        self.troubles: dict[str, ControllerError] = {}
        """Error of the last write to each switch that has not had its target state since."""
        self._leases = Leases[str](lease_ns)
        for name in sessions:
            self._leases.renew(name, now_ns)
        self._retry_ns = retry_ns
        self._retry_at_ns: dict[str, int] = {}
        self._written: dict[str, SwitchState] = {}
        self._openings = {name: session.openings for name, session in sessions.items()}
        self._reopened: set[str] = set()
        self._emptied: set[str] = set()
        self._restarted: set[str] = set()

    def mark_lost(self, names: Iterable[str]) -> None:
        """Mark switches as lost until their session stands, as they were when the controller died."""
        self.lost = frozenset(name for name in names if name in self.sessions and not self.sessions[name].is_up)
        for name in self.lost:
            self._leases.end(name)

    async def claim(self, owner: int, *, forgetful: bool, had_jobs: bool) -> None:
        """Make the switches this owner's: programs loaded by others are loaded again.

        For a switch that had jobs this counts as a restart. A switch that does not answer is claimed when it does.

        Raises:
            ControllerError: A switch refuses.
        """
        work = (session.claim(owner, forgetful=forgetful) for session in self.sessions.values())
        for name, result in zip(self.sessions, await asyncio.gather(*work, return_exceptions=True), strict=True):
            if isinstance(result, SwitchUnreachable):
                _log.warning("%s", result)
            elif isinstance(result, BaseException):
                raise result
            if had_jobs and self.sessions[name].loads:
                self._reopened.add(name)

    @property
    def owner(self) -> int:
        """Owner for whom all sessions were opened; 0 if they were opened for several, or for none."""
        owners = {session.owner for session in self.sessions.values()}
        return owners.pop() if len(owners) == 1 else 0

    def pop_foreign_generations(self) -> Mapping[int, frozenset[int]]:
        """Generations, by job, of another owner's entries in these switches, found since the last call."""
        left = {generation for session in self.sessions.values() for generation in session.pop_foreign_generations()}
        return {job: frozenset(g for j, g in left if j == job) for job, _ in left}

    def pop_packet_ins(self) -> list[bytes]:
        """Return the frames that have come to the switches' CPU ports since the last call; those of a switch in
        order.
        """
        return [packet.frame for session in self.sessions.values() for packet in session.pop_packet_ins()]

    def poll(self, now_ns: int) -> Change:
        """Renew the leases of those whose session is up, and see whose have run out."""
        back = set()
        for name, session in self.sessions.items():
            if session.openings != self._openings[name]:
                self._openings[name] = session.openings
                self._reopened.add(name)
                self._invalidate(name)
            if session.is_up:
                self._leases.renew(name, now_ns)
                if name in self.lost:
                    back.add(name)
        lost = frozenset(self._leases.expire(now_ns))
        for name in lost:
            self._invalidate(name)
        self.lost = (self.lost | lost) - back
        return Change(lost, frozenset(back))

    async def read_table(self, table: str) -> Mapping[str, SwitchState]:
        """Return a table's entries, by switch, of those that answer."""
        names = [name for name, session in self.sessions.items() if session.is_up]
        work = (self.sessions[name].read_table(table) for name in names)
        held = {}
        for name, result in zip(names, await asyncio.gather(*work, return_exceptions=True), strict=True):
            if isinstance(result, ControllerError):
                _log.warning("%s", result)
            elif isinstance(result, BaseException):
                raise result
            else:
                held[name] = result
        return held

    async def write_states(
        self, desired: Mapping[str, SwitchState], now_ns: int, again: Collection[str] = ()
    ) -> Mapping[str, Diff]:
        """Bring every reachable switch to its target state; return the changes by switch.

        A switch that fails has its error in `troubles`, and is retried by a later call; those in `again` by this one.
        """
        due = [
            name
            for name, state in desired.items()
            if name not in self.lost
            and self._written.get(name) != state
            and (name in again or self._retry_at_ns.get(name, now_ns) <= now_ns)
        ]
        for name in due:  # until it is done, nobody knows what they hold
            self._written.pop(name, None)
        work = (self._write_state(name, desired[name]) for name in due)
        diffs: dict[str, Diff] = {}
        for name, result in zip(due, await asyncio.gather(*work, return_exceptions=True), strict=True):
            if isinstance(result, ControllerError):
                if str(self.troubles.get(name)) != str(result):
                    _log.warning("%s does not hold what it should: %s", name, result)
                self.troubles[name] = result
                self._retry_at_ns[name] = now_ns + self._retry_ns
            elif isinstance(result, BaseException):
                raise result
            else:
                diffs[name] = result
                self._note_written(name, desired[name])
        return diffs

    async def _write_state(self, name: str, desired: SwitchState) -> Diff:
        """Bring one switch to its target state.

        Entries missing when it came back are noted before anything is written, since a write that fails may have been
        done.
        """
        diff = await verify(self.sessions[name], desired)
        if name in self._reopened:
            self._reopened.discard(name)
            if diff:
                _log.warning("%s had lost %d entries and is written anew", name, len(diff))
                self._emptied.add(name)
        await write_difference(self.sessions[name], diff)
        return diff

    @property
    def holding(self) -> frozenset[str]:
        """Those that hold what they should, as of the last write."""
        return frozenset(self._written)

    @property
    def out_of_reach(self) -> frozenset[str]:
        """Those whose session is broken."""
        return frozenset(name for name, session in self.sessions.items() if not session.is_up)

    @property
    def answering(self) -> list[str]:
        """Those that cannot be waited for: where there are leases, the ones whose session stands, else all."""
        return [name for name, session in self.sessions.items() if session.is_up or self._leases.lease_ns is None]

    @property
    def packet_outs_sent(self) -> Mapping[str, int]:
        """Number of packets sent to each switch since its session began."""
        return {name: session.packet_outs_sent for name, session in self.sessions.items()}

    @property
    def packet_ins_received(self) -> Mapping[str, int]:
        """Number of packets received from each switch since its session began."""
        return {name: session.packet_ins_received for name, session in self.sessions.items()}

    async def drain(self, packet_ins: Mapping[str, int], timeout_s: float = 5.0) -> None:
        """Wait until this number of packet-ins has arrived from each switch, since its session began.

        Raises:
            ControllerError: They did not arrive in time.
        """
        await asyncio.gather(*(self.sessions[name].drain(count, timeout_s) for name, count in packet_ins.items()))

    def check_primary(self) -> None:
        """Check that no other controller has taken over a switch.

        Raises:
            NotPrimary: One has; its writes are unknown, so this controller must not act by its own records.
        """
        if deposed := [name for name, session in self.sessions.items() if session.deposed]:
            raise NotPrimary(tuple(deposed))

    def troubles_of(self, names: Collection[str]) -> list[ControllerError]:
        """Return errors of the switches that do not have their target state; empty if all do."""
        lost = [SwitchLost(name) for name in names if name in self.lost]
        return [*lost, *(self.troubles[name] for name in names if name in self.troubles)]

    def raise_trouble(self, names: Iterable[str]) -> None:
        """Raise the first trouble of these switches, if there is any."""
        for name in names:
            if name in self.troubles:
                raise self.troubles[name]

    def invalidate(self) -> None:
        """Forget the known states, so that the next `write_states` reads every switch."""
        for name in self.sessions:
            self._invalidate(name)

    def pop_restarted(self) -> frozenset[str]:
        """Return the switches that have restarted since the last call, and hold their tables again."""
        restarted, self._restarted = frozenset(self._restarted), set()
        return restarted

    @property
    def deadline_ns(self) -> int | None:
        """Time of the next retry of a refused write; None if there is none."""
        return min((at for name, at in self._retry_at_ns.items() if name not in self.lost), default=None)

    def _invalidate(self, name: str) -> None:
        self._written.pop(name, None)
        self._retry_at_ns.pop(name, None)
        self.troubles.pop(name, None)

    def _note_written(self, name: str, state: SwitchState) -> None:
        self._written[name] = state
        self._retry_at_ns.pop(name, None)
        self.troubles.pop(name, None)
        if name in self._emptied:
            self._emptied.discard(name)
            self._restarted.add(name)
