"""simple_switch's traffic manager: a switch's handling of a packet around its program (native code).

After ingress, in this order: ingress clone, resubmit, multicast, drop, unicast. After egress: egress clone, drop,
recirculate, transmit. Resubmitted and recirculated packets wait in the queue of a dedicated port. Packets to ports that
the switch does not have wait in that of another one: egress runs for them too, and transmission drops them. The
semantics are those of behavioral-model's `docs/simple_switch.md`, "Pseudocode for what happens at the end of ingress
and egress processing".
"""

from __future__ import annotations

from typing import Any

from ..abi import HEADROOM, InstanceType
from .memory import ABSENT, ALLOWANCE, LOOPBACK, NONE, PORT_NUMBERS, PRIORITIES
from .native import call, clear, copy, draw, group_at, load, meta_at, native, packet_at, queue_at, replica_at, switch_at
from .packets import PACKET_BYTES, allocate, data_of, enqueue, record_address, record_of, release

INGRESS_CLONE = InstanceType.INGRESS_CLONE
EGRESS_CLONE = InstanceType.EGRESS_CLONE
REPLICATION = InstanceType.REPLICATION
RESUBMIT = InstanceType.RESUBMIT
RECIRC = InstanceType.RECIRC
NORMAL = InstanceType.NORMAL


@native
def forward(world: Any, switch: Any, number: Any, packet: Any, priority: Any) -> None:
    """Put a packet into the queue of the port with this number, or into that of all absent ports."""
    index = NONE
    if number < PORT_NUMBERS:
        index = load(switch.port_index, number)
    record_of(world, switch, packet).egress_port = number
    if index < 0:
        index = switch.absent
    enqueue(world, index, packet, priority)


@native
def copy_packet(world: Any, switch: Any, packet: Any) -> Any:
    """Return a copy with the same record, headers and payload; bytes covered by headers are only in the PHV."""
    record = record_of(world, switch, packet)
    twin = allocate(world)
    copy(record_address(world, switch, twin), record_address(world, switch, packet), PACKET_BYTES + switch.phv_bytes)
    payload = int(record.payload)
    end = int(record.start) + int(record.length)
    copy(data_of(world, twin) + payload, data_of(world, packet) + payload, end - payload)
    source = meta_at(world.meta, packet)
    target = meta_at(world.meta, twin)
    target.start = source.start
    target.length = source.length
    target.passes = source.passes
    switch.copied_packets += 1
    return twin


@native
def fresh_record(world: Any, switch: Any, packet: Any, length: Any) -> Any:
    """Clear a packet's record: standard metadata as they are when a packet enters the switch."""
    address = record_address(world, switch, packet)
    clear(address, PACKET_BYTES)
    record = packet_at(address, 0)
    record.start = HEADROOM
    record.payload = HEADROOM
    record.length = length
    record.packet_length = length
    record.drop_port = switch.drop_port
    switch.packet_id += 1
    record.random_state = draw(switch.seed, switch.packet_id)
    return record


@native
def preserve(world: Any, switch: Any, source: Any, target: Any, field_list: Any) -> None:
    """Give a new packet no user metadata but the fields of a field list (0: none at all), as they are in another."""
    record = record_of(world, switch, target)
    record.clone_field_list = field_list
    call(switch.preserve, record_address(world, switch, source), record_address(world, switch, target))
    record.clone_field_list = 0


@native
def may_come_of(world: Any, switch: Any, packet: Any) -> Any:
    """Return True if one more packet may be made of this one; the limit ends endless loops of a program."""
    if meta_at(world.meta, packet).passes + 1 >= switch.max_passes or world.allowance <= 0:
        return False
    world.allowance -= 1
    return True


