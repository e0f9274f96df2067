"""The gRPC server: P4Runtime's RPCs over one or several switches, told apart by device id."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import grpc
from finsy.proto import p4r
from google.protobuf.message import Message

from ..datapath import Datapath
from ..entries import EmulatorError
from .batches import chunks
from .bulk.batch import Batch, bulk_parser
from .device import P4RuntimeDevice
from .messages import parser, serialized, unless_refused
from .refusal import Code, Refusal, abort, invalid, refusal_of, unimplemented
from .streams.arbitration import MAX_CLIENTS
from .streams.patience import Patience
from .streams.places import Places
from .streams.session import Session

API_VERSION: Final = "1.5.0"
"""The version of the P4Runtime specification that Capabilities reports."""

_MAX_MESSAGE_BYTES: Final = 128 << 20
"""The specification's advice for large device configs."""
_RESPONSE_BYTES: Final = 1 << 20
_RESPONSE_ENTITIES: Final = 1024
_UNARY_THREADS: Final = 32
_LONGEST_SOCKET_PATH: Final = 107
"""Maximum length of a unix socket's path in bytes (sockaddr_un of Linux)."""
_PATIENCE_S: Final = 60.0
"""Time limit for a client to accept one message of an answer."""
_FIRST_WORDS_S: Final = 5.0
"""Time limit for a stream to arbitrate."""
_IDLE_MS: Final = 60_000
"""Time after which a connection without a call under way is closed; clients connect again by themselves."""
_MAX_CONNECTIONS: Final = 256

_SILENT: Final = Refusal(
    Code.DEADLINE_EXCEEDED, f"the stream has not arbitrated within {_FIRST_WORDS_S:.0f} s of its beginning"
)

log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class ServerTls:
    """A server's identity, in PEM. With `client_roots` clients must show a certificate that these sign."""

    private_key: bytes
    certificate: bytes
    client_roots: bytes | None = None


class P4RuntimeServer:
    """A P4Runtime server for these switches. A context manager: started on entry, stopped on exit.

    `address` is `host:port` or `unix:path`; port 0 picks a free port, available as `port` after `start`.

    Raises:
        EmulatorError: Two switches have the same device id; in `start`, the address cannot be bound.
    """

    def __init__(
        self, datapaths: Iterable[Datapath], address: str = "127.0.0.1:0", *, tls: ServerTls | None = None
    ) -> None:
        self._devices: dict[int, P4RuntimeDevice] = {}
        for datapath in datapaths:
            if datapath.device_id in self._devices:
                raise EmulatorError(
                    f"two switches have the device id {datapath.device_id}; ids must differ", value=datapath.device_id
                )
            self._devices[datapath.device_id] = P4RuntimeDevice(datapath)
        self._wanted_address = address
        self._tls = tls
        self._running: tuple[grpc.Server, ThreadPoolExecutor, list[Patience]] | None = None
        self.port = 0

    @property
    def address(self) -> str:
        """Address to connect to; the port is known after `start`."""
        if self._wanted_address.startswith("unix:"):
            return self._wanted_address
        host, _, port = self._wanted_address.rpartition(":")
        return f"{host}:{self.port or port}"

    def __enter__(self) -> P4RuntimeServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen and serve, on threads of the server's own."""
        streams = 2 * MAX_CLIENTS * max(len(self._devices), 1)
        bulk_parser()  # compiled now where its code is not on disk, not while a client waits
        threads = ThreadPoolExecutor(streams + _UNARY_THREADS, thread_name_prefix="p4runtime")
        server = grpc.server(
            threads,
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.server_handshake_timeout_ms", int(1000 * _FIRST_WORDS_S)),
                ("grpc.max_connection_idle_ms", _IDLE_MS),
                ("grpc.max_allowed_incoming_connections", _MAX_CONNECTIONS),
                ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
            ],
        )
        limits = [Patience(_PATIENCE_S), Patience(_FIRST_WORDS_S)]
        server.add_generic_rpc_handlers((_handlers(_Servicer(self._devices, streams, *limits)),))
        self.port = self._bind(server)
        for limit in limits:
            limit.start()
        for device in self._devices.values():
            device.attach()
        server.start()
        self._running = server, threads, limits

    def stop(self) -> None:
        """End all streams and stop listening; return when that is done. The switches keep running.

        Reads end. A batch being written ends after its current update; other requests (such as a program's compilation)
        are finished. No effect on a server that does not run.
        """
        if self._running is None:
            return
        server, threads, limits = self._running
        for device in self._devices.values():
            device.close()
        server.stop(grace=None).wait()
        threads.shutdown()
        for limit in limits:
            limit.close()
        for device in self._devices.values():
            device.detach()
        self._running = None

    def packet_outs(self, device_id: int) -> int:
        """Return packet-outs received for a switch so far and done with: injected, or refused."""
        return self._device(device_id).packet_outs

    def packet_ins(self, device_id: int) -> int:
        """Return packet-ins of a switch put on streams so far; those that found no primary are not among them."""
        return self._device(device_id).packet_ins

    def _device(self, device_id: int) -> P4RuntimeDevice:
        if device_id not in self._devices:
            raise EmulatorError(
                f"no switch has the device id {device_id}; there are {sorted(self._devices)}", value=device_id
            )
        return self._devices[device_id]

    def _bind(self, server: grpc.Server) -> int:
        """Listen; the port. Raises EmulatorError."""
        wanted = self._wanted_address
        port = wanted.rpartition(":")[2]
        if not wanted.startswith("unix:") and not (port.isdecimal() and wanted != port and int(port) < 1 << 16):
            raise EmulatorError(
                f"{wanted!r} is not ADDRESS:PORT with a port up to 65535, nor unix:PATH",
                place="P4Runtime",
                value=wanted,
            )
        why = "the port is in use or the address is not ours"
        path = wanted.removeprefix("unix:")
        if path != wanted and len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
            why = f"a socket's path has at most {_LONGEST_SOCKET_PATH} bytes; TMPDIR names another temporary folder"
        try:
            if self._tls is None:
                if path == wanted:
                    return server.add_insecure_port(wanted)
                umask = os.umask(0o077)  # it listens at once, and who may connect writes to the switches
                try:
                    bound = server.add_insecure_port(wanted)
                finally:
                    os.umask(umask)
                os.chmod(path, 0o600)
                return bound
            why += ", or key and certificates are no PEM files that belong together"
            credentials = grpc.ssl_server_credentials(
                [(self._tls.private_key, self._tls.certificate)],
                root_certificates=self._tls.client_roots,
                require_client_auth=self._tls.client_roots is not None,
            )
            return server.add_secure_port(wanted, credentials)
        except RuntimeError as error:
            raise EmulatorError(f"cannot listen on {wanted}: {why}", place="P4Runtime", value=wanted) from error


