"""Plain reference interpreter: runs a v1model program from its BMv2 JSON, step by step, on Python's integers.

Written from P4-16's specification and behavioral-model's `docs/JSON_format.md`; it shares nothing with the emulated
switch. It supports the output of `expression_programs` and `random_programs` and a little more. Loading any other
program raises `Unsupported`; a packet with behaviour that P4 does not define raises `Undefined`.
"""

from __future__ import annotations

import copy
import json
import operator
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from weir.tests.checksums import crc16, internet_checksum, xor16

DROP_PORT: Final = 511
STANDARD: Final = "standard_metadata"
VALID: Final = "$valid$"
LONGEST_SHIFT: Final = 1 << 12
"""Longest shift in bits; p4c's are below 2^8 in reasonable programs, and bmv2 needs memory for all of them."""
MAX_STEPS: Final = 2000
"""Maximum number of steps of one action, which may loop by jumping back."""
MAX_STATES: Final = 1000
"""Maximum number of parser states on one packet's way."""
MAX_COPIES: Final = 60
"""Maximum number of copies of one packet, recirculated ones included."""
GREEN, YELLOW, RED = 0, 1, 2
INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICA, RESUBMITTED = 1, 2, 4, 5, 6
"""Instance types; received packets are of type 0."""
OF_TIME: Final = (
    *("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth"),
    *("ingress_global_timestamp", "egress_global_timestamp"),
)
"""Fields of the standard metadata that do not depend on the packet alone."""


class Unsupported(Exception):
    """The program has something that this interpreter does not know."""


class Undefined(Exception):
    """A packet reads data that does not exist or depends on time, or exceeds guaranteed resources."""


class ParserError(Exception):
    """The parser rejects a packet; its argument is the error's number."""


# ---- numbers


def unsigned(value: int, width: int) -> int:
    return value % (1 << width)


def signed(value: int, width: int) -> int:
    """The integer that the lowest bits are in two's complement."""
    value = unsigned(value, width)
    return value - (1 << width) if value >= 1 << width - 1 else value


def between(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))


