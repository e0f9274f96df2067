"""One switch behind the server: its pipeline config, its entities and its packets to and from controllers.

The locks of its `Clients` come first, then `_entities`: writes, pieces of reads and pipeline changes, one at a time.
The data path calls `_forward_packet_in`, `_learn` and `_pass_time` from its own thread, perhaps with locks of its own
held; they take none of these.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import islice
from typing import Final

from finsy.proto import U128, p4r

from ..datapath import Datapath
from ..entries import EmulatorError
from ..program import ProgramState
from ..replication import ReplicationEngine
from .batches import write_all_or_none, write_at_once, write_each
from .bulk.batch import Batch
from .device_config import program_of
from .entities.digests import Record
from .entities.replication import ReplicationService
from .history import restore, snapshot
from .pipeline import LoadedPipeline
from .refusal import BatchRefusal, Code, Refusal, invalid, refusal_of
from .roles import object_id
from .streams.clients import Clients
from .streams.session import Session

_Config = p4r.ForwardingPipelineConfig
_SetRequest = p4r.SetForwardingPipelineConfigRequest
_GetRequest = p4r.GetForwardingPipelineConfigRequest
_PIECE_ENTITIES: Final = 256
"""Entities of a read that are sent before waiting writes get their turn."""


class P4RuntimeDevice:
    """One switch as the P4Runtime server sees it."""

    def __init__(self, datapath: Datapath) -> None:
        self.id = datapath.device_id
        self.packet_outs = 0
        """Packet-outs taken from streams and done with: injected, or refused."""
        self.packet_ins = 0
        """Number of packet-ins put on streams."""
        self._datapath = datapath
        self._replication = ReplicationService(datapath.replication)
        self._entities = threading.Lock()
        self._counting = threading.Lock()
        self._telling = threading.Lock()
        """Keeps lists of digests in order; below all others."""
        self._pipeline: LoadedPipeline | None = None
        self._saved: LoadedPipeline | None = None
        """The pipeline that VERIFY_AND_SAVE left for a COMMIT; until that comes, reads and writes go to this one."""
        self.clients = Clients(self.id, self._entities, self._reset_digests)
        self._closing = False

    def close(self) -> None:
        """Refuse what has not been done yet, in batches too that are being written: the server ends."""
        self._closing = True

    def attach(self) -> None:
        """Take the switch's packet-ins, digests and idle entries; the server begins, perhaps once more."""
        self._closing = False
        self._datapath.on_packet_in = self._forward_packet_in
        self._watch()

    def detach(self) -> None:
        """Leave the switch alone."""
        self._datapath.on_packet_in = None
        self._datapath.on_digest = self._datapath.on_poll = None

    # -- pipeline config

    def set_config(self, request: _SetRequest) -> None:
        """Answer SetForwardingPipelineConfig. Raises `EmulatorError`; the running program then stays as it was."""
        with self._entities:
            self.clients.check_primary(request.role, _election_id(request))
            if not self.clients.roles.may_set_pipeline(request.role):
                raise Refusal(Code.PERMISSION_DENIED, f"role {request.role!r} may not set the pipeline config")
            config = request.config if request.HasField("config") else None
            match request.action:
                case _SetRequest.VERIFY:
                    self._verify(config)
                case _SetRequest.VERIFY_AND_SAVE:
                    self._saved = self._verify(config)
                case _SetRequest.VERIFY_AND_COMMIT:
                    verified = self._verify(config)
                    self._commit(verified, verified.state)
                case _SetRequest.COMMIT:
                    if config is not None:
                        raise invalid("COMMIT takes no config: it realises the saved one")
                    if self._saved is None:
                        raise Refusal(Code.NOT_FOUND, "no config was saved by VERIFY_AND_SAVE")
                    self._commit_with(self._saved, self._saved)
                case _SetRequest.RECONCILE_AND_COMMIT:
                    self._reconcile(self._verify(config))
                case action:
                    raise invalid(
                        f"action {action} is none of VERIFY, VERIFY_AND_SAVE, VERIFY_AND_COMMIT, COMMIT, "
                        "RECONCILE_AND_COMMIT"
                    )

    def get_config(self, kind: _GetRequest.ResponseType.ValueType) -> _Config | None:
        """Answer GetForwardingPipelineConfig; None if no config is set. Raises `Refusal`."""
        if kind not in _GetRequest.ResponseType.values():
            raise invalid(
                f"response type {kind} is none of ALL, COOKIE_ONLY, P4INFO_AND_COOKIE, DEVICE_CONFIG_AND_COOKIE"
            )
        with self._entities:
            pipeline = self._saved or self._pipeline
        if pipeline is None:
            return None
        stored, answer = pipeline.config, _Config()
        if kind in (_GetRequest.ALL, _GetRequest.P4INFO_AND_COOKIE):
            answer.p4info.CopyFrom(stored.p4info)
        if kind in (_GetRequest.ALL, _GetRequest.DEVICE_CONFIG_AND_COOKIE):
            answer.p4_device_config = stored.p4_device_config
        if stored.HasField("cookie"):
            answer.cookie.CopyFrom(stored.cookie)
        return answer

    def _verify(self, config: _Config | None) -> LoadedPipeline:
        """The config on a state of its own, which no packet sees."""
        if config is None or not config.p4_device_config:
            raise invalid("the request needs a config with a p4_device_config: the BMv2 JSON of the program")
        program = self._datapath.compile(program_of(config.p4_device_config))
        kept = _Config()
        kept.CopyFrom(config)
        return LoadedPipeline(
            kept,
            program,
            program.new_state(),
            ReplicationService(ReplicationEngine(lambda _: None, nullcontext)),
            self._datapath,
        )

    def _commit(self, verified: LoadedPipeline, state: ProgramState) -> None:
        """Run the program on a state without any writes."""
        if state is verified.state:
            pipeline = verified.replicating_by(self._replication)
        else:
            pipeline = LoadedPipeline(verified.config, verified.program, state, self._replication, self._datapath)
        with self._datapath.paused():
            self._datapath.start(verified.program, state)
            self._replication.clear()
            self._pipeline = pipeline
        self._saved = None
        self._watch()

    def _commit_with(self, verified: LoadedPipeline, kept: LoadedPipeline) -> None:
        """Commit, and copy the state of another pipeline into the new one.

        Packets wait meanwhile: the copy would overwrite their counts and writes.
        """
        state = verified.program.new_state()
        with self._datapath.paused():
            updates = list(snapshot(kept))
            self._commit(verified, state)
            assert self._pipeline is not None
            restore(self._pipeline, updates)
        self._watch()

    def _reconcile(self, verified: LoadedPipeline) -> None:
        """Commit, and write again what the switch holds; it is first tried where no packet sees it."""
        if self._pipeline is None:
            self._commit(verified, verified.state)
            return
        updates = list(snapshot(self._pipeline))
        try:
            restore(verified, updates)
        except EmulatorError as error:
            raise invalid(f"the forwarding state cannot be kept: {error}") from error
        self._commit_with(verified, self._pipeline)

    # -- entities

    def write_plain(self, batch: Batch) -> bool:
        """Answer a Write of many plain updates; return False, with nothing changed, if `write` is to.

        `write` also refuses what comes from another client than the primary, or without a pipeline: the bytes may be no
        message, which is to be said first.
        """
        with self._entities:
            try:
                self.clients.check_primary("", batch.election_id)
                pipeline = self._current()
            except Refusal:
                return False
            in_any_order = batch.atomicity in (p4r.WriteRequest.CONTINUE_ON_ERROR, p4r.WriteRequest.ROLLBACK_ON_ERROR)
            return in_any_order and not self._closing and pipeline.write_plain(batch)

    def write(self, request: p4r.WriteRequest) -> None:
        """Answer Write. Raises `BatchRefusal` when some updates failed, `Refusal` when none was tried."""
        with self._entities:
            self.clients.check_primary(request.role, _election_id(request))
            pipeline = self._current()
            apply = {
                p4r.WriteRequest.CONTINUE_ON_ERROR: write_each,
                p4r.WriteRequest.ROLLBACK_ON_ERROR: write_all_or_none,
                p4r.WriteRequest.DATAPLANE_ATOMIC: write_at_once,
            }.get(request.atomicity)
            if apply is None:
                raise invalid(
                    f"atomicity {request.atomicity} is none of CONTINUE_ON_ERROR, ROLLBACK_ON_ERROR, DATAPLANE_ATOMIC"
                )
            refusals = apply(pipeline, request.updates, lambda update: self._check_role(request.role, pipeline, update))
            failed = any(refusal is not None for refusal in refusals)
            self._watch()
        if failed:
            raise BatchRefusal("Write failure.", refusals)

    def read(self, request: p4r.ReadRequest) -> Iterator[list[p4r.Entity]]:
        """Read, piece by piece, so that neither memory nor others wait for all of it: writes go on between two pieces.

        Of each table the entries are those that it had when the read came to it; of those that are deleted meanwhile
        nothing is said that is gone with them, such as counts. Raises `Refusal` without a pipeline, or if that is
        replaced meanwhile; in the end `BatchRefusal` when queries failed.
        """
        if request.role not in self.clients.roles:
            raise self.clients.unknown_role(request.role)
        refusals: list[Refusal | None] = []
        with self._entities:
            pipeline = self._current()
        for query in request.entities:
            entities = pipeline.read(query, lambda given: self._may_use(request.role, pipeline, given))
            refusals.append(None)
            more = True
            while more:
                piece: list[p4r.Entity] = []
                with self._entities:
                    if self._current() is not pipeline:
                        raise Refusal(Code.ABORTED, "the pipeline config was replaced while it was read")
                    try:
                        piece.extend(islice(entities, _PIECE_ENTITIES))
                    except EmulatorError as error:
                        refusals[-1] = refusal_of(error)
                    more = len(piece) == _PIECE_ENTITIES
                yield piece
        if any(refusal is not None for refusal in refusals):
            raise BatchRefusal("Read failure.", refusals)

    def _current(self) -> LoadedPipeline:
        pipeline = self._saved or self._pipeline
        if pipeline is None:
            raise Refusal(Code.FAILED_PRECONDITION, f"no forwarding pipeline config is set for device {self.id}")
        return pipeline

    def _check_role(self, role: str, pipeline: LoadedPipeline, update: p4r.Update) -> None:
        if self._closing:
            raise Refusal(Code.UNAVAILABLE, "the switch is being stopped")
        given = object_id(update.entity) if role else None
        if given and not self._may_use(role, pipeline, given):
            raise Refusal(Code.PERMISSION_DENIED, f"the role {role!r} may not write what has the id {given}")

    def _may_use(self, role: str, pipeline: LoadedPipeline, object_id: int) -> bool:
        return self.clients.roles.may_use(role, object_id, pipeline.owners.get(object_id))

    # -- packets

    def packet_out(self, session: Session, message: p4r.PacketOut) -> None:
        """Send a controller's packet to the data plane. Raises `Refusal`, for a stream error."""
        try:
            if session not in self.clients.primaries:
                raise Refusal(Code.PERMISSION_DENIED, "only the primary may send packet-outs")
            pipeline = self._pipeline
            if pipeline is None:
                raise Refusal(Code.FAILED_PRECONDITION, f"no forwarding pipeline config is set for device {self.id}")
            if pipeline.packet_out is None:
                if message.metadata:
                    raise invalid("the program has no packet_out header; packet-outs carry no metadata")
                header = b""
            else:
                header = pipeline.packet_out.compose(message.metadata)
            self._datapath.packet_out(header + message.payload)
        finally:
            with self._counting:
                self.packet_outs += 1

    # -- digests and idle entries

    def acknowledge(self, session: Session, ack: p4r.DigestListAck) -> None:
        """Note that a controller has received a list of digests. Raises `Refusal`, for a stream error."""
        if session not in self.clients.primaries:
            raise Refusal(Code.PERMISSION_DENIED, "only the primary may acknowledge digests")
        pipeline = self._pipeline
        if pipeline is None:
            raise Refusal(Code.FAILED_PRECONDITION, f"no forwarding pipeline config is set for device {self.id}")
        if not self._may_use(session.role or "", pipeline, ack.digest_id):
            raise Refusal(
                Code.PERMISSION_DENIED, f"the role {session.role!r} gets no digests with the id {ack.digest_id}"
            )
        pipeline.acknowledge(ack)

    def _reset_digests(self, role: str) -> None:
        """Mark all digests as unsent, since the role has another primary."""
        pipeline = self._pipeline
        if pipeline is not None:
            pipeline.reset_digests(lambda given: self._may_use(role, pipeline, given))

    def _watch(self) -> None:
        """Let the data path call when a controller waits for something, and only then."""
        watching = self._pipeline is not None and self._pipeline.watches
        self._datapath.on_digest = self._learn if watching else None
        self._datapath.on_poll = self._pass_time if watching else None

    def _learn(self, name: str, records: list[Record]) -> None:
        pipeline = self._pipeline
        if pipeline is not None and self.clients.primaries:
            with self._telling:
                self._offer_digests(pipeline, pipeline.learn(name, records))

    def _pass_time(self) -> None:
        pipeline = self._pipeline
        if pipeline is not None and self.clients.primaries:
            with self._telling:
                lists, idle = pipeline.pass_time()
                self._offer_digests(pipeline, lists)
                for told in idle:
                    message = p4r.StreamMessageResponse(idle_timeout_notification=told)
                    self._offer(pipeline, told.table_entry[0].table_id, message)

    def _offer_digests(self, pipeline: LoadedPipeline, lists: Iterable[p4r.DigestList]) -> None:
        for told in lists:
            self._offer(pipeline, told.digest_id, p4r.StreamMessageResponse(digest=told))

    def _offer(self, pipeline: LoadedPipeline, about: int, message: p4r.StreamMessageResponse) -> None:
        """Put a message about an object on the streams of the primaries whose roles may use it."""
        for session in self.clients.primaries:
            if self._may_use(session.role or "", pipeline, about):
                session.offer(message)

    # -- packet-ins

    def _forward_packet_in(self, frame: bytes) -> None:
        """A frame from the CPU port, on the data path's thread. Without a primary it is dropped."""
        pipeline = self._pipeline
        if pipeline is None:
            return
        message = p4r.StreamMessageResponse()
        packet = message.packet
        if pipeline.packet_in is None:
            packet.payload = frame
        elif len(frame) >= pipeline.packet_in.size_bytes:
            metadata, packet.payload = pipeline.packet_in.parse(frame)
            packet.metadata.extend(metadata)
        else:
            return
        roles = self.clients.roles
        sent = sum(
            session.offer(message) for session in self.clients.primaries if roles.receives(session.role or "", packet)
        )
        with self._counting:
            self.packet_ins += sent


def _election_id(request: _SetRequest | p4r.WriteRequest) -> int | None:
    return U128.decode(request.election_id) if request.HasField("election_id") else None
