"""P4Data of the types that a register may hold: `bit<W>`, `int<W>`, `bool`, serialisable enums, and new types of
these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from finsy.proto import p4d, p4t

from .. import bytestring
from ..refusal import invalid

_MAX_DEPTH: Final = 16
"""New types of new types; a P4Info that names a type by itself must not hang the server."""

_Form = Literal["bit", "int", "bool", "enum"]


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One scalar type; the switch holds its values as unsigned integers of `width` bits."""

    form: _Form
    width: int
    label: str
    """The object that holds values of this type, for messages."""

    def decode(self, data: p4d.P4Data) -> int:
        """Return the value of a message. Raises `Refusal`."""
        field = data.WhichOneof("data")
        expected = {"bit": "bitstring", "int": "bitstring", "bool": "bool", "enum": "enum_value"}[self.form]
        if field != expected:
            raise invalid(
                f"{self.label} holds {self.form}<{self.width}>, written as {expected}, not {field or 'nothing'}"
            )
        match self.form:
            case "bit":
                return bytestring.decode(data.bitstring, self.width, self.label)
            case "int":
                return bytestring.decode_signed(data.bitstring, self.width, self.label) & ((1 << self.width) - 1)
            case "bool":
                return int(data.bool)
            case "enum":
                return bytestring.decode(data.enum_value, self.width, self.label)

    def encode(self, value: int, into: p4d.P4Data) -> None:
        """Write the canonical form of a value into a message."""
        match self.form:
            case "bit":
                into.bitstring = bytestring.encode(value)
            case "int":
                signed = value - (1 << self.width) if value >> (self.width - 1) else value
                into.bitstring = bytestring.encode_signed(signed)
            case "bool":
                into.bool = bool(value)
            case "enum":
                into.enum_value = bytestring.encode(value)


def resolve(spec: p4t.P4DataTypeSpec, info: p4t.P4TypeInfo, label: str, depth: int = 0) -> ScalarType:
    """Return the type that P4Info gives an object.

    Args:
        spec: Type in the P4Info.
        info: Named types of the P4Info.
        label: Name of the object, for the message.
        depth: Number of named types that have been resolved on the way.

    Raises:
        Refusal: No register of this switch holds the type.
    """
    match spec.WhichOneof("type_spec"):
        case "bitstring":
            bits = spec.bitstring
            match bits.WhichOneof("type_spec"):
                case "bit" if bits.bit.bitwidth > 0:
                    return ScalarType("bit", bits.bit.bitwidth, label)
                case "int" if bits.int.bitwidth > 0:
                    return ScalarType("int", bits.int.bitwidth, label)
        case "bool":
            return ScalarType("bool", 1, label)
        case "serializable_enum" if spec.serializable_enum.name in info.serializable_enums:
            enum = info.serializable_enums[spec.serializable_enum.name]
            return ScalarType("enum", enum.underlying_type.bitwidth, label)
        case "new_type" if spec.new_type.name in info.new_types and depth < _MAX_DEPTH:
            new_type = info.new_types[spec.new_type.name]
            if new_type.WhichOneof("representation") == "original_type":
                return resolve(new_type.original_type, info, label, depth + 1)
            if new_type.translated_type.sdn_bitwidth > 0:
                return ScalarType("bit", new_type.translated_type.sdn_bitwidth, label)
    raise invalid(f"P4Info: {label} has a type that this switch does not store: {spec.WhichOneof('type_spec')}")
