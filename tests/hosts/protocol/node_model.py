"""An aggregating switch in plain Python, one packet at a time: the state machine of p4src/bmv2/aggregation.p4.

It knows no ports: a sender's address stands for its port as well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from weir.wire.aggregation import (
    HEADER,
    HEADER_BYTES,
    LANES,
    MESSAGE,
    MESSAGE_BYTES,
    MessageFlag,
    MessageType,
    chunk_distance,
    has_valid_checksum,
    present_width,
    set_checksum,
    split_tag,
    version_type,
)
from weir.wire.fields import REDUCED

Packet = tuple[int, bytes]
"""Address and payload: the source of a received packet, the destination of a sent one."""

_UP = (MessageType.CONTRIBUTION, MessageType.SCALE, MessageType.PRESENT)
_DOWN = (MessageType.RESULT, MessageType.SCALE_RESULT, MessageType.DONE)
_RESULT_OF = {
    MessageType.CONTRIBUTION: MessageType.RESULT,
    MessageType.SCALE: MessageType.SCALE_RESULT,
    MessageType.PRESENT: MessageType.RESULT,
}


@dataclass(frozen=True)
class JobEntry:
    """Entry of `jobs` for one (job, generation); without a parent the switch is the root."""

    slot_base: int
    slots: int
    children: dict[int, int]
    """Bit → address."""
    parent: int | None = None
    parent_bit: int = 0


@dataclass
class Slot:
    """A slot's registers. Lanes of a round without lanes are those of an older round."""

    job: int = 0
    generation: int = 0
    chunk: int = 0
    bits: int = 0
    wanting: int = 0
    """Children whose contributions have WANTED."""
    header: NDArray[np.void] = field(default_factory=lambda: np.zeros(1, HEADER))
    """The fields that are reduced; the others stay 0."""
    lanes: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(LANES, np.uint32))


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

    def forget(self) -> None:
        """All registers are empty again, as after a restart; the tables stay."""
        self.slots = [Slot() for _ in self.slots]

    def _process(self, source: int, payload: bytes) -> tuple[str, list[Packet]]:  # noqa: C901
        if len(payload) not in (HEADER_BYTES, MESSAGE_BYTES):
            return "malformed", []
        header = np.frombuffer(payload[:HEADER_BYTES], HEADER).copy()
        if not has_valid_checksum(header)[0]:
            return "bad_checksum", []
        kinds = {version_type(kind): kind for kind in MessageType if kind.size == len(payload)}
        kind = kinds.get(int(header["version_type"][0]))
        if kind is None:
            return "malformed", []
        job = int(header["job"][0])
        generation, chunk = split_tag(int(header["tag"][0]))
        entry = self._entry(job, generation)
        if kind in _DOWN:
            if entry is None or entry.parent != source:
                return "not_parent", []
            wanting = self._wanting_of(entry, header, job, generation, chunk) if kind is MessageType.RESULT else 0
            return "", [
                (address, self._pruned(payload) if kind is MessageType.RESULT and not wanting & bit else payload)
                for bit, address in entry.children.items()
            ]
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
        lanes = None
        if kind.has_lanes:
            lanes = np.frombuffer(payload[HEADER_BYTES:], ">u4").astype(np.uint32)
        elif kind is MessageType.PRESENT:
            if header["reserved"][0] != present_width(LANES):
                return "malformed", []
            lanes = self._zeros()
        age = self._age(slot, job, generation, chunk)
        everyone = sum(entry.children)
        if age < 0:
            return "late", []
        if (slot.job, slot.generation) == (job, generation) and age not in (0, entry.slots):
            return "out_of_window", []
        held = slot.bits if age == 0 else 0
        if self._seen(held, bit):
            if held | bit != everyone:
                return "duplicate", []
            return "", self._emit(slot, entry, kind, header, {source: self._asks_for_lanes(header)})
        if age > 0:
            slot.job, slot.generation, slot.chunk = job, generation, chunk
            slot.header = np.zeros(1, HEADER)
            for reduced in REDUCED:
                slot.header[reduced.name] = header[reduced.name]
            if lanes is not None:
                slot.lanes = lanes
        else:
            self._add(slot, header, lanes)
        wanting = slot.wanting if age == 0 else 0
        slot.bits, slot.wanting = held | bit, wanting | self._wants(header, bit)
        if slot.bits == everyone:
            children = {address: bool(slot.wanting & bit) for bit, address in entry.children.items()}
            return "", self._emit(slot, entry, kind, header, children)
        return "", []

    def _entry(self, job: int, generation: int) -> JobEntry | None:
        return self.jobs.get((job, generation))

    @staticmethod
    def _age(slot: Slot, job: int, generation: int, chunk: int) -> int:
        """Positive: the packet is newer than the slot."""
        if (slot.job, slot.generation) != (job, generation):  # of a job's generations, `jobs` has the present one alone
            return 1
        return chunk_distance(chunk, slot.chunk)

    @staticmethod
    def _wants(header: NDArray[np.void], bit: int) -> int:
        """The child's bit if it wants the round's lanes."""
        return bit if header["flags"][0] & MessageFlag.WANTED else 0

    @classmethod
    def _asks_for_lanes(cls, header: NDArray[np.void]) -> bool:
        """True if the answer to a repeated contribution has lanes."""
        return cls._wants(header, 1) != 0

    def _wanting_of(self, entry: JobEntry, header: NDArray[np.void], job: int, generation: int, chunk: int) -> int:
        """Children that want the lanes of a result: all, if the slot has another round by now."""
        index = int(header["slot"][0])
        if index >= entry.slots:
            return sum(entry.children)
        slot = self.slots[entry.slot_base + index]
        same = (slot.job, slot.generation, slot.chunk) == (job, generation, chunk)
        return slot.wanting if same else sum(entry.children)

    @staticmethod
    def _pruned(payload: bytes) -> bytes:
        """The DONE that stands for a RESULT."""
        header = np.frombuffer(payload[:HEADER_BYTES], HEADER).copy()
        header["version_type"] = version_type(MessageType.DONE)
        set_checksum(header)
        return header.tobytes()

    @staticmethod
    def _zeros() -> NDArray[np.uint32] | None:
        """Lanes that PRESENT adds."""
        return np.zeros(LANES, np.uint32)

    @staticmethod
    def _goes_up_as(slot: Slot, kind: MessageType) -> MessageType:
        """PRESENT stays what it is where all children have sent that."""
        if kind is MessageType.PRESENT and slot.header["flags"][0] & MessageFlag.LANES:
            return MessageType.CONTRIBUTION
        return kind

    @staticmethod
    def _seen(held: int, bit: int) -> bool:
        return held & bit != 0

    @staticmethod
    def _add(slot: Slot, header: NDArray[np.void], lanes: NDArray[np.uint32] | None) -> None:
        sums = slot.header
        for reduced in REDUCED:
            sums[reduced.name] = reduced.ufunc(sums[reduced.name], header[reduced.name])
        if lanes is not None:
            slot.lanes = slot.lanes + lanes

    @classmethod
    def _emit(
        cls, slot: Slot, entry: JobEntry, kind: MessageType, packet: NDArray[np.void], asking: dict[int, bool]
    ) -> list[Packet]:
        """The packet goes on with the slot's sums: up to the parent, or, at a root, down to `asking`, by whether they
        want lanes.
        """
        header = packet.copy()
        for reduced in REDUCED:
            header[reduced.name] = slot.header[reduced.name]
        header["flags"] |= packet["flags"]
        if entry.parent is None:
            kind = _RESULT_OF[kind]
            header["contributors"] = 0
        else:
            kind = cls._goes_up_as(slot, kind)
            asking = {entry.parent: True}
            header["contributors"] = entry.parent_bit
        header["version_type"] = version_type(kind)
        if kind is not MessageType.PRESENT:
            header["reserved"] = 0
        lanes = slot.lanes.astype(">u4").tobytes() if kind.has_lanes else b""
        set_checksum(header)
        payload = header.tobytes() + lanes
        return [
            (address, payload if wants or kind is not MessageType.RESULT else cls._pruned(payload))
            for address, wants in asking.items()
        ]


assert MESSAGE.itemsize == MESSAGE_BYTES
