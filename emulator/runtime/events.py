"""Events to come: a 4-ary heap in memory that Python made (native code)."""

from __future__ import annotations

from typing import Any, Final

from .memory import EVENT
from .native import copy, event_at, native

EVENT_BYTES: Final = EVENT.itemsize
HEAP_RESERVE: Final = 16
"""Events that one step (one packet served, or one event) may push at most."""


@native
def before(time: Any, sequence: Any, event: Any) -> Any:
    """True if (time, sequence) comes before an event's: the order of the event queue."""
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
