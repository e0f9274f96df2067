"""A table's key between its P4Runtime form (field ids, byte strings, don't-cares left out) and the switch's.

The rules are the specification's ("Match Format"): a don't-care must be left out, bits outside a mask or prefix must
be zero, low must not exceed high; each violation is INVALID_ARGUMENT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from finsy.proto import p4i, p4r

from ...bmv2.schema import KeyField, MatchKind
from ...entries import Exact, Lpm, Match, Optional, Range, Ternary
from .. import bytestring
from ..refusal import invalid

Decoder = Callable[[p4r.FieldMatch], Match]

_MatchType = p4i.MatchField.MatchType

MATCH_KIND: Final[dict[int, MatchKind]] = {
    _MatchType.EXACT: "exact",
    _MatchType.LPM: "lpm",
    _MatchType.TERNARY: "ternary",
    _MatchType.RANGE: "range",
    _MatchType.OPTIONAL: "ternary",
}
_DONT_CARE_LEFT_OUT: Final = "a don't-care match must be left out of the entry"


class MatchKey:
    """The match fields of one table, or of one value set's members."""

    def __init__(self, owner: str, fields: Sequence[p4i.MatchField], key: Sequence[KeyField]) -> None:
        """Raises `Refusal` when P4Info and program disagree on the key."""
        self._owner = owner
        if len(fields) != len(key):
            raise invalid(f"P4Info: {owner} has {len(fields)} match fields, in the program {len(key)}")
        self._ids = tuple(field.id for field in fields)
        self._names = tuple(field.name for field in fields)
        self._types = tuple(field.match_type for field in fields)
        self._widths = tuple(place.width for place in key)
        self._decoders: dict[int, tuple[int, Decoder]] = {}
        self._template: list[Match | None] = []
        for index, (field, place) in enumerate(zip(fields, key, strict=True)):
            self._check(field, place)
            self._decoders[field.id] = (index, _decoder(field, place.width, f"{owner}: {field.name}"))
            self._template.append(_dont_care(field.match_type, place.width))
        self.needs_priority = any(
            kind in (_MatchType.TERNARY, _MatchType.RANGE, _MatchType.OPTIONAL) for kind in self._types
        )

    def _check(self, field: p4i.MatchField, key: KeyField) -> None:
        kind = MATCH_KIND.get(field.match_type)
        if kind is None:
            raise invalid(f"P4Info: {self._owner}.{field.name} has a match type that this switch does not know")
        if kind != key.match_kind:
            raise invalid(
                f"P4Info: {self._owner}.{field.name} is {kind}, in the program {key.match_kind}: "
                "P4Info and device config come from different programs"
            )
        if field.bitwidth != key.width and not field.HasField("type_name"):
            raise invalid(
                f"P4Info: {self._owner}.{field.name} has {field.bitwidth} bits, in the program {key.width}: "
                "P4Info and device config come from different programs"
            )

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def fields(self) -> tuple[tuple[int, int], ...]:
        """Id and type of match of each field."""
        return tuple(zip(self._ids, self._types, strict=True))

    def decode(self, fields: Iterable[p4r.FieldMatch]) -> tuple[Match, ...]:
        """Return the whole key, don't-cares filled in. Raises `Refusal`."""
        key = self._template.copy()
        seen = set()
        for field in fields:
            field_id = field.field_id
            slot = self._decoders.get(field_id)
            if slot is None:
                raise invalid(f"{self._owner} has no match field id {field_id}; it has {self._known()}")
            if field_id in seen:
                raise invalid(f"{self._owner}: match field id {field_id} is given twice")
            seen.add(field_id)
            index, decoder = slot
            key[index] = decoder(field)
        if None in key:
            missing = self._names[key.index(None)]
            raise invalid(f"{self._owner}: the exact match field {missing} is missing")
        return tuple(key)  # type: ignore[arg-type]  # no None is left

    def encode(self, key: Iterable[Match], into: p4r.TableEntry | p4r.ValueSetMember) -> None:
        """Add the canonical match fields of a key to a message."""
        for field_id, kind, width, match in zip(self._ids, self._types, self._widths, key, strict=True):
            _encode(match, field_id, kind == _MatchType.OPTIONAL, width, into)

    def _known(self) -> str:
        return ", ".join(f"{i} ({name})" for i, name in zip(self._ids, self._names, strict=True)) or "none"