@native
def clone_ingress(world: Any, switch: Any, packet: Any, session: Any, field_list: Any) -> None:
    """Clone the frame as received to every replica of a session.

    The parser runs again, and may read the ingress port; then all standard metadata, the port too, are reset.
    """
    if session >= switch.session_count or group_at(switch.sessions, session).count == 0:
        switch.no_session += 1
        return
    group = group_at(switch.sessions, session)
    length = meta_at(world.meta, packet).length
    ingress_port = record_of(world, switch, packet).ingress_port
    for i in range(group.count):
        if not may_come_of(world, switch, packet):
            switch.clones_refused += group.count - i
            return
        replica = replica_at(switch.replicas, group.first + i)
        clone = allocate(world)
        switch.copied_packets += 1
        meta_at(world.meta, clone).length = length
        meta_at(world.meta, clone).passes = meta_at(world.meta, packet).passes + 1
        copy(data_of(world, clone) + HEADROOM, data_of(world, packet) + HEADROOM, length)
        record = fresh_record(world, switch, clone, length)
        record.ingress_port = ingress_port
        call(switch.reparse, switch.state, record_address(world, switch, clone))
        record.ingress_port = 0
        record.parser_error = 0
        if field_list != 0:
            preserve(world, switch, packet, clone, field_list)
        record.instance_type = INGRESS_CLONE
        record.egress_rid = replica.instance
        record.truncate = group.truncate
        forward(world, switch, replica.port, clone, group.priority)


@native
def clone_egress(world: Any, switch: Any, packet: Any, session: Any, field_list: Any) -> None:
    """Clone a packet as it is at the end of egress, before its checksums are updated, to every replica of a session.

    Metadata of the clones are reset.
    """
    if session >= switch.session_count or group_at(switch.sessions, session).count == 0:
        switch.no_session += 1
        return
    group = group_at(switch.sessions, session)
    original = record_of(world, switch, packet)
    start = original.start
    length = original.length
    payload = original.payload
    packet_length = original.packet_length
    for i in range(group.count):
        if not may_come_of(world, switch, packet):
            switch.clones_refused += group.count - i
            return
        replica = replica_at(switch.replicas, group.first + i)
        clone = copy_packet(world, switch, packet)
        record = fresh_record(world, switch, clone, length)
        record.start = start
        record.payload = payload
        record.packet_length = packet_length
        preserve(world, switch, packet, clone, field_list)
        record.instance_type = EGRESS_CLONE
        record.egress_rid = replica.instance
        record.truncate = group.truncate
        meta = meta_at(world.meta, clone)
        meta.start = start
        meta.length = length
        meta.passes += 1
        forward(world, switch, replica.port, clone, group.priority)


@native
def multicast(world: Any, switch: Any, packet: Any, group_id: Any) -> None:
    """Make one copy for every replica of a group; the last one is the packet itself."""
    if group_id >= switch.group_count or group_at(switch.groups, group_id).count == 0:
        switch.no_group += 1
        release(world, packet)
        return
    group = group_at(switch.groups, group_id)
    record = record_of(world, switch, packet)
    record.instance_type = REPLICATION
    record.truncate = 0  # simple_switch forgets the program's truncate() when it copies
    record.recirculate = 0
    priority = int(record.priority) & (PRIORITIES - 1)
    flow = meta_at(world.meta, packet).flow
    for i in range(group.count):
        replica = replica_at(switch.replicas, group.first + i)
        twin = packet
        if i < group.count - 1:
            twin = copy_packet(world, switch, packet)
            meta_at(world.meta, twin).flow = flow
        record_of(world, switch, twin).egress_rid = replica.instance
        forward(world, switch, replica.port, twin, priority)


@native
def receive(world: Any, switch: Any, port_number: Any, packet: Any) -> None:
    """Run ingress on a frame that enters a switch, and act on its result."""
    meta = meta_at(world.meta, packet)
    if switch.ingress == 0:
        switch.no_program += 1
        release(world, packet)
        return
    if meta.length > world.max_frame:
        switch.oversize += 1
        release(world, packet)
        return
    if meta.start != HEADROOM:
        data = data_of(world, packet)
        copy(data + HEADROOM, data + meta.start, meta.length)
        meta.start = HEADROOM
    meta.passes = 0
    world.allowance = ALLOWANCE
    record = fresh_record(world, switch, packet, meta.length)
    record.ingress_port = port_number
    record.ingress_global_timestamp = (world.now - switch.started_ns) // 1000
    run_ingress(world, switch, packet)


