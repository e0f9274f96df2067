"""The packet loop of a switch on network interfaces (native code). Python calls `entry` alone.

One turn: ports whose time has come, packet-outs, a batch from every interface, then the batches that have gathered for
sending. Without work the loop sleeps in `ppoll` until a frame, a port's time, or Python wakes it. It comes back to
Python only when asked to, or when the pool runs short.
"""

from __future__ import annotations

from typing import Any, Final

from ..abi import HEADROOM
from ..runtime.events import pop
from ..runtime.manager import receive
from ..runtime.memory import STATUS_DONE, STATUS_PAUSE
from ..runtime.native import event_at, load, meta_at, native, port_at, store, switch_at, world_at
from ..runtime.packets import allocate, data_of, mark_ready
from .calls import copy_apart, invoke, load_shared, load_u16, loop_at, nic_at, read_clock, store_shared
from .memory import BATCH, MAILBOX_SLOTS, SHARED_INTERRUPT, SHARED_OUT_HEAD, SHARED_OUT_TAIL, SLOT_HEADER
from .reasons import RECEIVED
from .receive import receive_batch
from .trace import note, note_pass
from .transmit import flush_all, serve_ports

_POLL_IN: Final = 1
_POLL_OUT: Final = 4
_POLL_ERROR: Final = 8
_SOL_SOCKET: Final = 1
_SO_ERROR: Final = 4


@native
def wake_ports(world: Any) -> None:
    """Let ports send again whose transmitters have become idle."""
    while world.heap_count > 0 and event_at(world.heap, 0).time <= world.now:
        index = event_at(world.heap, 0).subject
        pop(world)
        port = port_at(world.ports, index)
        port.wakeup = 0
        mark_ready(world, port, index)


@native
def inject_packet_outs(loop: Any, world: Any) -> Any:
    """Inject up to BATCH frames of the controller at the CPU port; return their number."""
    tail = load_shared(loop.shared, SHARED_OUT_TAIL)
    count = min(load_shared(loop.shared, SHARED_OUT_HEAD) - tail, BATCH)
    port = port_at(world.ports, loop.cpu_port)
    for done in range(count):
        if world.free_count < world.packet_reserve:
            return done
        slot = loop.packet_outs + (tail + done) % MAILBOX_SLOTS * loop.slot_bytes
        length = load(slot, 0)
        packet = allocate(world)
        meta_at(world.meta, packet).length = length
        copy_apart(data_of(world, packet) + HEADROOM, slot + SLOT_HEADER, length)
        store_shared(loop.shared, SHARED_OUT_TAIL, tail + done + 1)
        port.rx_packets += 1
        port.rx_bytes += length
        if loop.trace != 0:
            note(loop, world, RECEIVED, port.number, length)
        receive(world, switch_at(loop.switch, 0), port.number, packet)
        if loop.trace != 0:
            note_pass(loop, world, switch_at(loop.switch, 0))
        serve_ports(loop, world)
    return count


@native
def sleep(loop: Any, world: Any) -> None:
    """Wait for a frame, for room to send, for the next port's time or for Python; clear what woke us."""
    for i in range(loop.nic_count):
        nic = nic_at(loop.nics, i)
        sending = -1 & 0xFFFFFFFF
        if nic.blocked != 0:
            sending = nic.send_fd | _POLL_OUT << 32
        store(loop.polls, 2 * i + 2, sending)
    timeout = 0
    if world.heap_count > 0:
        timeout = loop.scratch + 16
        wait = max(event_at(world.heap, 0).time - world.now, 0)
        store(timeout, 0, wait // 1_000_000_000)
        store(timeout, 1, wait % 1_000_000_000)
    loop.sleeps += 1
    if invoke(loop.ppoll, loop.polls, 1 + 2 * loop.nic_count, timeout, 0, 0) <= 0:
        return
    if load_u16(loop.polls + 6) != 0:
        invoke(loop.read, loop.wake_fd, loop.scratch + 32, 8, 0, 0)
    for i in range(loop.nic_count):
        if load_u16(loop.polls + 8 * (2 * i + 1) + 6) & _POLL_ERROR != 0:
            # The interface went down, or is gone. Asking clears the error; when it comes up again, so do its frames.
            nic = nic_at(loop.nics, i)
            nic.outages += 1
            store(loop.scratch, 6, 4)
            invoke(loop.getsockopt, nic.receive_fd, _SOL_SOCKET, _SO_ERROR, loop.scratch + 40, loop.scratch + 48)


@native
def serve(loop: Any, world: Any) -> Any:
    """Move packets until Python interrupts, or until the pool needs to grow."""
    while load_shared(loop.shared, SHARED_INTERRUPT) == 0:
        if world.free_count < world.packet_reserve:
            return STATUS_PAUSE
        loop.turns += 1
        world.now = read_clock(loop)
        wake_ports(world)
        serve_ports(loop, world)
        work = inject_packet_outs(loop, world)
        for i in range(loop.nic_count):
            nic = nic_at(loop.nics, i)
            work += receive_batch(loop, world, nic)
        flush_all(loop, world)
        if loop.told != 0:
            loop.told = 0
            store(loop.scratch, 7, 1)
            invoke(loop.write, loop.told_fd, loop.scratch + 56, 8, 0, 0)
        if work == 0 and world.ready_count == 0:
            sleep(loop, world)
    return STATUS_DONE


@native
def entry(address: Any, operation: Any) -> Any:
    """Run `int64 entry(WORLD *world, int64 operation)`: serve, for there is one operation; `WORLD.at` is the LOOP
    record.

    Returns a status of `emulator.runtime.memory`.
    """
    world = world_at(address, 0)
    return serve(loop_at(world.at, 0), world)
