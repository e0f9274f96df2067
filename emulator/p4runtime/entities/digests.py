"""Digests: DigestEntry, and the lists of records from the data plane (specification, "DigestEntry").

A plain state machine per digest: records and the switch's time in, lists to send out. A record waits in the buffer
until its list is full or old enough; a record that was sent is not sent again until the list is acknowledged or its
time-out passes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from finsy.proto import p4d, p4i, p4r, p4t

from ...bmv2.schema import DigestSchema
from ...program import DigestQueue
from ..refusal import Code, Refusal, invalid, unimplemented
from . import typespec

LONGEST_LIST: Final = 1024
"""Records of one list, whatever the controller allows."""
_MAX_REMEMBERED: Final = 65_536
"""Records sent and not acknowledged; beyond, the oldest lists are forgotten."""
_MAX_DEPTH: Final = 16

Record = tuple[int, ...]
_Encoder = Callable[[Iterator[int], p4d.P4Data], None]


class DigestService:
    """One digest of the P4Info, bound to one switch's memory. Its methods may run on several threads."""

    def __init__(
        self, info: p4i.Digest, types: p4t.P4TypeInfo, schema: DigestSchema | None, state: DigestQueue | None
    ) -> None:
        """Create the service.

        Args:
            info: Digest of the P4Info.
            types: Types of the P4Info.
            schema: Schema of the digest in the program; None: the program lacks it.
            state: Records of the switch; None: the program lacks the digest.
        """
        self.id = info.preamble.id
        self.name = info.preamble.name
        self.program_name = self.name if schema is None else schema.name
        """The digest's name in the BMv2 JSON."""
        self._state = state
        self._lock = threading.Lock()
        self._entry: p4r.DigestEntry | None = None
        self._buffer: dict[Record, None] = {}
        self._buffered_since_ns = 0
        self._sent: dict[int, tuple[int, tuple[Record, ...]]] = {}
        self._remembered: set[Record] = set()
        self._last_list = 0
        self._unserved: str | None = None
        widths: tuple[int, ...] = ()
        try:
            widths, self._encode = _encoder(info.type_spec, types, self.name)
        except Refusal as refusal:
            self._unserved = refusal.message
        else:
            if schema is None or schema.fields != widths:
                told = "nothing" if schema is None else f"fields of {list(schema.fields)} bits"
                self._unserved = f"P4Info: {self.name} has fields of {list(widths)} bits; the program tells {told}"

    @property
    def enabled(self) -> bool:
        """True while a client has configured the digest."""
        return self._entry is not None

    # -- the controller's side

    def write(self, kind: p4r.Update.Type.ValueType, entry: p4r.DigestEntry) -> None:
        """Start (INSERT), change (MODIFY) or end (DELETE) the sending of lists. Raises `Refusal`."""
        if self._unserved is not None:
            raise unimplemented(self._unserved)
        config = entry.config
        for name, value in (
            ("max_timeout_ns", config.max_timeout_ns),
            ("max_list_size", config.max_list_size),
            ("ack_timeout_ns", config.ack_timeout_ns),
        ):
            if value < 0:
                raise invalid(f"{self.name}: {name} is {value}; it must not be negative")
        with self._lock:
            if kind == p4r.Update.INSERT and self._entry is not None:
                raise Refusal(Code.ALREADY_EXISTS, f"{self.name}: its digests are sent already")
            if kind != p4r.Update.INSERT and self._entry is None:
                raise self._not_enabled()
            if kind == p4r.Update.DELETE:
                self._entry = None
                self._buffer.clear()
                self._reset_sent()
                return
            self._entry = p4r.DigestEntry()
            self._entry.CopyFrom(entry)

    def read(self) -> p4r.Entity:
        """Return the configuration. Raises `Refusal` (NOT_FOUND) while it is not enabled."""
        entry = self._entry
        if entry is None:
            raise self._not_enabled()
        return p4r.Entity(digest_entry=entry)

    def acknowledge(self, list_id: int) -> None:
        """Allow that records of this list are sent again. Does nothing for a list that is not waiting for it."""
        with self._lock:
            self._drop_list(list_id)

    def reset_sent(self) -> None:
        """Mark sent records as unsent for a new controller. Records that wait for their list go on waiting."""
        with self._lock:
            self._reset_sent()

    def discard(self) -> None:
        """Discard digests generated while no client was subscribed. Not called while the data path delivers records."""
        if self._state is not None:
            self._state.drain()

    # -- the data plane's side

    def add(self, records: Iterable[Record], now_ns: int) -> list[p4r.DigestList]:
        """Add new records; return the lists that are now full, in order."""
        lists: list[p4r.DigestList] = []
        with self._lock:
            if self._entry is None:
                return lists
            config = self._entry.config
            self._expire(now_ns)
            most = min(config.max_list_size or LONGEST_LIST, LONGEST_LIST) if config.max_timeout_ns else 1
            for record in records:
                if record in self._buffer or record in self._remembered:
                    continue
                if not self._buffer:
                    self._buffered_since_ns = now_ns
                self._buffer[record] = None
                if len(self._buffer) >= most:
                    lists.append(self._flush(now_ns))
        return lists

    def tick(self, now_ns: int) -> list[p4r.DigestList]:
        """Return the list whose first record is old enough now, if any."""
        with self._lock:
            if self._entry is None:
                return []
            self._expire(now_ns)
            if self._buffer and now_ns - self._buffered_since_ns >= self._entry.config.max_timeout_ns:
                return [self._flush(now_ns)]
            return []

    def _flush(self, now_ns: int) -> p4r.DigestList:
        assert self._entry is not None
        self._last_list += 1
        message = p4r.DigestList(digest_id=self.id, list_id=self._last_list, timestamp=now_ns)
        for record in self._buffer:
            self._encode(iter(record), message.data.add())
        if self._entry.config.ack_timeout_ns:
            self._sent[self._last_list] = now_ns, tuple(self._buffer)
            self._remembered.update(self._buffer)
            while len(self._remembered) > _MAX_REMEMBERED:
                self._drop_list(next(iter(self._sent)))
        self._buffer.clear()
        return message

    def _expire(self, now_ns: int) -> None:
        assert self._entry is not None
        oldest = now_ns - self._entry.config.ack_timeout_ns
        while self._sent:
            list_id, (sent_ns, _) = next(iter(self._sent.items()))
            if sent_ns > oldest:
                return
            self._drop_list(list_id)

    def _drop_list(self, list_id: int) -> None:
        _, records = self._sent.pop(list_id, (0, ()))
        self._remembered.difference_update(records)

    def _reset_sent(self) -> None:
        self._sent.clear()
        self._remembered.clear()

    def _not_enabled(self) -> Refusal:
        return Refusal(Code.NOT_FOUND, f"{self.name}: its digests are not sent; INSERT an entry first")


