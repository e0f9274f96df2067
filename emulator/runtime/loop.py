"""The event loop: links, hosts, traffic generators and time (native code). `entry` is the one function that Python
calls.

Every operation can pause half-way: when the pool or the heap might run short, and now and then so that Python may look
at signals. Python then grows the memory and calls again. So native code never allocates, no packet is lost for lack of
memory, and even a program that clones its own clones for ever can be interrupted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.abi import HEADROOM
from emulator.runtime.manager import depart, receive
from emulator.runtime.memory import (
    EVENT,
    EVENT_ARRIVAL,
    EVENT_FLOW,
    EVENT_POLL,
    EVENT_PORT,
    EVENT_SAMPLE,
    EVENT_TIMER,
    NODE_SWITCH,
    NONE,
    OP_DRAIN,
    OP_PROCESS,
    OP_RUN,
    OP_SCHEDULE_FLOW,
    OP_SCHEDULE_TRACE,
    OP_SEND,
    OP_TIMER,
    STATUS_DONE,
    STATUS_PAUSE,
    STATUS_TRACE_FULL,
    STATUS_WAKE,
)
from emulator.runtime.native import (
    copy,
    draw,
    due_at,
    event_at,
    flow_at,
    fold,
    fold_bytes,
    highest_bit,
    host_at,
    load,
    load_byte,
    meta_at,
    native,
    port_at,
    queue_at,
    store,
    store_byte,
    switch_at,
    trace_at,
    world_at,
)
from emulator.runtime.packets import allocate, data_of, dequeue, enqueue, mark_ready, release

EVENT_BYTES = EVENT.itemsize
HEAP_RESERVE = 16
"""Events that one step (one packet served, or one event) may push at most."""


@native
def before(time: Any, sequence: Any, event: Any) -> Any:
    return time < event.time or (time == event.time and sequence < event.sequence)


@native
def push(world: Any, time: Any, kind: Any, subject: Any, packet: Any) -> None:
    """Schedule an event (a 4-ary heap by time, then by order of scheduling)."""
    heap = world.heap
    sequence = world.sequence
    world.sequence = sequence + 1
    i = world.heap_count
    world.heap_count = i + 1
    while i > 0:
        parent = (i - 1) >> 2
        if not before(time, sequence, event_at(heap, parent)):
            break
        copy(heap + i * EVENT_BYTES, heap + parent * EVENT_BYTES, EVENT_BYTES)
        i = parent
    event = event_at(heap, i)
    event.time = time
    event.sequence = sequence
    event.kind = kind
    event.subject = subject
    event.packet = packet


@native
def pop(world: Any) -> None:
    """Remove the earliest event."""
    heap = world.heap
    count = world.heap_count - 1
    world.heap_count = count
    if count == 0:
        return
    last = event_at(heap, count)
    time = last.time
    sequence = last.sequence
    i = 0
    while True:
        child = 4 * i + 1
        if child >= count:
            break
        best = child
        for j in range(child + 1, min(child + 4, count)):
            other = event_at(heap, j)
            if before(other.time, other.sequence, event_at(heap, best)):
                best = j
        best_event = event_at(heap, best)
        if before(time, sequence, best_event):
            break
        copy(heap + i * EVENT_BYTES, heap + best * EVENT_BYTES, EVENT_BYTES)
        i = best
    if i != count:
        copy(heap + i * EVENT_BYTES, heap + count * EVENT_BYTES, EVENT_BYTES)


@native
def add_due(world: Any, host: Any, host_index: Any) -> None:
    if host.due == 0:
        host.due = 1
        due_at(world.due, world.due_count).host = host_index
        world.due_count += 1


@native
def keep_frame(world: Any, host: Any, packet: Any) -> None:
    """Append a frame to what a host has not yet been handed."""
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
def arrive_at_host(world: Any, host_index: Any, port_index: Any, packet: Any) -> None:
    """Count a frame, and keep it for the host's next poll unless it is background traffic or the host a sink."""
    host = host_at(world.hosts, host_index)
    meta = meta_at(world.meta, packet)
    host.rx_packets += 1
    host.rx_bytes += meta.length
    if meta.flow >= 0:
        flow = flow_at(world.flows, meta.flow)
        flow.delivered_packets += 1
        flow.delivered_bytes += meta.length
        flow.delay_sum_ns += world.now - meta.time
    if host.sink != 0 or (meta.flow >= 0 and host.cpu == 0):
        host.sunk_packets += 1
        host.sunk_bytes += meta.length
        release(world, packet)
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
def twin_frame(world: Any, packet: Any) -> Any:
    """A copy of a frame on the wire."""
    twin = allocate(world)
    source = meta_at(world.meta, packet)
    target = meta_at(world.meta, twin)
    target.start = source.start
    target.length = source.length
    target.flow = source.flow
    target.time = source.time
    copy(data_of(world, twin) + source.start, data_of(world, packet) + source.start, source.length)
    return twin


