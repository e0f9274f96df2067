"""The event loop on the wall clock (native code). Python calls `entry` alone.

One turn::

    clock ─▶ events until now ─▶ frames that processes have written ─▶ their first hop ─▶ bells of processes with frames

Without work the loop sleeps until the next event, until a process has written or until Python wakes it. It comes back
to Python if frames wait at a CPU port, if memory runs short, or if it is asked to.
"""

from __future__ import annotations

from typing import Any, Final

from ..abi import HEADROOM
from ..ports.calls import copy_apart, invoke, load_shared, read_clock, store_shared
from ..runtime.loop import entry as run_operation
from ..runtime.loop import may_go_on, run
from ..runtime.memory import STATUS_DONE, STATUS_PAUSE
from ..runtime.native import event_at, load, meta_at, native, store, tap_at, view, world_at
from ..runtime.packets import allocate, data_of, enqueue
from .memory import (
    LIVE,
    OP_LIVE,
    SHARED_ATTENTION,
    SHARED_INTERRUPT,
    TAP_IN_HEAD,
    TAP_IN_TAIL,
    TAP_OUT_HEAD,
    TAP_OUT_TAIL,
)

_POLL_IN: Final = 1
_SECOND_NS: Final = 1_000_000_000

live_at = view(LIVE)


@native
def poll_taps(world: Any) -> None:
    """Learn which rows processes have given back."""
    for i in range(world.tap_count):
        tap = tap_at(world.taps, i)
        if tap.open != 0:
            tap.out_tail = max(load_shared(tap.shared, TAP_OUT_TAIL), tap.out_head - tap.rows)


@native
def pull(world: Any) -> Any:
    """Put the frames that processes have written into their hosts' NICs. Returns how many; −1: pause first."""
    pulled = 0
    for i in range(world.tap_count):
        tap = tap_at(world.taps, i)
        if tap.open == 0:
            continue
        head = load_shared(tap.shared, TAP_IN_HEAD)
        tap.in_tail = min(max(tap.in_tail, head - tap.rows), head)
        while tap.in_tail < head:
            if not may_go_on(world):
                return -1
            row = tap.inbound + (tap.in_tail & (tap.rows - 1)) * tap.row_bytes
            length = load(row, 0)
            tap.in_tail += 1
            if length > 0 and length <= world.max_frame and tap.frame_at + length <= tap.row_bytes:
                packet = allocate(world)
                meta_at(world.meta, packet).length = length
                copy_apart(data_of(world, packet) + HEADROOM, row + tap.frame_at, length)
                enqueue(world, tap.port, packet, tap.priority)
                pulled += 1
        store_shared(tap.shared, TAP_IN_TAIL, tap.in_tail)
    return pulled


@native
def ring_bells(live: Any, world: Any) -> None:
    """Wake the processes for which frames have arrived."""
    for i in range(world.tap_count):
        tap = tap_at(world.taps, i)
        if tap.open != 0 and tap.out_head != tap.told:
            tap.told = tap.out_head
            store_shared(tap.shared, TAP_OUT_HEAD, tap.out_head)
            store(live.scratch, 4, 1)
            invoke(live.write, tap.bell, live.scratch + 32, 8, 0, 0)


@native
def sleep(live: Any, world: Any) -> None:
    """Wait for the next event, for a process or for Python; clear what woke us."""
    timeout = 0
    if world.heap_count > 0:
        left = event_at(world.heap, 0).time - (read_clock(live) - live.origin_ns)
        if left <= 0:
            return
        left = max(left, live.turn_ns)
        timeout = live.scratch + 16
        store(timeout, 0, left // _SECOND_NS)
        store(timeout, 1, left % _SECOND_NS)
    live.sleeps += 1
    store(live.scratch, 5, live.wake_fd | _POLL_IN << 32)
    if invoke(live.ppoll, live.scratch + 40, 1, timeout, 0, 0) > 0:
        invoke(live.read, live.wake_fd, live.scratch + 48, 8, 0, 0)


@native
def serve(live: Any, world: Any) -> Any:
    """Keep the fabric's time with the clock until Python is needed."""
    while load_shared(live.shared, SHARED_INTERRUPT) == 0 and load_shared(live.shared, SHARED_ATTENTION) == 0:
        live.turns += 1
        now = read_clock(live) - live.origin_ns
        if world.heap_count > 0:
            overdue = now - event_at(world.heap, 0).time - live.late_ns
            if overdue > 0:
                live.origin_ns += overdue
                live.behind_ns += overdue
                now -= overdue
        world.until = max(now, world.now)
        poll_taps(world)
        status = run(world)
        pulled = 0
        if status == STATUS_DONE:
            pulled = pull(world)
            if pulled > 0:
                status = run(world)
            elif pulled < 0:
                status = STATUS_PAUSE
        ring_bells(live, world)
        if status != STATUS_DONE:
            return status
        if pulled == 0:
            sleep(live, world)
    return STATUS_DONE


@native
def entry(address: Any, operation: Any) -> Any:
    """Run `int64 entry(WORLD *world, int64 operation)`: all operations of `emulator.runtime.loop`, and OP_LIVE, for
    which `WORLD.at` is the LIVE record.

    Returns a status of `emulator.runtime.memory`.
    """
    if operation == OP_LIVE:
        world = world_at(address, 0)
        return serve(live_at(world.at, 0), world)
    return run_operation(address, operation)
