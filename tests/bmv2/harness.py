"""A real simple_switch_grpc, started for a test and fed with packets.

Two ways in for packets:

* the switch's own dataplane service (`Bmv2.inject`): a call returns when the switch holds no packet any more, and each
  frame that leaves names the one that caused it. So nothing is waited for, missed, or counted to the wrong input;
* veth pairs and raw sockets (`Bmv2(veth=True)`, `Bmv2.exchange`) in a network namespace without a name, which is gone
  with its last user. Needs root.

The control plane is P4Runtime over a Unix socket, which does not care for network namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from weir.tests.bmv2.p4runtime_client import Client, Refused, read_p4info
from weir.topologies.mininet.fabric import thrift_words

EXECUTABLE: Final = "simple_switch_grpc"
CPU_PORT: Final = 510
DEVICE_ID: Final = 1
PRIORITIES: Final = 8
PATIENCE_S: Final = 20.0
"""Time limit in seconds for expected output, which comes at once unless the machine is very busy."""
CLONE_NEWNET: Final = 0x40000000
PACKET_IGNORE_OUTGOING: Final = 23
SOL_PACKET: Final = 263

needs_bmv2 = pytest.mark.skipif(shutil.which(EXECUTABLE) is None, reason=f"{EXECUTABLE} is not on PATH")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace and raw sockets need root")
needs_p4c = pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program as both switches load it."""

    json: bytes
    p4info: Any

    @classmethod
    def read(cls, json: Path, p4info: Path) -> Compiled:
        return cls(json.read_bytes(), read_p4info(p4info))

    @classmethod
    def compile(cls, source: Path, folder: Path) -> Compiled:
        """Compile with the real p4c into `folder`. Raises RuntimeError with the compiler's own words."""
        json, info = folder / f"{source.stem}.json", folder / f"{source.stem}.p4info.txtpb"
        command = ["p4c-bm2-ss", "--p4v", "16", "--Wdisable", "-o", str(json), "--p4runtime-files", str(info)]
        environment = {**os.environ, "GC_DONT_GC": "1"}  # p4c collects what it need not, for a third of its time
        done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise RuntimeError(f"p4c-bm2-ss refuses {source}:\n{done.stderr}")
        return cls.read(json, info)


@dataclass(frozen=True, slots=True, order=True)
class Output:
    """A frame that left the switch through a port. A packet-in has the CPU port and its header in front."""

    port: int
    frame: bytes

    def __repr__(self) -> str:
        return f"port {self.port}: {self.frame.hex()}"


