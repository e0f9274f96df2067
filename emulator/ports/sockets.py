"""Network interfaces as AF_PACKET sockets: one that receives and one that sends, each with a ring if it may be had."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ..entries import EmulatorError
from ..frames import ETHERNET_BYTES

# linux/if_packet.h, linux/if_ether.h, linux/sockios.h
_SOL_PACKET: Final = 263
_PACKET_ADD_MEMBERSHIP: Final = 1
_PACKET_RX_RING: Final = 5
_PACKET_STATISTICS: Final = 6
_PACKET_AUXDATA: Final = 8
_PACKET_VERSION: Final = 10
_PACKET_TX_RING: Final = 13
_PACKET_VNET_HDR: Final = 15
_PACKET_IGNORE_OUTGOING: Final = 23
_TPACKET_V2: Final = 1
_MR_PROMISC: Final = 1
_ETH_P_ALL: Final = 3
_SIOCGIFMTU: Final = 0x8921

_RING_FRAMES: Final = 2048
_BLOCK_BYTES: Final = 1 << 16
_FRAME_OVERHEAD: Final = 256
"""Room in a ring's frame for the kernel's headers, Ethernet's and a tag: 96 bytes and some."""
_SEND_HEADERS: Final = 32 + 10 + 4
"""Bytes before what is sent in a ring's frame: the kernel's header, virtio's, and room for a VLAN tag."""
_FEWEST_FRAMES: Final = 256
_SEND_FRAMES: Final = 512
_FEWEST_SEND_FRAMES: Final = 32
_SEND_BUFFER_BYTES: Final = 1 << 20
_SEND_BUFFER_BYTES_OF_FRAME: Final = 256
"""Send buffer per frame of a ring. The kernel doubles it, and charges more than 512 bytes for any frame under way. So a
full buffer always means that this memory is used up, which `ppoll` waits for, and never that the ring is full.
"""
_RECEIVE_BUFFER_BYTES: Final = 4 << 20


class PortError(EmulatorError):
    """A network interface cannot serve as a port."""


@dataclass(slots=True)
class Interface:
    """An open interface. Its rings, if it has them, hold `frames` and `send_frames` frames of `frame_bytes` each."""

    name: str
    mtu: int
    receiver: socket.socket
    sender: socket.socket
    ring: mmap.mmap | None = None
    send_ring: mmap.mmap | None = None
    frames: int = 0
    send_frames: int = 0
    frame_bytes: int = 0
    missed: int = 0
    """Frames that found the ring full, as far as the kernel has been asked."""

    @property
    def ring_address(self) -> int:
        """0 without a ring."""
        return _address(self.ring)

    @property
    def send_ring_address(self) -> int:
        """0 without a ring."""
        return _address(self.send_ring)

    @property
    def longest(self) -> int:
        """Length in bytes of the longest frame that can be sent, without a VLAN tag.

        This is the MTU; if that has grown since the ring was made, the limit is the size of the ring's frames.
        """
        longest = self.mtu + ETHERNET_BYTES
        return longest if self.send_ring is None else min(longest, self.frame_bytes - _SEND_HEADERS)

    def update_mtu(self) -> bool:
        """Ask the kernel for the MTU; whether it is another one. An interface that is gone keeps what it had."""
        before = self.mtu
        with suppress(OSError):
            self.mtu = _mtu(self.sender, self.name)
        return self.mtu != before

    def count_missed(self) -> int:
        """Return frames that found the ring full, since it was opened."""
        _, dropped = struct.unpack("II", self.receiver.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        self.missed += dropped
        return self.missed

    def close(self) -> None:
        """Unmap the rings and close both sockets."""
        for ring in (self.ring, self.send_ring):
            if ring is not None:
                ring.close()
        self.receiver.close()
        self.sender.close()


def check_interface(name: str, port: int) -> int:
    """Return the index of an interface that is to become a port. Raises PortError if there is none."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        known = ", ".join(sorted(other for _, other in socket.if_nameindex())) or "none"
        raise PortError(
            f"interface {name} does not exist; there are: {known}", place=f"port {port}", value=name
        ) from None


def open_interface(name: str, port: int, ring: bool = True) -> Interface:
    """Open a network interface for a port, promiscuous, with a ring if it may be had. Raises PortError."""
    where = f"port {port}: interface {name}"
    index = check_interface(name, port)
    sockets: list[socket.socket] = []
    try:
        for _ in range(2):
            # Without a protocol nothing arrives before the socket is bound to its interface.
            sockets.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0))
        receiver, sender = sockets
        interface = Interface(name, _mtu(sender, name), receiver, sender)
        receiver.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        receiver.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        _ignore_outgoing(receiver)
        if ring:
            _map_rings(interface)
        if interface.ring is None:
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        send_buffer = _SEND_BUFFER_BYTES
        if interface.send_ring is not None:
            send_buffer = interface.send_frames * _SEND_BUFFER_BYTES_OF_FRAME
        receiver.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, struct.pack("iHH8x", index, _MR_PROMISC, 0))
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        sender.bind((name, 0))
        receiver.bind((name, _ETH_P_ALL))
    except PermissionError:
        _close(sockets)
        raise PortError("cannot be opened: that takes root, or the capability CAP_NET_RAW", place=where) from None
    except OSError as error:
        _close(sockets)
        raise PortError(
            f"cannot be opened: {os.strerror(error.errno or 0)}", place=where, value=os.strerror(error.errno or 0)
        ) from error
    return interface


def _map_rings(interface: Interface) -> None:
    """Give an interface its rings; where memory for one cannot be had, or the kernel has none, it goes without."""
    frame_bytes = interface.frame_bytes = 1 << (interface.mtu + _FRAME_OVERHEAD - 1).bit_length()
    interface.frames = max(_FEWEST_FRAMES, _RING_FRAMES * 2048 // frame_bytes)
    interface.send_frames = max(_FEWEST_SEND_FRAMES, _SEND_FRAMES * 2048 // frame_bytes)
    interface.ring = _map_ring(interface.receiver, _PACKET_RX_RING, interface.frames, frame_bytes)
    interface.sender.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    interface.send_ring = _map_ring(interface.sender, _PACKET_TX_RING, interface.send_frames, frame_bytes)
    if interface.send_ring is None:
        interface.sender.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 0)


def _map_ring(owner: socket.socket, option: int, frames: int, frame_bytes: int) -> mmap.mmap | None:
    block_bytes = max(_BLOCK_BYTES, frame_bytes)
    size = frames * frame_bytes
    try:
        owner.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        owner.setsockopt(
            _SOL_PACKET, option, struct.pack("IIII", block_bytes, size // block_bytes, frame_bytes, frames)
        )
    except OSError:
        return None
    return mmap.mmap(owner.fileno(), size)


def _address(ring: mmap.mmap | None) -> int:
    return 0 if ring is None else ctypes.addressof(ctypes.c_char.from_buffer(ring))


def _close(sockets: list[socket.socket]) -> None:
    for opened in sockets:
        opened.close()


def _ignore_outgoing(receiver: socket.socket) -> None:
    """Have the kernel keep from us what the machine sends; a kernel before 4.20 cannot, and native code skips those."""
    try:
        receiver.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    except OSError:
        return


def _mtu(any_socket: socket.socket, name: str) -> int:
    answer = fcntl.ioctl(any_socket, _SIOCGIFMTU, struct.pack("16si12x", name.encode(), 0))
    mtu: int = struct.unpack_from("i", answer, 16)[0]
    return mtu
