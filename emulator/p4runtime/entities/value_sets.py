"""Parser value sets: ValueSetEntry (specification, "ValueSetEntry")."""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4i, p4r

from ...bmv2.schema import KeyField, ValueSetSchema
from ...entries import Match, Range, Ternary
from ...program import ValueSetMembers
from ..refusal import Code, Refusal, invalid, unimplemented
from .matches import MATCH_KIND, MatchKey


class ValueSetService:
    """One value set of the P4Info, bound to one switch's memory.

    The switch matches members by value and mask. So a range must be what a mask can say: everything, one value, or an
    aligned block of a power of two.
    """

    def __init__(self, info: p4i.ValueSet, schema: ValueSetSchema, state: ValueSetMembers) -> None:
        """Raises `Refusal` when P4Info and program disagree on the fields."""
        self.id = info.preamble.id
        self.name = info.preamble.name
        self._state = state
        self._widths = schema.widths
        self._ranges = tuple(field.match_type == p4i.MatchField.RANGE for field in info.match)
        if len(info.match) != len(schema.widths):
            raise invalid(
                f"P4Info: {self.name} has {len(info.match)} match fields, in the program {len(schema.widths)}"
            )
        key = [  # the program says nothing of kinds
            KeyField(field.name, MATCH_KIND.get(field.match_type, "exact"), width)
            for field, width in zip(info.match, schema.widths, strict=True)
        ]
        self._key = MatchKey(self.name, info.match, key)

    def write(self, kind: p4r.Update.Type.ValueType, entry: p4r.ValueSetEntry) -> None:
        """Replace the set's members, all at once: MODIFY only. Raises `EmulatorError`."""
        if kind != p4r.Update.MODIFY:
            raise invalid(f"{self.name}: a value set is always there; only MODIFY applies to it")
        if len(entry.members) > self._state.size:
            raise Refusal(
                Code.RESOURCE_EXHAUSTED, f"{self.name}: {len(entry.members)} members, its size is {self._state.size}"
            )
        members: dict[tuple[Match, ...], None] = {}
        for message in entry.members:
            member = self._masked(self._key.decode(message.match))
            if member in members:
                raise Refusal(Code.ALREADY_EXISTS, f"{self.name}: member {len(members) + 1} is given twice: {member}")
            members[member] = None
        self._state.replace(members)

    def read(self) -> p4r.Entity:
        """Return the set with all its members."""
        entity = p4r.Entity()
        message = entity.value_set_entry
        message.value_set_id = self.id
        for member in self._state.members:
            self._key.encode(self._ranged(member), message.members.add())
        return entity

    def filled(self) -> Iterator[p4r.Entity]:
        """Yield the set, if it has members."""
        if self._state.members:
            yield self.read()

    def _masked(self, member: tuple[Match, ...]) -> tuple[Match, ...]:
        return tuple(
            self._mask_of(match, width) if isinstance(match, Range) else match
            for match, width in zip(member, self._widths, strict=True)
        )

    def _mask_of(self, match: Range, width: int) -> Ternary:
        free = match.low ^ match.high
        if free & (free + 1) or match.low & free:
            raise unimplemented(
                f"{self.name}: the range {match.low} to {match.high}; this switch's value sets match ranges that are "
                "one value or an aligned block of a power of two"
            )
        return Ternary(match.low, (1 << width) - 1 ^ free)

    def _ranged(self, member: tuple[Match, ...]) -> tuple[Match, ...]:
        return tuple(
            Range(match.value, match.value | (1 << width) - 1 ^ match.mask)
            if ranged and isinstance(match, Ternary)
            else match
            for match, ranged, width in zip(member, self._ranges, self._widths, strict=True)
        )
