"""Reads BMv2 JSON into the values of `emulator.bmv2.document`.

Everything that this module does not know is refused by `UnsupportedProgram` with the place in the P4 source, which the
JSON carries in `source_info`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from .check import MAX_BITS, check, check_range
from .document import (
    Action,
    Array,
    Calculation,
    Checksum,
    Conditional,
    Const,
    ConstEntry,
    Digest,
    Document,
    Expr,
    Field,
    Meter,
    Parser,
    ParseState,
    Pipeline,
    Primitive,
    Profile,
    Table,
    TableKey,
    Transition,
    ValueSet,
)
from .names import JsonObject, Names, items_of, where_of
from .schema import MATCH_KINDS, UnsupportedProgram

UNSIZED_VALUE_SET: Final = 1024
"""Members of a value set whose size an old compiler did not write down."""

_CORE_ERRORS: Final = (
    *("NoError", "PacketTooShort", "NoMatch", "StackOutOfBounds"),
    *("HeaderTooShort", "ParserTimeout", "ParserInvalidArgument"),
)

MALFORMED: Final = (
    *(KeyError, IndexError, TypeError, ValueError, AttributeError),
    *(AssertionError, OverflowError, RuntimeError),
)
"""Exceptions raised while reading or compiling a program that p4c did not write; LLVM refuses with RuntimeError."""


P4C_HOME: Final = "https://github.com/p4lang/p4c#getting-started"
"""Instructions to install p4c."""
_P4_SOURCE: Final = re.compile(
    rb"^\s*(?:#\s*include\s*[<\"]|(?:header|control|parser|struct|typedef|const)\s)", re.MULTILINE
)


def read(text: bytes) -> Document:
    """Parse BMv2 JSON.

    Raises `UnsupportedProgram` for text that is not BMv2 JSON of major version 2, and for constructs outside this
    switch's range.
    """
    try:
        root = json.loads(text)
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        if _P4_SOURCE.search(text):
            raise UnsupportedProgram(
                f"compile it first: p4c-bm2-ss --arch v1model -o PROGRAM.json PROGRAM.p4 (p4c: {P4C_HOME})",
                place="P4 source",
            ) from None
        raise UnsupportedProgram(f"{_why_no_json(text, error)}", place="not a BMv2 JSON program") from None
    if not isinstance(root, dict) or "pipelines" not in root:
        raise UnsupportedProgram(
            "no 'pipelines' (compile with p4c-bm2-ss --arch v1model)", place="not a BMv2 JSON program"
        )
    try:
        version = root.get("__meta__", {}).get("version", [2, 0])
        if version[0] != 2:
            number = ".".join(map(str, version))
            raise UnsupportedProgram(
                f"version {number} is not supported; this switch reads version 2.x", place="BMv2 JSON", value=version
            )
        document = _Reader(root).document()
        check(document)
    except MALFORMED as error:
        raise UnsupportedProgram(
            f"malformed BMv2 JSON: {_what_is_off(error)}", place=f"{root.get('program', 'program')}"
        ) from error
    return document


def _why_no_json(text: bytes, error: Exception) -> str:
    match error:
        case json.JSONDecodeError() if not text.strip():
            return "it is empty"
        case json.JSONDecodeError():
            return f"line {error.lineno}, column {error.colno}: {error.msg[:1].lower()}{error.msg[1:]}"
        case UnicodeDecodeError():
            return f"byte {error.start} is no text"
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return str(error)


def _what_is_off(error: Exception) -> str:
    """Describe the defect of a program that no compiler wrote, as far as the exception shows it."""
    hint = "compile the program anew, with p4c-bm2-ss --arch v1model"
    if isinstance(error, KeyError):
        return f'"{error.args[0]}" is missing, or nothing is called so; {hint}'
    return f"a value is not of the kind that belongs there; {hint}"


class _Reader:
    def __init__(self, root: JsonObject) -> None:
        self.root = root
        self.program = str(root.get("program", "program"))
        self.names = Names(root, self.program)

    def document(self) -> Document:
        self._refuse_lists()
        root = self.root
        names = self.names
        self.actions = actions = {item["id"]: self._action(item) for item in root["actions"]}
        pipelines = {item["name"]: item for item in root["pipelines"]}
        if set(pipelines) != {"ingress", "egress"} or len(root["parsers"]) != 1 or len(root["deparsers"]) != 1:
            raise UnsupportedProgram(
                "not a v1model program (one parser, ingress, egress, one deparser)", place=self.program
            )
        deparser = root["deparsers"][0]
        parser = self._parser(root["parsers"][0])
        registers = {r["name"]: Array(r["name"], r["size"], r["bitwidth"]) for r in items_of(root, "register_arrays")}
        counters = {
            c["name"]: Array(c["name"], c.get("size") or 0, 0, c.get("binding"))
            for c in items_of(root, "counter_arrays")
        }
        calculations = {c["name"]: self._calculation(c["name"], c, c["input"]) for c in items_of(root, "calculations")}
        return Document(
            name=self.program.rsplit("/", 1)[-1].removesuffix(".p4"),
            headers=names.headers,
            stacks=names.stacks,
            unions=names.unions,
            union_stacks=names.union_stacks,
            intrinsic=names.intrinsic,
            errors=_errors(root),
            parser=parser,
            deparse_order=tuple(deparser["order"]),
            actions=actions,
            ingress=self._pipeline(pipelines["ingress"]),
            egress=self._pipeline(pipelines["egress"]),
            calculations=calculations,
            checksums=tuple(self._checksum(item) for item in items_of(root, "checksums")),
            registers=registers,
            counters=counters,
            meters={m["name"]: self._meter(m) for m in items_of(root, "meter_arrays")},
            digests={d["id"]: Digest(d["id"], d["name"], self._fields(d)) for d in items_of(root, "learn_lists")},
            value_sets=self._value_sets(parser),
            field_lists={
                item["id"]: tuple(field for field in self._fields(item) if names.width(field))
                for item in items_of(root, "field_lists")
            },
            deparser_calls=tuple(self.names.primitive(p, self.program) for p in items_of(deparser, "primitives")),
        )

    def _refuse_lists(self) -> None:
        for item in items_of(self.root, "extern_instances"):
            raise UnsupportedProgram(
                f"extern instance {item['name']} is not supported",
                place=f"{where_of(item, self.program)}",
                value=item["name"],
            )

    def _fields(self, item: JsonObject) -> tuple[Field, ...]:
        """The fields of a field list or learn list."""
        where = where_of(item, f"{self.program}, list {item['name']}")
        fields = []
        for element in item["elements"]:
            if element["type"] != "field":
                raise UnsupportedProgram(
                    f"a list's element of type '{element['type']}' is not supported", place=where, value=element["type"]
                )
            fields.append(self.names.field(element["value"], where))
        return tuple(fields)

    def _meter(self, item: JsonObject) -> Meter:
        where = where_of(item, self.program)
        if item.get("rate_count", 2) != 2:
            raise UnsupportedProgram(
                f"meter {item['name']} has {item['rate_count']} rates, not two", place=where, value=item["name"]
            )
        target = self.names.field(item["result_target"], where) if item.get("is_direct") else None
        return Meter(item["name"], item.get("size") or 0, item["type"], item.get("binding"), target)

    def _value_sets(self, parser: Parser) -> dict[str, ValueSet]:
        """Value sets with the widths of the keys that they are compared with."""
        result = {}
        for item in items_of(self.root, "parse_vsets"):
            name, where = item["name"], where_of(item, self.program)
            widths = {
                state.key_widths
                for state in parser.states.values()
                if any(transition.value_set == name for transition in state.transitions)
            } or {(item["compressed_bitwidth"],)}
            if len(widths) > 1:
                raise UnsupportedProgram(
                    f"value set {name} is compared with keys of different widths", place=where, value=name
                )
            result[name] = ValueSet(name, item.get("max_size") or UNSIZED_VALUE_SET, widths.pop())
        return result

    def _action(self, item: JsonObject) -> Action:
        where = where_of(item, self.program)
        return Action(
            item["id"],
            item["name"],
            tuple((param["name"], param["bitwidth"]) for param in items_of(item, "runtime_data")),
            tuple(self.names.primitive(p, where) for p in items_of(item, "primitives")),
        )

    # ---- parser

    def _parser(self, item: JsonObject) -> Parser:
        states = {}
        for state in item["parse_states"]:
            where = where_of(state, f"{self.program}, parser state {state['name']}")
            key = tuple(self.names.expr(part, where) for part in items_of(state, "transition_key"))
            widths = tuple(self.names.key_width(part, where) for part in key)
            for width in widths:  # before numbers get so long
                check_range(width, 1, MAX_BITS, where, "width of a part of a select's key")
            parts = [(width, self.names.is_signed(part)) for width, part in zip(widths, key, strict=True)]
            states[state["name"]] = ParseState(
                state["name"],
                tuple(self._parser_op(op, where) for op in items_of(state, "parser_ops")),
                key,
                widths,
                tuple(self._transition(t, parts, where) for t in items_of(state, "transitions")),
                where,
            )
        return Parser(item["init_state"], states)

    def _parser_op(self, op: JsonObject, fallback: str) -> Primitive:
        if op["op"] == "primitive":
            return self.names.primitive(op["parameters"][0], where_of(op, fallback))
        return self.names.primitive(op, fallback)

    def _transition(self, item: JsonObject, parts: Sequence[tuple[int, bool]], where: str) -> Transition:
        """`parts` are the (width, signed) of the key's expressions."""
        if item.get("type", "hexstr") == "default" or item["value"] == "default":
            return Transition(None, None, item["next_state"])
        if item.get("type") == "parse_vset":
            mask = int(item["mask"], 16) if item.get("mask") is not None else None
            return Transition(None, mask, item["next_state"], item["value"])
        if item.get("type", "hexstr") != "hexstr":
            raise UnsupportedProgram(
                f"transition on '{item['type']}' is not supported", place=where, value=item["type"]
            )
        mask = (
            _unsigned(int(item["mask"], 16), sum((width + 7) // 8 * 8 for width, _ in parts))
            if item.get("mask")
            else None
        )
        return Transition(_key_value(int(item["value"], 16), parts), mask, item["next_state"])

    # ---- control

    def _pipeline(self, item: JsonObject) -> Pipeline:
        nodes: dict[str, Table | Conditional] = {}
        for table in item["tables"]:
            nodes[table["name"]] = self._table(table)
        for node in items_of(item, "conditionals"):
            where = where_of(node, self.program)
            condition = self.names.expr(node["expression"], where)
            true_next, false_next = node.get("true_next"), node.get("false_next")
            nodes[node["name"]] = Conditional(node["name"], condition, true_next, false_next, where)
        if item.get("action_calls"):
            raise UnsupportedProgram("'action_calls' (never made by p4c) are not supported", place=self.program)
        profiles = {}
        for profile in items_of(item, "action_profiles"):
            selector = profile.get("selector")
            calculation = None
            if selector is not None:
                calculation = self._calculation(profile["name"], {**profile, **selector}, selector["input"])
            where = where_of(profile, self.program)
            profiles[profile["name"]] = Profile(profile["name"], profile["max_size"], calculation, where)
        return Pipeline(item["name"], item.get("init_table"), nodes, profiles)

    def _table(self, item: JsonObject) -> Table:
        where = where_of(item, self.program)
        if item["type"] not in ("simple", "indirect", "indirect_ws"):
            raise UnsupportedProgram(
                f"table {item['name']} of type '{item['type']}' is not supported", place=where, value=item["name"]
            )
        keys = tuple(self._table_key(key, where) for key in items_of(item, "key"))
        if sum(key.match_kind == "lpm" for key in keys) > 1:
            raise UnsupportedProgram(
                f"table {item['name']} has more than one lpm field", place=where, value=item["name"]
            )
        action_ids = self._action_ids(item)
        nexts = item.get("next_tables") or {}
        default = item.get("default_entry")
        entries = item.get("entries")
        return Table(
            name=item["name"],
            key=keys,
            match_type=item["match_type"],
            action_ids=action_ids,
            size=item.get("max_size", len(entries or ())),
            profile=item.get("action_profile"),
            counters=bool(item.get("with_counters")),
            meter=item.get("direct_meters"),
            support_timeout=bool(item.get("support_timeout")),
            default_action=default["action_id"] if default else None,
            default_params=self._params(default) if default else (),
            const_default=bool(default and default.get("action_const", False)),
            entries=tuple(self._entry(e, keys, where) for e in entries) if entries is not None else None,
            next_by_action=tuple(
                nexts.get(self.actions[number].name if number in self.actions else None, item.get("base_default_next"))
                for number in action_ids
            ),
            next_on_hit=nexts.get("__HIT__"),
            next_on_miss=nexts.get("__MISS__"),
            splits_on_hit="__HIT__" in nexts or "__MISS__" in nexts,
            base_next=item.get("base_default_next"),
            where=where,
        )

    def _action_ids(self, item: JsonObject) -> tuple[int, ...]:
        """The table's actions by number; a compiler may have written their names alone."""
        if "action_ids" in item:
            return tuple(item["action_ids"])
        numbers = {action.name: number for number, action in reversed(self.actions.items())}
        return tuple(numbers[name] for name in item["actions"])

    def _table_key(self, key: JsonObject, where: str) -> TableKey:
        kind, target = key["match_type"], key["target"]
        if isinstance(target, dict):
            raise UnsupportedProgram(
                f"the expression {key.get('name', target)} as a key field is not supported",
                place=where,
                value=key.get("name", target),
            )
        if kind == "valid":
            kind, target = "exact", [target if isinstance(target, str) else target[0], "$valid$"]
        if kind not in MATCH_KINDS:
            raise UnsupportedProgram(f"key field of kind '{kind}' is not supported", place=where, value=kind)
        mask = int(key["mask"], 16) if key.get("mask") else None
        return TableKey(key.get("name", ".".join(target)), kind, self.names.field(target, where), mask)

    def _entry(self, item: JsonObject, keys: tuple[TableKey, ...], table: str) -> ConstEntry:
        match: list[tuple[str, int, int]] = []
        for number, part in enumerate(item["match_key"]):
            kind = part["match_type"]
            target = keys[number].target if number < len(keys) else None
            width = self.names.width(target) if target and self.names.is_signed(target) else 0
            if kind == "range":
                match.append((kind, *(_unsigned(int(part[side], 16), width) for side in ("start", "end"))))
                continue
            key = part["key"]
            value = int(key) if isinstance(key, bool) else _unsigned(int(key, 16), width)
            mask = _unsigned(int(part.get("mask") or "0", 16), width)
            other = {"lpm": part.get("prefix_length"), "ternary": mask}.get(kind, 0)
            match.append(("exact" if kind == "valid" else kind, value, int(other or 0)))
        entry = item["action_entry"]
        priority = int(item.get("priority", 0))
        return ConstEntry(tuple(match), entry["action_id"], self._params(entry), priority, where_of(item, table))

    def _params(self, call: JsonObject) -> tuple[int, ...]:
        """The constant arguments of an entry's or default action."""
        action = self.actions.get(call["action_id"])
        widths = [width for _, width in action.params] if action else []
        values = [int(value, 16) for value in call.get("action_data", ())]
        padded = [*widths, *[0] * (len(values) - len(widths))]
        return tuple(_unsigned(value, width) for value, width in zip(values, padded, strict=False))

    # ---- calculations

    def _calculation(self, name: str, item: JsonObject, inputs: list[JsonObject]) -> Calculation:
        where = where_of(item, f"{self.program}, calculation {name}")
        fields: list[tuple[Expr, int]] = []
        payload = False
        for part in inputs:
            if not isinstance(part, dict) or part["type"] not in ("payload", "header", "hexstr", "field"):
                raise UnsupportedProgram(
                    f"{part} as input of the calculation {name} is not supported", place=where, value=part
                )
            if part["type"] == "payload":
                payload = True
            elif part["type"] == "header":
                header = self.names.headers[part["value"]]
                fields += [(Field(header.name, field), width) for field, width, _ in header.fields if width]
            elif part["type"] == "hexstr":
                fields.append((Const(int(part["value"], 16)), int(part["bitwidth"])))
            else:
                field = self.names.field(part["value"], where)
                if width := self.names.width(field):
                    fields.append((field, width))
        return Calculation(name, item["algo"], tuple(fields), payload, where)

    def _checksum(self, item: JsonObject) -> Checksum:
        where = where_of(item, self.program)
        condition = item.get("if_cond")
        return Checksum(
            self.names.field(item["target"], where),
            item["calculation"],
            bool(item.get("update", True)),
            bool(item.get("verify", True)),
            self.names.expr(condition, where) if condition is not None else None,
            where,
        )


def _errors(root: JsonObject) -> dict[str, int]:
    """Numbers of the parser's errors. P4's own that the JSON lacks follow its last, as in simple_switch."""
    errors = dict(items_of(root, "errors"))
    for name in _CORE_ERRORS:
        if name not in errors:
            errors[name] = max(errors.values(), default=-1) + 1
    return errors


def _unsigned(value: int, width: int) -> int:
    """Return the bits of a number of `width` bits; p4c writes it with its sign if it is an `int<N>`.

    A value that does not fit stays unchanged and is refused later together with its use, as is an impossible width.
    """
    return value + (1 << width) if 0 < width <= MAX_BITS and -(1 << width - 1) <= value < 0 else value


def _key_value(value: int, parts: Sequence[tuple[int, bool]]) -> int:
    """Return the bits of a select's value; `parts` are the (width, signed) of the key's expressions.

    p4c adds up the expressions' values, each shifted by the whole bytes of those behind it, negative ones as they are.
    A value that is no such sum stays unchanged.
    """
    whole, bits, shift = value, 0, 0
    for width, signed in reversed(parts):
        padded = (width + 7) // 8 * 8
        own = value & (1 << padded) - 1
        if signed and own >> padded - 1:
            own -= 1 << padded
        value = value - own >> padded
        bits |= _unsigned(own, width) << shift
        shift += padded
    return whole if value else bits
