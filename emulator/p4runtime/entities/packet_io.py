"""Packet-in and packet-out headers, composed and parsed from P4Info's `controller_packet_metadata`.

The header's fields stand in P4Info's order, most significant bit first, each with its own width; the sum is padded to
whole bytes at the end (P4 programs usually name the padding themselves, since bmv2 headers are whole bytes).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from finsy.proto import p4i, p4r

from ...abi import HEADROOM
from .. import bytestring
from ..refusal import invalid


@dataclass(frozen=True, slots=True)
class _Field:
    id: int
    name: str
    width: int


class PacketHeader:
    """One `@controller_header`: `packet_in` or `packet_out`."""

    def __init__(self, info: p4i.ControllerPacketMetadata) -> None:
        self.name = info.preamble.name
        self._fields = tuple(_Field(m.id, m.name, m.bitwidth) for m in info.metadata)
        for field in self._fields:
            if field.width <= 0:
                raise invalid(f"P4Info: {self.name}.{field.name} has bit width {field.width}; it must be positive")
        if len({field.id for field in self._fields}) != len(self._fields):
            raise invalid(f"P4Info: two metadata fields of {self.name} have the same id")
        bits = sum(field.width for field in self._fields)
        self.size_bytes = (bits + 7) // 8
        if self.size_bytes > HEADROOM:
            raise invalid(f"P4Info: {self.name} has {self.size_bytes} bytes; a header has at most {HEADROOM}")
        self._padding_bits = self.size_bytes * 8 - bits

    def compose(self, metadata: Iterable[p4r.PacketMetadata]) -> bytes:
        """Return the header's bytes; every field must be given exactly once. Raises `Refusal`."""
        values: dict[int, bytes] = {}
        for item in metadata:
            if item.metadata_id in values:
                raise invalid(f"{self.name}: metadata id {item.metadata_id} is given twice")
            values[item.metadata_id] = item.value
        header = 0
        for field in self._fields:
            data = values.pop(field.id, None)
            if data is None:
                raise invalid(f"{self.name}: metadata {field.name} (id {field.id}) is missing")
            header = header << field.width | bytestring.decode(data, field.width, f"{self.name}.{field.name}")
        if values:
            raise invalid(f"{self.name}: unknown metadata id {min(values)}; P4Info has {self._known()}")
        return (header << self._padding_bits).to_bytes(self.size_bytes, "big")

    def parse(self, frame: bytes) -> tuple[list[p4r.PacketMetadata], bytes]:
        """Return the metadata and the payload of a frame that starts with this header. Raises `Refusal` when it is
        shorter.
        """
        if len(frame) < self.size_bytes:
            raise invalid(f"{self.name}: a frame of {len(frame)} bytes is shorter than the header of {self.size_bytes}")
        header = int.from_bytes(frame[: self.size_bytes], "big") >> self._padding_bits
        metadata = []
        for field in reversed(self._fields):
            value = header & ((1 << field.width) - 1)
            header >>= field.width
            metadata.append(p4r.PacketMetadata(metadata_id=field.id, value=bytestring.encode(value)))
        metadata.reverse()
        return metadata, frame[self.size_bytes :]

    def _known(self) -> str:
        return ", ".join(f"{field.id} ({field.name})" for field in self._fields) or "none"
