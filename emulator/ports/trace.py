"""Packet events for the log: native code notes them while tracing is on, Python formats them.

A note is `TRACE_WORDS` words in a ring in shared memory: time, event, and two numbers; in a note of the program the
first number is the address of its words, and it is followed by them. Notes that find the ring full are counted and
lost.
"""

from __future__ import annotations

from typing import Any

from ..compiler.steps import STEP_WORDS
from ..runtime.native import load, native, store
from .calls import copy_apart, load_shared, store_shared
from .memory import NOTE_WORDS, SHARED_LOG_HEAD, SHARED_LOG_TAIL, TRACE_NOTES, TRACE_WORDS
from .reasons import DROPPED, STEPPED


@native
def note(loop: Any, world: Any, what: Any, first: Any, second: Any) -> None:
    """Put down what happened. To be called while `LOOP.trace` is set."""
    head = load_shared(loop.shared, SHARED_LOG_HEAD)
    if head - load_shared(loop.shared, SHARED_LOG_TAIL) >= TRACE_NOTES:
        loop.trace_lost += 1
        return
    at = loop.trace + head % TRACE_NOTES * (8 * TRACE_WORDS)
    store(at, 0, world.now)
    store(at, 1, what)
    store(at, 2, first)
    store(at, 3, second)
    if what == STEPPED:
        copy_apart(at + 8 * NOTE_WORDS, first + 8 + second * (8 * STEP_WORDS), 8 * STEP_WORDS)
    store_shared(loop.shared, SHARED_LOG_HEAD, head + 1)
    loop.told = 1


@native
def note_pass(loop: Any, world: Any, switch: Any) -> None:
    """Copy the program's notes of the pass that has just ended, and note the switch's drops since."""
    if switch.steps != 0:
        count = load(switch.steps, 0)
        for i in range(count):
            note(loop, world, STEPPED, switch.steps, i)
        store(switch.steps, 0, 0)
    note_drops(loop, world, switch)


@native
def note_change(loop: Any, world: Any, reason: Any, count: Any) -> None:
    """Put down by how much a counter of drops has grown since the last time."""
    grown = count - load(loop.trace_seen, reason)
    if grown != 0:
        store(loop.trace_seen, reason, count)
        note(loop, world, DROPPED, reason, grown)


@native
def note_drops(loop: Any, world: Any, switch: Any) -> None:
    """Put down what the switch has dropped since the last time."""
    note_change(loop, world, 0, switch.ingress_drops)
    note_change(loop, world, 1, switch.egress_drops)
    note_change(loop, world, 2, switch.queue_full)
    note_change(loop, world, 3, switch.no_program)
    note_change(loop, world, 4, switch.no_port)
    note_change(loop, world, 5, switch.no_group)
    note_change(loop, world, 6, switch.no_session)
    note_change(loop, world, 7, switch.oversize)
    note_change(loop, world, 8, switch.too_many_passes)
    note_change(loop, world, 9, switch.clones_refused)