@native
def transmit(world: Any, port: Any, packet: Any) -> None:
    """Serialise a frame onto the link of `port`: take the time it needs, apply the link's faults, schedule its
    arrival.

    Draws are a function of the direction's key and the count of frames sent in it, so no other traffic shifts them.
    """
    meta = meta_at(world.meta, packet)
    size = meta.length
    done = world.now
    if port.rate_bps > 0:
        bits = (size + port.overhead_bytes) * 8
        done += (bits * 1_000_000_000 + port.rate_bps - 1) // port.rate_bps
    port.busy_until = done
    port.tx_packets += 1
    port.tx_bytes += size
    data = data_of(world, packet)
    digest = fold(fold(port.digest, world.now), size)
    port.digest = fold_bytes(digest, data + meta.start, size)
    if port.peer < 0:
        if world.capture_host >= 0:
            meta.port = port.number
            keep_frame(world, host_at(world.hosts, world.capture_host), packet)
        else:
            port.lost_packets += 1
            release(world, packet)
        return
    first = port.draws * 8
    port.draws += 1
    if port.up == 0 or (port.loss != 0 and draw(port.key, first) < port.loss):
        port.lost_packets += 1
        release(world, packet)
        return
    at = done + port.delay_ns
    if port.duplicate != 0 and draw(port.key, first + 1) < port.duplicate:
        push(world, at, EVENT_ARRIVAL, port.peer, twin_frame(world, packet))
    if port.corrupt != 0 and size > 0 and draw(port.key, first + 2) < port.corrupt:
        bit = np.int64(draw(port.key, first + 3) % np.uint64(size * 8))
        where = data + meta.start + (bit >> 3)
        store_byte(where, load_byte(where) ^ (1 << (bit & 7)))
    if port.reorder != 0 and draw(port.key, first + 4) < port.reorder:
        at += 1 + np.int64(draw(port.key, first + 5) % np.uint64(port.reorder_ns))
    push(world, at, EVENT_ARRIVAL, port.peer, packet)


@native
def may_go_on(world: Any) -> Any:
    """Whether there is memory for one more step; to be asked before each."""
    world.fuel -= 1
    return (
        world.fuel > 0
        and world.free_count >= world.packet_reserve
        and world.heap_count + HEAP_RESERVE <= world.heap_capacity
    )


@native
def serve_ready(world: Any) -> Any:
    """Let every port that has packets and an idle transmitter send. False: pause first."""
    while world.ready_count > 0:
        index = load(world.ready, world.ready_head)
        port = port_at(world.ports, index)
        while port.backlog != 0 and world.now >= port.busy_until:
            if not may_go_on(world):
                return False
            packet = dequeue(world, port, index, highest_bit(port.backlog))
            if port.kind != NODE_SWITCH or depart(world, port, index, packet):
                transmit(world, port, packet)
        if port.backlog != 0 and port.wakeup == 0:
            port.wakeup = 1
            push(world, port.busy_until, EVENT_PORT, index, NONE)
        port.ready = 0
        world.ready_head = (world.ready_head + 1) % world.ready_capacity
        world.ready_count -= 1
    return True


@native
def arrive(world: Any, port_index: Any, packet: Any) -> None:
    port = port_at(world.ports, port_index)
    if port.up == 0:
        port_at(world.ports, port.peer).lost_packets += 1
        release(world, packet)
        return
    port.rx_packets += 1
    port.rx_bytes += meta_at(world.meta, packet).length
    if port.kind == NODE_SWITCH:
        receive(world, switch_at(port.node, 0), port.number, packet)
    else:
        arrive_at_host(world, port.node, port_index, packet)


