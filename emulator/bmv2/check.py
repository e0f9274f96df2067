"""Validity of a program beyond its syntax: existing names, sizes that fit memory, controls without cycles.

p4c always satisfies these; a damaged file may not. A program that passes is compiled without further checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from .document import (
    Action,
    Array,
    Conditional,
    Const,
    Document,
    Element,
    Field,
    Lookahead,
    Meter,
    Op,
    Param,
    Pipeline,
    Ref,
    Table,
    parts_of,
)
from .schema import UnsupportedProgram

MAX_BITS: Final = 8192
"""The most bits of a field of fixed width; p4c's own limit is 2048."""
MAX_BYTES: Final = 65536
"""The most bytes of all headers and metadata of a program together."""
MAX_CELLS: Final = 1 << 28
"""The most cells of a register, counter or meter array."""
MAX_ENTRIES: Final = 1 << 32
_JUMPS: Final = ("_jump", "_jump_if_zero")


def check(document: Document) -> None:
    """Check that a program has only what this emulator supports.

    Raises:
        UnsupportedProgram: It has more; the error has the place in the P4 source if known.
    """
    _check_names(document)
    _check_headers(document)
    _check_arrays(document)
    _check_parser(document)
    for action in document.actions.values():
        _check_action(document, action)
    for pipeline in (document.ingress, document.egress):
        _check_pipeline(document, pipeline)
    for name in document.deparse_order:
        _need(name in document.headers and not document.headers[name].metadata, document.name, f"header {name}")
    _check_values(document, document.deparser_calls, 0, document.name)
    for checksum in document.checksums:
        _need(checksum.calculation in document.calculations, checksum.where, f"calculation {checksum.calculation}")
        _check_values(document, checksum.condition, 0, checksum.where)
    for calculation in document.calculations.values():
        _check_values(document, calculation.inputs, 0, calculation.where)
        for _, width in calculation.inputs:
            check_range(width, 1, MAX_BITS * 8, calculation.where, "width of a calculation's input")


def _need(there: object, where: str, kind: str) -> None:
    if not there:
        raise UnsupportedProgram(f"there is no {kind} in the program", place=where)


