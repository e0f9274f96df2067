"""Switches on network interfaces: packets a second through veth pairs, in a network namespace of their own.

The driver keeps a window of packets in flight, and counts what comes out: so nothing is lost in queues, and each
switch runs as fast as it can. It sends and receives in batches from one thread and takes part of the machine, as real
hosts would. The peers are bmv2 with its logging off, running the same program with the same entries, and a C program
that moves the same frames with recvmmsg and sendmmsg and does nothing else (`relay.c`).
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import finsy as fy
import numpy as np
from numpy.typing import NDArray

from bench.measure import Aim, Contender, Figure, compare
from p4src import FABRIC_JSON
from wire.aggregation import LANES, MESSAGE, MessageType, linear_check, make_tag, set_checksum, version_type
from wire.frames import encapsulate

ROUNDS: Final = 1024
PHASES: Final = 4
BATCH: Final = 32
WINDOW: Final = 1024
BMV2_WINDOW: Final = 32
"""Fewer than the 64 packets that its queues hold; more do not make it faster."""
PACKETS: Final = 100_000
BMV2_PACKETS: Final = 1_500
SWITCH_ADDRESS: Final = 0x0AFF0001
HOST_ADDRESS: Final = 0x0A000101
PARENT: Final = HOST_ADDRESS + 9
JOB: Final = 7
SMALL_PAYLOAD: Final = 22
"""Makes frames of 64 bytes."""
BMV2: Final = "simple_switch_grpc"
OUT_PORT: Final = 3

_CLONE_NEWNET: Final = 0x40000000
_SOL_PACKET: Final = 263
_PACKET_QDISC_BYPASS: Final = 20
_RTM_NEWSTATS: Final = 92
_RTM_GETSTATS: Final = 94
_NLM_F_REQUEST: Final = 1
_STALLED_S: Final = 2.0
_PAUSE_S: Final = 20e-6
_libc: Final = ctypes.CDLL(None, use_errno=True)


def obstacle() -> str | None:
    """Why these benchmarks cannot run here, if they cannot."""
    if os.geteuid() != 0:
        return "network interfaces need root"
    if shutil.which("ip") is None:
        return "the command ip (iproute2) is not on PATH"
    return None


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module against the peers that are here."""
    with ExitStack() as stack:
        stack.enter_context(_namespace())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-bench-")))
        weir = stack.enter_context(_switch([sys.executable, "-m", "emulator.command"], "w", folder))
        peers = {}
        if shutil.which(BMV2) is not None:
            peers[BMV2] = stack.enter_context(
                _switch([BMV2, "-L", "off"], "b", folder, packets=BMV2_PACKETS, window=BMV2_WINDOW)
            )
        if (compiler := shutil.which("cc")) is not None:
            peers["recvmmsg and sendmmsg in C"] = stack.enter_context(_relay(compiler, "c", folder))
        for name, traffic, aims in (
            ("fabric.p4 on veth, 64-byte frames forwarded", _forwarding(), {BMV2: 20}),
            ("fabric.p4 on veth, 256-lane contributions summed", _contributions(), {BMV2: 50}),
        ):
            with _Driver(weir, traffic) as mine:
                for peer, device in peers.items():
                    with _Driver(device, traffic) as theirs:
                        yield compare(
                            name,
                            "packets/s",
                            Contender("weir", weir.packets, mine.push),
                            Contender(peer, device.packets, theirs.push),
                            aim=Aim(aims[peer], of_ratio=True) if peer in aims else None,
                        )


@dataclass(frozen=True, slots=True)
class _Device:
    """A process under test, with ports 1, 2 and 3 on the interfaces `prefix`1 …, whose far ends are `prefix`1-far …"""

    prefix: str
    packets: int
    """To time it with: some tenths of a second."""
    window: int
    sums: bool
    """Whether it sends one packet for each that all the children have sent, or simply every packet."""


# --- traffic ----------------------------------------------------------------------------------------------------------


def _forwarding() -> dict[int, NDArray[np.uint8]]:
    count = PHASES * ROUNDS
    return {
        1: encapsulate(
            np.zeros((count, SMALL_PAYLOAD), np.uint8),
            source=HOST_ADDRESS,
            destination=0x0A000200 + np.arange(count) % 256,
            source_mac=2,
            destination_mac=1,
            source_port=1000 + np.arange(count),
            destination_port=9,
        )
    }


