"""The named things of BMv2 JSON (headers, stacks, unions), and the expressions and primitives that refer to them."""

from __future__ import annotations

from typing import Any

from ..abi import PLACES
from .document import (
    Bool,
    Const,
    Element,
    Expr,
    Field,
    Header,
    Lookahead,
    Member,
    Op,
    Param,
    Primitive,
    Ref,
    Stack,
    Text,
)
from .schema import UnsupportedProgram

JsonObject = dict[str, Any]

_WRITE_ALONE = frozenset(
    {"assign", "set", "register_read", "modify_field_rng_uniform", "modify_field_with_hash_based_offset"}
)
"""Primitives without any effect but on the field that is their first argument."""

_REFERENCES = frozenset(
    {"header", "calculation", "register_array", "counter_array", "meter_array", "regular"}
    | {"header_stack", "stack", "header_union", "header_union_stack"}
)
_SAME_KIND = {"regular": "header", "header_stack": "stack", "header_union_stack": "stack"}
_UNARY = frozenset({"~", "not", "d2b", "b2d", "valid", "valid_union", "last_stack_index", "size_stack"})
_BINARY = frozenset(
    {"+", "-", "*", "/", "%", "<<", ">>", "==", "!=", ">", ">=", "<", "<=", "and", "or", "&", "|", "^"}
    | {"two_comp_mod", "sat_cast", "usat_cast"}
)


def items_of(item: JsonObject, key: str) -> Any:
    """Return a list, or an object, that a compiler may have left out: then an empty one."""
    return item.get(key) or ()


def where_of(item: JsonObject, fallback: str) -> str:
    """Return `file.p4:line` of an item, from its `source_info`."""
    info = item.get("source_info")
    return f"{info['filename']}:{info['line']}" if info and info.get("filename") else fallback


