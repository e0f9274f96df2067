"""Memory layout of a program: the PHV behind each packet's record, and the state memory of one switch.

PHV::

    | validity bytes | stack counters | varbit lengths | shared metadata | small headers | other headers |
    ^ zeroed for every packet ---------------------------------------------------------- ^

Small headers are those of at most `SMALL_HEADER_BYTES` that a program may read while they are invalid: until they
become valid they read as zeros. The contents of larger headers are undefined until then. A header that a program makes
invalid keeps its bytes (docs/emulator.md).

Header bytes stay in network order, as on the wire; a varbit field lies behind all other fields of its header, and the
bytes that it takes are counted apart. The elements of a stack lie at equal distances. Metadata fields are native
integers. A metadata field that only the ingress side (parser, ingress) or only the egress side (egress, checksum
update) touches never reaches memory: it is a local of that function.

State::

    | head | table roots | value set roots | counters | meters | digests | register rows | [notes of what tables do] |

The head's first word counts the comings and goings of packets: it is odd while one is inside. A table root is two
words: the published index and the default row (`emulator.tables`); a value set's root is one: the published block. A
digest is a ring: words `head` (digests written), `tail` (read), `lost`, one unused, then `DIGEST_SLOTS` slots of one
record. Registers with equally many cells form rows: cell i of every such register lies in row i, so that an action
which touches many registers at one index touches one stretch of memory. One row more than the registers have takes
the accesses that are out of range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ..bmv2.document import Digest, Document, Field, Header, Pipeline, Primitive, Ref, Table, parts_of
from ..tables.rows import METER_BYTES

SMALL_HEADER_BYTES: Final = 128
STATE_HEAD_BYTES: Final = 16
ROOT_BYTES: Final = 16
COUNTER_BYTES: Final = 16
DIGEST_SLOTS: Final = 1024
DIGEST_HEAD_BYTES: Final = 32

_WRITING: Final = frozenset({"assign", "set", "extract", "extract_VL", "add_header", "remove_header"})
"""Primitives that do nothing but write to their first argument, a field or a header; an element's index they read."""


@dataclass(frozen=True, slots=True)
class RegisterPlace:
    """Place of a register array in a switch's memory. Sizes and offsets are in bytes, `width` in bits."""

    rows: int
    """Offset of row 0 in the state."""
    stride: int
    offset: int
    """Offset of the register's cell within a row."""
    size: int
    width: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets of headers and metadata in a packet's memory (PHV) and of resources in a switch's state."""

    header_offset: dict[str, int]
    header_stride: dict[str, int]
    """Bytes from one element of a header stack to the next, by the stack's name."""
    valid_offset: dict[str, int]
    next_offset: dict[str, int]
    """A byte for each stack: the elements that the parser has filled (P4's nextIndex)."""
    varbit_offset: dict[str, int]
    """Four bytes for each header with a varbit field: the bytes that it takes."""
    scalar_offset: dict[Field, int]
    """Offset of each field of the shared metadata."""
    scalars: tuple[int, int]
    """Offset and length of the shared metadata."""
    zeroed_bytes: int
    phv_bytes: int
    table_root: dict[str, int]
    value_set_root: dict[str, int]
    counter_offset: dict[str, int]
    meter_offset: dict[str, int]
    digest_offset: dict[int, int]
    registers: dict[str, RegisterPlace]
    state_bytes: int
    steps: int | None = None
    """Offset of the notes of table lookups (`emulator.compiler.steps`); None in a program that is not traced."""


