"""A TNA program run as p4c's mid end leaves it: one flat text per control, with parsers, tables and register actions.

The program's own source runs, not a separate model; p4test makes the text (`flattened`). Limits of a chip (stages, a
register's unit) are not modelled. The subset of P4_16 that this text uses is supported; anything else raises.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from weir.p4src import ROOT
from weir.tests.p4src.node_model import internet_checksum

PARTIAL_HEADER = 2
"""TNA's PARSER_ERROR_PARTIAL_HDR."""

GREEN, RED = 0, 3
"""Colors of TNA's meters."""

_TOKEN = re.compile(
    r"(?P<number>\d+w0x[0-9a-f]+|\d+w\d+|0x[0-9a-f]+|\d+(?!\w))|(?P<name>[A-Za-z_]\w*)|(?P<text>\"[^\"]*\")"
    r"|(?P<op>&&&|\|-\||\|\+\||\+\+|\|\||&&|==|!=|<=|>=|<<|[-+*&|^~!<>=(){}\[\];:,.@])"
)
_LEVELS = (
    ("||",),
    ("&&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("|",),
    ("^",),
    ("&",),
    ("<<",),
    ("++", "+", "-", "|-|"),
)


class TooShort(Exception):
    """A packet ends within a header."""


def flattened(folder: Path, generation: int = 1, source: str = "tofino/fabric.p4") -> str:
    """Text of a program for Tofino 1 or 2 after p4c's front and mid end; warnings are errors, except those that
    common/ causes for other targets.
    """
    chip = f"-D__TARGET_TOFINO__={generation}"
    options = [chip, "--Werror", "--Wdisable=unused", "--top4", "MidEndLast", "--dump", str(folder)]
    done = subprocess.run(["p4test", *options, source], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [dump] = folder.glob("*MidEndLast*.p4")
    return dump.read_text()


@dataclass
class Frame:
    """A packet on its way through one parser, control or deparser: all fields by their path."""

    values: dict[str, int] = field(default_factory=dict)
    valid: set[str] = field(default_factory=set)
    data: bytes = b""
    bit: int = 0
    """Position of the parser, in bits."""
    out: list[tuple[int, int]] = field(default_factory=list)
    """Emitted (value, width)."""
    sums: dict[str, bytes] = field(default_factory=dict)
    now_ns: int = 0
    """When it is where it is."""
    length: int = 0
    """Bytes of it that meters count."""
    mirrored: tuple[int, list[tuple[int, int]]] | None = None
    """Session of its mirror, and the bytes in front of the mirrored frame."""
    summed: bool = False
    """Fields are read for a deparser's checksum, for which headers that are not there do not count."""

    def in_place_of(self, path: str) -> int:
        """Value that a chip holds in place of a field of an invalid header: any field of a header that never occurs
        together with it, since such headers share storage.
        """
        return 0 if self.summed else random.Random(path.encode() + self.data).getrandbits(256)

    def take(self, width: int) -> int:
        if self.bit + width > 8 * len(self.data):
            raise TooShort
        whole = int.from_bytes(self.data)
        shift = 8 * len(self.data) - self.bit - width
        self.bit += width
        return whole >> shift & (1 << width) - 1

    def emitted(self) -> bytes:
        number, bits = 0, 0
        for value, width in self.out:
            number, bits = number << width | value, bits + width
        assert bits % 8 == 0
        return number.to_bytes(bits // 8) + self.data[self.bit // 8 :]


@dataclass
class Meter:
    """Peak rate of a meter by RFC 2698: a packet that finds too few tokens is red, and takes none."""

    bytes_per_ns: Fraction
    burst_bytes: Fraction
    filled_ns: int = 0

    def __post_init__(self) -> None:
        self.tokens = self.burst_bytes

    def color(self, frame: Frame) -> int:
        self.tokens = min(self.burst_bytes, self.tokens + (frame.now_ns - self.filled_ns) * self.bytes_per_ns)
        self.filled_ns = frame.now_ns
        if self.tokens < frame.length:
            return RED
        self.tokens -= frame.length
        return GREEN


Run = Callable[[Frame], Any]
Typed = tuple[Run, int]
"""Evaluator and width in bits; 0: a bool, or a number without a width."""


@dataclass
class Action:
    name: str
    id: int | None
    parameters: list[tuple[str, str, int]]
    """(in the text, to the control plane, width)"""
    body: Run


@dataclass
class Table:
    name: str
    id: int | None
    key: list[tuple[str, str, int]]
    """(name, match kind, width)"""
    keys: list[Run]
    actions: list[str]
    default: tuple[str, tuple[int, ...]]
    constant: bool
    size: int
    entries: list[tuple[tuple[tuple[int, int], ...], str, tuple[int, ...]]]
    """(value, mask) per key, action and its arguments; the first that matches is taken."""


@dataclass
class Control:
    """A control or parser with all that is declared in it."""

    name: str
    actions: dict[str, Action] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    states: dict[str, Run] = field(default_factory=dict)
    apply: Run | None = None


class Program:
    """The whole text. `registers` and `counters` are state; tables of a control plane are written by `insert`, meters
    by their name and index; without a configuration one is always green.
    """

    def __init__(self, text: str) -> None:
        self._tokens = [
            next((kind, value) for kind, value in match.groupdict().items() if value)
            for match in _TOKEN.finditer(re.sub(r"//.*", "", text))
        ]
        self._at = 0
        self.types: dict[str, list[tuple[str, str]]] = {}
        self._header_types: set[str] = set()
        self._headers: set[str] = set()
        """Headers by their path."""
        self.controls: dict[str, Control] = {}
        self.registers: dict[str, dict[int, dict[str, int]]] = {}
        self.counters: dict[str, dict[int, int]] = {}
        self.meters: dict[str, dict[int, Meter]] = {}
        self._mirrors: set[str] = set()
        self._meters: dict[str, dict[int, Meter]] = {}
        """The meters by their names in the text."""
        self._register_types: dict[str, str] = {}
        self._register_actions: dict[str, tuple[str, str, str | None, Run]] = {}
        self._widths: dict[str, int] = {}
        self._control = Control("")
        self._read_program()

    def run(self, control: str, frame: Frame) -> None:
        """A control's apply block."""
        body = self.controls[control].apply
        assert body is not None
        body(frame)

    def parse(self, parser: str, frame: Frame) -> int:
        """The parser's error: 0, or `PARTIAL_HEADER`."""
        state = "start"
        try:
            while state not in ("accept", "reject"):
                state = self.controls[parser].states[state](frame)
        except TooShort:
            return PARTIAL_HEADER
        return 0

    def table(self, name: str) -> Table:
        return next(t for c in self.controls.values() for t in c.tables.values() if t.name == name)

    def action(self, name: str) -> str:
        """An action as the text calls it."""
        return next(key for c in self.controls.values() for key, a in c.actions.items() if a.name == name)

    def set_default(self, table: str, action: str, *args: int) -> None:
        self.table(table).default = self.action(action), args

    def insert(self, table: str, match: tuple[tuple[int, int], ...], action: str, *args: int) -> None:
        """`match` is (value, mask) per key; longer prefixes are to come first."""
        self.table(table).entries.append((match, self.action(action), args))

    # --- reading ---

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at][1] if at < len(self._tokens) else ""

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _expect(self, *values: str) -> None:
        for value in values:
            got = self._next()
            assert got == value, f"{value} expected, {' '.join(t[1] for t in self._tokens[self._at - 8 : self._at])}"

    def _skip(self, opening: str, closing: str) -> None:
        """Past the bracket that closes the one that comes next."""
        self._expect(opening)
        depth = 1
        while depth:
            depth += {opening: 1, closing: -1}.get(self._next(), 0)

    def _annotations(self) -> dict[str, str]:
        found = {}
        while self._peek() == "@":
            self._next()
            name = self._next()
            if self._peek() == "(":
                found[name] = self._peek(1).strip('"')
                self._skip("(", ")")
        return found

    def _type(self) -> str:
        """A type as text, such as bit<32>."""
        text = self._next()
        if self._peek() == "<":
            depth = 0
            while True:
                token = self._next()
                text += token
                depth += {"<": 1, ">": -1}.get(token, 0)
                if depth == 0:
                    break
        return text

    @staticmethod
    def _width(kind: str) -> int:
        match = re.fullmatch(r"(?:bit|int)<(\d+)>", kind)
        return int(match[1]) if match else 0

    def _read_program(self) -> None:
        while self._at < len(self._tokens):
            self._annotations()
            word = self._next()
            if word in ("struct", "header"):
                name = self._next()
                self._expect("{")
                self.types[name] = []
                if word == "header":
                    self._header_types.add(name)
                while self._peek() != "}":
                    self._annotations()
                    kind = self._type()
                    self.types[name].append((kind, self._next()))
                    self._expect(";")
                self._next()
            elif word in ("control", "parser"):
                self._read_control()
            elif word == "Pipeline":
                return

    def _declare(self, path: str, kind: str) -> None:
        if kind in self.types:
            if kind in self._header_types:
                self._headers.add(path)
            for inner, name in self.types[kind]:
                self._declare(f"{path}.{name}", inner)
        else:
            self._widths[path] = self._width(kind)

    def _read_control(self) -> None:
        self._control = Control(self._next())
        self._widths = {}
        if self._peek() == "<":
            self._type()
        self._expect("(")
        while self._next_is_parameter():
            pass
        if self._peek() == ";":  # an architecture's declaration
            self._next()
            return
        self.controls[self._control.name] = self._control
        self._expect("{")
        while self._peek() != "}":
            self._declaration()
        self._next()

    def _next_is_parameter(self) -> bool:
        """Read one parameter and the comma behind it, or the end; return whether there was one."""
        if self._peek() == ")":
            self._next()
            return False
        self._annotations()
        if self._peek() in ("in", "out", "inout"):
            self._next()
        kind = self._type()
        self._declare(self._next(), kind)
        if self._peek() == ",":
            self._next()
        return True

    def _declaration(self) -> None:
        notes = self._annotations()
        word = self._peek()
        if word == "action":
            self._next()
            self._read_action(notes)
        elif word == "table":
            self._next()
            self._read_table(notes)
        elif word == "state":
            self._next()
            name = self._next()
            self._control.states[name] = self._state()
        elif word == "apply":
            self._next()
            self._control.apply = self._block()
        else:
            self._read_instance(notes)

    def _read_instance(self, notes: Mapping[str, str]) -> None:
        kind = self._type()
        if self._peek() != "(":  # a variable
            self._declare(self._next(), kind)
            self._expect(";")
            return
        first = self._peek(1)
        self._skip("(", ")")
        name = self._next()
        if kind.startswith("Register<"):
            self.registers[name] = {}
            self._register_types[name] = kind[len("Register<") :].split(",")[0]
        elif kind.startswith("Counter<"):
            self.counters[name] = {}
        elif kind == "Mirror":
            self._mirrors.add(name)
        elif kind.startswith("Meter<"):
            self.meters[notes["name"]] = self._meters[name] = {}
        elif kind.startswith("RegisterAction<"):
            self._expect("=", "{")
            self._read_register_action(name, first)
            self._expect("}")
        self._expect(";")

    def _read_register_action(self, name: str, register: str) -> None:
        self._expect("void", "apply", "(", "inout")
        self._type()
        held = self._next()
        self._declare(held, self._register_types[register])
        result = None
        if self._peek() == ",":
            self._expect(",", "out")
            kind = self._type()
            result = self._next()
            self._declare(result, kind)
        self._expect(")")
        self._register_actions[name] = (register, held, result, self._block())

    def _read_action(self, notes: Mapping[str, str]) -> None:
        name = self._next()
        parameters = []
        self._expect("(")
        while self._peek() != ")":
            own = self._annotations()
            kind = self._type()
            parameter = self._next()
            self._declare(parameter, kind)
            parameters.append((parameter, own.get("name", parameter), self._width(kind)))
            if self._peek() == ",":
                self._next()
        self._next()
        number = int(notes["id"]) if "id" in notes else None
        self._control.actions[name] = Action(notes.get("name", name), number, parameters, self._block())

    def _call(self) -> tuple[str, tuple[int, ...]]:
        """An action with its arguments, which are constants."""
        name = self._next()
        self._expect("(")
        args = []
        while self._peek() != ")":
            args.append(self._expression()[0](Frame()))
            if self._peek() == ",":
                self._next()
        self._next()
        return name, tuple(args)

    def _read_table(self, notes: Mapping[str, str]) -> None:
        number = int(notes["id"]) if "id" in notes else None
        table = Table(notes.get("name", ""), number, [], [], [], ("", ()), False, 0, [])
        self._control.tables[self._next()] = table
        self._expect("{")
        while self._peek() != "}":
            if self._peek() == "const":
                self._next()
            word = self._next()
            if word == "key":
                self._expect("=", "{")
                while self._peek() != "}":
                    run, width = self._expression()
                    self._expect(":")
                    kind = self._next()
                    name = self._annotations().get("name", "")
                    self._expect(";")
                    if kind != "selector":
                        table.key.append((name, kind, width))
                        table.keys.append(run)
                self._next()
            elif word == "actions":
                self._expect("=", "{")
                while self._peek() != "}":
                    if "defaultonly" in (hidden := self._default_only()):
                        self._call()
                    else:
                        table.actions.append(self._call()[0])
                    assert len(hidden) <= 1
                    self._expect(";")
                self._next()
            elif word == "entries":
                self._expect("=", "{")
                table.constant = True
                while self._peek() != "}":
                    self._entry(table)
                self._next()
            elif word == "default_action":
                self._expect("=")
                table.default = self._call()
                self._expect(";")
            elif word == "size":
                self._expect("=")
                table.size = int(self._next())
                self._expect(";")
            else:
                while self._next() != ";":
                    pass
        self._next()

    def _default_only(self) -> set[str]:
        found = set()
        while self._peek() == "@":
            self._next()
            found.add(self._next())
        return found

    def _entry(self, table: Table) -> None:
        match = []
        several = self._peek() == "("
        if several:
            self._next()
        while True:
            match.append(self._matched())
            if self._peek() != ",":
                break
            self._next()
        if several:
            self._expect(")")
        self._expect(":")
        name, args = self._call()
        self._expect(";")
        table.entries.append((tuple(match), name, args))

    def _matched(self) -> tuple[int, int]:
        """(value, mask)"""
        if self._peek() in ("default", "_"):
            self._next()
            return 0, 0
        value = self._expression()[0](Frame())
        if self._peek() == "&&&":
            self._next()
            return value, self._expression()[0](Frame())
        return value, -1

    def _state(self) -> Run:
        self._expect("{")
        steps: list[Run] = []
        while self._peek() != "transition":
            steps.append(self._statement())
        self._next()
        ways: list[tuple[tuple[tuple[int, int], ...], str]] = []
        subjects: list[Run] = []
        if self._peek() == "select":
            self._next()
            self._expect("(")
            while True:
                subjects.append(self._expression()[0])
                if self._next() == ")":
                    break
            self._expect("{")
            while self._peek() != "}":
                several = self._peek() == "("
                if several:
                    self._next()
                match = [self._matched()]
                while self._peek() == ",":
                    self._next()
                    match.append(self._matched())
                if several:
                    self._expect(")")
                self._expect(":")
                ways.append((tuple(match), self._next()))
                self._expect(";")
            self._next()
        else:
            ways.append(((), self._next()))
            self._expect(";")
        self._expect("}")

        def run(frame: Frame) -> str:
            for step in steps:
                step(frame)
            values = [subject(frame) for subject in subjects]
            for match, to in ways:
                if all((value ^ want) & mask == 0 for value, (want, mask) in zip(values, match, strict=False)):
                    return to
            return "reject"

        return run

    # --- statements ---

    def _block(self) -> Run:
        self._expect("{")
        steps = []
        while self._peek() != "}":
            steps.append(self._statement())
        self._next()

        def run(frame: Frame) -> None:
            for step in steps:
                step(frame)

        return run

    def _statement(self) -> Run:
        self._annotations()  # of an action's body that stands in another's
        if self._peek() == ";":
            self._next()
            return lambda frame: None
        if self._peek() == "{":
            return self._block()
        if self._peek() == "if":
            self._next()
            self._expect("(")
            condition, _ = self._expression()
            self._expect(")")
            yes = self._statement()
            no: Run = lambda frame: None  # noqa: E731
            if self._peek() == "else":
                self._next()
                no = self._statement()
            return lambda frame: yes(frame) if condition(frame) else no(frame)
        target = self._postfix()
        if self._peek() == ";":
            self._next()
            return target[0]
        path, high, low = self._place
        self._expect("=")
        value, _ = self._expression()
        self._expect(";")
        if high is None:
            width = self._widths.get(path, 0)  # none: intrinsic metadata, which the text does not declare
            mask = (1 << width) - 1 if width else -1

            def assign(frame: Frame) -> None:
                written = int(value(frame)) & mask
                self._must_be_there(path, frame, written, mask)
                frame.values[path] = written

            return assign
        assert low is not None
        part = (1 << high - low + 1) - 1 << low

        def assign_part(frame: Frame) -> None:
            written = (value(frame) << low) & part
            self._must_be_there(path, frame, written, part)
            frame.values[path] = frame.values.get(path, 0) & ~part | written

        return assign_part

    def _must_be_there(self, path: str, frame: Frame, written: int, mask: int) -> None:
        """Raises AssertionError where a field changes of a header that is not there."""
        header, _, _ = path.rpartition(".")
        if header in self._headers and header not in frame.valid:
            assert written == frame.in_place_of(path) & mask, f"{path} changes where there is no {header}"

    # --- expressions ---

    def _expression(self, level: int = 0) -> Typed:
        if level == len(_LEVELS):
            return self._prefix()
        left = self._expression(level + 1)
        while self._peek() in _LEVELS[level]:
            op = self._next()
            left = _binary(op, left, self._expression(level + 1))
        return left

    def _prefix(self) -> Typed:
        if self._peek() == "!":
            self._next()
            run, _ = self._prefix()
            return lambda frame: not run(frame), 0
        if self._peek() == "~":
            self._next()
            run, width = self._prefix()
            return lambda frame: ~run(frame) & (1 << width) - 1, width
        return self._postfix()

    def _postfix(self) -> Typed:
        """Parse a literal, a path, a call, a slice, a cast, or an expression in brackets."""
        kind, value = self._tokens[self._at]
        if kind == "number":
            self._next()
            bits, _, digits = value.rpartition("w")
            number = int(digits, 0)
            return lambda frame: number, int(bits or 0)
        if value in ("true", "false"):
            self._next()
            truth = value == "true"
            return lambda frame: truth, 0
        if value == "(":
            return self._bracket()
        path = self._next()
        while self._peek() in (".", "<"):
            if self._peek() == "<":
                if not self._is_type_argument():
                    break
                self._type_argument = self._type_arguments()
                break
            self._next()
            path += "." + self._next()
        if self._peek() == "(":
            return self._invocation(path)
        width = self._widths.get(path, 0)
        self._place: tuple[str, int | None, int | None] = (path, None, None)
        if self._peek() == "[":
            self._next()
            high, low = int(self._next()), 0
            self._expect(":")
            low = int(self._next())
            self._expect("]")
            self._place = (path, high, low)
            size = high - low + 1
            read = self._reading(path, high + 1)
            return lambda frame: read(frame) >> low & (1 << size) - 1, size
        return self._reading(path, width), width

    def _reading(self, path: str, width: int) -> Run:
        header, _, _ = path.rpartition(".")
        if header not in self._headers:
            return lambda frame: frame.values.get(path, 0)
        bits = (1 << width) - 1
        return lambda frame: frame.values.get(path, 0) if header in frame.valid else frame.in_place_of(path) & bits

    def _is_type_argument(self) -> bool:
        methods = (
            "extract",
            "emit",
            "lookahead",
            "add",
            "subtract",
            "subtract_all_and_deposit",
            "update",
            "min",
            "max",
        )
        return self._peek(-1) in methods

    def _type_arguments(self) -> str:
        text = self._type_text()
        return text[1:-1]

    def _type_text(self) -> str:
        text, depth = "", 0
        while True:
            token = self._next()
            text += token
            depth += {"<": 1, ">": -1}.get(token, 0)
            if depth == 0:
                return text

    def _bracket(self) -> Typed:
        """(int<32>)(…), (struct){…}, or an expression in brackets."""
        self._expect("(")
        if self._peek() in ("int", "bit", "bool"):
            kind = self._type()
            self._expect(")")
            run, width = self._prefix()
            size = self._width(kind)
            if kind.startswith("int"):
                assert size == width
                top = 1 << size - 1
                return lambda frame: (run(frame) ^ top) - top, 0
            return lambda frame: int(run(frame)) & (1 << size) - 1, size
        if self._peek() in self.types:
            self._next()
            self._expect(")", "{")
            parts = []
            while True:
                self._next()
                self._expect("=")
                parts.append(self._expression())
                if self._next() == "}":
                    break
            return lambda frame: [(run(frame), width) for run, width in parts], 0
        inner = self._expression()
        self._expect(")")
        return inner

    def _invocation(self, path: str) -> Typed:
        self._expect("(")
        argument = self._type_argument if self._peek(-2) == ">" else ""
        args: list[Typed] = []
        places = []
        while self._peek() != ")":
            args.append(self._expression())
            places.append(self._place[0])
            if self._peek() == ",":
                self._next()
        self._next()
        subject, _, method = path.rpartition(".")
        if method == "apply" and self._peek() == ".":
            self._next()
            assert self._next() == "hit"
        run = self._method(subject, method, argument, args, places)
        width = self._width(argument) if method in ("min", "max", "lookahead") else 0
        if method == "execute" and subject in self._register_actions:
            result = self._register_actions[subject][2]
            width = self._widths[result] if result else 0
        return run, width

    def _method(self, subject: str, method: str, argument: str, args: list[Typed], places: list[str]) -> Run:
        match method:
            case "isValid":
                return lambda frame: subject in frame.valid
            case "setValid":
                return lambda frame: frame.valid.add(subject)
            case "setInvalid":
                return lambda frame: frame.valid.discard(subject)
            case "apply":
                return self._application(self._control, subject)
            case "execute" if subject in self._meters:
                meters, which = self._meters[subject], args[0][0]
                return lambda frame: meters[which(frame)].color(frame) if which(frame) in meters else GREEN
            case "execute":
                return self._execution(subject, args[0][0])
            case "count":
                counter, index = self.counters[subject], args[0][0]
                return lambda frame: counter.__setitem__(index(frame), counter.get(index(frame), 0) + 1)
            case "min" | "max":
                choose = min if method == "min" else max
                return lambda frame: choose(args[0][0](frame), args[1][0](frame))
            case "extract":
                return self._extraction(argument, places[0])
            case "emit" if subject in self._mirrors:
                session, front = args[0][0], places[1]
                parts = [(f"{front}.{name}", self._width(kind)) for kind, name in self.types[argument]]

                def mirror(frame: Frame) -> None:
                    frame.mirrored = session(frame), [(frame.values[path], width) for path, width in parts]

                return mirror
            case "emit":
                return self._emission(argument, places[0])
            case "lookahead":
                width = self._width(argument)

                def look(frame: Frame) -> int:
                    value = frame.take(width)
                    frame.bit -= width
                    return value

                return look
            case "advance":
                return lambda frame: None  # intrinsic metadata is not in the data here
        return self._checksum(subject, method, argument, args, places)

    def _checksum(self, subject: str, method: str, argument: str, args: list[Typed], places: list[str]) -> Run:
        """Methods of a `Checksum`."""
        match method:
            case "add":
                fields = self.types[argument]

                def add(frame: Frame) -> None:
                    parts = [(frame.values[f"{places[0]}.{name}"], self._width(kind)) for kind, name in fields]
                    frame.sums[subject] = _packed(parts)

                return add
            case "verify":
                return lambda frame: internet_checksum(frame.sums[subject]) != 0
            case "subtract":
                parts_of = args[0][0]

                def subtract(frame: Frame) -> None:
                    frame.sums[subject] = frame.sums.get(subject, b"") + _packed(parts_of(frame))

                return subtract
            case "subtract_all_and_deposit":  # nothing is extracted behind it here
                residual = places[0]
                return lambda frame: frame.values.__setitem__(residual, internet_checksum(frame.sums[subject]))
            case "update":
                zero = 0xFFFF if len(args) == 2 else 0

                def update(frame: Frame) -> int:
                    frame.summed = True
                    sum_of_fields = internet_checksum(_packed(args[0][0](frame))) or zero
                    frame.summed = False
                    return sum_of_fields

                return update
        raise AssertionError(f"{subject}.{method} is not known")

    def _extraction(self, kind: str, path: str) -> Run:
        if "intrinsic" in kind:
            return lambda frame: None

        def extract(frame: Frame) -> None:
            start = frame.bit
            values = {}
            try:
                for each, name in self.types[kind]:
                    values[f"{path}.{name}"] = frame.take(self._width(each))
            except TooShort:
                frame.bit = start
                raise
            frame.values.update(values)
            frame.valid.add(path)

        return extract

    def _emission(self, kind: str, path: str) -> Run:
        def emit(frame: Frame) -> None:
            if path in frame.valid:
                frame.out += [
                    (frame.values.get(f"{path}.{name}", 0), self._width(each)) for each, name in self.types[kind]
                ]

        return emit

    def _execution(self, name: str, index: Run) -> Run:
        register, held, result, body = self._register_actions[name]
        cells, kind = self.registers[register], self._register_types[register]
        names = [each for _, each in self.types[kind]] if kind in self.types else [""]

        def execute(frame: Frame) -> int:
            at = index(frame)
            cell = cells.setdefault(at, dict.fromkeys(names, 0))
            frame.values.update({f"{held}.{each}" if each else held: value for each, value in cell.items()})
            body(frame)
            cells[at] = {each: frame.values[f"{held}.{each}" if each else held] for each in names}
            return frame.values[result] if result else 0

        return execute

    @staticmethod
    def _application(control: Control, name: str) -> Run:
        def apply(frame: Frame) -> bool:
            table = control.tables[name]
            values = [key(frame) for key in table.keys]
            for match, action, args in table.entries:
                if all((value ^ want) & mask == 0 for value, (want, mask) in zip(values, match, strict=True)):
                    _perform(control.actions[action], args, frame)
                    return True
            _perform(control.actions[table.default[0]], table.default[1], frame)
            return False

        return apply


def _perform(action: Action, args: tuple[int, ...], frame: Frame) -> None:
    for (name, _, _), value in zip(action.parameters, args, strict=True):
        frame.values[name] = value
    action.body(frame)


def _packed(parts: list[tuple[int, int]]) -> bytes:
    number, bits = 0, 0
    for value, width in parts:
        number, bits = number << width | value, bits + width
    return number.to_bytes(bits // 8)


def _binary(op: str, left: Typed, right: Typed) -> Typed:
    (a, width), (b, other) = left, right
    size = width or other
    mask = (1 << size) - 1
    operations: dict[str, Typed] = {
        "||": (lambda frame: a(frame) or b(frame), 0),
        "&&": (lambda frame: a(frame) and b(frame), 0),
        "==": (lambda frame: a(frame) == b(frame), 0),
        "!=": (lambda frame: a(frame) != b(frame), 0),
        "<": (lambda frame: a(frame) < b(frame), 0),
        ">": (lambda frame: a(frame) > b(frame), 0),
        "<=": (lambda frame: a(frame) <= b(frame), 0),
        ">=": (lambda frame: a(frame) >= b(frame), 0),
        "|": (lambda frame: a(frame) | b(frame), size),
        "^": (lambda frame: a(frame) ^ b(frame), size),
        "&": (lambda frame: a(frame) & b(frame), size),
        "<<": (lambda frame: a(frame) << b(frame) & mask, size),
        "++": (lambda frame: a(frame) << other | b(frame), width + other),
        "+": (lambda frame: a(frame) + b(frame) & mask, size),
        "-": (lambda frame: a(frame) - b(frame) & mask, size),
        "|-|": (lambda frame: max(a(frame) - b(frame), 0), size),
    }
    return operations[op]


def mutated(text: str, old: str, new: str) -> str:
    """The text with one rule broken; `old` stands in it once."""
    assert text.count(old) == 1, f"{text.count(old)} times in the program: {old}"
    return text.replace(old, new)


def controlled(program: Program) -> Iterator[Table]:
    """The tables that a control plane writes."""
    for control in program.controls.values():
        yield from (table for table in control.tables.values() if table.id is not None and not table.constant)
