"""Links: serialisation, faults and flight of a frame (native code)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .events import push
from .hosts import keep_frame
from .memory import EVENT_ARRIVAL
from .native import copy, draw, fold, fold_bytes, host_at, load_byte, measure, meta_at, native, store_byte
from .packets import allocate, data_of, release


@native
def twin_frame(world: Any, packet: Any) -> Any:
    """Return a copy of a frame on the wire."""
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
def transmission_ns(world: Any, port: Any, size: Any) -> Any:
    """Return the time until a frame of `size` bytes has left `port`, rounded up to a nanosecond of the clock.

    The fraction that is rounded off is kept, as an integer in units of 1/rate_bps ns. A frame that follows the last one
    without a pause starts that much earlier than the clock says, so a busy link carries its exact rate.
    """
    needed = (size + port.overhead_bytes) * 8 * 1_000_000_000
    if world.now == port.busy_until:
        needed -= port.early
    rounded = (needed + port.rate_bps - 1) // port.rate_bps
    port.early = rounded * port.rate_bps - needed
    return rounded


@native
def transmit(world: Any, port: Any, packet: Any) -> None:
    """Serialise a frame onto the link of `port`: take the time, apply the link's faults, schedule the arrival.

    A frame beyond the link's MTU is dropped and counted before any of that, as by an interface's driver.
    Draws are a function of the direction's key and the count of frames sent in it, so no other traffic shifts them.
    """
    meta = meta_at(world.meta, packet)
    size = meta.length
    if port.longest > 0 and size > port.longest:
        port.oversized_packets += 1
        release(world, packet)
        return
    done = world.now
    if port.rate_bps > 0:
        done += transmission_ns(world, port, size)
    port.busy_until = done
    port.tx_packets += 1
    port.tx_bytes += size
    if meta.flow >= 0:
        port.flow_bytes += size
    data = data_of(world, packet)
    if world.meter != 0:
        metered = measure(world.meter, data + meta.start, size, world.meter_argument)
        if metered > 0:
            port.metered_packets += 1
            port.metered_bytes += metered
    if world.capture_host < 0:  # else the switch is alone, in no fabric whose digest this were
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