@native
def run_ingress(world: Any, switch: Any, packet: Any) -> None:
    """Run ingress on a packet whose record is ready, and carry out its requests."""
    record = record_of(world, switch, packet)
    record.now = (world.now - switch.started_ns) // 1000
    switch.ingress_packets += 1
    call(switch.ingress, switch.state, record_address(world, switch, packet))
    if record.clone_session != 0:
        clone_ingress(world, switch, packet, int(record.clone_session) - 1, record.clone_field_list)
        record.clone_session = 0
        record.clone_field_list = 0
    if record.resubmit != 0:
        come_again(world, switch, packet, RESUBMIT, record.resubmit, HEADROOM, meta_at(world.meta, packet).length)
    elif record.mcast_grp != 0:
        multicast(world, switch, packet, int(record.mcast_grp))
    elif record.egress_spec == switch.drop_port:
        switch.ingress_drops += 1
        release(world, packet)
    else:
        record.instance_type = NORMAL
        forward(world, switch, int(record.egress_spec), packet, int(record.priority) & (PRIORITIES - 1))


@native
def come_again(
    world: Any, switch: Any, packet: Any, instance_type: Any, field_list: Any, start: Any, length: Any
) -> None:
    """Put a frame of a packet before ingress again; reset metadata except the field list's."""
    if length > world.max_frame:
        switch.oversize += 1
        release(world, packet)
        return
    if not may_come_of(world, switch, packet):
        switch.too_many_passes += 1
        release(world, packet)
        return
    twin = allocate(world)
    copy(data_of(world, twin) + HEADROOM, data_of(world, packet) + start, length)
    source = meta_at(world.meta, packet)
    target = meta_at(world.meta, twin)
    target.length = length
    target.flow = source.flow
    target.time = source.time
    target.passes = source.passes + 1
    record = fresh_record(world, switch, twin, length)
    preserve(world, switch, packet, twin, field_list)
    record.instance_type = instance_type
    record.packet_length = length
    release(world, packet)
    enqueue(world, switch.loopback, twin, 0)


@native
def depart(world: Any, port: Any, port_index: Any, packet: Any) -> Any:
    """Run egress on a packet just taken from a queue of `port`. False: it was dropped and is back in the pool."""
    switch = switch_at(port.node, 0)
    meta = meta_at(world.meta, packet)
    if port.number == LOOPBACK:
        record = record_of(world, switch, packet)
        record.enq_timestamp = 0
        record.enq_qdepth = 0
        run_ingress(world, switch, packet)
        return False
    if switch.egress == 0:
        switch.no_program += 1
        release(world, packet)
        return False
    record = record_of(world, switch, packet)
    now_us = (world.now - switch.started_ns) // 1000
    record.egress_global_timestamp = now_us
    record.now = now_us
    record.deq_timedelta = now_us - int(record.enq_timestamp)
    record.deq_qdepth = queue_at(world.queues, port_index * PRIORITIES + meta.priority).depth_packets
    record.qid = meta.priority
    if port.number == ABSENT:  # absent ports share one queue, whose depth is that of none of them
        record.enq_qdepth = 0
        record.deq_qdepth = 0
    record.egress_spec = (switch.drop_port + 1) % PORT_NUMBERS
    switch.egress_packets += 1
    call(switch.egress, switch.state, record_address(world, switch, packet))
    if record.clone_session != 0:
        clone_egress(world, switch, packet, int(record.clone_session) - 1, record.clone_field_list)
        record.clone_session = 0
        record.clone_field_list = 0
        call(switch.deparse, switch.state, record_address(world, switch, packet))
    if record.egress_spec == switch.drop_port:
        switch.egress_drops += 1
        release(world, packet)
        return False
    length = int(record.length)
    if record.recirculate != 0:  # whole: simple_switch truncates what leaves
        come_again(world, switch, packet, RECIRC, record.recirculate, record.start, length)
        return False
    if port.number == ABSENT:
        switch.no_port += 1
        release(world, packet)
        return False
    if record.truncate != 0 and int(record.truncate) <= length:
        length = int(record.truncate) - 1
    meta.start = record.start
    meta.length = length
    return True