@native
def generate(world: Any, flow_index: Any) -> None:
    """Send one frame of a traffic generator and schedule the next."""
    flow = flow_at(world.flows, flow_index)
    if world.now >= flow.stop_ns:
        return
    packet = allocate(world)
    meta = meta_at(world.meta, packet)
    meta.length = flow.length
    meta.flow = flow_index
    meta.time = world.now
    copy(data_of(world, packet) + HEADROOM, flow.frame, flow.length)
    flow.sent_packets += 1
    enqueue(world, flow.port, packet, flow.priority)
    gap = flow.interval_ns
    if flow.jitter > 0.0:
        unit = float(draw(flow.key, flow.draws) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
        gap *= 1.0 + flow.jitter * (2.0 * unit - 1.0)
        flow.draws += 1
    flow.due_ns += gap
    push(world, max(np.int64(flow.due_ns), world.now), EVENT_FLOW, flow_index, NONE)


@native
def fire_timer(world: Any, host_index: Any, time: Any) -> None:
    """A timer event: fire, or go on waiting if the timer has meanwhile been put off."""
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
def sample(world: Any, trace_index: Any) -> None:
    trace = trace_at(world.traces, trace_index)
    depth = port_at(world.ports, trace.port).depth_packets
    if trace.queue >= 0:
        depth = queue_at(world.queues, trace.queue).depth_packets
    store(trace.times, trace.count, world.now)
    store(trace.depths, trace.count, depth)
    trace.count += 1
    push(world, world.now + trace.interval_ns, EVENT_SAMPLE, trace_index, NONE)


@native
def report_due(world: Any) -> Any:
    """Say of every host whose turn it is what awaits it."""
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
def run(world: Any) -> Any:
    """Advance to the earliest instant at which a host is due, and finish that instant; or to `WORLD.until`."""
    while True:
        if not serve_ready(world) or not may_go_on(world):
            return STATUS_PAUSE
        if world.heap_count == 0:
            break
        event = event_at(world.heap, 0)
        time = event.time
        if time > world.until:
            break
        if world.due_count > 0 and time > world.now:
            return report_due(world)
        kind = event.kind
        subject = event.subject
        packet = event.packet
        if kind == EVENT_SAMPLE and trace_at(world.traces, subject).count == trace_at(world.traces, subject).capacity:
            return STATUS_TRACE_FULL
        pop(world)
        world.now = time
        world.events += 1
        if kind == EVENT_ARRIVAL:
            arrive(world, subject, packet)
        elif kind == EVENT_PORT:
            port = port_at(world.ports, subject)
            port.wakeup = 0
            mark_ready(world, port, subject)
        elif kind == EVENT_FLOW:
            generate(world, subject)
        elif kind == EVENT_POLL:
            host = host_at(world.hosts, subject)
            host.poll_scheduled = 0
            add_due(world, host, subject)
        elif kind == EVENT_TIMER:
            fire_timer(world, subject, time)
        else:
            sample(world, subject)
    if world.due_count > 0:
        return report_due(world)
    world.now = max(world.now, world.until)
    return STATUS_DONE


@native
def load_frame(world: Any, i: Any) -> Any:
    """A packet from row i of the argument arrays."""
    packet = allocate(world)
    length = world.size
    if world.lengths != 0:
        length = load(world.lengths, i)
    meta_at(world.meta, packet).length = length
    copy(data_of(world, packet) + HEADROOM, world.frames + i * world.size, length)
    return packet


@native
def send(world: Any) -> Any:
    """Put `WORLD.count` frames into a port's queue, now."""
    while world.done < world.count:
        if not may_go_on(world):
            return STATUS_PAUSE
        packet = load_frame(world, world.done)
        world.done += 1
        enqueue(world, world.port, packet, world.priority)
    return STATUS_DONE


@native
def drain(world: Any) -> Any:
    """Hand over a host's frames: bytes end to end into `frames`, and their lengths, ports and arrival times.

    `WORLD.size` tells their common length, or 0.
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
    packet = host.head
    for _ in range(host.pending_packets):
        following = meta_at(world.meta, packet).next
        release(world, packet)
        packet = following
    host.pending_packets = 0
    host.pending_bytes = 0


@native
def process(world: Any) -> Any:
    """Run frames through a switch back to back, `repeat` times; what leaves is kept in the last round only."""
    capture = host_at(world.hosts, world.capture_host)
    switch = switch_at(load(world.switches, 0), 0)
    while True:
        if not serve_ready(world) or not may_go_on(world):
            return STATUS_PAUSE
        if world.done >= (world.repeat - 1) * world.count:
            if world.keep == 0:
                discard(world, capture)
                world.keep = 1
        elif capture.pending_packets >= 64:
            discard(world, capture)
        if world.done == world.repeat * world.count:
            return STATUS_DONE
        i = world.done % world.count
        world.done += 1
        packet = load_frame(world, i)
        receive(world, switch, load(world.in_ports, i), packet)


@native
def entry(address: Any, operation: Any) -> Any:
    """`int64 entry(WORLD *world, int64 operation)`: returns a status of `emulator.runtime.memory`."""
    world = world_at(address, 0)
    if operation == OP_RUN:
        return run(world)
    if operation == OP_SEND:
        return send(world)
    if operation == OP_DRAIN:
        return drain(world)
    if operation == OP_PROCESS:
        return process(world)
    if operation == OP_TIMER:
        set_timer(world, world.host, world.at)
    elif operation == OP_SCHEDULE_FLOW:
        push(world, world.at, EVENT_FLOW, world.host, NONE)
    elif operation == OP_SCHEDULE_TRACE:
        push(world, world.at, EVENT_SAMPLE, world.host, NONE)
    return STATUS_DONE
