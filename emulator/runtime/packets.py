"""Packets in the pool, and the queues of a port (native code)."""

from __future__ import annotations

from typing import Any, Final

from ..abi import HEADROOM, PACKET
from .memory import NODE_SWITCH, NONE, PRIORITIES, SHARE_SHIFT
from .native import highest_bit, meta_at, native, packet_at, port_at, queue_at, store, switch_at

PACKET_BYTES: Final = PACKET.itemsize


@native
def data_of(world: Any, packet: Any) -> Any:
    """Return the address of a packet's data area; a received frame stands HEADROOM bytes behind it."""
    return world.pool + packet * world.slot_bytes + world.data_offset


@native
def record_address(world: Any, switch: Any, packet: Any) -> Any:
    """Return the address of the PACKET record that `switch` gives to its program."""
    return data_of(world, packet) - switch.phv_bytes - PACKET_BYTES


@native
def record_of(world: Any, switch: Any, packet: Any) -> Any:
    """Return a packet's record (`emulator.abi.PACKET`)."""
    return packet_at(record_address(world, switch, packet), 0)


@native
def allocate(world: Any) -> Any:
    """Take a packet from the pool. The loop sees to it that there is one (`WORLD.packet_reserve`)."""
    packet = world.free_head
    meta = meta_at(world.meta, packet)
    world.free_head = meta.next
    world.free_count -= 1
    meta.next = NONE
    meta.start = HEADROOM
    meta.flow = NONE
    meta.priority = 0
    meta.passes = 0
    return packet


@native
def release(world: Any, packet: Any) -> None:
    """Return a packet to the pool."""
    meta_at(world.meta, packet).next = world.free_head
    world.free_head = packet
    world.free_count += 1


@native
def mark_ready(world: Any, port: Any, port_index: Any) -> None:
    """Put a port into the ring of ports whose queues the loop serves before it goes on in time."""
    if port.ready == 0:
        port.ready = 1
        place = world.ready_head + world.ready_count
        if place >= world.ready_capacity:
            place -= world.ready_capacity
        store(world.ready, place, port_index)
        world.ready_count += 1


@native
def enqueue(world: Any, port_index: Any, packet: Any, priority: Any) -> None:
    """Append a packet to one queue of a port, or drop it when the queue is full in packets or bytes (tail drop).

    enq_qdepth is the depth before the packet: simple_switch reads it before it pushes.
    """
    port = port_at(world.ports, port_index)
    queue = queue_at(world.queues, port_index * PRIORITIES + priority)
    meta = meta_at(world.meta, packet)
    size = meta.length
    if queue.depth_packets >= queue.limit_packets or queue.depth_bytes + size > queue.limit_bytes:
        queue.drops += 1
        queue.dropped_bytes += size
        if port.kind == NODE_SWITCH:
            switch_at(port.node, 0).queue_full += 1
        release(world, packet)
        return
    if port.kind == NODE_SWITCH:
        record = record_of(world, switch_at(port.node, 0), packet)
        record.enq_timestamp = (world.now - switch_at(port.node, 0).started_ns) // 1000
        record.enq_qdepth = queue.depth_packets
    meta.queued_bytes = size
    meta.priority = priority
    meta.next = NONE
    if queue.depth_packets == 0:
        queue.head = packet
    else:
        meta_at(world.meta, queue.tail).next = packet
    queue.tail = packet
    queue.depth_packets += 1
    queue.depth_bytes += size
    queue.max_depth_packets = max(queue.max_depth_packets, queue.depth_packets)
    queue.max_depth_bytes = max(queue.max_depth_bytes, queue.depth_bytes)
    port.backlog |= 1 << priority
    port.depth_packets += 1
    port.depth_bytes += size
    port.max_depth_packets = max(port.max_depth_packets, port.depth_packets)
    port.max_depth_bytes = max(port.max_depth_bytes, port.depth_bytes)
    mark_ready(world, port, port_index)


@native
def next_priority(world: Any, port: Any, port_index: Any) -> Any:
    """Return the priority of the queue that sends next; at least one holds a packet.

    The highest, except that the lowest of those goes first that are owed the packet at their head.
    """
    top = highest_bit(port.backlog)
    if port.share_weight != 0 and port.share_first < top <= port.share_last:
        for priority in range(port.share_first, top):
            if port.backlog >> priority & 1:
                queue = queue_at(world.queues, port_index * PRIORITIES + priority)
                if queue.credit >= meta_at(world.meta, queue.head).queued_bytes << SHARE_SHIFT:
                    return priority
    return top


@native
def charge(world: Any, port: Any, port_index: Any, priority: Any, size: Any) -> None:
    """Settle what queues are owed after one of them has sent so many bytes."""
    for lower in range(port.share_first, priority):
        if port.backlog >> lower & 1:
            queue_at(world.queues, port_index * PRIORITIES + lower).credit += size * port.share_weight
    queue = queue_at(world.queues, port_index * PRIORITIES + priority)
    if queue.depth_packets == 0:
        queue.credit = 0
    elif highest_bit(port.backlog) > priority:
        queue.credit -= size << SHARE_SHIFT


@native
def dequeue(world: Any, port: Any, port_index: Any, priority: Any) -> Any:
    """Take the oldest packet of one queue, which holds at least one."""
    queue = queue_at(world.queues, port_index * PRIORITIES + priority)
    packet = queue.head
    meta = meta_at(world.meta, packet)
    queue.head = meta.next
    queue.depth_packets -= 1
    queue.depth_bytes -= meta.queued_bytes
    port.depth_packets -= 1
    port.depth_bytes -= meta.queued_bytes
    if queue.depth_packets == 0:
        port.backlog &= ~(1 << priority)
    if port.share_weight != 0 and port.share_first <= priority <= port.share_last:
        charge(world, port, port_index, priority, meta.queued_bytes)
    return packet