def check_range(value: Any, low: int, high: int, where: str, name: str) -> None:
    """Check that a value is an integer in a range.

    Args:
        value: The value.
        low: Smallest allowed integer.
        high: Largest allowed integer.
        where: Place in the program, for the error.
        name: Name of the value, for the error.

    Raises:
        UnsupportedProgram: It is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise UnsupportedProgram(f"{name} is {value}, which is not a number from {low} to {high}", place=where)


def _check_names(document: Document) -> None:
    named: list[Any] = [*document.headers.values(), *document.actions.values(), *document.digests.values()]
    for pipeline in (document.ingress, document.egress):
        named += [*pipeline.nodes.values(), *pipeline.profiles.values()]
    names = [*(item.name for item in named), *(name for item in document.actions.values() for name, _ in item.params)]
    names += [*document.registers, *document.counters, *document.meters, *document.value_sets, *document.errors]
    for name in names:
        if not isinstance(name, str):
            raise UnsupportedProgram(f"the name {name!r} is not a text", place=document.name, value=name)


# ---- memory


def _check_headers(document: Document) -> None:
    total = 0
    for header in document.headers.values():
        names = [name for name, _, _ in header.fields]
        if len(set(names)) < len(names):
            raise UnsupportedProgram(
                f"header {header.name} has two fields of one name", place=document.name, value=header.name
            )
        for name, width, _ in header.fields:
            most = 8 * MAX_BYTES if name == header.varbit else MAX_BITS
            check_range(width, 0, most, document.name, f"width of {header.name}.{name}")
        total += (sum(width for _, width, _ in header.fields) + 7) // 8
    check_range(total, 0, MAX_BYTES, document.name, "size of all headers and metadata in bytes")
    for stack in document.stacks.values():
        check_range(len(stack.headers), 1, 255, document.name, f"size of the stack {stack.name}")
        _check_alike(document, stack.headers, f"stack {stack.name}")
    for members in document.unions.values():
        for member in members:
            _need(member in document.headers, document.name, f"header {member}")
    _need("standard_metadata" in document.headers, document.name, "standard_metadata")
    if not document.headers["standard_metadata"].metadata:
        raise UnsupportedProgram("standard_metadata is a header, and must be metadata", place=document.name)


def _check_alike(document: Document, headers: Iterable[str], label: str) -> None:
    shapes = {(document.headers[name].fields, document.headers[name].metadata) for name in headers}
    if len(shapes) > 1 or any(metadata for _, metadata in shapes):
        raise UnsupportedProgram(f"{label} is not made of headers of one type", place=document.name)


def _check_arrays(document: Document) -> None:
    for register in document.registers.values():
        check_range(register.size, 0, MAX_CELLS, document.name, f"size of register {register.name}")
        check_range(register.width, 1, MAX_BITS, document.name, f"width of register {register.name}")
    arrays: tuple[Array | Meter, ...] = (*document.counters.values(), *document.meters.values())
    for array in arrays:
        check_range(array.size, 0, MAX_CELLS, document.name, f"size of {array.name}")
        if array.table is not None:
            _need(_table(document, array.table), document.name, f"table {array.table}")
    for meter in document.meters.values():
        if meter.unit not in ("packets", "bytes"):
            raise UnsupportedProgram(
                f"meter {meter.name} counts {meter.unit}, not packets or bytes", place=document.name, value=meter.name
            )
    for value_set in document.value_sets.values():
        check_range(value_set.size, 1, MAX_ENTRIES, document.name, f"size of value set {value_set.name}")
        for width in value_set.widths:
            check_range(width, 1, MAX_BITS, document.name, f"width of value set {value_set.name}")
    for number in (*document.digests, *document.field_lists):
        check_range(number, 0, 2**32 - 1, document.name, "id of a list")
    for digest in document.digests.values():
        for field in digest.fields:
            check_range(document.width(field), 1, MAX_BITS, document.name, f"width of a field of digest {digest.name}")
    for number in document.errors.values():
        check_range(number, 0, 2**32 - 1, document.name, "number of an error")


# ---- parser and actions


def _check_parser(document: Document) -> None:
    states = document.parser.states
    _need(document.parser.init_state in states, document.name, f"parser state {document.parser.init_state}")
    for state in states.values():
        _check_values(document, (state.ops, state.key), 0, state.where)
        for transition in state.transitions:
            if transition.next_state is not None:
                _need(transition.next_state in states, state.where, f"parser state {transition.next_state}")
            if transition.value_set is not None:
                _need(transition.value_set in document.value_sets, state.where, f"value set {transition.value_set}")
            for number in (transition.value, transition.mask):
                if number is not None and number < 0:
                    raise UnsupportedProgram(
                        f"a transition on the negative number {number}", place=state.where, value=number
                    )
            if not state.key and (transition.value is not None or transition.value_set is not None):
                raise UnsupportedProgram("a transition on a value, and nothing to compare it with", place=state.where)


def _check_action(document: Document, action: Action) -> None:
    for name, width in action.params:
        check_range(width, 1, MAX_BITS, action.name, f"width of the parameter {name}")
    for primitive in action.body:
        _check_values(document, primitive.args, len(action.params), primitive.where)
        if primitive.op in _JUMPS:
            target = primitive.args[-1] if primitive.args else None
            if not isinstance(target, Const) or not 0 <= target.value <= len(action.body):
                raise UnsupportedProgram("a jump in an action that leads out of it", place=primitive.where)


def _check_values(document: Document, item: Any, params: int, where: str) -> None:
    """Every parameter, named object and lookahead within an item."""
    kinds: Mapping[str, Mapping[str, object]] = {
        "header": document.headers,
        "header_union": document.unions,
        "register_array": document.registers,
        "counter_array": document.counters,
        "meter_array": document.meters,
        "calculation": document.calculations,
    }
    for part in parts_of(item):
        match part:
            case Param(index):
                check_range(index, 0, params - 1, where, "number of an action's parameter")
            case Ref(kind, name) if kind in kinds:
                _need(name in kinds[kind], where, f"{kind.replace('_', ' ')} {name}")
            case Ref("stack", name) | Element(name, _):
                _need(name in document.stacks or name in document.union_stacks, where, f"stack {name}")
            case Lookahead(offset, width):
                check_range(offset, 0, MAX_BITS, where, "offset of a lookahead")
                check_range(width, 1, MAX_BITS, where, "width of a lookahead")
            case Op("two_comp_mod" | "sat_cast" | "usat_cast", (_, width_of)):
                if not isinstance(width_of, Const):
                    raise UnsupportedProgram("a cast to a width that is not constant", place=where)
                check_range(width_of.value, 1, MAX_BITS, where, "width of a cast")


# ---- controls


def _table(document: Document, name: str) -> Table | None:
    for pipeline in (document.ingress, document.egress):
        node = pipeline.nodes.get(name)
        if isinstance(node, Table):
            return node
    return None


def _check_pipeline(document: Document, pipeline: Pipeline) -> None:
    if pipeline.init is not None:
        _need(pipeline.init in pipeline.nodes, pipeline.name, f"table or condition {pipeline.init}")
    for node in pipeline.nodes.values():
        for following in _following(node):
            _need(following in pipeline.nodes, node.where, f"table or condition {following}")
        if isinstance(node, Table):
            _check_table(document, pipeline, node)
        else:
            _check_values(document, node.condition, 0, node.where)
    _refuse_circles(pipeline)
    for profile in pipeline.profiles.values():
        check_range(profile.size, 0, MAX_ENTRIES, profile.where, f"size of {profile.name}")
        if profile.selector is not None:
            _check_values(document, profile.selector.inputs, 0, profile.where)


def _check_table(document: Document, pipeline: Pipeline, table: Table) -> None:
    check_range(table.size, 0, MAX_ENTRIES, table.where, f"size of table {table.name}")
    if table.profile is not None:
        _need(table.profile in pipeline.profiles, table.where, f"action profile {table.profile}")
    if table.meter is not None:
        _need(table.meter in document.meters, table.where, f"meter {table.meter}")
        if document.meters[table.meter].target is None:
            raise UnsupportedProgram(
                f"meter {table.meter} of table {table.name} is not a direct one", place=table.where, value=table.meter
            )
    for key in table.key:
        _check_key(document, table, key.target, key.mask)
    calls: list[tuple[int, tuple[int, ...] | None, str]] = [(number, None, table.where) for number in table.action_ids]
    if table.default_action is not None:
        calls.append((table.default_action, table.default_params, table.where))
    check_range(len(table.entries or ()), 0, table.size, table.where, f"number of entries of table {table.name}")
    for entry in table.entries or ():
        calls.append((entry.action_id, entry.params, entry.where))
        kinds = [kind for kind, _, _ in entry.match]
        if kinds != [key.match_kind for key in table.key]:
            raise UnsupportedProgram(
                f"an entry of table {table.name} does not fit its key", place=entry.where, value=table.name
            )
    for number, params, where in calls:
        _need(number in document.actions, where, f"action of number {number}")
        if number not in table.action_ids:
            name = document.actions[number].name
            raise UnsupportedProgram(
                f"table {table.name} has no action {name} of number {number}", place=where, value=table.name
            )
        _check_call(table, document.actions[number], params, where)


def _check_key(document: Document, table: Table, target: Field, mask: int | None) -> None:
    width = document.width(target)
    check_range(width, 1, 8 * MAX_BYTES, table.where, f"width of {target.header}.{target.name}, a key of {table.name}")
    if document.headers[target.header].varbit == target.name:
        raise UnsupportedProgram(
            f"table {table.name} has a varbit field in its key", place=table.where, value=table.name
        )
    if mask is not None:
        check_range(mask, 0, (1 << width) - 1, table.where, f"mask of {target.header}.{target.name}")


def _check_call(table: Table, action: Action, params: tuple[int, ...] | None, where: str) -> None:
    if params is None:
        return
    if len(params) != len(action.params):
        raise UnsupportedProgram(
            f"table {table.name} calls {action.name} with {len(params)} parameters, not {len(action.params)}",
            place=where,
            value=table.name,
        )
    for value, (name, width) in zip(params, action.params, strict=True):
        check_range(value, 0, (1 << width) - 1, where, f"parameter {name} of {action.name}")


def _following(node: Table | Conditional) -> Iterator[str]:
    if isinstance(node, Conditional):
        names: tuple[str | None, ...] = (node.true_next, node.false_next)
    else:
        names = (*node.next_by_action, node.next_on_hit, node.next_on_miss, node.base_next)
    yield from (name for name in names if name is not None)


def _refuse_circles(pipeline: Pipeline) -> None:
    """A packet must come to the end of a control: depth first, a node that leads to one still open closes a circle."""
    closed: set[str] = set()
    for first in pipeline.nodes:
        path: dict[str, Iterator[str]] = {}
        name: str | None = first
        while name is not None:
            if name not in path and name not in closed:
                path[name] = _following(pipeline.nodes[name])
            following = next(path[name], None) if name in path else None
            if following is None:
                closed.add(name)
                path.pop(name, None)
                name = next(reversed(path), None)
            elif following in path:
                where = pipeline.nodes[following].where
                raise UnsupportedProgram(f"{following} leads back to itself", place=where, value=following)
            else:
                name = following
