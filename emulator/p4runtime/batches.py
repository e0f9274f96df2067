"""Batches of updates, as `WriteRequest.atomicity` has them (specification, "Batch Atomicity"), and answers in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from finsy.proto import p4r

from ..entries import EmulatorError
from .history import stages, undo
from .pipeline import LoadedPipeline
from .refusal import Code, Refusal, refusal_of, unimplemented

Outcomes = list[Refusal | None]
"""Refusal per update; None for an update that succeeded."""
Guard = Callable[[p4r.Update], None]
"""Check that raises `Refusal` for an update that the client's role may not write."""


def write_each(pipeline: LoadedPipeline, updates: Iterable[p4r.Update], guard: Guard) -> Outcomes:
    """Apply what can be applied: CONTINUE_ON_ERROR."""
    refusals: Outcomes = []
    write = pipeline.write
    with pipeline.held():
        for update in updates:
            try:
                guard(update)
                write(update)
            except EmulatorError as error:
                refusals.append(refusal_of(error))
            else:
                refusals.append(None)
    return refusals


def write_all_or_none(pipeline: LoadedPipeline, updates: Sequence[p4r.Update], guard: Guard) -> Outcomes:
    """Apply all, or undo those before the first that fails; the others are then ABORTED (ROLLBACK_ON_ERROR)."""
    back: list[Callable[[], None]] = []
    with pipeline.held():
        for number, update in enumerate(updates):
            try:
                guard(update)
                take_back = undo(pipeline, update)
                pipeline.write(update)
            except EmulatorError as error:
                for step in reversed(back):
                    step()
                aborted = Refusal(Code.ABORTED, f"update {number} of the batch failed: {error}")
                return [refusal_of(error) if other == number else aborted for other in range(len(updates))]
            back.append(take_back)
    return [None] * len(updates)


def write_at_once(pipeline: LoadedPipeline, updates: Sequence[p4r.Update], guard: Guard) -> Outcomes:
    """Apply all or none, with no packet in between: DATAPLANE_ATOMIC.

    A packet that waits in a queue has been through ingress and not through egress. So a batch that changes what both
    match would be seen in halves by it: that one is UNIMPLEMENTED.
    """
    if {False, True} <= {stage for update in updates for stage in stages(pipeline, update.entity)}:
        raise unimplemented(
            "the batch changes both ingress and egress, and packets that wait in queues are in between: "
            "DATAPLANE_ATOMIC batches change one of them"
        )
    with pipeline.paused():
        return write_all_or_none(pipeline, updates, guard)


def chunks(entities: Iterable[p4r.Entity], max_bytes: int, max_count: int) -> Iterator[p4r.ReadResponse]:
    """Yield entities in messages that every client's receive limit lets through."""
    response, size = p4r.ReadResponse(), 0
    for entity in entities:
        octets = entity.ByteSize()
        if response.entities and (size + octets > max_bytes or len(response.entities) >= max_count):
            yield response
            response, size = p4r.ReadResponse(), 0
        response.entities.append(entity)
        size += octets
    if response.entities:
        yield response
