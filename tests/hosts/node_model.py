"""An aggregating switch in plain Python, one packet at a time, as docs/design.md §3.2 has it.

It knows no ports: a sender's address stands for its port as well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wire.aggregation import (
    HEADER,
    HEADER_BYTES,
    MESSAGE,
    MESSAGE_BYTES,
    MessageType,
    chunk_distance,
    generation_distance,
    has_valid_checksum,
    set_checksum,
    split_tag,
    version_type,
)

Packet = tuple[int, bytes]
"""(address, payload): the source of what is received, the destination of what is sent."""

_UP = (MessageType.CONTRIBUTION, MessageType.SCALE)
_DOWN = (MessageType.RESULT, MessageType.SCALE_RESULT)
_RESULT_OF = dict(zip(_UP, _DOWN, strict=True))


@dataclass(frozen=True)
class JobEntry:
    """What `jobs` holds for one (job, generation); no parent: the switch is the root."""

    slot_base: int
    slots: int
    children: dict[int, int]
    """Bit → address."""
    parent: int | None = None
    parent_bit: int = 0


@dataclass
class Slot:
    job: int = 0
    generation: int = 0
    chunk: int = 0
    bits: int = 0
    kind: MessageType = MessageType.SCALE
    header: NDArray[np.void] = field(default_factory=lambda: np.zeros(1, HEADER))
    lanes: NDArray[np.uint32] | None = None


class SwitchModel:
    def __init__(self, address: int, memory_slots: int = 4096) -> None:
        self.address = address
        self.jobs: dict[tuple[int, int], JobEntry] = {}
        self.slots = [Slot() for _ in range(memory_slots)]
        self.drops: Counter[str] = Counter()

    def receive(self, source: int, payload: bytes) -> list[Packet]:
        reason, packets = self._process(source, payload)
        if reason:
            self.drops[reason] += 1
        return packets

    def _process(self, source: int, payload: bytes) -> tuple[str, list[Packet]]:
        if len(payload) not in (HEADER_BYTES, MESSAGE_BYTES):
            return "malformed", []
        header = np.frombuffer(payload[:HEADER_BYTES], HEADER).copy()
        first_byte = int(header["version_type"][0])
        kinds = {version_type(kind): kind for kind in MessageType if kind.size == len(payload)}
        if first_byte not in kinds:
            return "malformed", []
        if not has_valid_checksum(header)[0]:
            return "bad_checksum", []
        kind = kinds[first_byte]
        generation, chunk = split_tag(int(header["tag"][0]))
        entry = self.jobs.get((int(header["job"][0]), generation))
        if kind in _DOWN:
            if entry is None or entry.parent != source:
                return "not_parent", []
            return "", [(address, payload) for address in entry.children.values()]
        if kind not in _UP:
            return "no_service", []
        if entry is None:
            return "unknown_job", []
        bit = int(header["contributors"][0])
        if entry.children.get(bit) != source:
            return "not_member", []
        if header["slot"][0] >= entry.slots:
            return "bad_slot", []
        slot = self.slots[entry.slot_base + int(header["slot"][0])]
        lanes = np.frombuffer(payload[HEADER_BYTES:], ">u4").astype(np.uint32) if kind.has_lanes else None
        age = self._age(slot, int(header["job"][0]), generation, chunk)
        everyone = sum(entry.children)
        if age > 0:
            slot.job, slot.generation, slot.chunk = int(header["job"][0]), generation, chunk
            slot.bits, slot.kind, slot.header, slot.lanes = bit, kind, header, lanes
        elif age < 0:
            return "late", []
        elif slot.bits & bit:
            if slot.bits != everyone:
                return "duplicate", []
            return "", self._emit(slot, entry, everyone, [source])
        else:
            slot.bits |= bit
            self._add(slot, header, lanes)
        if slot.bits == everyone:
            return "", self._emit(slot, entry, everyone, list(entry.children.values()))
        return "", []

    @staticmethod
    def _age(slot: Slot, job: int, generation: int, chunk: int) -> int:
        """Positive: the packet is newer than the slot."""
        if slot.job != job:
            return 1
        return generation_distance(generation, slot.generation) or chunk_distance(chunk, slot.chunk)

    @staticmethod
    def _add(slot: Slot, header: NDArray[np.void], lanes: NDArray[np.uint32] | None) -> None:
        sums = slot.header
        sums["flags"] |= header["flags"]
        sums["window"] = np.minimum(sums["window"], header["window"])
        sums["exponent"] = np.maximum(sums["exponent"], header["exponent"])
        sums["weight"] += header["weight"]
        sums["check"] += header["check"]
        if slot.lanes is not None and lanes is not None:
            slot.lanes = slot.lanes + lanes

    @staticmethod
    def _emit(slot: Slot, entry: JobEntry, everyone: int, asking: list[int]) -> list[Packet]:
        """Up to the parent, or, at a root, down to `asking`."""
        header = slot.header.copy()
        kind = slot.kind
        if entry.parent is None:
            kind = _RESULT_OF[kind]
            header["contributors"] = everyone
        else:
            asking = [entry.parent]
            header["contributors"] = entry.parent_bit
        header["version_type"] = version_type(kind)
        set_checksum(header)
        lanes = b"" if slot.lanes is None else slot.lanes.astype(">u4").tobytes()
        return [(address, header.tobytes() + lanes) for address in asking]


assert MESSAGE.itemsize == MESSAGE_BYTES
