"""The aggregation header and INT-MD 2.1 as scapy layers, for people who debug: `import weir.wire.scapy_layers`.

Importing binds them to their UDP destination ports, so that `Ether(frame).show()` prints a frame in full. Programs use
the batch codecs of `wire.aggregation` and `wire.int_md`.
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
    ShortField,
    SignedIntField,
    XBitField,
    XIntField,
    XShortField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_layers
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
    NPT_UDP_PORT,
    PROBE_INSTRUCTIONS,
    PROBE_PORT,
    TYPE_MD,
    DomainInstruction,
    hop_words,
)

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
"""What a packet has in fields that it is not given, where that is not 0."""
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
        if self.checksum is None:
            value = checksum(header[:HEADER_BYTES])
            header = header[:_CHECKSUM_AT] + value.to_bytes(2, "big") + header[_CHECKSUM_AT + 2 :]
        return header + payload


class IntShim(Packet):
    """INT shim over UDP, with the original destination port (NPT 1)."""

    name = "INT shim"
    fields_desc = [  # noqa: RUF012
        BitField("type", TYPE_MD, 4),
        BitField("npt", NPT_UDP_PORT, 2),
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
        """Words of the stack, by the shim's length; none without a shim."""
        shim = self.underlayer
        return max(0, shim.length - MD_WORDS) if isinstance(shim, IntShim) else 0


bind_layers(UDP, Aggregation, dport=AGGREGATION_PORT)
bind_layers(UDP, IntShim, dport=INT_PORT)
bind_layers(IntShim, IntMd, type=TYPE_MD)
