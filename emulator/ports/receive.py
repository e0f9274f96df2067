"""Frames from the network into the switch (native code).

The kernel writes frames into a shared ring (AF_PACKET, TPACKET_V2), each behind a header and a `virtio_net_hdr`, so
that receiving takes no system call. Without a ring, `recvmmsg` fetches them in batches. The parts that the kernel keeps
outside the frame are put back into it: a VLAN tag, and the checksum that the sender left to its hardware.
"""

from __future__ import annotations

from typing import Any, Final

from ..abi import HEADROOM
from ..runtime.manager import receive
from ..runtime.native import copy, load, load_byte, meta_at, native, port_at, store, store_byte, switch_at
from ..runtime.packets import allocate, data_of, release
from .calls import (
    ENETDOWN,
    capture_at,
    copy_apart,
    invoke,
    last_error,
    load_status,
    load_u16,
    load_u32,
    read_clock,
    store_status,
    store_u16,
)
from .capture import record_frame
from .memory import BATCH, CONTROL_BYTES, HEADER_BYTES, MESSAGE_BYTES, VIRTIO_HEADER_BYTES
from .reasons import RECEIVED
from .trace import note, note_pass
from .transmit import serve_ports

# linux/if_packet.h: offsets in tpacket2_hdr, its flags, and the sockaddr_ll behind it
_LENGTH: Final = 4
_CAPTURED: Final = 8
_MAC: Final = 12
_TAG: Final = 24
_TAG_PROTOCOL: Final = 26
_PACKET_TYPE: Final = 32 + 10
_STATUS_USER: Final = 1
_STATUS_TAG: Final = 1 << 4
_STATUS_TAG_PROTOCOL: Final = 1 << 6
_OUTGOING: Final = 4
_VLAN: Final = 0x8100
_NEEDS_CHECKSUM: Final = 1

_PACKET_TYPE_BY_CALL: Final = 16 + 10
_ADDRESS_BYTES: Final = 20
_ADDRESSES: Final = 12
_TAG_BYTES: Final = 4
_DONT_WAIT: Final = 0x40
_SOL_PACKET: Final = 263
_AUXDATA: Final = 8
_TRUNCATED: Final = 0x20


@native
def complete_checksum(data: Any, length: Any, header: Any) -> Any:
    """Finish the checksum that a `virtio_net_hdr` asks for (RFC 1071). False: it lies outside the frame.

    The field holds the sum over the pseudo header. A result of 0 is written as 0xFFFF, as UDP wants it.
    """
    first = load_u16(header + 6)
    field = first + load_u16(header + 8)
    if field + 2 > length:
        return False
    total = 0
    at = first
    while at + 4 <= length:
        total += load_u32(data + at)
        at += 4
    if at + 2 <= length:
        total += load_u16(data + at)
        at += 2
    if at < length:
        total += load_byte(data + at)
    total = (total >> 32) + (total & 0xFFFFFFFF)
    total = (total >> 16) + (total & 0xFFFF)
    total = (total >> 16) + (total & 0xFFFF)
    total = (total >> 16) + (total & 0xFFFF)
    total ^= 0xFFFF
    if total == 0:
        total = 0xFFFF
    store_u16(data + field, total)
    return True


@native
def insert_tag(data: Any, protocol: Any, tag: Any) -> None:
    """Write a VLAN tag behind the MAC addresses; the caller has already moved the rest by four bytes."""
    store_byte(data + _ADDRESSES, protocol >> 8)
    store_byte(data + _ADDRESSES + 1, protocol & 0xFF)
    store_byte(data + _ADDRESSES + 2, tag >> 8)
    store_byte(data + _ADDRESSES + 3, tag & 0xFF)


@native
def enter(loop: Any, world: Any, nic: Any, packet: Any, length: Any) -> None:
    """Count a packet that holds a whole frame, and pass it to the switch."""
    port = port_at(world.ports, nic.port)
    meta_at(world.meta, packet).length = length
    port.rx_packets += 1
    port.rx_bytes += length
    if nic.capture_in != 0:
        record_frame(loop, world, capture_at(nic.capture_in, 0), data_of(world, packet) + HEADROOM, length)
    if loop.trace != 0:
        note(loop, world, RECEIVED, port.number, length)
    receive(world, switch_at(loop.switch, 0), port.number, packet)
    if loop.trace != 0:
        note_pass(loop, world, switch_at(loop.switch, 0))


@native
def receive_frame(loop: Any, world: Any, nic: Any, frame: Any, status: Any) -> None:
    """Pass one frame of the ring, whose `tpacket2_hdr` stands at `frame`, to the switch."""
    if load_byte(frame + _PACKET_TYPE) == _OUTGOING:
        return
    length = load_u32(frame + _LENGTH)
    tagged = status & _STATUS_TAG != 0 and length >= _ADDRESSES
    whole = length
    if tagged:
        whole += _TAG_BYTES
    if whole > world.max_frame or load_u32(frame + _CAPTURED) != length:
        nic.oversize += 1
        return
    source = frame + load_u16(frame + _MAC)
    header = source - VIRTIO_HEADER_BYTES
    packet = allocate(world)
    data = data_of(world, packet) + HEADROOM
    copied = 0
    if load_byte(header) & _NEEDS_CHECKSUM != 0 and complete_checksum(source, length, header):
        nic.checksums_completed += 1
    if tagged:
        protocol = _VLAN
        if status & _STATUS_TAG_PROTOCOL != 0:
            protocol = load_u16(frame + _TAG_PROTOCOL)
        copy_apart(data, source, _ADDRESSES)
        insert_tag(data, protocol, load_u16(frame + _TAG))
        nic.tags_restored += 1
        copied = _ADDRESSES
    copy_apart(data + copied + whole - length, source + copied, length - copied)
    enter(loop, world, nic, packet, whole)