def _contributions() -> dict[int, NDArray[np.uint8]]:
    """What two children send, by port. A switch sums each pair; the parent's address leads to the port out.

    Four sets of tags, each a quarter of the serial circle ahead of the one before: whatever is sent next, its slots are
    older, so that no packet is late however often all are sent.
    """
    count = PHASES * ROUNDS
    rng = np.random.default_rng(1)
    frames = {}
    for child in range(2):
        messages = np.zeros(count, MESSAGE)
        header = messages["header"]
        messages["lanes"] = rng.integers(-(1 << 20), 1 << 20, (count, LANES))
        header["version_type"] = version_type(MessageType.CONTRIBUTION)
        header["job"] = JOB
        header["tag"] = make_tag(1, np.arange(count) // ROUNDS * (1 << 22) + np.arange(count) % ROUNDS)
        header["contributors"] = 1 << child
        header["slot"] = np.arange(count) % ROUNDS
        header["window"] = 0xFFFF
        header["weight"] = 1
        header["check"] = linear_check(messages["lanes"], header["weight"])
        set_checksum(header)
        frames[1 + child] = encapsulate(
            messages.view(np.uint8).reshape(count, -1),
            source=HOST_ADDRESS + child,
            destination=SWITCH_ADDRESS,
            source_mac=2,
            destination_mac=1,
        )
    return frames


async def _write_entries(address: str) -> None:
    """The program and its entries, the same for every switch, through P4Runtime."""
    info = FABRIC_JSON.with_name("fabric.p4info.txtpb")
    options = fy.SwitchOptions(p4info=info, p4blob=FABRIC_JSON, device_id=1)
    aggregation = "FabricIngress.aggregation"

    def entry(table: str, match: Mapping[str, Any], action: str, **params: int) -> fy.P4TableEntry:
        return fy.P4TableEntry(table, match=fy.P4TableMatch(match), action=fy.P4TableAction(action, **params))

    def route(prefix: str) -> fy.P4TableEntry:
        forward = fy.P4TableAction("FabricIngress.routing.forward", port=OUT_PORT, src_mac=1, dst_mac=2)
        match = fy.P4TableMatch({"hdr.ipv4.dst_addr": prefix})
        return fy.P4TableEntry("FabricIngress.routing.routes", match=match, action=fy.P4IndirectAction([(1, forward)]))

    entries = [
        route("10.0.2.0/24"),
        route(f"10.0.1.{PARENT & 0xFF}/32"),
        entry("FabricIngress.node_address", {"hdr.ipv4.dst_addr": SWITCH_ADDRESS}, "FabricIngress.to_node"),
        entry(
            f"{aggregation}.jobs",
            {"hdr.aggregation.job": JOB, "hdr.aggregation.generation": 1},
            f"{aggregation}.inner_node",
            slot_base=0,
            slots=ROUNDS,
            children=0b11,
            parent=PARENT,
            parent_bit=1,
        ),
    ]
    for child in range(2):
        member = {
            "hdr.aggregation.job": JOB,
            "hdr.aggregation.generation": 1,
            "hdr.aggregation.contributors": 1 << child,
            "standard_metadata.ingress_port": 1 + child,
            "hdr.ipv4.src_addr": HOST_ADDRESS + child,
        }
        entries.append(entry(f"{aggregation}.members", member, f"{aggregation}.accept"))
    logging.getLogger("finsy").setLevel(logging.ERROR)  # it warns that a switch has no gNMI
    async with fy.Switch("switch", address, options) as switch:
        await switch.insert(entries)


# --- devices ----------------------------------------------------------------------------------------------------------


@contextmanager
def _namespace() -> Iterator[None]:
    """A network namespace without a name, which ends with its last process."""
    with open("/proc/thread-self/ns/net") as home:
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no network namespace can be made")
        try:
            for name in ("all", "default"):
                Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
            _ip("link set lo up")
            yield
        finally:
            _libc.setns(home.fileno(), _CLONE_NEWNET)


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


def _make_interfaces(prefix: str) -> list[str]:
    names = [f"{prefix}{port}" for port in (1, 2, OUT_PORT)]
    for name in names:
        _ip(f"link add {name} type veth peer name {name}-far")
        _ip(f"link set {name} up")
        _ip(f"link set {name}-far up")
    return names


@contextmanager
def _switch(
    command: Sequence[str], prefix: str, folder: Path, packets: int = PACKETS, window: int = WINDOW
) -> Iterator[_Device]:
    """A switch that takes simple_switch_grpc's command line, with the program and its entries."""
    names = _make_interfaces(prefix)
    ports = [word for port, name in enumerate(names, 1) for word in ("-i", f"{port}@{name}")]
    address = folder / f"{prefix}.sock"
    target = ["--grpc-server-addr", f"unix:{address}", "--cpu-port", "510", "--priority-queues", "8"]
    process = subprocess.Popen(
        [*command, *ports, "--no-p4", "--device-id", "1", "--", *target],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not address.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start; its status is {process.poll()}")
            time.sleep(0.05)
        asyncio.run(_write_entries(f"unix:{address}"))
        yield _Device(prefix, packets, window, sums=True)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _relay(compiler: str, prefix: str, folder: Path) -> Iterator[_Device]:
    """The C program."""
    program = folder / "relay"
    source = Path(__file__).with_name("relay.c")
    subprocess.run([compiler, "-O2", "-o", program, source], check=True)
    process = subprocess.Popen([program, *_make_interfaces(prefix)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield _Device(prefix, PACKETS, WINDOW, sums=False)
    finally:
        process.terminate()
        process.communicate()


# --- the driver -------------------------------------------------------------------------------------------------------


class _Driver:
    """Sends traffic to a device and counts what it sends back, by the far interface's own counter: that costs least."""

    def __init__(self, device: _Device, traffic: Mapping[int, NDArray[np.uint8]]) -> None:
        self._device = device
        self._ports = len(traffic)
        self._rows = len(next(iter(traffic.values())))
        self._out_per_row = 1 if device.sums else self._ports
        self._sources = [(_sender(f"{device.prefix}{port}-far"), _Messages(frames)) for port, frames in traffic.items()]
        self._sink = _Counter(f"{device.prefix}{OUT_PORT}-far")
        self._next = 0

    def __enter__(self) -> _Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._sink.close()
        for source, _messages in self._sources:
            source.close()

    def push(self) -> None:
        """Send the device's number of packets, and wait until all have come out.

        Raises RuntimeError when more than one in a thousand does not.
        """
        rows = self._device.packets // self._ports
        window = self._device.window // self._ports
        batch = min(BATCH, window // 2)
        before = self._sink.packets()
        sent = received = lost = 0
        moved = time.monotonic()
        while received + lost < rows:
            while sent < rows and sent - received - lost + batch <= window:
                count = min(batch, rows - sent, self._rows - self._next)
                for source, messages in self._sources:
                    messages.send(source, self._next, count)
                self._next = (self._next + count) % self._rows
                sent += count
            came = (self._sink.packets() - before) // self._out_per_row
            if came > received:
                received, moved = came, time.monotonic()
            elif time.monotonic() - moved > _STALLED_S:
                lost = sent - received
            else:
                time.sleep(_PAUSE_S)
        if lost * 1000 > rows:
            raise RuntimeError(f"{lost} of {rows} packets did not come out of the switch at {self._device.prefix}1 …")


class _Counter:
    """Packets that an interface has received, asked of the kernel (rtnetlink, RTM_GETSTATS)."""

    def __init__(self, name: str) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        header = struct.pack("=IHHII", 16 + 12, _RTM_GETSTATS, _NLM_F_REQUEST, 1, 0)
        self._request = header + struct.pack("=BBHII", 0, 0, 0, socket.if_nametoindex(name), 1)

    def packets(self) -> int:
        self._socket.send(self._request)
        answer = self._socket.recv(1024)
        if struct.unpack_from("=H", answer, 4)[0] != _RTM_NEWSTATS:
            raise RuntimeError("the kernel does not tell an interface's counters")
        count: int = struct.unpack_from("=Q", answer, 16 + 12 + 4)[0]
        return count

    def close(self) -> None:
        self._socket.close()


class _Messages:
    """Frames as the mmsghdr array of a batched system call."""

    def __init__(self, frames: NDArray[np.uint8]) -> None:
        count, size = frames.shape
        self._frames = np.ascontiguousarray(frames)
        self._vectors = np.empty((count, 2), np.int64)
        self._vectors[:, 0] = self._frames.ctypes.data + size * np.arange(count)
        self._vectors[:, 1] = size
        self._headers = np.zeros((count, 8), np.int64)
        self._headers[:, 2] = self._vectors.ctypes.data + 16 * np.arange(count)
        self._headers[:, 3] = 1

    def send(self, sender: socket.socket, first: int, count: int) -> None:
        done = 0
        while done < count:
            at = ctypes.c_void_p(self._headers.ctypes.data + 64 * (first + done))
            sent = _libc.sendmmsg(sender.fileno(), at, count - done, 0)
            if sent < 0:
                raise OSError(ctypes.get_errno(), "sendmmsg")
            done += sent


def _sender(name: str) -> socket.socket:
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sender.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
    sender.bind((name, 0))
    return sender