class Bmv2:
    """One simple_switch_grpc with a pipeline. A context manager; stops its process by id and leaves nothing behind."""

    def __init__(self, program: Compiled, ports: Sequence[int], *, veth: bool = False) -> None:
        self._program = program
        self._ports = tuple(ports)
        self._veth = veth
        self._stack = contextlib.ExitStack()
        self._next_id = 1

    def __enter__(self) -> Bmv2:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bmv2-")))
            with new_network_namespace() if self._veth else contextlib.nullcontext():
                interfaces = self._make_ports(stack) if self._veth else []
                self._process = self._start(folder, interfaces)
                stack.callback(self._stop)
            self._wait_for(folder / "p4runtime")
            if not self._veth:
                self._wait_for(folder / "dataplane")
                channel = stack.enter_context(grpc.insecure_channel(f"unix:{folder / 'dataplane'}"))
                self._packet_stream = channel.stream_stream(
                    "/p4.bm.DataplaneInterface/PacketStream",
                    request_serializer=_Request.SerializeToString,
                    response_deserializer=_Response.FromString,
                )
            self.client = stack.enter_context(Client(f"unix:{folder / 'p4runtime'}", DEVICE_ID))
            with self._skipped_if_it_dies("on loading the program"):
                self.client.set_pipeline(self._program.p4info, self._program.json)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def inject(self, packets: Iterable[tuple[int, bytes]], *, packet_ins: int = 0) -> list[list[Output]]:
        """Send (port, frame) pairs in order; for each, return all output that it caused, by port and bytes.

        The order of departure is not kept: bmv2's four egress threads race for the copies of one packet.

        Packets through the CPU port carry no trace of their cause and are assigned to the last input, which should be
        the only one that causes any; `packet_ins` of them are awaited. Frames to ports that do not exist are dropped,
        as real interfaces do. At most 64 packets fit into an egress queue: send fewer at a time.
        """
        packets = list(packets)
        first = self._next_id
        self._next_id += len(packets)
        requests = [
            _Request(id=first + i, device_id=DEVICE_ID, port=port, packet=frame)
            for i, (port, frame) in enumerate(packets)
        ]
        outputs: list[list[Output]] = [[] for _ in packets]
        with self._skipped_if_it_dies("on the test's packets"):
            for response in self._packet_stream(iter(requests), timeout=30):
                if response.port in self._ports:
                    outputs[response.id - first].append(Output(response.port, response.packet))
        if outputs:
            outputs[-1] += self.packet_ins(packet_ins)
        return [sorted(found) for found in outputs]

    def packet_out(self, payload: bytes, metadata: Iterable[tuple[int, int]], *, expected: int) -> list[Output]:
        """Send a packet-out; return the first `expected` frames that left ports, or those of 0.2 s if none is
        expected.
        """
        while (outputs := self._packet_out(payload, list(metadata), expected)) is None:
            pass  # the switch took a stream that asked who listens for the listener, and refused ours
        return sorted(outputs)

    def _packet_out(self, payload: bytes, metadata: list[tuple[int, int]], expected: int) -> list[Output] | None:
        """Do the work of `packet_out`; None when nothing was sent because the switch had a listener already."""
        seen, refused = threading.Event(), threading.Event()

        def while_listening() -> Iterator[Any]:
            self._wait_until_listening()  # packets that leave before the switch has registered its listener are lost
            if not refused.is_set():
                self.client.packet_out(payload, metadata)
                seen.wait(0.2 if expected == 0 else PATIENCE_S)
            yield from ()

        outputs: list[Output] = []
        try:
            for response in self._packet_stream(while_listening(), timeout=30):
                outputs += [Output(response.port, response.packet)] if response.port in self._ports else []
                if len(outputs) >= expected > 0:
                    seen.set()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            refused.set()
            return None
        return outputs

    def _wait_until_listening(self) -> None:
        """Wait until the switch has a listener, which the stream just opened should be: it then refuses all others."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                list(self._packet_stream(iter(()), timeout=10))
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                    return
                raise
        raise TimeoutError(f"{EXECUTABLE} has not begun to serve a stream of its dataplane service within 10 s")

    def packet_ins(self, expected: int) -> list[Output]:
        """`expected` packet-ins, each waited for at most 20 s, and those that came besides."""
        found: list[Output] = []
        self.client.round_trip()
        while packet := self.client.packet_in(PATIENCE_S if len(found) < expected else 0.001):
            found.append(Output(CPU_PORT, packet_in_header(self._program.p4info, packet) + packet.payload))
        return found

    def set_queue_rate(self, port: int, packets_per_second: int) -> None:
        """Have a port's queues send no faster. Skips the test where this bmv2 has no Thrift server, which alone can.

        A call of Thrift's binary protocol: the method's name, then a struct of the port (i32) and the rate (i64).
        """
        if not self._thrift:
            pytest.skip(f"this build of {EXECUTABLE} has no Thrift server, which the rate of a queue is set through")
        name = b"simple_switch:set_egress_queue_rate"
        arguments = struct.pack(">bhibhqb", 8, 1, port, 10, 2, packets_per_second, 0)
        call = struct.pack(">II", 0x80010001, len(name)) + name + struct.pack(">I", 0) + arguments
        with socket.create_connection(("127.0.0.1", int(self._thrift[1])), PATIENCE_S) as thrift:
            thrift.sendall(call)
            answer = thrift.recv(1 << 12)
        assert answer.startswith(struct.pack(">I", 0x80010002)), answer

    def exchange(self, packets: Iterable[tuple[int, bytes]], *, expected: int) -> list[Output]:
        """Send (port, frame) pairs through the veth ports; the first `expected` frames that come out, in that order."""
        for port, frame in packets:
            self.sockets[port].send(frame)
        by_socket = {sock: port for port, sock in self.sockets.items()}
        outputs: list[Output] = []
        while len(outputs) < expected and (ready := select.select(list(by_socket), [], [], PATIENCE_S)[0]):
            outputs += [Output(by_socket[sock], sock.recv(65536)) for sock in ready]
        return outputs

    def _make_ports(self, stack: contextlib.ExitStack) -> list[str]:
        Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        lines = [
            line
            for port in self._ports
            for line in (
                f"link add s{port} mtu 9000 type veth peer name h{port} mtu 9000",
                f"link set s{port} up",
                f"link set h{port} up",
            )
        ]
        subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
        self.sockets = {}
        for port in self._ports:
            sock = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
            sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            sock.bind((f"h{port}", 0x0003))
            self.sockets[port] = sock
        return [argument for port in self._ports for argument in ("-i", f"{port}@s{port}")]

    def _start(self, folder: Path, interfaces: list[str]) -> subprocess.Popen[bytes]:
        dataplane = [] if self._veth else ["--dp-grpc-server-addr", f"unix:{folder / 'dataplane'}"]
        self._log = folder / "log"
        self._thrift = _thrift_words()
        command = [
            *(["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []),
            *[EXECUTABLE, "--device-id", str(DEVICE_ID), "--no-p4", "--log-level", "off", *interfaces],
            *[*self._thrift, "--"],
            *["--grpc-server-addr", f"unix:{folder / 'p4runtime'}", *dataplane],
            *["--cpu-port", str(CPU_PORT), "--priority-queues", str(PRIORITIES)],
        ]
        with self._log.open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @contextlib.contextmanager
    def _skipped_if_it_dies(self, when: str) -> Iterator[None]:
        """Builds of bmv2 differ in what they survive: one that a signal has ended can be compared with nothing."""
        try:
            yield
        except (grpc.RpcError, Refused):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=2)
            if (status := self._process.poll()) is None or status >= 0:
                raise
            said = self._log.read_text("utf-8", "replace").strip().splitlines()[-3:]
            pytest.skip(f"this build of bmv2 dies {when}, by {signal.Signals(-status).name}: {' | '.join(said)}")

    def _wait_for(self, path: Path) -> None:
        deadline = time.monotonic() + 20
        while not path.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{EXECUTABLE} did not come up:\n{self._log.read_text()}")
            time.sleep(0.01)


def _thrift_words() -> list[str]:
    """A Thrift port of its own, where this bmv2 was built with Thrift; other tests may start one at the same time."""
    return thrift_words(EXECUTABLE, random.randrange(20_000, 30_000))


def packet_in_header(info: Any, packet: Any) -> bytes:
    """The packet-in header as the program emitted it, from the metadata that P4Runtime made of it; empty where the
    program has none.
    """
    header = next((h for h in info.controller_packet_metadata if h.preamble.name == "packet_in"), None)
    if header is None:
        return b""
    values = {m.metadata_id: int.from_bytes(m.value, "big") for m in packet.metadata}
    bits = width = 0
    for field in header.metadata:
        bits = bits << field.bitwidth | values.get(field.id, 0)
        width += field.bitwidth
    return bits.to_bytes(width // 8, "big")


@contextlib.contextmanager
def new_network_namespace() -> Iterator[None]:
    """Put the calling thread into a fresh network namespace, and back at the end."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        check(libc.unshare(CLONE_NEWNET))
        try:
            yield
        finally:
            check(libc.setns(home, CLONE_NEWNET))
    finally:
        os.close(home)


def _packet_message(pool: Any, name: str) -> Any:
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"p4.bm.{name}"))


def _dataplane_messages() -> tuple[Any, Any]:
    """Request and response of behavioral-model's `services/p4/bm/dataplane_interface.proto`: the same four fields."""
    file = descriptor_pb2.FileDescriptorProto(name="p4/bm/dataplane_interface.proto", package="p4.bm", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    fields = (("id", kinds.TYPE_UINT64), ("device_id", kinds.TYPE_UINT64), ("port", kinds.TYPE_UINT32))
    for name in ("PacketStreamRequest", "PacketStreamResponse"):
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate((*fields, ("packet", kinds.TYPE_BYTES)), start=1):
            message.field.add(name=field, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return _packet_message(pool, "PacketStreamRequest"), _packet_message(pool, "PacketStreamResponse")


_Request, _Response = _dataplane_messages()