def shift(by: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def shifted(value: int, bits: int) -> int:
        if not 0 <= bits <= LONGEST_SHIFT:
            raise Undefined(f"a shift by {bits} bits")
        return by(value, bits)

    return shifted


BINARY: Final[Mapping[str, Callable[[Any, Any], int]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": shift(operator.lshift),
    ">>": shift(operator.rshift),
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "two_comp_mod": signed,
    "sat_cast": lambda value, width: between(value, -(1 << width - 1), (1 << width - 1) - 1),
    "usat_cast": lambda value, width: between(value, 0, (1 << width) - 1),
}
UNARY: Final[Mapping[str, Callable[[Any], int]]] = {"~": operator.invert, "not": operator.not_, "d2b": bool, "b2d": int}
LAZY: Final = frozenset({"and", "or", "?"})
"""Operators that do not evaluate all operands."""
OF_STACKS: Final = frozenset({"last_stack_index"})
OF_UNIONS: Final = frozenset({"valid_union"})
INDEX_BITS: Final = 32
"""Width of `lastIndex`."""
VALUES: Final = frozenset(
    {"expression", "field", "hexstr", "bool", "local", "runtime_data", "lookahead", "stack_field"}
)
NAMES: Final = frozenset(
    {
        *("header", "regular", "stack", "header_stack", "header_union"),
        *("register_array", "counter_array", "meter_array", "calculation"),
    }
)
INPUTS: Final = frozenset({"field", "hexstr", "payload"})
"""Possible inputs of checksums and hashes."""


HASHES: Final[Mapping[str, Callable[[bytes], int]]] = {
    "csum16": internet_checksum,
    "crc16": crc16,
    "crc32": zlib.crc32,
    "xor16": xor16,
    "identity": lambda data: int.from_bytes(data[:8], "big"),
}


# ---- a program


@dataclass(frozen=True, slots=True)
class Varying:
    """Value of a field of varying width."""

    value: int = 0
    width: int = 0


@dataclass(slots=True)
class Entry:
    match: list[dict[str, Any]]
    action: int
    data: list[int]
    priority: int
    """The lowest wins."""
    hits: tuple[int, int] = (0, 0)
    """Packets and bytes."""


@dataclass(slots=True)
class Bucket:
    """Meter without refill: the packets or bytes that it still passes."""

    committed: int
    peak: int

    def color(self, wanted: int) -> int:
        if self.peak < wanted:
            return RED
        self.peak -= wanted
        if self.committed < wanted:
            return YELLOW
        self.committed -= wanted
        return GREEN


@dataclass(slots=True)
class Table:
    name: str
    match_type: str
    key: list[dict[str, Any]]
    actions: dict[str, int]
    """Ids by name."""
    default: tuple[int, list[int]]
    next_tables: dict[str, str | None]
    base_default_next: str | None
    entries: list[Entry] = field(default_factory=list)

    def find(self, key: Sequence[tuple[int, int]]) -> Entry | None:
        """The entry that a key's values match, each with its width."""
        found = [entry for entry in self.entries if all(map(matches, entry.match, key))]
        if not found:
            return None
        if self.match_type == "lpm":
            return max(found, key=lambda entry: sum(part.get("prefix_length", 0) for part in entry.match))
        return min(found, key=lambda entry: entry.priority)


def matches(part: dict[str, Any], value_and_width: tuple[int, int]) -> bool:
    """Return whether a value matches one part of an entry's `match_key`."""
    value, width = value_and_width
    match part["match_type"]:
        case "exact":
            return value == number(part["key"])
        case "lpm":
            free = width - int(part["prefix_length"])
            return value >> free == number(part["key"]) >> free
        case "ternary":
            return value & number(part["mask"]) == number(part["key"]) & number(part["mask"])
        case "range":
            return number(part["start"]) <= value <= number(part["end"])
    raise Unsupported(f"an entry that matches {part['match_type']}")


def number(text: str) -> int:
    return int(text, 16)


class Interpreter:
    def __init__(self, text: bytes) -> None:
        """Raises `Unsupported`."""
        document = json.loads(text)
        check(document)
        types = {header_type["name"]: header_type["fields"] for header_type in document["header_types"]}
        self.headers: dict[str, dict[str, tuple[Any, bool]]] = {
            header["name"]: {name: (width, rest == [True]) for name, width, *rest in types[header["header_type"]]}
            for header in document["headers"]
        }
        """(width, whether it has a sign) of each field; the width "*" varies."""
        longest = {header_type["name"]: header_type.get("max_length") for header_type in document["header_types"]}
        self.longest = {header["name"]: longest[header["header_type"]] for header in document["headers"]}
        """Maximum length in bytes of headers with such a field."""
        names = {header["id"]: header["name"] for header in document["headers"]}
        self.stacks: dict[str, list[str]] = {
            header_stack["name"]: [names[id_] for id_ in header_stack["header_ids"]]
            for header_stack in document["header_stacks"]
        }
        """The elements of each header stack, by name."""
        self.unions: dict[str, list[str]] = {
            header_union["name"]: [names[id_] for id_ in header_union["header_ids"]]
            for header_union in document["header_unions"]
        }
        """The members of each union, of which one at most is there."""
        self.siblings = {
            member: [other for other in members if other != member]
            for members in self.unions.values()
            for member in members
        }
        self.metadata = [header["name"] for header in document["headers"] if header["metadata"]]
        self.errors = dict(document["errors"])
        self.registers = {
            register_array["name"]: [0] * register_array["size"] for register_array in document["register_arrays"]
        }
        self.register_bits = {
            register_array["name"]: register_array["bitwidth"] for register_array in document["register_arrays"]
        }
        self.counters = {
            counter_array["name"]: [(0, 0)] * counter_array["size"]
            for counter_array in document["counter_arrays"]
            if not counter_array["is_direct"]
        }
        """(packets, bytes) of each cell."""
        self.meters: dict[str, dict[int, Bucket]] = {
            meter_array["name"]: {} for meter_array in document["meter_arrays"]
        }
        """Their cells that were set; others call every packet green."""
        self.meter_units = {
            meter_array["name"]: (meter_array["type"], meter_array["size"]) for meter_array in document["meter_arrays"]
        }
        self.field_lists = {
            field_list["id"]: [tuple(element["value"]) for element in field_list["elements"]]
            for field_list in document["field_lists"]
        }
        self.checksums = document["checksums"]
        self.calculations = {calculation["name"]: calculation for calculation in document["calculations"]}
        self.groups: dict[int, list[tuple[int, int]]] = {}
        """(port, instance) of each copy that a multicast group makes."""
        self.sessions: dict[int, list[int]] = {}
        """The ports of each clone session's copies."""
        self.parser = document["parsers"][0]
        self.states = {parse_state["name"]: parse_state for parse_state in self.parser["parse_states"]}
        self.deparser = document["deparsers"][0]["order"]
        self.actions = {action["id"]: action["primitives"] for action in document["actions"]}
        self.first = {pipeline["name"]: pipeline["init_table"] for pipeline in document["pipelines"]}
        self.conditionals = {
            conditional["name"]: conditional
            for pipeline in document["pipelines"]
            for conditional in pipeline["conditionals"]
        }
        self.tables = {each["name"]: table(each) for pipeline in document["pipelines"] for each in pipeline["tables"]}

    def insert(
        self, name: str, match_key: list[dict[str, Any]], action: str, data: Sequence[int], priority: int = 0
    ) -> None:
        """Add an entry whose key is written as in the JSON; of priorities the lowest wins."""
        owner = self.tables[name]
        owner.entries.append(Entry(match_key, owner.actions[action], list(data), priority))

    def set_default(self, name: str, action: str, data: Sequence[int]) -> None:
        owner = self.tables[name]
        owner.default = owner.actions[action], list(data)

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """The frames that leave, each with its port. Raises `Undefined`; then what packets write is as before."""
        before = copy.deepcopy((self.registers, self.counters, self.meters))
        hits = [(entry, entry.hits) for owner in self.tables.values() for entry in owner.entries]
        try:
            return self._sent(port, frame)
        except Undefined:
            self.registers, self.counters, self.meters = before
            for entry, counted in hits:
                entry.hits = counted
            raise

    def _sent(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        sent, count = [], 0
        arriving, leaving = [Packet(self, frame, port=port)], list[Packet]()
        while arriving or leaving:
            if (count := count + 1) > MAX_COPIES:
                raise Undefined("a packet whose copies have no end")
            if leaving:
                packet = leaving.pop(0)
                clones, again, left = packet.egress()
                leaving += clones
                arriving += again
                sent += left
            else:
                copies, again = arriving.pop(0).ingress()
                leaving += copies
                arriving += again
        return sent


def table(node: dict[str, Any]) -> Table:
    default = node["default_entry"]
    actions = dict(zip(node["actions"], node["action_ids"], strict=True))
    entries = [
        Entry(
            each["match_key"],
            each["action_entry"]["action_id"],
            list(map(number, each["action_entry"]["action_data"])),
            each.get("priority", 0),
        )
        for each in node.get("entries", ())
    ]
    return Table(
        node["name"],
        node["match_type"],
        node["key"],
        actions,
        (default["action_id"], list(map(number, default["action_data"]))),
        node["next_tables"],
        node["base_default_next"],
        entries,
    )


# ---- a packet on its way through


class Packet:
    def __init__(self, program: Interpreter, frame: bytes, *, port: int = 0) -> None:
        self.program = program
        self.frame = frame
        """Received frame."""
        self.rest = frame
        """Part of the frame behind the extracted headers."""
        self.octets = len(frame)
        """Received length, which counters count."""
        self.length = len(frame)
        """Length including added headers, without removed ones."""
        self.headers: dict[str, dict[str, Any]] = {}
        """The values of the headers that are there."""
        self.forget()
        self.headers[STANDARD] |= {"ingress_port": port, "packet_length": len(frame)}
        self.filled = dict.fromkeys(program.stacks, 0)
        """The element of each stack that is extracted next."""
        self.ended = False
        """True if `exit` has ended this side of the switch."""
        self.cloned: tuple[int, int] | None = None
        self.resubmitted: int | None = None
        self.recirculated: int | None = None
        """Action at this side's end, with the list of preserved fields, and the clone's session."""
        self.longest: int | None = None
        """Bytes of the frame that may leave."""

    def forget(self) -> None:
        """All metadata."""
        program = self.program
        self.headers |= {name: dict.fromkeys(program.headers[name], 0) for name in program.metadata}

    def anew(self, instance_type: int, fields: int, other: Packet) -> Packet:
        """Itself with these metadata of another packet alone."""
        self.forget()
        self.headers[STANDARD] |= {"instance_type": instance_type, "packet_length": self.length}
        for header, name in self.program.field_lists.get(fields, ()):
            self.headers[header][name] = other.headers[header][name]
        return self

    def ingress(self) -> tuple[list[Packet], list[Packet]]:
        """(those that go on to egress, those that come in once more)."""
        standard = self.headers[STANDARD]
        self.parse_whole()
        self.control("ingress")
        leaving = []
        if self.cloned is not None:
            session, fields = self.cloned
            for port in self.program.sessions.get(session, ()):
                clone = Packet(self.program, self.frame)
                clone.parse_whole()
                leaving.append(clone.anew(INGRESS_CLONE, fields, self).to(port))
        if self.resubmitted is not None:
            return leaving, [self.once_more(self.frame, RESUBMITTED, self.resubmitted)]
        if standard["mcast_grp"] != 0:
            for port, instance in self.program.groups.get(standard["mcast_grp"], ()):
                copy_ = self.copied()
                copy_.headers[STANDARD] |= {"egress_rid": instance, "instance_type": REPLICA}
                leaving.append(copy_.to(port))
        elif standard["egress_spec"] != DROP_PORT:
            standard["instance_type"] = 0  # however it came in, as bmv2 has it
            leaving.append(self.to(standard["egress_spec"]))
        return leaving, []

    def to(self, port: int) -> Packet:
        """Itself, on its way out."""
        self.headers[STANDARD] |= {"egress_port": port, "egress_spec": 0, "packet_length": self.length}
        self.cloned = None
        return self

    def egress(self) -> tuple[list[Packet], list[Packet], list[tuple[int, bytes]]]:
        """(clones, those that come in once more, what leaves)."""
        standard = self.headers[STANDARD]
        self.control("egress")
        clones = []
        if self.cloned is not None:
            session, fields = self.cloned
            for port in self.program.sessions.get(session, ()):
                clones.append(self.copied().anew(EGRESS_CLONE, fields, self).to(port))
        if standard["egress_spec"] == DROP_PORT:
            return clones, [], []
        frame = self.deparsed()[: self.longest]
        if self.recirculated is not None:
            return clones, [self.once_more(frame, RECIRCULATED, self.recirculated)], []
        return clones, [], [(standard["egress_port"], frame)]

    def copied(self) -> Packet:
        """Its headers and metadata as they are, without what is to be done."""
        copy_ = copy.copy(self)
        copy_.headers, copy_.filled = copy.deepcopy(self.headers), dict(self.filled)
        copy_.cloned = copy_.resubmitted = copy_.recirculated = None
        return copy_

    def once_more(self, frame: bytes, instance_type: int, fields: int) -> Packet:
        return Packet(self.program, frame).anew(instance_type, fields, self)

    # -- parser and deparser

    def parse_whole(self) -> None:
        """Up to its end, be it an error's, and check the checksums."""
        try:
            self.parse()
        except ParserError as error:
            self.headers[STANDARD]["parser_error"] = error.args[0]
        for checksum in self.program.checksums:
            if checksum["verify"] and self.meant(checksum):
                header, name = checksum["target"]
                if self.read(header, name) != self.hashed(checksum["calculation"]):
                    self.headers[STANDARD]["checksum_error"] = 1

    def meant(self, checksum: dict[str, Any]) -> bool:
        return checksum["if_cond"] is None or bool(self.value(checksum["if_cond"]))

    def hashed(self, calculation: str) -> int:
        """Compute a named calculation over its concatenated fields."""
        bits = total = 0
        described = self.program.calculations[calculation]
        payload = b""
        for entry in described["input"]:
            match entry["type"]:
                case "payload":
                    payload = self.rest
                case "hexstr":
                    bits, total = bits << entry["bitwidth"] | number(entry["value"]), total + entry["bitwidth"]
                case _:
                    width = self.width(entry)
                    bits, total = bits << width | unsigned(self.value(entry), width), total + width
        data = (bits << -total % 8).to_bytes((total + 7) // 8, "big")
        return HASHES[described["algo"]](data + payload)

    def parse(self) -> None:
        name, states = self.program.parser["init_state"], 0
        while name is not None:
            if (states := states + 1) > MAX_STATES:
                raise Undefined("a parser that goes round without end")
            state = self.program.states[name]
            for op in state["parser_ops"]:
                PARSER_OPS[op["op"]](self, *op["parameters"])
            name = self.next_state(state)

    def next_state(self, state: dict[str, Any]) -> str | None:
        """The first transition whose value the key has, each part of which takes whole bytes; else the default."""
        key = 0
        for part in state["transition_key"]:
            width = self.width(part)
            key = key << (width + 7) // 8 * 8 | unsigned(self.value(part), width)
        default = None
        for transition in state["transitions"]:
            if transition["type"] == "default":
                default = transition["next_state"]  # of several, bmv2 takes the last
                continue
            mask = -1 if transition["mask"] is None else number(transition["mask"])
            if key & mask == number(transition["value"]) & mask:
                return transition["next_state"]  # type: ignore[no-any-return]
        return default

    def take(self, octets: int) -> int:
        """The next bytes of the packet as a number."""
        if len(self.rest) < octets:
            raise ParserError(self.program.errors["PacketTooShort"])
        taken, self.rest = self.rest[:octets], self.rest[octets:]
        return int.from_bytes(taken, "big")

    def extract(self, target: dict[str, Any]) -> None:
        name, elements = target["value"], self.program.stacks.get(target["value"], [])
        if target["type"] == "stack":
            if self.filled[name] == len(elements):
                raise ParserError(self.program.errors["StackOutOfBounds"])
            name = elements[self.filled[name]]
        fields = self.program.headers[name]
        bits = self.take(sum(width for width, _ in fields.values()) // 8)
        values = {}
        for each, (width, has_sign) in reversed(fields.items()):
            values[each] = signed(bits, width) if has_sign else unsigned(bits, width)
            bits >>= width
        self.appear(name, values)
        if target["type"] == "stack":
            self.filled[target["value"]] += 1

    def extract_varying(self, target: dict[str, Any], bits: dict[str, Any]) -> None:
        """Extract a header with a field of this many bits."""
        name, width = target["value"], self.value(bits)
        fixed = sum(each for each, _ in self.program.headers[name].values() if each != "*")
        if width % 8:
            raise ParserError(self.program.errors["ParserInvalidArgument"])
        if fixed + width > 8 * len(self.rest):
            raise ParserError(self.program.errors["PacketTooShort"])
        if fixed + width > 8 * self.program.longest[name]:
            raise ParserError(self.program.errors["HeaderTooShort"])
        held = self.take((fixed + width) // 8)
        values: dict[str, Any] = {}
        for each, (size, has_sign) in reversed(self.program.headers[name].items()):
            taken = width if size == "*" else size
            part, held = unsigned(held, taken), held >> taken
            values[each] = Varying(part, taken) if size == "*" else signed(part, size) if has_sign else part
        self.appear(name, values)

    def appear(self, name: str, values: dict[str, Any]) -> None:
        """A header is there from now on, and no other member of its union."""
        for sibling in self.program.siblings.get(name, ()):
            self.headers.pop(sibling, None)
        self.headers[name] = values

    def verify(self, condition: dict[str, Any], error: dict[str, Any]) -> None:
        if not self.value(condition):
            raise ParserError(self.value(error))

    def advance(self, bits: dict[str, Any]) -> None:
        octets, left = divmod(self.value(bits), 8)
        if left:
            raise ParserError(self.program.errors["ParserInvalidArgument"])
        self.take(octets)

    def lookahead(self, offset: int, width: int) -> int:
        octets = (offset + width + 7) // 8
        kept = self.rest
        bits = self.take(octets)
        self.rest = kept
        return unsigned(bits >> 8 * octets - offset - width, width)

    def deparsed(self) -> bytes:
        for checksum in self.program.checksums:
            if checksum["update"] and self.meant(checksum):
                self.write({"type": "field", "value": checksum["target"]}, self.hashed(checksum["calculation"]))
        frame = b""
        for name in self.program.deparser:
            if name in self.headers:
                bits = total = 0
                for field_name, (width, _) in self.program.headers[name].items():
                    value = self.headers[name][field_name]
                    if width == "*":
                        value, width = value.value, value.width
                    bits = bits << width | unsigned(value, width)
                    total += width
                frame += bits.to_bytes(total // 8, "big")
        return frame + self.rest

    # -- fields and expressions

    def width(self, place: dict[str, Any]) -> Any:
        match place["type"]:
            case "lookahead":
                return int(place["value"][1])
            case "expression":
                return INDEX_BITS  # a key of the parser, as `check` has seen
            case "stack_field":
                stack, name = place["value"]
                return self.program.headers[self.program.stacks[stack][0]][name][0]
        header, name = place["value"]
        return 1 if name == VALID else self.program.headers[header][name][0]

    def read(self, header: str, name: str) -> Any:
        if name == VALID:
            return int(header in self.headers)
        if header not in self.headers or (header == STANDARD and name in OF_TIME):
            raise Undefined(f"reading {header}.{name}")
        return self.headers[header][name]

    def write(self, place: dict[str, Any], value: int) -> None:
        """Only the bits that fit; nothing, where the header is not there."""
        if place["type"] != "field":
            raise Unsupported(f"a value that goes into a {place['type']}")
        header, name = place["value"]
        width, has_sign = self.program.headers[header][name]
        if header in self.headers:
            self.headers[header][name] = signed(value, width) if has_sign else unsigned(value, width)

    def value(self, node: dict[str, Any], data: Sequence[int] = ()) -> Any:
        """Evaluate an operand, with an action's data."""
        value = node["value"]
        match node["type"]:
            case "expression":
                return self.value(value, data) if "type" in value else self.result(value, data)
            case "field":
                return self.read(*value)
            case "hexstr":
                return number(value)
            case "bool":
                return bool(value)
            case "local" | "runtime_data":
                return data[int(value)]
            case "lookahead":
                return self.lookahead(*value)
            case "stack_field":
                return self.read(self.last_of(value[0]), value[1])
        raise Unsupported(f"a value of the type {node['type']}")

    def last_of(self, stack: str) -> str:
        if not self.filled[stack]:
            raise ParserError(self.program.errors["StackOutOfBounds"])
        return self.program.stacks[stack][self.filled[stack] - 1]

    def result(self, expression: dict[str, Any], data: Sequence[int]) -> Any:
        def left() -> Any:
            return self.value(expression["left"], data)

        def right() -> Any:
            return self.value(expression["right"], data)

        match expression["op"]:
            case "and":
                return left() and right()
            case "or":
                return left() or right()
            case "last_stack_index":
                return unsigned(self.filled[expression["right"]["value"]] - 1, INDEX_BITS)
            case "valid_union":
                return any(member in self.headers for member in self.program.unions[expression["right"]["value"]])
            case "?":
                return left() if self.value(expression["cond"], data) else right()
            case op if op in UNARY:
                return UNARY[op](right())
            case op:
                operands = left(), right()
                if len({operand.width for operand in operands if isinstance(operand, Varying)}) > 1:
                    raise Undefined("fields of varying width that are not as long as each other: bmv2 compares numbers")
                return BINARY[op](*operands)

    # -- controls

    def control(self, pipeline: str) -> None:
        self.ended = False
        node = self.program.first[pipeline]
        while node is not None and not self.ended:
            conditional = self.program.conditionals.get(node)
            if conditional is None:
                node = self.apply(self.program.tables[node])
            else:
                node = conditional["true_next" if self.value(conditional["expression"]) else "false_next"]

    def apply(self, owner: Table) -> str | None:
        """Look up, act, and say what comes next."""
        key = []
        for part in owner.key:
            place = {"type": "field", "value": part["target"]}
            mask = -1 if part["mask"] is None else number(part["mask"])
            key.append((unsigned(self.value(place), self.width(place)) & mask, self.width(place)))
        entry = owner.find(key) if key else None
        if entry is not None:
            packets, octets = entry.hits
            entry.hits = packets + 1, octets + self.octets
        action, data = owner.default if entry is None else (entry.action, entry.data)
        self.act(self.program.actions[action], data)
        by_action = {id_: name for name, id_ in owner.actions.items()}
        for name in ("__MISS__" if entry is None else "__HIT__", by_action[action]):
            if name in owner.next_tables:
                return owner.next_tables[name]
        return owner.base_default_next

    def act(self, primitives: list[dict[str, Any]], data: Sequence[int]) -> None:
        at = steps = 0
        while at < len(primitives) and not self.ended:
            steps += 1
            if steps > MAX_STEPS:
                raise Undefined("an action that goes round without end")
            op, parameters = primitives[at]["op"], primitives[at]["parameters"]
            at += 1
            if op == "_jump" or (op == "_jump_if_zero" and self.value(parameters[0], data) == 0):
                at = self.value(parameters[-1], data)
            elif op != "_jump_if_zero":
                PRIMITIVES[op](self, data, *parameters)

    def assign(self, data: Sequence[int], place: dict[str, Any], source: dict[str, Any]) -> None:
        self.write(place, self.value(source, data))

    def assign_header(self, _: Sequence[int], target: dict[str, Any], source: dict[str, Any]) -> None:
        self.headers.pop(target["value"], None)
        if source["value"] in self.headers:
            self.appear(target["value"], dict(self.headers[source["value"]]))

    def add_header(self, _: Sequence[int], target: dict[str, Any]) -> None:
        """Add a header. Its fields are 0, which P4 does not guarantee and bmv2 keeps."""
        if target["value"] not in self.headers:
            fields = self.program.headers[target["value"]].items()
            self.appear(target["value"], {name: Varying() if width == "*" else 0 for name, (width, _) in fields})
            self.length += self.octets_of(target["value"])

    def remove_header(self, _: Sequence[int], target: dict[str, Any]) -> None:
        if target["value"] in self.headers:
            self.length -= self.octets_of(target["value"])
            del self.headers[target["value"]]

    def push(self, _: Sequence[int], stack: dict[str, Any], count: dict[str, Any]) -> None:
        self.move(stack["value"], self.value(count))

    def pop(self, _: Sequence[int], stack: dict[str, Any], count: dict[str, Any]) -> None:
        self.move(stack["value"], -self.value(count))

    def move(self, stack: str, by: int) -> None:
        """Elements get so much higher places; those that have none there are gone, and nothing comes after them."""
        elements = self.program.stacks[stack]
        held = [self.headers.pop(element, None) for element in elements]
        for place, values in enumerate(held, by):
            if values is not None and 0 <= place < len(elements):
                self.headers[elements[place]] = values
        self.filled[stack] = between(self.filled[stack] + by, 0, len(elements))

    def octets_of(self, header: str) -> int:
        """Bytes of a valid header."""
        values, fields = self.headers[header], self.program.headers[header]
        bits: int = sum(values[name].width if width == "*" else width for name, (width, _) in fields.items())
        return bits // 8

    def hash(
        self,
        data: Sequence[int],
        place: dict[str, Any],
        base: dict[str, Any],
        calculation: dict[str, Any],
        size: dict[str, Any],
    ) -> None:
        if not (values := self.value(size, data)):
            raise Undefined("a hash among no values")
        self.write(place, self.value(base, data) + self.hashed(calculation["value"]) % values)

    def clone(self, data: Sequence[int], session: dict[str, Any], fields: dict[str, Any]) -> None:
        self.cloned = self.value(session, data), self.value(fields)

    def resubmit(self, _: Sequence[int], fields: dict[str, Any]) -> None:
        self.resubmitted = self.value(fields)

    def recirculate(self, _: Sequence[int], fields: dict[str, Any]) -> None:
        self.recirculated = self.value(fields)

    def truncate(self, data: Sequence[int], octets: dict[str, Any]) -> None:
        most = self.value(octets, data)
        self.longest = most if self.longest is None else min(most, self.longest)

    def execute_meter(
        self, data: Sequence[int], array: dict[str, Any], index: dict[str, Any], place: dict[str, Any]
    ) -> None:
        unit, size = self.program.meter_units[array["value"]]
        bucket = self.program.meters[array["value"]].get(self.cell(range(size), index, data))
        wanted = 1 if unit == "packets" else self.octets
        self.write(place, GREEN if bucket is None else bucket.color(wanted))

    def mark_to_drop(self, _: Sequence[int], target: dict[str, Any]) -> None:
        self.headers[target["value"]] |= {"egress_spec": DROP_PORT, "mcast_grp": 0}

    def exit(self, _: Sequence[int]) -> None:
        self.ended = True

    def register_read(
        self, data: Sequence[int], place: dict[str, Any], array: dict[str, Any], index: dict[str, Any]
    ) -> None:
        cells = self.program.registers[array["value"]]
        self.write(place, cells[self.cell(cells, index, data)])

    def register_write(
        self, data: Sequence[int], array: dict[str, Any], index: dict[str, Any], source: dict[str, Any]
    ) -> None:
        cells = self.program.registers[array["value"]]
        width = self.program.register_bits[array["value"]]
        cells[self.cell(cells, index, data)] = unsigned(self.value(source, data), width)

    def count(self, data: Sequence[int], array: dict[str, Any], index: dict[str, Any]) -> None:
        cells = self.program.counters[array["value"]]
        at = self.cell(cells, index, data)
        packets, octets = cells[at]
        cells[at] = packets + 1, octets + self.octets

    def cell(self, cells: Sequence[object], index: dict[str, Any], data: Sequence[int]) -> int:
        at: int = self.value(index, data)
        if not 0 <= at < len(cells):
            raise Undefined(f"cell {at} of {len(cells)}")
        return at


PARSER_OPS: Final[Mapping[str, Callable[..., None]]] = {
    "extract": Packet.extract,
    "extract_VL": Packet.extract_varying,
    "set": lambda packet, place, source: packet.assign((), place, source),
    "verify": Packet.verify,
    "advance": Packet.advance,
}
PRIMITIVES: Final[Mapping[str, Callable[..., None]]] = {
    "assign": Packet.assign,
    "assign_header": Packet.assign_header,
    "add_header": Packet.add_header,
    "remove_header": Packet.remove_header,
    "push": Packet.push,
    "pop": Packet.pop,
    "mark_to_drop": Packet.mark_to_drop,
    "truncate": Packet.truncate,
    "execute_meter": Packet.execute_meter,
    "exit": Packet.exit,
    "register_read": Packet.register_read,
    "register_write": Packet.register_write,
    "count": Packet.count,
    "modify_field_with_hash_based_offset": Packet.hash,
    "clone_ingress_pkt_to_egress": Packet.clone,
    "clone_egress_pkt_to_egress": Packet.clone,
    "resubmit": Packet.resubmit,
    "recirculate": Packet.recirculate,
}
JUMPS: Final = frozenset({"_jump", "_jump_if_zero"})


# ---- supported elements


def check(document: dict[str, Any]) -> None:
    """Refuse what is not known, by its name."""
    for each in document["calculations"]:
        known(f"the hash {each['algo']}", each["algo"] in HASHES)
        kinds = {part["type"] for part in each["input"]}
        known(f"a hash of {', '.join(sorted(kinds - INPUTS))}", kinds <= INPUTS)
    for each in document["deparsers"]:
        known("a deparser that does more than to emit", not each.get("primitives"))
    for pipeline in document["pipelines"]:
        known("action calls without a table", not pipeline.get("action_calls"))
        for each in pipeline["tables"]:
            known(f"table {each['name']}, which is {each['type']}", each["type"] == "simple")
            known(f"table {each['name']} with meters", each["direct_meters"] is None)
            known(
                f"entries of table {each['name']} with numbers below zero", '"-' not in json.dumps(each.get("entries"))
            )
    for state in document["parsers"][0]["parse_states"]:
        for op in state["parser_ops"]:
            known(f"parser operation {op['op']}", op["op"] in PARSER_OPS)
        for part in state["transition_key"]:
            of_stack = part["type"] == "expression" and part["value"]["op"] in OF_STACKS
            known(
                f"a key of the type {part['type']}", of_stack or part["type"] in ("field", "lookahead", "stack_field")
            )
        for transition in state["transitions"]:
            known(f"a transition of the type {transition['type']}", transition["type"] in ("hexstr", "default"))
            known("a transition on a number below zero", "-" not in f"{transition['value']}")
        check_values([op["parameters"] for op in state["parser_ops"]])
    for action in document["actions"]:
        for primitive in action["primitives"]:
            known(f"primitive {primitive['op']}", primitive["op"] in PRIMITIVES or primitive["op"] in JUMPS)
            check_values(primitive["parameters"])
    check_values(
        [conditional["expression"] for pipeline in document["pipelines"] for conditional in pipeline["conditionals"]]
    )


def check_values(parameters: object) -> None:
    for node in dictionaries(parameters):
        if "op" in node:
            op = node["op"]
            known(f"operator {op}", op in BINARY or op in UNARY or op in LAZY or op in OF_STACKS or op in OF_UNIONS)
        elif "type" in node:
            known(f"a value of the type {node['type']}", node["type"] in VALUES or node["type"] in NAMES)


def dictionaries(node: object) -> Iterator[dict[str, Any]]:
    """All the JSON's objects in a part of it."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from dictionaries(each)


def known(what: str, is_known: bool) -> None:
    if not is_known:
        raise Unsupported(f"the interpreter does not know {what}")
