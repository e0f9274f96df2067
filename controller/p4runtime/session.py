"""One P4Runtime session with one switch, through finsy.

A `SwitchSession` speaks to an emulated switch as it would to a real one: stream, arbitration, pipeline configuration
(only if the switch runs another one, or another owner's: `loading`), batched writes, reads of the whole state, packets
out and in::

    async with SwitchSession("s1", "127.0.0.1:9559", device_id=1, pipeline=pipeline) as session:
        await session.write_updates(inserts=[...])
        state = await session.read()

A stream that breaks is opened again, with a growing pause between attempts, until the session ends; `openings` tells
that it happened. Of several controllers the one with the highest election id is a switch's primary: only its session
writes. When it goes, the next one is promoted, which counts as an opening.

Every error is a `ControllerError` that keeps the switch and what was asked of it; `WriteRefused` has each refused
update with its entry and code. Source:
P4Runtime Specification 1.5, sections 5 (arbitration), 8 (pipeline), 9 (entities), 11 (errors), 16.1 (packet I/O).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, TypeVar, cast

import finsy as fy
from finsy.p4client import P4ClientError
from finsy.p4entity import P4Entity
from finsy.p4schema import P4Schema
from finsy.proto import p4r

from ...errors.texts import printable
from ...wire.control_channel import Tls
from ...wire.errors import WireError
from ..errors import ControllerError, ElectionLost, SwitchUnreachable
from .entities import as_entity, decoded_item, unset_meter
from .entries import Item, MeterRate, SwitchState
from .finsy_switch import FinsySwitch, new_switch, switch_error
from .loading import Loading
from .pipeline import CompiledPipeline
from .refusals import ProgramMisfit, RefusedUpdate, UpdateKind, WriteRefused

BATCH_UPDATES: Final = 1000
"""Most updates in one WriteRequest: well below gRPC's 4 MiB."""

BUFFERED_PACKETS: Final = 65_536
"""Maximum number of packet-ins kept until they are collected; further ones are dropped and counted."""

ELECTION_ID: Final = 10
"""The election id of a controller that is given none."""

