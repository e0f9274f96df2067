"""BMv2 JSON (p4c's output for v1model) as typed Python values.

The format is bmv2's `docs/JSON_format.md`, version 2.x; `emulator.bmv2.reader` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from .schema import MatchKind


@dataclass(frozen=True, slots=True)
class Field:
    """A header's or metadata's field; `$valid$` is the header's validity bit."""

    header: str
    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """Constant of an expression."""

    value: int


@dataclass(frozen=True, slots=True)
class Bool:
    """Boolean constant of an expression."""

    value: bool


@dataclass(frozen=True, slots=True)
class Param:
    """Run-time data of the enclosing action."""

    index: int


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Bits of the packet behind the parser's cursor."""

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class Op:
    """`?` has (condition, then, else); binary operators (left, right); unary ones (operand,)."""

    op: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """A named object: header, calculation, register_array, counter_array, ..."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Element:
    """A header of a stack, picked when the packet comes; an index out of range gives an invalid header of zeros."""

    stack: str
    index: Expr


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a stack's element."""

    header: Element
    name: str


@dataclass(frozen=True, slots=True)
class Text:
    """String constant, such as a log message's format."""

    value: str


Expr = Field | Const | Bool | Param | Lookahead | Op | Ref | Element | Member | Text


@dataclass(frozen=True, slots=True)
class Primitive:
    """One statement: a BMv2 primitive, its arguments, and `where`, its place in the P4 source."""

    op: str
    args: tuple[Expr, ...]
    where: str