class _Servicer:
    """The RPCs. Every error leaves as a canonical code; an unexpected exception is INTERNAL, and logged."""

    def __init__(
        self, devices: dict[int, P4RuntimeDevice], max_streams: int, patience: Patience, first_words: Patience
    ) -> None:
        self._devices = devices
        self._patience = patience
        self._first_words = first_words
        self._places = Places(max_streams)

    def Capabilities(self, request: p4r.CapabilitiesRequest, context: grpc.ServicerContext) -> p4r.CapabilitiesResponse:
        if request.device_id:
            _guard(context, lambda: self._device(request.device_id))
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def Write(self, data: bytes, context: grpc.ServicerContext) -> p4r.WriteResponse:
        """Answer a Write by its bytes: most large ones need not become a message."""
        _guard(context, lambda: self._write(data))
        return p4r.WriteResponse()

    def _write(self, data: bytes) -> None:
        batch = Batch.of(data)
        if batch is not None and batch.device_id in self._devices and self._device(batch.device_id).write_plain(batch):
            return
        request = parser(p4r.WriteRequest)(data)
        if isinstance(request, Refusal):
            raise request
        self._device(request.device_id).write(request)

    def Read(self, request: p4r.ReadRequest, context: grpc.ServicerContext) -> Iterator[p4r.ReadResponse]:
        pieces = _guard(context, lambda: self._device(request.device_id).read(request))
        failure: EmulatorError | None = None

        def entities() -> Iterator[p4r.Entity]:
            nonlocal failure
            try:
                for piece in pieces:
                    if not context.is_active():
                        return  # the client has left
                    yield from piece
            except EmulatorError as error:
                failure = error
            except Exception as error:
                log.exception("a read failed")
                failure = _unforeseen(error)

        for response in chunks(entities(), _RESPONSE_BYTES, _RESPONSE_ENTITIES):
            with self._patience.limit(context.cancel):
                yield response
        if failure is not None:
            abort(context, failure)

    def SetForwardingPipelineConfig(
        self, request: p4r.SetForwardingPipelineConfigRequest, context: grpc.ServicerContext
    ) -> p4r.SetForwardingPipelineConfigResponse:
        _guard(context, lambda: self._device(request.device_id).set_config(request))
        return p4r.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(
        self, request: p4r.GetForwardingPipelineConfigRequest, context: grpc.ServicerContext
    ) -> p4r.GetForwardingPipelineConfigResponse:
        config = _guard(context, lambda: self._device(request.device_id).get_config(request.response_type))
        return p4r.GetForwardingPipelineConfigResponse(config=config)

    def StreamChannel(
        self, request_iterator: Iterator[p4r.StreamMessageRequest | Refusal], context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        """Yield answers that are already serialised, as they waited."""
        session = Session()
        if not self._places.acquire(session):
            abort(context, Refusal(Code.RESOURCE_EXHAUSTED, "the server has no room for another stream"))
        try:
            if context.add_callback(session.close):
                threading.Thread(
                    target=self._listen, args=(session, request_iterator), name="p4runtime-stream", daemon=True
                ).start()
                yield from session.messages()
        finally:
            self._leave(session)
            self._places.release(session)
        if session.refusal is not None:
            abort(context, session.refusal)

    def _listen(self, session: Session, requests: Iterator[p4r.StreamMessageRequest | Refusal]) -> None:
        """Take a stream's requests until it ends, on a thread of its own."""
        refusal = None
        try:
            with self._first_words.limit(partial(session.close, _SILENT)):
                self._handle_all(session, requests, until_arbitrated=True)
            self._places.keep(session)
            self._handle_all(session, requests)
        except grpc.RpcError:
            pass  # the client is gone
        except EmulatorError as error:
            refusal = refusal_of(error)
        except Exception as error:
            log.exception("a stream message failed")
            refusal = _unforeseen(error)
        self._leave(session)
        session.close(refusal)

    def _handle_all(
        self, session: Session, requests: Iterator[p4r.StreamMessageRequest | Refusal], until_arbitrated: bool = False
    ) -> None:
        """Take requests until there are no more, or until the stream has a role."""
        for request in requests:
            if isinstance(request, Refusal):
                raise request
            self._handle(session, request)
            if until_arbitrated and session.role is not None:
                return

    def _handle(self, session: Session, request: p4r.StreamMessageRequest) -> None:
        kind = request.WhichOneof("update")
        if kind == "arbitration":
            self._arbitrate(session, request.arbitration)
            return
        error = p4r.StreamError()
        try:
            match kind:
                case "packet":
                    error.packet_out.packet_out.CopyFrom(request.packet)
                    self._joined(session).packet_out(session, request.packet)
                case "digest_ack":
                    error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
                    self._joined(session).acknowledge(session, request.digest_ack)
                case "other":
                    error.other.other.CopyFrom(request.other)
                    raise unimplemented("this switch has no architecture-specific stream messages")
                case _:
                    error.other.SetInParent()
                    raise invalid("the stream message is empty")
        except EmulatorError as raised:
            refusal = refusal_of(raised)
            error.canonical_code, error.message = refusal.number, refusal.message
            session.offer(p4r.StreamMessageResponse(error=error))

    def _arbitrate(self, session: Session, message: p4r.MasterArbitrationUpdate) -> None:
        if session.role is not None:
            if message.device_id != session.device_id:
                raise Refusal(
                    Code.FAILED_PRECONDITION,
                    f"this stream belongs to device {session.device_id}; open another for device {message.device_id}",
                )
            if message.role.name != session.role:
                raise Refusal(
                    Code.FAILED_PRECONDITION,
                    f"this stream has the role {session.role!r}; open another for the role {message.role.name!r}",
                )
        self._device(message.device_id).clients.arbitrate(session, message)

    def _joined(self, session: Session) -> P4RuntimeDevice:
        if session.role is None:
            raise Refusal(Code.PERMISSION_DENIED, "the stream must start with an arbitration message")
        return self._devices[session.device_id]

    def _leave(self, session: Session) -> None:
        if session.role is not None:
            self._devices[session.device_id].clients.leave(session)

    def _device(self, device_id: int) -> P4RuntimeDevice:
        device = self._devices.get(device_id)
        if device is None:
            raise Refusal(Code.NOT_FOUND, f"no device has the id {device_id}; there are {sorted(self._devices)}")
        return device


def _handlers(servicer: _Servicer) -> grpc.GenericRpcHandler:
    """The service as gRPC registers it.

    Not by the generated `add_P4RuntimeServicer_to_server`: where gRPC itself fails to parse a message it logs a
    traceback, and when that was a stream's and the handler then returns, the call is never finished and stopping the
    server waits for ever. So gRPC is given parsers that never fail: bytes that are no message become a `Refusal`.
    """

    def unary(method: Callable[[Any, grpc.ServicerContext], Message], kind: type[Message]) -> Any:
        return grpc.unary_unary_rpc_method_handler(unless_refused(method), parser(kind), serialized)

    return grpc.method_handlers_generic_handler(
        "p4.v1.P4Runtime",
        {
            "Capabilities": unary(servicer.Capabilities, p4r.CapabilitiesRequest),
            "Write": grpc.unary_unary_rpc_method_handler(servicer.Write, None, serialized),
            "Read": grpc.unary_stream_rpc_method_handler(
                unless_refused(servicer.Read), parser(p4r.ReadRequest), serialized
            ),
            "SetForwardingPipelineConfig": unary(
                servicer.SetForwardingPipelineConfig, p4r.SetForwardingPipelineConfigRequest
            ),
            "GetForwardingPipelineConfig": unary(
                servicer.GetForwardingPipelineConfig, p4r.GetForwardingPipelineConfigRequest
            ),
            "StreamChannel": grpc.stream_stream_rpc_method_handler(
                servicer.StreamChannel, parser(p4r.StreamMessageRequest, Code.INVALID_ARGUMENT)
            ),
        },
    )


def _guard(context: grpc.ServicerContext, work: Callable[[], _Answer]) -> _Answer:
    """Do the work of an RPC; an error ends the RPC with its canonical code."""
    failure: EmulatorError
    try:
        return work()
    except EmulatorError as error:
        failure = error
    except Exception as error:
        log.exception("a request failed")
        failure = _unforeseen(error)
    abort(context, failure)


def _unforeseen(error: Exception) -> Refusal:
    return Refusal(Code.INTERNAL, f"the switch failed on this request: {type(error).__name__}: {error}")
