"""A batch of frames from the switch to its network interface (native code).

Frames go through a ring shared with the kernel (PACKET_TX_RING, TPACKET_V2), one system call for all. Without a ring
they go by `sendmmsg`, which costs a quarter more. A `virtio_net_hdr` in front of each frame of the ring claims the
whole frame as its headers, so that the kernel copies it at once. Otherwise it would lend the ring's pages to the
receiver, and a veth pair would have to copy them into pages of its own. Only the part of a frame beyond one page is
lent, since contiguous memory is scarce.
"""

from __future__ import annotations

from typing import Any, Final

from ..runtime.native import load, meta_at, native, port_at, store
from ..runtime.packets import data_of, release
from .calls import (
    EAGAIN,
    EINTR,
    EMSGSIZE,
    ENOBUFS,
    capture_at,
    copy_apart,
    invoke,
    last_error,
    load_status,
    load_u16,
    store_status,
    store_u16,
)
from .capture import record_frame
from .memory import MESSAGE_BYTES, VIRTIO_HEADER_BYTES

# linux/if_packet.h: tpacket2_hdr's status and tp_len, and the frame behind it
_CONTENT: Final = 32
_AVAILABLE: Final = 0
_SEND_REQUEST: Final = 1
_NOT_TAKEN: Final = 1 | 4
"""Either asked for and not sent, or of a wrong format; 2 is on its way."""
# linux/virtio_net.h
_HEADER_LENGTH: Final = 2

_LONGEST_COPY: Final = 3072
"""Largest frame that fits a page together with the kernel's own data."""

_PROTOCOL: Final = 12
_VLAN: Final = 0x0081
"""802.1Q's number, 0x8100, as a little-endian load has it: such frames may be a tag longer than the MTU allows."""
_TAG_BYTES: Final = 4
_DONT_WAIT: Final = 0x40


@native
def slot_at(nic: Any, place: Any) -> Any:
    """Return the address of the slot of the sending ring that comes `place` after its head."""
    index = nic.send_head + place
    if index >= nic.send_frames:
        index -= nic.send_frames
    return nic.send_ring + index * nic.ring_frame_bytes


@native
def too_long(nic: Any, data: Any, length: Any) -> Any:
    """Return True if a frame is longer than the interface sends: the kernel does not check frames of a ring."""
    if length <= nic.longest:
        return False
    return length > nic.longest + _TAG_BYTES or load_u16(data + _PROTOCOL) != _VLAN


@native
def send_by_ring(loop: Any, world: Any, nic: Any, first: Any) -> Any:
    """Send what the ring and the kernel take of the batch from `first` on. Returns how many, or -errno for none."""
    error = EAGAIN
    offered = 0
    while first + offered < nic.held:
        slot = slot_at(nic, offered)
        packet = load(nic.packets, first + offered)
        meta = meta_at(world.meta, packet)
        data = data_of(world, packet) + meta.start
        if too_long(nic, data, meta.length):
            error = EMSGSIZE
            break
        if load_status(slot) != _AVAILABLE:
            break
        content = slot + _CONTENT
        store_u16(content + _HEADER_LENGTH, min(meta.length, _LONGEST_COPY))
        copy_apart(content + VIRTIO_HEADER_BYTES, data, meta.length)
        store(slot, 0, _SEND_REQUEST | (VIRTIO_HEADER_BYTES + meta.length) << 32)
        offered += 1
    if offered == 0:
        return -error
    if invoke(loop.send, nic.send_fd, 0, 0, _DONT_WAIT, 0) < 0:
        error = last_error(loop)
    taken = 0
    while taken < offered and load_status(slot_at(nic, taken)) & _NOT_TAKEN == 0:
        taken += 1
    for place in range(taken, offered):
        store_status(slot_at(nic, place), _AVAILABLE)
    if taken == 0:
        return -error
    nic.send_head += taken
    if nic.send_head >= nic.send_frames:
        nic.send_head -= nic.send_frames
    return taken


@native
def send_by_call(loop: Any, world: Any, nic: Any, first: Any) -> Any:
    """Send what the kernel takes of the batch from `first` on. Returns how many, or -errno for none."""
    for i in range(first, nic.held):
        packet = load(nic.packets, i)
        meta = meta_at(world.meta, packet)
        store(nic.vectors, 2 * i, data_of(world, packet) + meta.start)
        store(nic.vectors, 2 * i + 1, meta.length)
    messages = nic.messages + first * MESSAGE_BYTES
    sent = invoke(loop.sendmmsg, nic.send_fd, messages, nic.held - first, _DONT_WAIT, 0)
    if sent < 0:
        return -last_error(loop)
    return sent


@native
def send(loop: Any, world: Any, nic: Any, first: Any) -> Any:
    """Send a list of packets, `first` at its head, by the interface's ring if it has one."""
    if nic.send_ring != 0:
        return send_by_ring(loop, world, nic, first)
    return send_by_call(loop, world, nic, first)


@native
def flush(loop: Any, world: Any, nic: Any) -> None:
    """Send an interface's batch. Frames that the kernel cannot take now are kept, and the interface is blocked."""
    port = port_at(world.ports, nic.port)
    nic.blocked = 0
    first = 0
    while first < nic.held:
        sent = send(loop, world, nic, first)
        if sent < 0:
            if sent == -EINTR:
                continue
            if sent == -EAGAIN:
                nic.blocked = 1
                nic.waits += 1
                break
            if sent == -EMSGSIZE:
                nic.too_long += 1
            elif sent == -ENOBUFS:
                nic.refused += 1
            else:
                nic.unreachable += 1
            port.lost_packets += 1
            release(world, load(nic.packets, first))
            first += 1
            continue
        for i in range(first, first + sent):
            packet = load(nic.packets, i)
            meta = meta_at(world.meta, packet)
            port.tx_packets += 1
            port.tx_bytes += meta.length
            if nic.capture_out != 0:
                capture = capture_at(nic.capture_out, 0)
                record_frame(loop, world, capture, data_of(world, packet) + meta.start, meta.length)
            release(world, packet)
        first += sent
    for i in range(first, nic.held):
        store(nic.packets, i - first, load(nic.packets, i))
    nic.held -= first