def storage_bytes(width: int) -> int:
    """Return bytes of a native integer that holds `width` bits: 1, 2, 4, or a multiple of 8."""
    return next((n for n in (1, 2, 4) if width <= 8 * n), (width + 63) // 64 * 8)


def _align(offset: int, to: int) -> int:
    return (offset + to - 1) // to * to


def plan(document: Document) -> Layout:
    """Lay out a program; the same document always gives the same layout."""
    headers = [header for header in document.headers.values() if not header.metadata]
    order = _in_order(document, [header.name for header in headers])
    valid_offset = {name: offset for offset, name in enumerate(order)}
    counters = dict.fromkeys(stack.counter for stack in document.stacks.values())
    next_offset = {name: len(order) + number for number, name in enumerate(counters)}
    offset = _align(len(order) + len(next_offset), 4)
    varbits = [name for name in order if document.headers[name].varbit is not None]
    varbit_offset = {name: offset + 4 * number for number, name in enumerate(varbits)}
    offset += 4 * len(varbits)
    shared = _shared_metadata(document)
    scalars_start = offset = _align(offset, 8)
    scalar_offset = {}
    for field, width in sorted(shared.items(), key=lambda item: -storage_bytes(item[1])):
        scalar_offset[field] = offset
        offset += storage_bytes(width)
    scalars = (scalars_start, offset - scalars_start)
    header_offset = {}
    zeroed = offset
    read = _headers_read(document)
    small = {name for name in order if name in read and header_storage(document.headers[name]) <= SMALL_HEADER_BYTES}
    for name in sorted(order, key=lambda name: name not in small):
        size = header_storage(document.headers[name])
        offset = _align(offset, 8 if size <= SMALL_HEADER_BYTES else 64)
        header_offset[name] = offset
        offset += size
        if name in small:
            zeroed = offset
    header_stride = {
        stack.name: header_offset[stack.headers[1]] - header_offset[stack.headers[0]] if stack.headers[1:] else 0
        for stack in document.stacks.values()
    }
    return Layout(
        header_offset,
        header_stride,
        valid_offset,
        next_offset,
        varbit_offset,
        scalar_offset,
        scalars,
        _align(zeroed, 8),
        _align(offset + 8, 64),
        *_plan_state(document),
    )


def header_storage(header: Header) -> int:
    """Return bytes of a header in the PHV."""
    return (header.bits + 7) // 8 + header.varbit_bytes


def _in_order(document: Document, names: list[str]) -> list[str]:
    """All headers, the elements of each stack together."""
    stacked = {name: stack.headers for stack in document.stacks.values() for name in stack.headers}
    order: dict[str, None] = {}
    for name in names:
        order.update(dict.fromkeys(stacked.get(name, (name,))))
    return list(order)


def _headers_read(document: Document) -> set[str]:
    """Headers whose content some part of the program reads, whether they are there or not: not those that it only
    extracts, adds, removes, writes and emits. A stack's or a union's are taken for read all together.
    """
    bodies = [action.body for action in document.actions.values()]
    bodies += [*(state.ops for state in document.parser.states.values()), document.deparser_calls]
    sources: list[Any] = [
        [(state.key, state.transitions) for state in document.parser.states.values()],
        *([*pipeline.nodes.values(), *pipeline.profiles.values()] for pipeline in (document.ingress, document.egress)),
        [*document.calculations.values(), *document.checksums],
        [*document.digests.values(), *document.field_lists.values(), *document.meters.values()],
    ]
    for primitive in (primitive for body in bodies for primitive in body):
        only_written = primitive.op in _WRITING and isinstance(primitive.args[0], Field | Ref)
        sources.append(primitive.args[only_written:])
    named: set[str] = set()
    for part in uses(sources):
        if isinstance(part, Ref):
            named.add(part.name)
        elif part.name != "$valid$":
            named.add(part.header)
    together = [*(stack.headers for stack in document.stacks.values()), *document.unions.values()]
    return named.union(*together)


def digest_places(digest: Digest, document: Document) -> tuple[tuple[int, int], ...]:
    """Return (byte offset in a slot, width in bits) of each field."""
    places, offset = [], 0
    for field in digest.fields:
        places.append((offset, document.width(field)))
        offset += (document.width(field) + 63) // 64 * 8
    return tuple(places)


def digest_slot_bytes(digest: Digest, document: Document) -> int:
    """Return the bytes of one record: every field in whole words of 8 bytes."""
    return sum((document.width(field) + 63) // 64 * 8 for field in digest.fields) or 8


_State = tuple[
    dict[str, int], dict[str, int], dict[str, int], dict[str, int], dict[int, int], dict[str, RegisterPlace], int
]


def _plan_state(document: Document) -> _State:
    offset = STATE_HEAD_BYTES
    table_root = {}
    for pipeline in (document.ingress, document.egress):
        for node in pipeline.nodes.values():
            if isinstance(node, Table) and not is_static(node):
                table_root[node.name] = offset
                offset += ROOT_BYTES
    value_set_root = {name: offset + ROOT_BYTES * number for number, name in enumerate(document.value_sets)}
    offset += ROOT_BYTES * len(value_set_root)
    counter_offset = {}
    for counter in document.counters.values():
        if counter.table is None:
            offset = _align(offset, 64)
            counter_offset[counter.name] = offset
            offset += counter.size * COUNTER_BYTES
    meter_offset = {}
    for meter in document.meters.values():
        if meter.table is None:
            meter_offset[meter.name] = offset = _align(offset, 64)
            offset += meter.size * METER_BYTES
    digest_offset = {}
    for digest in document.digests.values():
        digest_offset[digest.id] = offset = _align(offset, 64)
        offset += DIGEST_HEAD_BYTES + DIGEST_SLOTS * digest_slot_bytes(digest, document)
    registers = {}
    for size in sorted({register.size for register in document.registers.values()}):
        group = [register for register in document.registers.values() if register.size == size]
        group.sort(key=lambda register: -storage_bytes(register.width))
        inner, places = 0, []
        for register in group:
            places.append(inner)
            inner += storage_bytes(register.width)
        stride = _align(inner, 64) if inner >= 64 else _align(inner, min(8, storage_bytes(group[0].width)))
        rows = offset = _align(offset, 64)
        for register, place in zip(group, places, strict=True):
            registers[register.name] = RegisterPlace(
                rows, stride, place, size, register.width, storage_bytes(register.width)
            )
        offset += stride * (size + 1)
    return (
        table_root,
        value_set_root,
        counter_offset,
        meter_offset,
        digest_offset,
        registers,
        _align(offset, 64),
    )


def is_static(table: Table) -> bool:
    """Return True if the table is p4c's hidden wrapper around a bare statement, which P4Info does not have.

    It is named `tbl_` plus its action, without a control's name in front, and has only that constant action. A table
    that a program itself names outside its control (`@name(".top")`) has another name.
    """
    plain = not table.key and table.profile is None and not table.counters and table.meter is None
    fixed = table.const_default and table.action_ids == (table.default_action,)
    return plain and fixed and table.name.startswith("tbl_") and "." not in table.name


def uses(item: Any) -> Iterator[Field | Ref]:
    """Return every field and named object within an expression, a primitive or a collection of them."""
    return (part for part in parts_of(item) if isinstance(part, (Field, Ref)))


def _pipeline_uses(document: Document, pipeline: Pipeline) -> Iterator[Field | Ref]:
    yield from uses([pipeline.nodes[name] for name in pipeline.nodes])
    for node in pipeline.nodes.values():
        if isinstance(node, Table):
            action_ids = (*node.action_ids, *(() if node.default_action is None else (node.default_action,)))
            yield from uses([document.actions[action_id].body for action_id in action_ids])
    yield from uses([profile.selector for profile in pipeline.profiles.values()])


def _with_calculations(document: Document, found: Iterable[Field | Ref]) -> set[Field]:
    result: set[Field] = set()
    for item in found:
        if isinstance(item, Field):
            result.add(item)
        elif item.kind == "calculation":
            result |= {field for field in uses(document.calculations[item.name].inputs) if isinstance(field, Field)}
        elif item.kind == "header":
            result |= {Field(item.name, name) for name, _, _ in document.headers[item.name].fields}
    return result


def _shared_metadata(document: Document) -> dict[Field, int]:
    checks: tuple[list[Any], list[Any]] = ([], [])
    for checksum in document.checksums:
        parts = [checksum.target, checksum.condition, document.calculations[checksum.calculation].inputs]
        if checksum.verify:
            checks[0].extend(parts)
        if checksum.update:
            checks[1].extend(parts)
    parser_ops: list[Primitive | Any] = [(state.ops, state.key) for state in document.parser.states.values()]
    front = [*uses(parser_ops), *uses(checks[0]), *_pipeline_uses(document, document.ingress)]
    back = [*uses(checks[1]), *uses(document.deparser_calls), *_pipeline_uses(document, document.egress)]
    shared = _with_calculations(document, front) & _with_calculations(document, back)
    if document.clones_in_egress:  # then what comes behind the egress control is a function of its own
        behind = [*uses(checks[1]), *uses(document.deparser_calls)]
        shared |= _with_calculations(document, behind) & _with_calculations(
            document, _pipeline_uses(document, document.egress)
        )
    shared |= {field for fields in document.field_lists.values() for field in fields}  # copied from packet to packet
    return {
        Field(header.name, name): width
        for header in document.headers.values()
        if header.metadata
        for name, width, _ in header.fields
        if Field(header.name, name) in shared and Field(header.name, name) not in document.intrinsic
    }
