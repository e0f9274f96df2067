"""Hosts: frames waiting for a host's next poll or for its processes, its timer, and its wake-ups (native code)."""

from __future__ import annotations

from typing import Any

from .events import push
from .memory import EVENT_POLL, EVENT_TIMER, NONE, STATUS_DONE, STATUS_WAKE
from .native import copy, due_at, flow_at, host_at, load_byte, meta_at, native, store, tap_at
from .packets import data_of, release


@native
def add_due(world: Any, host: Any, host_index: Any) -> None:
    """Append a host to those that are due at this instant, once."""
    if host.due == 0:
        host.due = 1
        due_at(world.due, world.due_count).host = host_index
        world.due_count += 1


@native
def keep_frame(world: Any, host: Any, packet: Any) -> None:
    """Append a frame to the frames that wait for a host."""
    meta = meta_at(world.meta, packet)
    meta.time = world.now
    meta.next = NONE
    if host.pending_packets == 0:
        host.head = packet
    else:
        meta_at(world.meta, host.tail).next = packet
    host.tail = packet
    host.pending_packets += 1
    host.pending_bytes += meta.length


@native
def tap_frame(world: Any, host: Any, packet: Any) -> None:
    """Copy a frame to the rings of the host's processes that it is for; a full ring misses it."""
    meta = meta_at(world.meta, packet)
    frame = data_of(world, packet) + meta.start
    index = host.tap
    while index != NONE:
        tap = tap_at(world.taps, index)
        if meta.length >= tap.key_at + 2:
            key = load_byte(frame + tap.key_at) << 8 | load_byte(frame + tap.key_at + 1)
            if key == tap.key:
                if tap.out_head - tap.out_tail < tap.rows and tap.frame_at + meta.length <= tap.row_bytes:
                    row = tap.outbound + (tap.out_head & (tap.rows - 1)) * tap.row_bytes
                    store(row, 0, meta.length)
                    copy(row + tap.frame_at, frame, meta.length)
                    tap.out_head += 1
                else:
                    tap.missed_packets += 1
        index = tap.next
    release(world, packet)


@native
def arrive_at_host(world: Any, host_index: Any, port_index: Any, packet: Any) -> None:
    """Count a frame, and keep it for the host's next poll unless a generator made it or the host is a sink."""
    host = host_at(world.hosts, host_index)
    meta = meta_at(world.meta, packet)
    host.rx_packets += 1
    host.rx_bytes += meta.length
    generated = 0
    if meta.flow >= 0:
        flow = flow_at(world.flows, meta.flow)
        flow.delivered_packets += 1
        flow.delivered_bytes += meta.length
        flow.delay_sum_ns += world.now - meta.time
        generated = 1 - flow.by_hand
    if host.sink != 0 or (generated != 0 and host.cpu == 0):
        host.sunk_packets += 1
        host.sunk_bytes += meta.length
        release(world, packet)
        return
    if host.tapped != 0:
        tap_frame(world, host, packet)
        return
    meta.port = port_index
    keep_frame(world, host, packet)
    if host.poll_scheduled == 0:
        host.poll_scheduled = 1
        at = world.now
        if host.poll_ns > 0:
            at = (world.now + host.poll_ns - 1) // host.poll_ns * host.poll_ns
        push(world, at, EVENT_POLL, host_index, NONE)


@native
def fire_timer(world: Any, host_index: Any, time: Any) -> None:
    """Handle a timer event: fire, or go on waiting if the timer has meanwhile been put off."""
    host = host_at(world.hosts, host_index)
    if host.timer_event == time:
        host.timer_event = NONE
    if host.timer_ns == NONE:
        return
    if host.timer_ns <= time:
        host.timer_ns = NONE
        host.timer_fired = 1
        add_due(world, host, host_index)
    elif host.timer_event == NONE:
        host.timer_event = host.timer_ns
        push(world, host.timer_ns, EVENT_TIMER, host_index, NONE)


@native
def set_timer(world: Any, host_index: Any, at: Any) -> None:
    """Replace a host's timer. A later instant reuses the event already in the heap."""
    host = host_at(world.hosts, host_index)
    host.timer_ns = at
    if at != NONE and (host.timer_event == NONE or at < host.timer_event):
        host.timer_event = at
        push(world, at, EVENT_TIMER, host_index, NONE)


@native
def report_due(world: Any) -> Any:
    """Report the waiting frames and timer of every host that is due."""
    for i in range(world.due_count):
        due = due_at(world.due, i)
        host = host_at(world.hosts, due.host)
        due.packets = host.pending_packets
        due.bytes = host.pending_bytes
        due.timer = host.timer_fired
        host.timer_fired = 0
        host.due = 0
    return STATUS_WAKE


@native
def drain(world: Any) -> Any:
    """Copy a host's waiting frames: bytes end to end into `frames`, and their lengths, ports and arrival times.

    `WORLD.size` is set to their common length, or 0.
    """
    host = host_at(world.hosts, world.host)
    at = world.frames
    packet = host.head
    for i in range(host.pending_packets):
        meta = meta_at(world.meta, packet)
        copy(at, data_of(world, packet) + meta.start, meta.length)
        at += meta.length
        if i == 0:
            world.size = meta.length
        elif world.size != meta.length:
            world.size = 0
        store(world.lengths, i, meta.length)
        store(world.in_ports, i, meta.port)
        store(world.times, i, meta.time)
        following = meta.next
        release(world, packet)
        packet = following
    host.pending_packets = 0
    host.pending_bytes = 0
    return STATUS_DONE


@native
def discard(world: Any, host: Any) -> None:
    """Release all packets that wait for a host."""
    packet = host.head
    for _ in range(host.pending_packets):
        following = meta_at(world.meta, packet).next
        release(world, packet)
        packet = following
    host.pending_packets = 0
    host.pending_bytes = 0
