"""Transmission from a port's queues to its network interface, in batches of one system call (native code)."""

from __future__ import annotations

from typing import Any, Final

from ..runtime.events import push
from ..runtime.manager import depart
from ..runtime.memory import ALLOWANCE, EVENT_PORT, NONE
from ..runtime.native import highest_bit, load, meta_at, native, port_at, store, switch_at
from ..runtime.packets import data_of, dequeue, mark_ready, release
from .batch import flush
from .calls import copy_apart, load_shared, nic_at, store_shared
from .memory import BATCH, MAILBOX_SLOTS, SHARED_IN_HEAD, SHARED_IN_TAIL, SLOT_HEADER
from .reasons import SENT
from .trace import note, note_pass

_CATCH_UP_NS: Final = 10_000_000
"""A port that was served late makes up for at most this."""
_DEPARTURES: Final = 1024
"""Packets that ports send before the loop looks elsewhere, whatever a program clones."""
_QUANTUM: Final = 32
"""Packets that a port sends before it is the next one's turn."""


@native
def flush_all(loop: Any, world: Any) -> None:
    """Send what all interfaces hold, and let the ports of those that were blocked go on."""
    for i in range(loop.nic_count):
        nic = nic_at(loop.nics, i)
        if nic.held > 0:
            was_blocked = nic.blocked
            flush(loop, world, nic)
            port = port_at(world.ports, nic.port)
            if was_blocked != 0 and nic.blocked == 0 and port.backlog != 0:
                mark_ready(world, port, nic.port)


@native
def to_controller(loop: Any, world: Any, port: Any, packet: Any) -> None:
    """Put a frame of the CPU port into the mailbox that Python empties, or drop it when that is full."""
    meta = meta_at(world.meta, packet)
    head = load_shared(loop.shared, SHARED_IN_HEAD)
    if head - load_shared(loop.shared, SHARED_IN_TAIL) >= MAILBOX_SLOTS:
        loop.packet_in_drops += 1
        port.lost_packets += 1
    else:
        slot = loop.packet_ins + head % MAILBOX_SLOTS * loop.slot_bytes
        store(slot, 0, meta.length)
        store(slot, 1, world.now)
        copy_apart(slot + SLOT_HEADER, data_of(world, packet) + meta.start, meta.length)
        store_shared(loop.shared, SHARED_IN_HEAD, head + 1)
        loop.told = 1
        port.tx_packets += 1
        port.tx_bytes += meta.length
    release(world, packet)


@native
def occupy(world: Any, port: Any, nic: Any, size: Any) -> None:
    """Make the transmitter busy for a frame of `size` bytes, for the time that the port's rate gives.

    A frame that had to wait begins when the one before it ended, however late the loop is: so the rate holds.
    """
    begin = world.now
    if nic.continuing != 0:
        begin = max(port.busy_until, world.now - _CATCH_UP_NS)
    bits = (size + port.overhead_bytes) * 8
    port.busy_until = begin + (bits * 1_000_000_000 + port.rate_bps - 1) // port.rate_bps


@native
def serve_ports(loop: Any, world: Any) -> None:
    """Let every port send that has packets, an idle transmitter and an interface that takes more."""
    budget = _DEPARTURES
    world.allowance = ALLOWANCE
    while world.ready_count > 0:
        index = load(world.ready, world.ready_head)
        port = port_at(world.ports, index)
        nic_index = load(loop.nic_of, index)
        nic = nic_at(loop.nics, max(nic_index, 0))
        quantum = _QUANTUM
        while quantum > 0 and port.backlog != 0 and world.now >= port.busy_until:
            if budget == 0 or world.free_count < world.packet_reserve:
                return
            if nic_index >= 0:
                if nic.held == BATCH:
                    flush(loop, world, nic)
                if nic.blocked != 0:
                    break
            budget -= 1
            quantum -= 1
            packet = dequeue(world, port, index, highest_bit(port.backlog))
            leaves = depart(world, port, index, packet)
            if loop.trace != 0:
                note_pass(loop, world, switch_at(loop.switch, 0))
                if leaves:
                    note(loop, world, SENT, port.number, meta_at(world.meta, packet).length)
            if leaves:
                if index == loop.cpu_port:
                    to_controller(loop, world, port, packet)
                elif nic_index < 0:
                    port.lost_packets += 1
                    release(world, packet)
                else:
                    if port.rate_bps > 0:
                        occupy(world, port, nic, meta_at(world.meta, packet).length)
                    store(nic.packets, nic.held, packet)
                    nic.held += 1
            if nic_index >= 0:
                nic.continuing = port.backlog
        if port.backlog != 0 and world.now < port.busy_until and port.wakeup == 0:
            port.wakeup = 1
            push(world, port.busy_until, EVENT_PORT, index, NONE)
        world.ready_head = (world.ready_head + 1) % world.ready_capacity
        if quantum == 0:
            store(world.ready, (world.ready_head + world.ready_count - 1) % world.ready_capacity, index)
        else:
            port.ready = 0
            world.ready_count -= 1
