"""Digests: records requested by `generate_digest`, written at the end of ingress into a ring that Python empties."""

from __future__ import annotations

from ..bmv2.document import Digest
from .frame import I64, Frame, const, fit
from .layout import DIGEST_HEAD_BYTES, DIGEST_SLOTS, digest_places, digest_slot_bytes


def emit_digests(frame: Frame) -> None:
    """Append the record that the packet's last `generate_digest` names, with the fields as they are now."""
    if not frame.document.digests:
        return
    builder, after = frame.builder, frame.block("digests.done")
    switch = builder.switch(frame.load_packet("digest"), after)
    for digest in frame.document.digests.values():
        block = frame.block(f"digest.{digest.name}")
        switch.add_case(const(32, digest.id), block)
        builder.position_at_end(block)
        _append(frame, digest)
        builder.branch(after)
    builder.position_at_end(after)


def _append(frame: Frame, digest: Digest) -> None:
    builder, document = frame.builder, frame.document
    ring = frame.at(frame.state, frame.layout.digest_offset[digest.id])
    lost_at = frame.at(ring, 16)
    head = builder.load(ring, typ=I64)
    tail = builder.load_atomic(frame.at(ring, 8), "acquire", 8, typ=I64)
    room, full, done = frame.block("digest.room"), frame.block("digest.full"), frame.block("digest.done")
    builder.cbranch(builder.icmp_unsigned("<", builder.sub(head, tail), const(64, DIGEST_SLOTS)), room, full)
    builder.position_at_end(full)
    builder.store(builder.add(builder.load(lost_at, typ=I64), const(64, 1)), lost_at)
    builder.branch(done)
    builder.position_at_end(room)
    number = builder.and_(head, const(64, DIGEST_SLOTS - 1))
    offset = builder.mul(number, const(64, digest_slot_bytes(digest, document)))
    slot = frame.at(frame.at(ring, DIGEST_HEAD_BYTES), offset)
    for field, (place, width) in zip(digest.fields, digest_places(digest, document), strict=True):
        builder.store(fit(builder, frame.load(field), (width + 63) // 64 * 64), frame.at(slot, place), align=8)
    builder.fence("release")
    builder.store(builder.add(head, const(64, 1)), ring)
    builder.branch(done)
    builder.position_at_end(done)