def _dont_care(kind: p4i.MatchField.MatchType.ValueType, width: int) -> Match | None:
    match kind:
        case _MatchType.LPM:
            return Lpm(0, 0)
        case _MatchType.RANGE:
            return Range(0, (1 << width) - 1)
        case _MatchType.EXACT:
            return None
        case _:
            return Ternary(0, 0)


def _decoder(field: p4i.MatchField, width: int, label: str) -> Decoder:
    full = (1 << width) - 1

    def expect(message: p4r.FieldMatch, kind: str) -> None:
        given = message.WhichOneof("field_match_type")
        if given != kind:
            raise invalid(f"{label} is an {kind} match, not {given or 'empty'}")

    def exact(message: p4r.FieldMatch) -> Match:
        expect(message, "exact")
        return Exact(bytestring.decode(message.exact.value, width, label))

    def optional(message: p4r.FieldMatch) -> Match:
        expect(message, "optional")
        return Ternary(bytestring.decode(message.optional.value, width, label), full)

    def lpm(message: p4r.FieldMatch) -> Match:
        expect(message, "lpm")
        length = message.lpm.prefix_len
        value = bytestring.decode(message.lpm.value, width, label)
        if not 0 < length <= width:
            why = _DONT_CARE_LEFT_OUT if length == 0 else f"it must be 1 to {width}"
            raise invalid(f"{label}: prefix length is {length}; {why}")
        if value & (full >> length):
            raise invalid(f"{label}: value 0x{value:x} has bits outside its prefix of length {length}")
        return Lpm(value, length)

    def ternary(message: p4r.FieldMatch) -> Match:
        expect(message, "ternary")
        value = bytestring.decode(message.ternary.value, width, label)
        mask = bytestring.decode(message.ternary.mask, width, f"{label} (mask)")
        if not mask:
            raise invalid(f"{label}: the mask is zero; {_DONT_CARE_LEFT_OUT}")
        if value & ~mask:
            raise invalid(f"{label}: value 0x{value:x} has bits outside its mask 0x{mask:x}")
        return Ternary(value, mask)

    def between(message: p4r.FieldMatch) -> Match:
        expect(message, "range")
        low = bytestring.decode(message.range.low, width, f"{label} (low)")
        high = bytestring.decode(message.range.high, width, f"{label} (high)")
        if low > high:
            raise invalid(f"{label}: low 0x{low:x} is above high 0x{high:x}")
        if low == 0 and high == full:
            raise invalid(f"{label}: the range is everything; {_DONT_CARE_LEFT_OUT}")
        return Range(low, high)

    return {
        _MatchType.EXACT: exact,
        _MatchType.LPM: lpm,
        _MatchType.TERNARY: ternary,
        _MatchType.RANGE: between,
        _MatchType.OPTIONAL: optional,
    }[field.match_type]


def _encode(match: Match, field_id: int, optional: bool, width: int, into: p4r.TableEntry | p4r.ValueSetMember) -> None:
    match match:
        case Exact(value):
            into.match.add(field_id=field_id).exact.value = bytestring.encode(value)
        case Lpm(value, length) if length:
            lpm = into.match.add(field_id=field_id).lpm
            lpm.value, lpm.prefix_len = bytestring.encode(value), length
        case Ternary(value, mask) if mask:
            field = into.match.add(field_id=field_id)
            if optional:
                field.optional.value = bytestring.encode(value)
            else:
                field.ternary.value, field.ternary.mask = bytestring.encode(value), bytestring.encode(mask)
        case Optional(value) if value is not None:
            into.match.add(field_id=field_id).optional.value = bytestring.encode(value)
        case Range(low, high) if low or high != (1 << width) - 1:
            field = into.match.add(field_id=field_id)
            field.range.low, field.range.high = bytestring.encode(low), bytestring.encode(high)