def _encoder(
    spec: p4t.P4DataTypeSpec, types: p4t.P4TypeInfo, label: str, depth: int = 0
) -> tuple[tuple[int, ...], _Encoder]:
    """Return the widths of a type's fields, in order, and the encoder of their values. Raises `Refusal`."""
    if depth > _MAX_DEPTH:
        raise invalid(f"P4Info: the type of {label} is nested more than {_MAX_DEPTH} deep")
    match spec.WhichOneof("type_spec"):
        case "struct" if spec.struct.name in types.structs:
            members = types.structs[spec.struct.name].members
            parts = [_encoder(m.type_spec, types, f"{label}.{m.name}", depth + 1) for m in members]

            def encode(values: Iterator[int], into: p4d.P4Data) -> None:
                into.struct.SetInParent()
                for _, part in parts:
                    part(values, into.struct.members.add())

        case "tuple":
            parts = [_encoder(m, types, f"{label}[{i}]", depth + 1) for i, m in enumerate(spec.tuple.members)]

            def encode(values: Iterator[int], into: p4d.P4Data) -> None:
                into.tuple.SetInParent()
                for _, part in parts:
                    part(values, into.tuple.members.add())

        case _:
            scalar = typespec.resolve(spec, types, label)
            return (scalar.width,), lambda values, into: scalar.encode(next(values), into)
    return tuple(width for widths, _ in parts for width in widths), encode