class Names:
    """The names that expressions may refer to. Reading an unknown name raises an error."""

    def __init__(self, root: JsonObject, program: str) -> None:
        self._root = root
        self._program = program
        self.headers = self._read_headers()
        self.intrinsic = self._read_intrinsic()
        self._read_aggregates()

    def _read_headers(self) -> dict[str, Header]:
        types: dict[str, tuple[tuple[tuple[str, int, bool], ...], str | None]] = {}
        for item in self._root["header_types"]:
            where = where_of(item, self._program)
            fixed = sum(width for _, width, *_ in item["fields"] if width != "*")
            fields: list[tuple[str, int, bool]] = []
            varbit = None
            for name, width, *signed in item["fields"]:
                if width == "*":
                    if sum(w for _, w, _ in fields) % 8:
                        raise UnsupportedProgram(
                            f"varbit field {item['name']}.{name} begins within a byte", place=where, value=item["name"]
                        )
                    varbit, width = name, 8 * item["max_length"] - fixed
                fields.append((name, width, bool(signed and signed[0])))
            types[item["name"]] = tuple(fields), varbit
        headers = {}
        for item in self._root["headers"]:
            if item["header_type"] not in types:
                where = where_of(item, self._program)
                raise UnsupportedProgram(
                    f"{item['name']} is of type {item['header_type']}, which is no header",
                    place=where,
                    value=item["name"],
                )
            own, varbit = types[item["header_type"]]
            metadata = bool(item.get("metadata")) and varbit is None  # a varbit field needs a header's storage
            headers[item["name"]] = Header(item["name"], own, metadata, varbit)
        return headers

    def _read_intrinsic(self) -> dict[Field, str]:
        """Metadata fields that the switch itself reads or sets, with the names that the packet's record has for them.

        As in simple_switch, a field of `intrinsic_metadata` or `queueing_metadata` goes before an alias of that name.
        """
        found = {}
        for header, names in PLACES.items():
            for name in names:
                for place in dict.fromkeys((header, "standard_metadata")):
                    own = self.headers.get(place)
                    if own is not None and own.metadata and any(field == name for field, _, _ in own.fields):
                        found[Field(place, name)] = name
                        break
        return found

    def _read_aggregates(self) -> None:
        """Stacks and unions, and stacks of unions as one stack for each of their members."""
        root = self._root
        names = {h.get("id"): h["name"] for h in root["headers"]}
        members = {t["name"]: tuple(name for name, _ in t["headers"]) for t in items_of(root, "header_union_types")}
        unions = {u["id"]: u for u in items_of(root, "header_unions")}
        self.unions = {u["name"]: tuple(names[i] for i in u["header_ids"]) for u in unions.values()}
        self.stacks = {
            s["name"]: Stack(s["name"], tuple(names[i] for i in s["header_ids"]), s["name"])
            for s in items_of(root, "header_stacks")
        }
        self.union_stacks: dict[str, tuple[str, ...]] = {}
        for stack in items_of(root, "header_union_stacks"):
            columns = []
            for number, member in enumerate(members[stack["union_type"]]):
                column = f"{stack['name']}.{member}"
                headers = tuple(names[unions[i]["header_ids"][number]] for i in stack["header_union_ids"])
                self.stacks[column] = Stack(column, headers, stack["name"])
                columns.append(column)
            self.union_stacks[stack["name"]] = tuple(columns)

    def expr(self, item: Any, where: str) -> Expr:
        """Read an expression.

        Args:
            item: The expression's JSON.
            where: Place in the P4 source, for errors.

        Raises:
            UnsupportedProgram: A name is unknown, or an operation is not supported.
        """
        if item is None:
            raise UnsupportedProgram("an expression without operand", place=where)
        kind, value = item["type"], item["value"]
        match kind:
            case "expression":
                return self._op(value, where) if "op" in value else self.expr(value, where)
            case "field" if isinstance(value[0], dict):  # whether a stack's element is valid
                return self._number(self._member(self._access(value[0], where), value[1], where))
            case "field":
                return self._number(self.field(value, where))
            case "hexstr":
                return Const(int(value, 16))
            case "bool":
                return Bool(bool(value))
            case "runtime_data" | "local":
                return Param(int(value))
            case "lookahead":
                return Lookahead(int(value[0]), int(value[1]))
            case "stack_field":
                last = self._last(value[0], value[0])
                names = [name for name, _, _ in self._header_type(last).fields]
                whole = value[1] == "last" and "last" not in names  # p4c's way to write the header itself
                return last if whole else self._number(self._member(last, value[1], where))
            case "union_stack_field":
                return self._number(self._member(self._last(f"{value[0]}.{value[1]}", value[0]), value[2], where))
            case "union_stack":
                return Ref("stack", ".".join(value))
            case "string":
                return Text(str(value))
            case "parameters_vector":
                return Op("vector", tuple(self.expr(part, where) for part in value))
        if kind in _REFERENCES and isinstance(value, str):
            return Ref("header_union" if value in self.unions else _SAME_KIND.get(kind, kind), value)
        raise UnsupportedProgram(f"operand of type '{kind}' ({value}) is not supported", place=where, value=kind)

    def field(self, value: list[str], where: str) -> Field:
        """Read [header, field]. Raises UnsupportedProgram for an unknown one."""
        header, name = value
        if header not in self.headers or (name != "$valid$" and all(f[0] != name for f in self.headers[header].fields)):
            raise UnsupportedProgram(f"no field {header}.{name} in the program", place=where, value=header)
        return Field(header, name)

    def _number(self, field: Field | Member) -> Field | Member | Const:
        """A field, or 0 in the place of one without bits."""
        return field if self._width(field) else Const(0)

    def _last(self, stack: str, counter: str) -> Element:
        return Element(stack, Op("last_stack_index", (Ref("stack", counter),)))

    def _member(self, header: Expr, name: str, where: str) -> Field | Member:
        if isinstance(header, Ref):
            return self.field([header.name, name], where)
        if not isinstance(header, Element):
            raise UnsupportedProgram(f"field {name} of {header} is not supported", place=where, value=name)
        self.field([self.stacks[header.stack].headers[0], name], where)
        return Member(header, name)

    def _header_type(self, header: Expr) -> Header:
        assert isinstance(header, (Ref, Element))
        return self.headers[header.name if isinstance(header, Ref) else self.stacks[header.stack].headers[0]]

    def _access(self, value: JsonObject, where: str) -> Expr:
        """A header, union or field that is reached through an expression."""
        op, left, right = value["op"], self.expr(value["left"], where), value["right"]
        match op, left:
            case "access_field", (Ref("header") | Element()):
                return self._number(self._member(left, self._header_type(left).fields[right][0], where))
            case (("dereference_header_stack" | "dereference_union_stack" | "dereference_stack"), Ref("stack", name)):
                return Element(name, self.expr(right, where))
            case "access_union_header", Ref("header_union", name):
                return Ref("header", self.unions[name][right])
            case "access_union_header", Element(name, index):
                return Element(self.union_stacks[name][right], index)
        raise UnsupportedProgram(f"'{op}' of {left} is not supported", place=where, value=op)

    def _op(self, value: JsonObject, where: str) -> Expr:
        op = value["op"]
        if op.startswith(("access_", "dereference_")):
            return self._access(value, where)
        if op == "?":
            return Op(op, tuple(self.expr(value[side], where) for side in ("cond", "left", "right")))
        if op in _UNARY:
            return Op(op, (self.expr(value["right"], where),))
        if op in _BINARY:
            if op == "-" and value["left"] is None:
                return Op(op, (Const(0), self.expr(value["right"], where)))
            return Op(op, (self.expr(value["left"], where), self.expr(value["right"], where)))
        raise UnsupportedProgram(f"operator '{op}' is not supported", place=where, value=op)

    def primitive(self, item: JsonObject, fallback: str) -> Primitive:
        """Read a statement; `fallback` is its place if the JSON has none. Raises UnsupportedProgram."""
        where = where_of(item, fallback)
        if not isinstance(item["op"], str):
            raise UnsupportedProgram(f"op {item['op']!r} is not the name of a primitive", place=where, value=item["op"])
        args = tuple(self.expr(arg, where) for arg in items_of(item, "parameters"))
        if item["op"] in _WRITE_ALONE and args and isinstance(args[0], Const):
            return Primitive("no_op", (), where)  # to a field without bits
        return Primitive(item["op"], args, where)

    def key_width(self, part: Expr, where: str) -> int:
        """Return the width in bits of one expression of a select. Raises UnsupportedProgram."""
        match part:
            case Field() | Member():
                return self._width(part)
            case Lookahead(_, width):
                return width
            case Const():  # in the place of a field without bits
                return 0
            case Op("last_stack_index"):
                return 32
        raise UnsupportedProgram(f"{part} in a select is not supported", place=where, value=part)

    def is_signed(self, part: Expr) -> bool:
        """Return True if a part of a key is an `int<N>`."""
        match part:
            case Field(header, name):
                return any(signed for field, _, signed in self.headers[header].fields if field == name)
            case Member(header, name):
                return any(signed for field, _, signed in self._header_type(header).fields if field == name)
        return False

    def _width(self, part: Field | Member) -> int:
        if isinstance(part, Field):
            return self.width(part)
        return 1 if part.name == "$valid$" else self._header_type(part.header).width(part.name)

    def width(self, field: Field) -> int:
        """Return a field's width in bits; 1 for a header's validity."""
        return 1 if field.name == "$valid$" else self.headers[field.header].width(field.name)
