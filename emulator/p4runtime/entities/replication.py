"""Multicast groups and clone sessions: P4Runtime's PacketReplicationEngineEntry.

The switch holds the replicas. This module keeps only the message that wrote them, so that a read returns the written
message (metadata, and the deprecated numeric form of a port); changes by others are read from the switch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from finsy.proto import p4r

from ...datapath import Replication
from ...entries import CloneSession, Replica
from .. import bytestring
from ..refusal import Code, Refusal, invalid

PORT_WIDTH: Final = 9
MAX_GROUP: Final = (1 << 16) - 1
"""Width of `standard_metadata.mcast_grp`."""
MAX_INSTANCE: Final = (1 << 16) - 1
"""Width of `standard_metadata.egress_rid`."""
MAX_SESSION: Final = (1 << 15) - 1
"""The highest number that simple_switch takes for a clone session."""
MAX_CLASS_OF_SERVICE: Final = 7
"""Width of `standard_metadata.priority`."""


class ReplicationService:
    """The packet replication engine of one switch."""

    def __init__(self, engine: Replication) -> None:
        self._engine = engine
        self._group_messages: dict[int, tuple[tuple[Replica, ...], p4r.MulticastGroupEntry]] = {}
        self._session_messages: dict[int, tuple[CloneSession, p4r.CloneSessionEntry]] = {}

    def clear(self) -> None:
        """Forget every group and session."""
        for group_id in list(self._engine.groups):
            self._engine.delete_group(group_id)
        for session_id in list(self._engine.sessions):
            self._engine.delete_session(session_id)
        self._group_messages.clear()
        self._session_messages.clear()

    def write(self, kind: p4r.Update.Type.ValueType, entry: p4r.PacketReplicationEngineEntry) -> None:
        """Write a multicast group or clone session. Raises Refusal."""
        match entry.WhichOneof("type"):
            case "multicast_group_entry":
                self._write_group(kind, entry.multicast_group_entry)
            case "clone_session_entry":
                self._write_session(kind, entry.clone_session_entry)
            case _:
                raise invalid("packet replication engine entry without a multicast group or clone session")

    def read(self, query: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
        """Yield the group or session of a query; id 0 means all. Raises Refusal."""
        match query.WhichOneof("type"):
            case "multicast_group_entry":
                yield from self._read_groups(query.multicast_group_entry.multicast_group_id)
            case "clone_session_entry":
                yield from self._read_sessions(query.clone_session_entry.session_id)
            case _:
                raise invalid("packet replication engine entry without a multicast group or clone session")

    def read_all(self) -> Iterator[p4r.Entity]:
        """Yield every group and session."""
        yield from self._read_groups(0)
        yield from self._read_sessions(0)

    def _write_group(self, kind: p4r.Update.Type.ValueType, entry: p4r.MulticastGroupEntry) -> None:
        group_id = entry.multicast_group_id
        _check_id("multicast group", group_id, MAX_GROUP)
        _check_presence("multicast group", group_id, kind, group_id in self._engine.groups)
        if kind == p4r.Update.DELETE:
            self._engine.delete_group(group_id)
            self._group_messages.pop(group_id, None)
            return
        what = f"multicast group {group_id}"
        replicas = _decode_replicas(entry.replicas, what)
        self._engine.set_group(group_id, replicas)
        kept = p4r.MulticastGroupEntry()
        kept.CopyFrom(entry)
        self._group_messages[group_id] = (replicas, kept)

    def _write_session(self, kind: p4r.Update.Type.ValueType, entry: p4r.CloneSessionEntry) -> None:
        session_id = entry.session_id
        _check_id("clone session", session_id, MAX_SESSION)
        _check_presence("clone session", session_id, kind, session_id in self._engine.sessions)
        if kind == p4r.Update.DELETE:
            self._engine.delete_session(session_id)
            self._session_messages.pop(session_id, None)
            return
        what = f"clone session {session_id}"
        if entry.class_of_service > MAX_CLASS_OF_SERVICE:
            raise invalid(f"{what}: class of service {entry.class_of_service} is not in 0 to {MAX_CLASS_OF_SERVICE}")
        if entry.packet_length_bytes < 0:
            raise invalid(f"{what}: packet length {entry.packet_length_bytes} is negative; 0 means no truncation")
        replicas = _decode_replicas(entry.replicas, what)
        session = CloneSession(replicas, entry.packet_length_bytes, entry.class_of_service)
        self._engine.set_session(session_id, session)
        kept = p4r.CloneSessionEntry()
        kept.CopyFrom(entry)
        self._session_messages[session_id] = (session, kept)

    def _read_groups(self, group_id: int) -> Iterator[p4r.Entity]:
        for number in _selected("multicast group", group_id, self._engine.groups):
            replicas = self._engine.groups.get(number)
            if replicas is None:
                continue  # deleted since the read began
            entity = p4r.Entity()
            message = entity.packet_replication_engine_entry.multicast_group_entry
            written, kept = self._group_messages.get(number, (None, None))
            if kept is not None and written == replicas:
                message.CopyFrom(kept)
            else:
                message.multicast_group_id = number
                message.replicas.extend(_encode_replicas(replicas))
            yield entity

    def _read_sessions(self, session_id: int) -> Iterator[p4r.Entity]:
        for number in _selected("clone session", session_id, self._engine.sessions):
            session = self._engine.sessions.get(number)
            if session is None:
                continue
            entity = p4r.Entity()
            message = entity.packet_replication_engine_entry.clone_session_entry
            written, kept = self._session_messages.get(number, (None, None))
            if kept is not None and written == session:
                message.CopyFrom(kept)
            else:
                message.session_id = number
                message.class_of_service = session.class_of_service
                message.packet_length_bytes = session.packet_length_bytes
                message.replicas.extend(_encode_replicas(session.replicas))
            yield entity


def _check_id(name: str, number: int, largest: int) -> None:
    if not 0 < number <= largest:
        raise invalid(f"{name} id {number} is not in 1 to {largest}")


def _check_presence(name: str, number: int, kind: p4r.Update.Type.ValueType, present: bool) -> None:
    if kind == p4r.Update.INSERT and present:
        raise Refusal(Code.ALREADY_EXISTS, f"{name} {number} is already there")
    if kind != p4r.Update.INSERT and not present:
        raise Refusal(Code.NOT_FOUND, f"there is no {name} {number}")


def _selected(name: str, number: int, present: Iterable[int]) -> list[int]:
    if not number:
        return sorted(present)
    if number not in present:
        raise Refusal(Code.NOT_FOUND, f"there is no {name} {number}")
    return [number]


def _decode_replicas(replicas: Iterable[p4r.Replica], label: str) -> tuple[Replica, ...]:
    decoded = tuple(_decode_replica(replica, label) for replica in replicas)
    seen: set[tuple[int, int]] = set()
    for replica in decoded:
        for port, instance in ((replica.port, replica.instance), *replica.backups):
            if (port, instance) in seen:
                raise invalid(f"{label}: port {port} with instance {instance} stands there twice, backups included")
            seen.add((port, instance))
        if any(port == replica.port for port, _ in replica.backups):
            raise invalid(f"{label}: port {replica.port} is its own backup")
    return decoded


def _decode_replica(replica: p4r.Replica, label: str) -> Replica:
    port, instance = _decode_place(replica, label)
    return Replica(port, instance, tuple(_decode_place(backup, label) for backup in replica.backup_replicas))


def _decode_place(replica: p4r.Replica | p4r.BackupReplica, label: str) -> tuple[int, int]:
    if replica.instance > MAX_INSTANCE:
        raise invalid(f"{label}: replica instance {replica.instance} is above {MAX_INSTANCE}")
    if isinstance(replica, p4r.Replica) and replica.WhichOneof("port_kind") == "egress_port":
        port = replica.egress_port
        if port >> PORT_WIDTH:
            raise invalid(f"{label}: egress port {port} does not fit bit<{PORT_WIDTH}>")
    else:
        port = bytestring.decode(replica.port, PORT_WIDTH, f"{label}: replica port")
    return port, replica.instance


def _encode_replicas(replicas: Iterable[Replica]) -> list[p4r.Replica]:
    return [
        p4r.Replica(
            port=bytestring.encode(replica.port),
            instance=replica.instance,
            backup_replicas=[
                p4r.BackupReplica(port=bytestring.encode(port), instance=instance) for port, instance in replica.backups
            ],
        )
        for replica in replicas
    ]
