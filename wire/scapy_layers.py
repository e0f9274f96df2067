"""The aggregation header, the transport's, INT 2.1 and telemetry reports 2.0 as scapy layers, for people who debug.

`import weir.wire.scapy_layers` binds them to their UDP destination ports, so that `Ether(frame).show()` prints a frame
in full. INT that is marked by DSCP or by a probe marker has no port: `IntShim(bytes(packet[TCP].payload))`, or
`ProbeMarker(…)`, takes it apart. Programs use the batch codecs of `wire.aggregation`, `wire.int_md` and
`wire.int_report`.
"""

from __future__ import annotations

from scapy.fields import (
    AnyField,
    BitEnumField,
    BitField,
    ByteField,
    ConditionalField,
    FieldListField,
    FlagsField,
    IntField,
    PacketListField,
    ShortField,
    SignedIntField,
    StrLenField,
    XBitField,
    XIntField,
    XLongField,
    XShortField,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import NoPayload, Packet, Raw, bind_layers
from scapy.utils import checksum

from .aggregation import (
    AGGREGATION_PORT,
    EXPONENT_BIAS,
    FIRST_GENERATION,
    HEADER_BYTES,
    LANES,
    TYPES_WITH_LANES,
    VERSION,
    MessageFlag,
    MessageType,
)
from .fields import BY_NAME, PARTS, REDUCED
from .int_md import (
    DOMAIN,
    INT_PORT,
    INT_VERSION,
    MD_WORDS,
    PROBE_INSTRUCTIONS,
    PROBE_PORT,
    DomainInstruction,
    hop_words,
)
from .int_report import (
    INT_MAIN_BYTES,
    ITEMS,
    REPORT_PORT,
    REPORT_VERSION,
    SEQUENCE_BITS,
    TO_THE_END,
    InnerType,
    ReportType,
)
from .int_shim import PROBE_MARKER, NextProtocol, ShimType
from .transport import FIELDS as TRANSPORT_FIELDS
from .transport import TRANSPORT_PORT, PacketFlag, PacketType
from .transport import VERSION as TRANSPORT_VERSION

_CHECKSUM_AT = BY_NAME["checksum"].offset
_DEFAULTS = {
    "version": VERSION,
    "type": MessageType.CONTRIBUTION,
    "job": 1,
    "generation": FIRST_GENERATION,
    "contributors": 1,
    "exponent": EXPONENT_BIAS,
    "checksum": None,
    "weight": 1,
    **{field.name: field.neutral for field in REDUCED if field.neutral},
}
"""Default values of a packet's fields that are not 0."""
_IN_HEXADECIMAL = ("contributors", "checksum", "check")


def _field(name: str, bits: int) -> AnyField:
    """A part of the aggregation header, shown as people read it."""
    default = _DEFAULTS.get(name, 0)
    if name == "type":
        return BitEnumField(name, default, bits, {kind.value: kind.name for kind in MessageType})
    if name == "flags":
        return FlagsField(name, default, bits, [flag.name.lower() for flag in MessageFlag if flag.name])
    return (XBitField if name in _IN_HEXADECIMAL else BitField)(name, default, bits)


class Aggregation(Packet):
    """One aggregation message; the header checksum is filled in when left out."""

    name = "Aggregation"
    fields_desc = [  # noqa: RUF012 - scapy's way to declare fields
        *(_field(name, bits) for name, bits in PARTS),
        ConditionalField(
            FieldListField(
                "lanes", [0] * LANES, SignedIntField("lane", 0), count_from=lambda _: LANES, max_count=LANES
            ),
            lambda packet: packet.type in TYPES_WITH_LANES,
        ),
    ]

    def post_build(self, header: bytes, payload: bytes) -> bytes:
        """Fill in the header checksum if it was left out; scapy calls this."""
        if self.checksum is None:
            value = checksum(header[:HEADER_BYTES])
            header = header[:_CHECKSUM_AT] + value.to_bytes(2, "big") + header[_CHECKSUM_AT + 2 :]
        return header + payload


_TRANSPORT_DEFAULTS = {"version": TRANSPORT_VERSION, "type": PacketType.DATA, "job": 1, "epoch": 1}


def _transport_field(name: str, bits: int) -> AnyField:
    """A part of the transport's header, shown as people read it."""
    default = _TRANSPORT_DEFAULTS.get(name, 0)
    if name == "type":
        return BitEnumField(name, default, bits, {kind.value: kind.name for kind in PacketType})
    if name == "flags":
        return FlagsField(name, default, bits, [flag.name.lower() for flag in PacketFlag if flag.name])
    return (XBitField if name == "check" else BitField)(name, default, bits)


class Transport(Packet):
    """One packet between two hosts; its check is only right where it is given."""

    name = "Transport"
    fields_desc = [  # noqa: RUF012
        _transport_field(name, bits)
        for field in TRANSPORT_FIELDS
        for name, bits in field.parts or ((field.name, field.bits),)
    ]


class ProbeMarker(Packet):
    """The 64 bits in front of the shim, in fabrics that mark INT so."""

    name = "INT probe marker"
    fields_desc = [XLongField("marker", PROBE_MARKER)]  # noqa: RUF012


class IntShim(Packet):
    """INT shim over UDP or TCP; `original` is a port, a protocol or a DSCP, by the next protocol type."""

    name = "INT shim"
    fields_desc = [  # noqa: RUF012
        BitEnumField("type", ShimType.MD, 4, {kind.value: kind.name for kind in ShimType}),
        BitEnumField("npt", NextProtocol.UDP_PORT, 2, {kind.value: kind.name for kind in NextProtocol}),
        BitField("reserved", 0, 2),
        ByteField("length", MD_WORDS),
        ShortField("original_port", PROBE_PORT),
    ]


class IntMd(Packet):
    """INT-MD 2.1 header and its stack of 32-bit words, newest hop first."""

    name = "INT-MD"
    fields_desc = [  # noqa: RUF012
        BitField("version", INT_VERSION, 4),
        BitField("discard", 0, 1),
        BitField("hop_limit_exceeded", 0, 1),
        BitField("mtu_exceeded", 0, 1),
        BitField("reserved", 0, 12),
        BitField("hop_words", hop_words(PROBE_INSTRUCTIONS, DomainInstruction.BYTES_SENT), 5),
        ByteField("remaining_hops", 16),
        XBitField("instructions", int(PROBE_INSTRUCTIONS), 16),
        XShortField("domain", DOMAIN),
        XBitField("domain_instructions", int(DomainInstruction.BYTES_SENT), 16),
        XShortField("domain_flags", 0),
        FieldListField(
            "stack", [], XIntField("word", 0), count_from=lambda packet: packet.stack_words(), max_count=0xFF
        ),
    ]

    def stack_words(self) -> int:
        """Return words of the stack, by the shim's length; none without a shim."""
        shim = self.underlayer
        return max(0, shim.length - MD_WORDS) if isinstance(shim, IntShim) else 0


class IntMx(Packet):
    """INT-MX 2.1 header, and the words that the source put behind it."""

    name = "INT-MX"
    fields_desc = [  # noqa: RUF012
        BitField("version", INT_VERSION, 4),
        BitField("discard", 0, 1),
        BitField("reserved", 0, 27),
        XBitField("instructions", int(PROBE_INSTRUCTIONS), 16),
        XShortField("domain", DOMAIN),
        XBitField("domain_instructions", int(DomainInstruction.BYTES_SENT), 16),
        XShortField("domain_flags", 0),
        FieldListField(
            "source_inserted", [], XIntField("word", 0), count_from=lambda packet: packet.source_words(), max_count=0xFF
        ),
    ]

    def source_words(self) -> int:
        """Return words behind the header, by the shim's length; none without a shim."""
        shim = self.underlayer
        return max(0, shim.length - MD_WORDS) if isinstance(shim, IntShim) else 0


class IndividualReport(Packet):
    """One report of a group: metadata as words, and `items()` by name; the inner packet as bytes, and `packet()`."""

    name = "Individual report"
    fields_desc = [  # noqa: RUF012
        BitEnumField("report_type", ReportType.INT, 4, {kind.value: kind.name for kind in ReportType}),
        BitEnumField("inner_type", InnerType.NONE, 4, {kind.value: kind.name for kind in InnerType}),
        ByteField("length", 2),
        ByteField("metadata_length", 0),
        FlagsField("flags", 0, 8, ["R0", "R1", "R2", "R3", "I", "F", "Q", "D"]),
        ConditionalField(XBitField("metadata_bits", 0, 16), lambda packet: packet.report_type == ReportType.INT),
        ConditionalField(XShortField("domain", DOMAIN), lambda packet: packet.report_type == ReportType.INT),
        ConditionalField(XBitField("domain_bits", 0, 16), lambda packet: packet.report_type == ReportType.INT),
        ConditionalField(XShortField("domain_status", 0), lambda packet: packet.report_type == ReportType.INT),
        ConditionalField(
            FieldListField(
                "metadata", [], XIntField("word", 0), count_from=lambda packet: packet.metadata_length, max_count=0xFF
            ),
            lambda packet: packet.report_type == ReportType.INT,
        ),
        StrLenField("inner", b"", length_from=lambda packet: packet.inner_bytes(), max_length=0xFFFF),
    ]

    def inner_bytes(self) -> int:
        """Return the inner packet's length: the rest of the report's length, or all remaining bytes."""
        if self.length == TO_THE_END:
            return 0xFFFF
        fixed = INT_MAIN_BYTES + 4 * self.metadata_length if self.report_type == ReportType.INT else 0
        return max(0, 4 * int(self.length) - fixed)

    def items(self) -> dict[str, int]:
        """Return the metadata by their names in `int_report.ITEMS`; without the domain's where it is not ours."""
        words, found, at = b"".join(int(word).to_bytes(4, "big") for word in self.metadata), {}, 0
        for item in ITEMS:
            if (item.domain and self.domain != DOMAIN) or not item.bit & (
                self.domain_bits if item.domain else self.metadata_bits
            ):
                continue
            for name, bits in item.fields:
                found[name] = int.from_bytes(words[at : at + bits // 8], "big")
                at += bits // 8
        return found

    def packet(self) -> Packet:
        """Return the inner packet as scapy reads it; it may end early."""
        kinds = {InnerType.ETHERNET: Ether, InnerType.IPV4: IP}
        return kinds.get(self.inner_type, Raw)(self.inner) if self.inner else NoPayload()

    def extract_padding(self, rest: bytes) -> tuple[bytes, bytes]:
        """Leave all further bytes to the next report of the group; scapy calls this."""
        return b"", rest


class ReportGroup(Packet):
    """A telemetry report 2.0: the group header and its individual reports."""

    name = "Telemetry report"
    fields_desc = [  # noqa: RUF012
        BitField("version", REPORT_VERSION, 4),
        BitField("hardware_id", 0, 6),
        BitField("sequence", 0, SEQUENCE_BITS),
        IntField("node_id", 0),
        PacketListField("reports", [], IndividualReport, max_count=0xFFFF),
    ]


bind_layers(UDP, Aggregation, dport=AGGREGATION_PORT)
bind_layers(UDP, Transport, dport=TRANSPORT_PORT)
bind_layers(UDP, IntShim, dport=INT_PORT)
bind_layers(UDP, ReportGroup, dport=REPORT_PORT)
bind_layers(ProbeMarker, IntShim)
bind_layers(IntShim, IntMd, type=ShimType.MD)
bind_layers(IntShim, IntMx, type=ShimType.MX)