@dataclass(frozen=True, slots=True)
class Action:
    """Action with its parameters (name, width in bits) and statements."""

    id: int
    name: str
    params: tuple[tuple[str, int], ...]
    body: tuple[Primitive, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """Type of one header instance."""

    name: str
    fields: tuple[tuple[str, int, bool], ...]
    """(name, width, signed); the width of a varbit field is the largest that it may have, that of a bit<0> is 0."""
    metadata: bool
    varbit: str | None = None

    @property
    def bits(self) -> int:
        """Bits of the fields of fixed width."""
        return sum(width for name, width, _ in self.fields if name != self.varbit)

    @property
    def varbit_bytes(self) -> int:
        """The most bytes that the varbit field takes; 0 without one."""
        return self.width(self.varbit) // 8 if self.varbit is not None else 0

    @property
    def varbit_at(self) -> int:
        """Bits in front of the varbit field."""
        names = [name for name, _, _ in self.fields]
        return sum(width for _, width, _ in self.fields[: names.index(self.varbit)]) if self.varbit else self.bits

    def width(self, name: str) -> int:
        """Return the width of a field in bits."""
        return next(width for field, width, _ in self.fields if field == name)


@dataclass(frozen=True, slots=True)
class Stack:
    """Headers of one type in a row. A stack of unions is one of these for each member of the union."""

    name: str
    headers: tuple[str, ...]
    counter: str
    """The stack whose `next` counts the elements: this one, or the stack of unions."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Transition of a parser state: taken if key & mask == value & mask."""

    value: int | None
    """None: the default transition, or one on a value set."""
    mask: int | None
    next_state: str | None
    value_set: str | None = None


@dataclass(frozen=True, slots=True)
class ParseState:
    """State of the parser: statements, then a select on `key`."""

    name: str
    ops: tuple[Primitive, ...]
    key: tuple[Expr, ...]
    key_widths: tuple[int, ...]
    """Bits of each expression of the key."""
    transitions: tuple[Transition, ...]
    where: str


@dataclass(frozen=True, slots=True)
class Parser:
    """Parser: states by name, from `init_state`."""

    init_state: str
    states: Mapping[str, ParseState]


@dataclass(frozen=True, slots=True)
class TableKey:
    """One field of a table's key; `mask` is applied before the match."""

    name: str
    match_kind: MatchKind
    target: Field
    mask: int | None


@dataclass(frozen=True, slots=True)
class ConstEntry:
    """Entry that the program declares."""

    match: tuple[tuple[str, int, int], ...]
    """(match kind, value or low, mask or high or prefix length)."""
    action_id: int
    params: tuple[int, ...]
    priority: int
    """BMv2's: the smallest number wins."""
    where: str


@dataclass(frozen=True, slots=True)
class Table:
    """Match-action table; `next_by_action` is in the order of `action_ids`."""

    name: str
    key: tuple[TableKey, ...]
    match_type: MatchKind
    action_ids: tuple[int, ...]
    size: int
    profile: str | None
    counters: bool
    meter: str | None
    support_timeout: bool
    default_action: int | None
    default_params: tuple[int, ...]
    const_default: bool
    entries: tuple[ConstEntry, ...] | None
    next_by_action: tuple[str | None, ...]
    """The table or condition that follows each action, in the order of `action_ids`."""
    next_on_hit: str | None
    next_on_miss: str | None
    splits_on_hit: bool
    base_next: str | None
    where: str


@dataclass(frozen=True, slots=True)
class Conditional:
    """If statement of a control; the names of the next nodes, or None for the end."""

    name: str
    condition: Expr
    true_next: str | None
    false_next: str | None
    where: str


@dataclass(frozen=True, slots=True)
class Profile:
    """An action profile; with a selector's hash calculation, an action selector."""

    name: str
    size: int
    selector: Calculation | None
    where: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Ingress or egress: nodes by name, from `init`."""

    name: str
    init: str | None
    nodes: Mapping[str, Table | Conditional]
    profiles: Mapping[str, Profile]


@dataclass(frozen=True, slots=True)
class Calculation:
    """Hash or checksum over fields, with the packet's payload if `payload`."""

    name: str
    algorithm: str
    inputs: tuple[tuple[Expr, int], ...]
    """(expression, width in bits)."""
    payload: bool
    where: str


@dataclass(frozen=True, slots=True)
class Checksum:
    """Checksum field that is verified after the parser or updated before the deparser."""

    target: Field
    calculation: str
    update: bool
    verify: bool
    condition: Expr | None
    where: str


@dataclass(frozen=True, slots=True)
class Array:
    """A register or counter array; `width` 0 for counters, `table` for direct counters."""

    name: str
    size: int
    width: int = 0
    table: str | None = None


@dataclass(frozen=True, slots=True)
class Meter:
    """An array of two-rate three-colour meters, or a table's direct meter with the field that takes its colours."""

    name: str
    size: int
    unit: Literal["bytes", "packets"]
    table: str | None
    target: Field | None


@dataclass(frozen=True, slots=True)
class Digest:
    """Digest: the fields that one record has."""

    id: int
    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A parser value set; `widths` are those of the select's expressions, in bits."""

    name: str
    size: int
    widths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """Program as BMv2 JSON describes it, with every name resolved."""

    name: str
    headers: Mapping[str, Header]
    stacks: Mapping[str, Stack]
    """Header stacks by name, and `stack.member` for stacks of unions."""
    unions: Mapping[str, tuple[str, ...]]
    """The headers of each union."""
    union_stacks: Mapping[str, tuple[str, ...]]
    """The `stacks` that make up each stack of unions."""
    intrinsic: Mapping[Field, str]
    """Field of the packet's record (`emulator.abi.PACKET`) behind each metadata field that the switch reads or sets."""
    errors: Mapping[str, int]
    parser: Parser
    deparse_order: tuple[str, ...]
    actions: Mapping[int, Action]
    ingress: Pipeline
    egress: Pipeline
    calculations: Mapping[str, Calculation]
    checksums: tuple[Checksum, ...]
    registers: Mapping[str, Array]
    counters: Mapping[str, Array]
    meters: Mapping[str, Meter]
    digests: Mapping[int, Digest]
    """Digests by the id of their learn list."""
    value_sets: Mapping[str, ValueSet]
    field_lists: Mapping[int, tuple[Field, ...]]
    """The fields that each list preserves, by the list's id."""
    deparser_calls: tuple[Primitive, ...]

    @property
    def clones_in_egress(self) -> bool:
        """Return True if an action of the egress side requests a clone."""
        tables = [node for node in self.egress.nodes.values() if isinstance(node, Table)]
        ids = {number for table in tables for number in (*table.action_ids, table.default_action) if number is not None}
        return any(primitive.op.startswith("clone_") for number in ids for primitive in self.actions[number].body)

    def width(self, field: Field) -> int:
        """Return the width of a field in bits."""
        return 1 if field.name == "$valid$" else self.headers[field.header].width(field.name)


def parts_of(item: Any) -> Iterator[Expr]:
    """Yield every expression within an expression, a primitive, a table or a collection of them; wholes before
    parts.
    """
    if isinstance(item, (tuple, list)):
        for part in item:
            yield from parts_of(part)
    elif is_dataclass(item):
        if isinstance(item, Expr):
            yield item
        for field in fields(item):
            yield from parts_of(getattr(item, field.name))
