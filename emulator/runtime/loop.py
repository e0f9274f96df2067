"""The event loop: time, queues and traffic generators (native code). Python calls `entry` alone.

Every operation can pause half-way: when the pool or the heap might run short, and now and then so that Python may look
at signals. Python then grows the memory and calls again. So native code never allocates, no packet is lost for lack of
memory, and even a program that clones its own clones for ever can be interrupted.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..abi import HEADROOM
from .events import HEAP_RESERVE, pop, push
from .hosts import add_due, arrive_at_host, discard, drain, fire_timer, report_due, set_timer
from .link import transmit
from .manager import depart, receive
from .memory import (
    ALLOWANCE,
    EVENT_ARRIVAL,
    EVENT_FLOW,
    EVENT_POLL,
    EVENT_PORT,
    EVENT_SAMPLE,
    EVENT_TIMER,
    GENERATED_WAITING,
    NODE_SWITCH,
    NONE,
    OP_DRAIN,
    OP_PROCESS,
    OP_RUN,
    OP_SCHEDULE_FLOW,
    OP_SCHEDULE_TRACE,
    OP_SEND,
    OP_TIMER,
    PRIORITIES,
    STATUS_DONE,
    STATUS_PAUSE,
    STATUS_TRACE_FULL,
)
from .native import (
    copy,
    draw,
    event_at,
    flow_at,
    host_at,
    load,
    meta_at,
    native,
    port_at,
    queue_at,
    store,
    switch_at,
    trace_at,
    world_at,
)
from .packets import allocate, data_of, dequeue, enqueue, mark_ready, next_priority

_PENDING: Final = 4
"""Packets that leave a switch which is alone before they are given back: few enough to be in a core's cache."""


@native
def may_go_on(world: Any) -> Any:
    """Return True if there is memory for one more step; called before each."""
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
            packet = dequeue(world, port, index, next_priority(world, port, index))
            if port.kind != NODE_SWITCH or depart(world, port, index, packet):
                transmit(world, port, packet)
        if port.backlog != 0 and port.wakeup == 0:
            port.wakeup = 1
            push(world, port.busy_until, EVENT_PORT, index, NONE)
        port.ready = 0
        world.ready_head += 1
        if world.ready_head == world.ready_capacity:
            world.ready_head = 0
        world.ready_count -= 1
    return True


@native
def arrive(world: Any, port_index: Any, packet: Any) -> None:
    """Hand a packet that has arrived at a port to its switch or host, and count it."""
    port = port_at(world.ports, port_index)
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
    flow.sent_packets += 1
    queue = queue_at(world.queues, flow.port * PRIORITIES + flow.priority)
    if queue.depth_packets >= GENERATED_WAITING:
        queue.drops += 1
        queue.dropped_bytes += flow.length
    else:
        packet = allocate(world)
        meta = meta_at(world.meta, packet)
        meta.length = flow.length
        meta.flow = flow_index
        meta.time = world.now
        copy(data_of(world, packet) + HEADROOM, flow.frame, flow.length)
        enqueue(world, flow.port, packet, flow.priority)
    gap = flow.interval_ns
    if flow.jitter > 0.0:
        unit = float(draw(flow.key, flow.draws) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
        gap *= 1.0 + flow.jitter * (2.0 * unit - 1.0)
        flow.draws += 1
    flow.due_ns += gap
    push(world, max(np.int64(flow.due_ns), world.now), EVENT_FLOW, flow_index, NONE)


@native
def sample(world: Any, trace_index: Any) -> None:
    """Append the present depth to a trace, and schedule its next sample."""
    trace = trace_at(world.traces, trace_index)
    depth = port_at(world.ports, trace.port).depth_packets
    if trace.queue >= 0:
        depth = queue_at(world.queues, trace.queue).depth_packets
    store(trace.times, trace.count, world.now)
    store(trace.depths, trace.count, depth)
    trace.count += 1
    push(world, world.now + trace.interval_ns, EVENT_SAMPLE, trace_index, NONE)


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
        world.allowance = ALLOWANCE
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
    """Return a packet from row i of the argument arrays."""
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
        if world.flow >= 0:
            meta = meta_at(world.meta, packet)
            meta.flow = world.flow
            meta.time = world.now
            flow_at(world.flows, world.flow).sent_packets += 1
        enqueue(world, world.port, packet, world.priority)
    return STATUS_DONE


@native
def process(world: Any) -> Any:
    """Run frames through a switch back to back, `repeat` times; keep the frames that leave in the last round only."""
    capture = host_at(world.hosts, world.capture_host)
    switch = switch_at(load(world.switches, 0), 0)
    i = world.done % max(world.count, 1)
    while True:
        if not serve_ready(world) or not may_go_on(world):
            return STATUS_PAUSE
        if world.done >= (world.repeat - 1) * world.count:
            if world.keep == 0:
                discard(world, capture)
                world.keep = 1
        elif capture.pending_packets >= _PENDING:
            discard(world, capture)
        if world.done == world.repeat * world.count:
            return STATUS_DONE
        world.done += 1
        packet = load_frame(world, i)
        receive(world, switch, load(world.in_ports, i), packet)
        i += 1
        if i == world.count:
            i = 0


@native
def entry(address: Any, operation: Any) -> Any:
    """Run `int64 entry(WORLD *world, int64 operation)`, which returns a status of `emulator.runtime.memory`."""
    world = world_at(address, 0)
    if operation == OP_RUN:
        return run(world)
    if operation == OP_SEND:
        return send(world)
    if operation == OP_DRAIN:
        return drain(world)
    if operation == OP_PROCESS:
        return process(world)
    if world.heap_count >= world.heap_capacity:  # each operation below pushes one event
        return STATUS_PAUSE
    if operation == OP_TIMER:
        set_timer(world, world.host, world.at)
    elif operation == OP_SCHEDULE_FLOW:
        push(world, world.at, EVENT_FLOW, world.host, NONE)
    elif operation == OP_SCHEDULE_TRACE:
        push(world, world.at, EVENT_SAMPLE, world.host, NONE)
    return STATUS_DONE
