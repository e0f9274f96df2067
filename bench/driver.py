"""Traffic for a device on network interfaces: frames sent to it, and the count of frames that it sends.

The driver keeps a window of packets in flight, so that queues lose nothing and each device runs at full speed. It runs
in one thread and uses part of the machine, as real hosts would. It uses as little as possible: all frames are in a ring
that the kernel reads, and the device's output is read from the far interface's own counter.
"""

from __future__ import annotations

import mmap
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

OUT_PORT: Final = 3
"""Port for the device's output; the driver's frames enter at the ports below it."""

# linux/if_packet.h
_SOL_PACKET: Final = 263
_PACKET_VERSION: Final = 10
_PACKET_TX_RING: Final = 13
_PACKET_VNET_HDR: Final = 15
_PACKET_QDISC_BYPASS: Final = 20
_TPACKET_V2: Final = 1
_SEND_REQUEST: Final = 1
_NOT_TAKEN: Final = 1 | 4
_CONTENT: Final = 32
_VIRTIO_HEADER_BYTES: Final = 10
_BLOCK_BYTES: Final = 1 << 16

# linux/rtnetlink.h
_RTM_NEWSTATS: Final = 92
_RTM_GETSTATS: Final = 94
_NLM_F_REQUEST: Final = 1

_BATCH: Final = 128
_STALLED_S: Final = 2.0
_PAUSE_S: Final = 20e-6


@dataclass(frozen=True, slots=True)
class Device:
    """A process under test, with ports 1, 2 and 3 on the interfaces `prefix`1 …, whose far ends are `prefix`1-far …"""

    prefix: str
    packets: int
    """Packets per timed run: some tenths of a second."""
    window: int
    """Packets in flight."""
    sums: bool
    """True if the device sends one packet per packet of all children; else it sends every packet."""


class Driver:
    """Sender of frames (n, size) per port to a device, again and again, which waits for the device's output."""

    def __init__(self, device: Device, traffic: Mapping[int, NDArray[np.uint8]]) -> None:
        self._device = device
        self._ports = len(traffic)
        self._rows = len(next(iter(traffic.values())))
        self._out_per_row = 1 if device.sums else self._ports
        self._sources = [_Source(f"{device.prefix}{port}-far", frames) for port, frames in traffic.items()]
        self._sink = _Counter(f"{device.prefix}{OUT_PORT}-far")
        self._next = 0

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._sink.close()
        for source in self._sources:
            source.close()

    def push(self) -> None:
        """Send the device's number of packets, and wait until all have come out.

        Raises RuntimeError when more than one in a thousand does not.
        """
        rows = self._device.packets // self._ports
        window = self._device.window // self._ports
        batch = min(_BATCH, window // 2)
        before = self._sink.packets()
        sent = received = lost = 0
        moved = time.monotonic()
        while received + lost < rows:
            while sent < rows and sent - received - lost + batch <= window:
                count = min(batch, rows - sent, self._rows - self._next)
                for source in self._sources:
                    source.send(self._next, count)
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


class _Source:
    """Frames (n, size) in a ring of n frames that the kernel sends from (PACKET_TX_RING), in order, round and round.

    Each stands behind a `virtio_net_hdr` whose header is the whole frame, so that the kernel copies it as it sends it.
    """

    def __init__(self, interface: str, frames: NDArray[np.uint8]) -> None:
        count, size = frames.shape
        slot_bytes = 1 << (_CONTENT + _VIRTIO_HEADER_BYTES + size - 1).bit_length()
        total = count * slot_bytes
        if total % _BLOCK_BYTES:
            raise ValueError(f"{count} frames of {size} bytes do not fill blocks of {_BLOCK_BYTES} bytes")
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        request = struct.pack("IIII", _BLOCK_BYTES, total // _BLOCK_BYTES, slot_bytes, count)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_TX_RING, request)
        self._socket.bind((interface, 0))
        self._ring = mmap.mmap(self._socket.fileno(), total)
        slots = np.frombuffer(self._ring, np.uint8).reshape(count, slot_bytes)
        slots[:, _CONTENT + 2 : _CONTENT + 4] = np.frombuffer(struct.pack("<H", size), np.uint8)
        slots[:, _CONTENT + _VIRTIO_HEADER_BYTES : _CONTENT + _VIRTIO_HEADER_BYTES + size] = frames
        words = slots.view(np.uint32)
        words[:, 1] = _VIRTIO_HEADER_BYTES + size
        self._status = words[:, 0]

    def send(self, first: int, count: int) -> None:
        """Send the frames from `first` on, which the kernel comes to next. Raises OSError."""
        status = self._status[first : first + count]
        status[:] = _SEND_REQUEST
        while (status & _NOT_TAKEN).any():
            self._socket.send(b"")

    def close(self) -> None:
        self._socket.close()


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
