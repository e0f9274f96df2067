"""Multicast groups and clone sessions, as the control plane writes them and native code reads them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .entries import CloneSession, EntryNotFound, InvalidEntry, Replica
from .runtime import memory

MAX_GROUP_ID: Final = 0xFFFF
MAX_SESSION_ID: Final = 0x7FFF
"""The highest number that simple_switch takes for a clone session."""
_MAX_INSTANCE: Final = 0xFFFF


class ReplicationTables(NamedTuple):
    """Groups and sessions by id (dtype `memory.GROUP`), and the replicas that they refer to (`memory.REPLICA`)."""

    groups: NDArray[np.void]
    sessions: NDArray[np.void]
    replicas: NDArray[np.void]
    longest: int
    """Replicas of the largest group or session that these tables have held."""


class ReplicationEngine:
    """Groups and sessions of one switch, and the native tables that packets use.

    A change writes to the native tables while no packet runs, and costs the same however many groups there are: new
    replicas are appended; when the tables are full they are rebuilt twice as large.

    A replica whose port is down goes to the first of its backups whose port is up; if there is none, to its own port.
    """

    def __init__(
        self, publish: Callable[[ReplicationTables], None], paused: Callable[[], AbstractContextManager[object]]
    ) -> None:
        """`publish` is given the native tables after every change, the same or new ones; it must keep them alive as
        long as it uses them.

        Changes are made within `paused()`: links go down while a control plane writes.
        """
        self._publish = publish
        self._paused = paused
        self._groups: dict[int, tuple[Replica, ...]] = {}
        self._sessions: dict[int, CloneSession] = {}
        self._ports_down: frozenset[int] = frozenset()
        self._tables: ReplicationTables
        self._used = 0
        self._build()

    @property
    def groups(self) -> Mapping[int, tuple[Replica, ...]]:
        """Replicas of each multicast group, by id; read-only."""
        return MappingProxyType(self._groups)

    @property
    def sessions(self) -> Mapping[int, CloneSession]:
        """Clone sessions by id; read-only."""
        return MappingProxyType(self._sessions)

    def set_group(self, group_id: int, replicas: tuple[Replica, ...]) -> None:
        """Make or replace a multicast group. Raises InvalidEntry for a value out of range or a replica twice."""
        if not 1 <= group_id <= MAX_GROUP_ID:
            raise InvalidEntry(f"ids are 1 … {MAX_GROUP_ID}", place=f"multicast group {group_id}", value=group_id)
        _check_replicas(f"multicast group {group_id}", replicas)
        with self._paused():
            self._groups[group_id] = tuple(replicas)
            self._change(self._tables.groups, group_id, CloneSession(self._groups[group_id]))

    def delete_group(self, group_id: int) -> None:
        """Delete a multicast group.

        Raises:
            EntryNotFound: There is none with this id.
        """
        with self._paused():
            if self._groups.pop(group_id, None) is None:
                raise EntryNotFound(f"multicast group {group_id} does not exist", value=group_id)
            self._tables.groups[group_id] = 0
            self._publish(self._tables)

    def set_session(self, session_id: int, session: CloneSession) -> None:
        """Make or replace a clone session. Its class of service is the priority that its clones queue with."""
        name = f"clone session {session_id}"
        if not 1 <= session_id <= MAX_SESSION_ID:
            raise InvalidEntry(f"ids are 1 … {MAX_SESSION_ID}", place=name, value=session_id)
        _check_replicas(name, session.replicas)
        if not 0 <= session.class_of_service < memory.PRIORITIES:
            raise InvalidEntry(
                f"class of service {session.class_of_service} is not one of 0 … {memory.PRIORITIES - 1}",
                place=name,
                value=session.class_of_service,
            )
        if session.packet_length_bytes < 0:
            raise InvalidEntry(
                f"packet length {session.packet_length_bytes} is negative; 0 means no truncation",
                place=name,
                value=session.packet_length_bytes,
            )
        with self._paused():
            self._sessions[session_id] = session
            self._change(self._tables.sessions, session_id, session)

    def delete_session(self, session_id: int) -> None:
        """Delete a clone session.

        Raises:
            EntryNotFound: There is none with this id.
        """
        with self._paused():
            if self._sessions.pop(session_id, None) is None:
                raise EntryNotFound(f"clone session {session_id} does not exist", value=session_id)
            self._tables.sessions[session_id] = 0
            self._publish(self._tables)

    def clear(self) -> None:
        """Delete all groups and sessions."""
        with self._paused():
            self._groups.clear()
            self._sessions.clear()
            self._build()

    def set_ports_down(self, ports: Collection[int]) -> None:
        """Mark these ports as down and all others as up."""
        with self._paused():
            self._ports_down = frozenset(ports)
            self._build()

    def _places(self, replicas: tuple[Replica, ...]) -> list[tuple[int, int]]:
        return [self._place(replica) if replica.backups else (replica.port, replica.instance) for replica in replicas]

    def _place(self, replica: Replica) -> tuple[int, int]:
        first = (replica.port, replica.instance)
        return next((place for place in (first, *replica.backups) if place[0] not in self._ports_down), first)

    def _change(self, table: NDArray[np.void], number: int, session: CloneSession) -> None:
        """Write one session, or one group as if it were one; into new tables where these have no room."""
        count = len(session.replicas)
        if number < len(table) and self._used + count <= len(self._tables.replicas):
            self._put(table, number, session)
            self._tables = self._tables._replace(longest=max(self._tables.longest, count))
            self._publish(self._tables)
        else:
            self._build()

    def _put(self, table: NDArray[np.void], number: int, session: CloneSession) -> None:
        first, end = self._used, self._used + len(session.replicas)
        if end > first:
            self._tables.replicas[first:end] = self._places(session.replicas)
        truncate = session.packet_length_bytes + 1 if session.packet_length_bytes else 0
        table[number] = (first, end - first, truncate, session.class_of_service)
        self._used = end

    def _build(self) -> None:
        """New tables for all that there is, with room for as much again."""
        lists = [*self._groups.values(), *(session.replicas for session in self._sessions.values())]
        tables = self._tables = ReplicationTables(
            np.zeros(2 * max(self._groups, default=0) + 1, memory.GROUP),
            np.zeros(2 * max(self._sessions, default=0) + 1, memory.GROUP),
            np.zeros(2 * sum(map(len, lists)) + 64, memory.REPLICA),
            max(map(len, lists), default=0),
        )
        self._used = 0
        for group_id, replicas in self._groups.items():
            self._put(tables.groups, group_id, CloneSession(replicas))
        for session_id, session in self._sessions.items():
            self._put(tables.sessions, session_id, session)
        self._publish(tables)


def _check_replicas(name: str, replicas: tuple[Replica, ...]) -> None:
    seen: set[tuple[int, int]] = set()
    for replica in replicas:
        for port, instance in ((replica.port, replica.instance), *replica.backups):
            if not 0 <= port < memory.PORT_NUMBERS:
                raise InvalidEntry(f"port {port} is not one of 0 … {memory.PORT_NUMBERS - 1}", place=name, value=port)
            if not 0 <= instance <= _MAX_INSTANCE:
                raise InvalidEntry(f"instance {instance} is not one of 0 … {_MAX_INSTANCE}", place=name, value=instance)
            if (port, instance) in seen:
                raise InvalidEntry(f"port {port} with instance {instance} stands there twice", place=name, value=port)
            seen.add((port, instance))
        if any(port == replica.port for port, _ in replica.backups):
            raise InvalidEntry(f"port {replica.port} is its own backup", place=name, value=replica.port)