@native
def receive_from_ring(loop: Any, world: Any, nic: Any) -> Any:
    """Receive up to BATCH frames from an interface's ring; return their number."""
    for count in range(BATCH):
        frame = nic.ring + nic.ring_head * nic.ring_frame_bytes
        status = load_status(frame)
        if status & _STATUS_USER == 0 or world.free_count < world.packet_reserve:
            return count
        if count == 0:
            world.now = read_clock(loop)
        receive_frame(loop, world, nic, frame, status)
        store_status(frame, 0)
        nic.ring_head += 1
        if nic.ring_head == nic.ring_frames:
            nic.ring_head = 0
        serve_ports(loop, world)
    return BATCH


@native
def finish_message(loop: Any, world: Any, nic: Any, i: Any) -> None:
    """Pass the frame that recvmmsg put into the i-th packet to the switch."""
    packet = load(nic.receive_packets, i)
    message = nic.receive_messages + i * MESSAGE_BYTES
    header = nic.receive_headers + i * HEADER_BYTES
    control = nic.receive_controls + i * CONTROL_BYTES
    if load_byte(header + _PACKET_TYPE_BY_CALL) == _OUTGOING:
        release(world, packet)
        return
    length = load_u32(message + 56) - VIRTIO_HEADER_BYTES
    tagged = (
        load_u32(control + 8) == _SOL_PACKET
        and load_u32(control + 12) == _AUXDATA
        and load_u32(control + 16) & _STATUS_TAG != 0
        and length >= _ADDRESSES
    )
    whole = length
    if tagged:
        whole += _TAG_BYTES
    if whole > world.max_frame or load_u32(message + 48) & _TRUNCATED != 0:
        nic.oversize += 1
        release(world, packet)
        return
    data = data_of(world, packet) + HEADROOM
    if load_byte(header) & _NEEDS_CHECKSUM != 0 and complete_checksum(data, length, header):
        nic.checksums_completed += 1
    if tagged:
        protocol = _VLAN
        if load_u32(control + 16) & _STATUS_TAG_PROTOCOL != 0:
            protocol = load_u16(control + 34)
        copy(data + _ADDRESSES + _TAG_BYTES, data + _ADDRESSES, length - _ADDRESSES)
        insert_tag(data, protocol, load_u16(control + 32))
        nic.tags_restored += 1
    enter(loop, world, nic, packet, whole)


@native
def fetch_messages(loop: Any, world: Any, nic: Any) -> None:
    """Receive up to BATCH frames of an interface without a ring, straight into packets of the pool."""
    room = min(BATCH, world.free_count - world.packet_reserve + 1)
    for i in range(room):
        packet = allocate(world)
        store(nic.receive_packets, i, packet)
        store(nic.receive_vectors, 4 * i + 2, data_of(world, packet) + HEADROOM)
        store(nic.receive_vectors, 4 * i + 3, world.max_frame)
        message = nic.receive_messages + i * MESSAGE_BYTES
        store(message, 1, _ADDRESS_BYTES)
        store(message, 5, CONTROL_BYTES)
        store(nic.receive_controls + i * CONTROL_BYTES, 1, 0)
    count = 0
    if room > 0:
        count = invoke(loop.recvmmsg, nic.receive_fd, nic.receive_messages, room, _DONT_WAIT, 0)
        if count < 0:
            count = 0
            if last_error(loop) == ENETDOWN:  # which this call has cleared: the sleeping loop does not see it
                nic.outages += 1
    for i in range(count, room):
        release(world, load(nic.receive_packets, i))
    nic.receive_count = count
    nic.receive_next = 0


@native
def receive_by_call(loop: Any, world: Any, nic: Any) -> Any:
    """Receive up to BATCH frames from an interface without a ring; return their number.

    Those that the pool has no room for, since others were copied so often, stay for the next time, before any more are
    fetched.
    """
    if nic.receive_next == nic.receive_count:
        fetch_messages(loop, world, nic)
    arrived = nic.receive_count - nic.receive_next
    if arrived > 0:
        world.now = read_clock(loop)
    while nic.receive_next < nic.receive_count and world.free_count >= world.packet_reserve:
        finish_message(loop, world, nic, nic.receive_next)
        nic.receive_next += 1
        serve_ports(loop, world)
    return arrived


@native
def receive_batch(loop: Any, world: Any, nic: Any) -> Any:
    """Pass up to BATCH frames of an interface to the switch; return their number."""
    if nic.ring != 0:
        return receive_from_ring(loop, world, nic)
    return receive_by_call(loop, world, nic)