_FOR_PRIMARIES: Final = frozenset({"write", "send packets"})
_MAY_COMPILE: Final = frozenset({"connect", "load its program"})
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_SOCKET: Final = re.compile(r"unix:.+")
_T = TypeVar("_T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PacketIn:
    """Frame that a switch's program sent to the CPU port, and the port at which it had entered."""

    ingress_port: int
    frame: bytes


class SwitchSession:
    """A session with one switch; an async context manager."""

    def __init__(
        self,
        name: str,
        address: str,
        *,
        device_id: int,
        pipeline: CompiledPipeline,
        timeout_s: float = 5.0,
        answer_s: float | None = None,
        election_id: int = ELECTION_ID,
        standby: bool = False,
        patient: bool = False,
        tls: Tls | None = None,
        owner: int = 0,
    ) -> None:
        """Create a session.

        Args:
            name: Name of the switch.
            address: host:port, or unix:path.
            device_id: P4Runtime device id.
            pipeline: Program of the switch.
            timeout_s: Time limit for connecting, including the switch's compilation of its program.
            answer_s: Time limit of every later request, by default `timeout_s`.
            election_id: Election id for arbitration.
            standby: Open the session also while another controller is primary; otherwise that is an error.
            patient: Open the session also while the switch does not answer; otherwise that is an error.
            tls: Certificates, for a switch that serves TLS.
            owner: Owner of what is in the switch's registers, as in `Loading`; `claim` changes it.

        Raises:
            SwitchUnreachable: The address is invalid.
            ControllerError: The certificates cannot be used.
            ControllerError: A pipeline file is missing, or the election id is not in 1…2¹²⁸ − 1.
        """
        match = _ADDRESS.fullmatch(address)
        if not _SOCKET.fullmatch(address) and (match is None or not 0 < int(match[2]) < 65_536):
            reason = f'"{address}" is not a P4Runtime address; write it like 127.0.0.1:9559 or unix:PATH'
            raise SwitchUnreachable(name, address, "connect", reason)
        if not 0 < election_id < 1 << 128:
            raise ControllerError(f"election id {election_id} is not in 1…2¹²⁸ − 1", place=name, value=election_id)
        pipeline.check()
        self.name = name
        self.address = address
        self.device_id = device_id
        self.openings = 0
        """Number of times that this session has become primary of a ready switch: each time, the switch may have
        restarted, or another controller may have written to it.
        """
        self.deposed = False
        """True if another controller has been primary since this session was."""
        self.packet_outs_sent = 0
        self.packet_ins_received = 0
        self.packet_ins_dropped = 0
        self._connect_s = timeout_s
        self._answer_s = timeout_s if answer_s is None else answer_s
        self._pipeline = pipeline
        self._election_id = election_id
        self._standby = standby
        self._patient = patient
        self._credentials = None if tls is None else _credentials(tls)
        self._packets: list[PacketIn] = []
        self._changed = asyncio.Event()
        self._broken = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._loading = Loading(owner)
        self._switch = self._new_switch()

    def _new_switch(self) -> FinsySwitch:
        options = fy.SwitchOptions(
            p4info=self._pipeline.parsed,
            p4blob=self._pipeline.blob,
            device_id=self.device_id,
            initial_election_id=self._election_id,
            channel_credentials=self._credentials,
        )
        switch = new_switch(self.name, self.address, options, self._loading)
        switch.ee.on(fy.SwitchEvent.CHANNEL_READY, self._on_ready)
        switch.ee.on(fy.SwitchEvent.CHANNEL_DOWN, self._on_down)
        switch.ee.on(fy.SwitchEvent.BECOME_BACKUP, self._on_backup)
        return switch

    def _on_ready(self, switch: fy.Switch) -> None:
        if switch.is_primary:
            self.openings += 1
        self._changed.set()

    def _on_backup(self, switch: fy.Switch) -> None:
        self.deposed = True
        self._changed.set()

    def _on_down(self, switch: fy.Switch) -> None:
        self._broken.set()
        self._changed.set()

    @property
    def is_up(self) -> bool:
        """True if the stream is open."""
        return self._switch.is_up

    @property
    def is_primary(self) -> bool:
        """True if this session may write."""
        return self._switch.is_up and self._switch.is_primary

    @property
    def schema(self) -> P4Schema:
        """P4Info of the program on the switch."""
        return self._switch.p4info

    async def __aenter__(self) -> SwitchSession:
        try:
            await self._open()
        except SwitchUnreachable as error:
            if not self._patient:
                raise
            _log.warning("%s; it is tried again", error)
            self._broken.set()
        self._keeper = self._watched(self._keep_open(), f"session with {self.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._close()

    async def until_primary(self) -> None:
        """Wait without limit until this session may write, and reset `deposed`.

        The caller has to find out what others have written until then.
        """
        while not self.is_primary:
            self._changed.clear()
            await self._changed.wait()
        self.deposed = False

    async def claim(self, owner: int, *, forgetful: bool) -> None:
        """Make the switch this owner's: its program is loaded again if another's rounds may be in tables and registers.

        A `forgetful` owner does not know its own earlier rounds either. A session that is not up, or not primary, does
        this when it is.
        """
        self._loading.claim(owner, forgetful=forgetful)
        if self.is_primary:
            await self._guard(self._switch.load_program(), "load its program")

    @property
    def owner(self) -> int:
        """Owner of what is in the switch's registers, as in `Loading`."""
        return self._loading.owner

    @property
    def loads(self) -> int:
        """Number of times that this session has loaded the program for the owner of the switch."""
        return self._loading.loads

    def pop_foreign_generations(self) -> set[tuple[int, int]]:
        """Return the job and generation of another owner's entries in the switch, found since the last call."""
        left, self._loading.left = self._loading.left, set()
        return left

    async def _open(self) -> None:
        self._broken.clear()
        await self._guard(self._switch.__aenter__(), "connect")
        try:
            if not self._switch.is_primary and not self._standby:
                raise self._election_lost("connect")
            self.deposed |= self.openings > 0 and not self._switch.is_primary
            self._reader = self._watched(self._receive(), f"packet-ins of {self.name}")
            await asyncio.sleep(0)  # lets the reader open its queue before the first packet
        except BaseException:
            await self._close()
            raise

    async def _close(self) -> None:
        """Close a session in any state: never opened, or with a cancelled opening or closing."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        await self._switch.close()

    async def _keep_open(self) -> None:
        """Open the stream again whenever it breaks."""
        while True:
            await self._broken.wait()
            if self._reader is not None:
                _log.warning("%s at %s: the stream broke; it is opened again when the switch answers", *self._who)
            await self._close()
            self._standby = True  # do not disturb a controller that took over meanwhile
            pause_s, said = _FIRST_PAUSE_S, ""
            while True:
                self._switch = self._new_switch()
                try:
                    await self._open()
                    break
                except SwitchUnreachable as error:
                    _log.debug("%s", error)
                except ControllerError as error:
                    if str(error) != said:
                        _log.warning("%s; it is tried again", error)
                    said = str(error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            _log.info("%s at %s: the stream stands again", *self._who)

    def _watched(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task for `work`, which never ends by itself; if it fails, that is logged, and the stream is reopened."""

        def at_end(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                _log.error("%s at %s: %s failed", *self._who, name, exc_info=error)
                self._broken.set()

        task = asyncio.create_task(work, name=name)
        task.add_done_callback(at_end)
        return task

    @property
    def _who(self) -> tuple[str, str]:
        return self.name, self.address

    async def write_updates(
        self, *, inserts: Iterable[Item] = (), modifies: Iterable[Item] = (), deletes: Iterable[Item] = ()
    ) -> None:
        """Write updates in batches: deletes, then modifies, then inserts; within a kind the switch may reorder.

        A table's default action goes into `modifies`; a meter's rate is always modified, as in P4Runtime.

        Raises:
            WriteRefused: Lists every refused entry; the others are written (P4Runtime: a batch continues on error).
        """
        for kind, items in (
            (p4r.Update.DELETE, deletes),
            (p4r.Update.MODIFY, modifies),
            (p4r.Update.INSERT, inserts),
        ):
            updates = [(item, self._update(kind, item)) for item in items]
            for start in range(0, len(updates), BATCH_UPDATES):
                await self._write_batch(updates[start : start + BATCH_UPDATES])

    async def read(self, defaults: Sequence[str] = (), profiles: Sequence[str] = ()) -> SwitchState:
        """Read all entries except constant ones, multicast groups, clone sessions, and rates of meters; also the
        defaults of these tables, and the contents of these action profiles.
        """
        wanted: list[P4Entity] = [fy.P4MulticastGroupEntry(), fy.P4CloneSessionEntry()]
        # not those of all tables: thousands of a program's own would be told, too
        wanted += [fy.P4TableEntry(table.name) for table in self.schema.tables if not table.is_const]
        wanted += [fy.P4TableEntry(table, is_default_action=True) for table in defaults]
        wanted += [fy.P4MeterEntry(meter.name) for meter in self.schema.meters]
        for profile in profiles:
            wanted += [fy.P4ActionProfileMember(profile), fy.P4ActionProfileGroup(profile)]
        return await self._read_items(wanted)

    async def read_table(self, table: str) -> SwitchState:
        """Read the entries of one table from the switch."""
        return await self._read_items([fy.P4TableEntry(table)])

    async def _read_items(self, wanted: Sequence[P4Entity]) -> SwitchState:
        items: list[Item] = []

        async def collect() -> None:
            async for entity in self._switch.read_encoded(wanted):
                if (item := decoded_item(entity, self.schema)) is not None:
                    items.append(item)

        await self._guard(collect(), "read its state")
        return SwitchState.of(items)

    async def read_counter(self, counter: str) -> tuple[int, ...]:
        """Return packets of every index of an indirect counter, such as `FabricIngress.drops`."""
        cells: dict[int, int] = {}

        async def collect() -> None:
            counters = self._switch.read(fy.P4CounterEntry(counter))
            async for entity in cast(AsyncIterator[fy.P4CounterEntry], counters):
                if entity.index is not None:
                    cells[entity.index] = 0 if entity.data is None else entity.data.packet_count

        await self._guard(collect(), f"read counter {counter}")
        return tuple(cells[index] for index in sorted(cells))

    async def send_packets(self, packets: Iterable[tuple[int, bytes]]) -> int:
        """Send (egress port, frame) as packet-outs; how many. The stream acknowledges none."""
        padding = {
            field.name: 0
            for field in self.schema.controller_packet_metadata["packet_out"].metadata
            if field.name != "egress_port"
        }
        messages = [fy.P4PacketOut(frame, egress_port=port, **padding) for port, frame in packets]
        await self._guard(self._switch.write(messages), "send packets")
        self.packet_outs_sent += len(messages)
        return len(messages)

    def pop_packet_ins(self) -> list[PacketIn]:
        """Return the packet-ins since the last call, in order of arrival."""
        taken, self._packets = self._packets, []
        return taken

    async def drain(self, packet_ins: int, timeout_s: float = 5.0) -> None:
        """Wait until this many packet-ins have come since the session began. Raises ControllerError if they do
        not.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self.packet_ins_received < packet_ins:
                    self._changed.clear()
                    if not self._switch.is_up:
                        raise SwitchUnreachable(
                            *self._who, "take its packets", "the stream broke while packets were due"
                        )
                    await self._changed.wait()
        except TimeoutError:
            raise ControllerError(
                f"{self.packet_ins_received} packet-ins arrived in {timeout_s:g} s, {packet_ins} were due",
                place=self.name,
                value=self.packet_ins_received,
            ) from None

    async def _receive(self) -> None:
        async for packet in self._switch.read_packets(queue_size=BUFFERED_PACKETS):
            self.packet_ins_received += 1
            if len(self._packets) < BUFFERED_PACKETS:
                self._packets.append(PacketIn(int(packet.metadata.get("ingress_port", 0)), packet.payload))
            else:
                self.packet_ins_dropped += 1
            self._changed.set()

    async def _write_batch(self, updates: Sequence[tuple[Item, p4r.Update]]) -> None:
        try:
            await self._guard(self._switch.write([update for _, update in updates]), "write", keep_details=True)
        except P4ClientError as error:
            refused = tuple(
                RefusedUpdate(
                    kind=UpdateKind(p4r.Update.Type.Name(updates[index][1].type).lower()),
                    item=updates[index][0],
                    code=detail.canonical_code.name,
                    message=printable(detail.message),
                    space=printable(detail.space),
                    vendor_code=detail.code,
                )
                for index, detail in sorted(error.details.items())
                if index < len(updates)
            )
            raise WriteRefused(self.name, refused, len(updates)) from None

    async def _guard(self, work: Awaitable[_T], asked: str, *, keep_details: bool = False) -> _T:
        """Bound the time of `work` and turn what it raises into one ControllerError."""
        switch, connects = self._switch, asked == "connect"
        max_s = self._connect_s if asked in _MAY_COMPILE else self._answer_s
        try:
            if not connects and not switch.is_up:
                _discard(work)
                raise switch_error(None, *self._who, asked)
            if asked in _FOR_PRIMARIES and not switch.is_primary:
                _discard(work)
                raise self._election_lost(asked)
            async with asyncio.timeout(max_s):
                return await work
        except TimeoutError:
            if not connects:  # the stream may look whole for long where packets get lost: begin it anew
                self._broken.set()
            raise SwitchUnreachable(*self._who, asked, f"no answer within {max_s:g} s") from None
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            raise switch_error(switch.failure if connects else None, *self._who, asked) from None
        except P4ClientError as error:
            if keep_details and error.details:
                raise
            raise switch_error(error, *self._who, asked) from None
        except (ValueError, AssertionError, RuntimeError) as error:
            # finsy's own for a stream at its end, an unknown table, or an exhausted election
            raise switch_error(error, *self._who, asked) from None

    def _election_lost(self, asked: str) -> ElectionLost:
        return ElectionLost(*self._who, asked, self._switch.primary_id, self._switch.election_id)

    def _update(self, kind: p4r.Update.Type.ValueType, item: Item) -> p4r.Update:
        try:
            if isinstance(item, MeterRate):
                rate = unset_meter(item) if kind == p4r.Update.DELETE else as_entity(item, self.schema)
                return p4r.Update(type=p4r.Update.MODIFY, entity=rate.encode(self.schema))
            return p4r.Update(type=kind, entity=as_entity(item, self.schema).encode(self.schema))
        except (ValueError, KeyError) as error:
            raise ProgramMisfit(self.name, item, str(error)) from error


def _credentials(tls: Tls) -> fy.GRPCCredentialsTLS:
    try:
        tls.check()
    except WireError as error:
        raise ControllerError.of(error.within("P4Runtime")) from None
    return fy.GRPCCredentialsTLS(cacert=tls.authority, cert=tls.certificate, private_key=tls.key)


def _discard(work: Awaitable[object]) -> None:
    if asyncio.iscoroutine(work):
        work.close()
