"""STF text to statements: one a line, `#` begins a comment, keywords in any case, names perhaps in quotes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, get_args

from ..bmv2.check import MAX_BITS
from .statements import (
    SWITCH_COMMANDS,
    Add,
    Call,
    CheckCounter,
    CheckRegister,
    Comparison,
    CounterUnit,
    Expect,
    NoPacket,
    Packet,
    RemoveAll,
    SetDefault,
    Statement,
    StfError,
    StfTest,
    SwitchCommand,
    Wait,
)

_TOKEN: Final = re.compile(
    r'(?P<quoted>"[^"]+")'
    r"|(?P<number>0[xX][0-9a-fA-F*]+|0[bB][01*]+|0[oO][0-7*]+|\d+(?:\.\d+)?)"
    r"|(?P<name>[A-Za-z_$][\w$]*)"
    r"|(?P<sign>&&&|\.\.|==|!=|<=|>=|[:.,()\[\]=<>/|])"
    r"|(?P<comment>#.*)"
    r"|(?P<space>\s+)"
)
_FRAME: Final = re.compile(r"\s*(?P<port>\d+)(?:\s+(?P<data>[^#]*?))?\s*(?:#.*)?")
_COMPARISONS: Final[tuple[Comparison, ...]] = get_args(Comparison)
_KEYWORDS: Final = (
    *("add", "check_counter", "check_register", "expect", "no_packet"),
    *("packet", "remove all", "setdefault", "wait"),
)
_SHOWN: Final = 60
"""Digits of a wrong number that are shown."""
_UNITS: Final[tuple[CounterUnit, ...]] = get_args(CounterUnit)


def read_test(path: Path) -> StfTest:
    """Read an STF test from a file.

    Raises:
        StfError: The file cannot be read, or a statement is not STF.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise StfError(f"cannot be read as an STF test: {why}", place=str(path)) from None
    return StfTest(path, parse(text, path.name))


def parse(text: str, name: str) -> tuple[Statement, ...]:
    """Parse the statements of a test; `name` is its name in errors. Raises `StfError`."""
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), start=1))
    return tuple(_Line(name, number, line).statement() for number, line in lines if line and not line.startswith("#"))


def number(text: str) -> int:
    """Return a number without wildcards, in any of the four bases. Raises `ValueError`, also beyond `MAX_BITS`."""
    value = int(text, 0) if text[:2].lower() in ("0x", "0b", "0o") else int(text, 10)
    if value.bit_length() > MAX_BITS:
        raise ValueError(f"{text[:20]}… has more than {MAX_BITS} bits")
    return value


class _Line:
    """One statement: the tokens of its line, taken from left to right."""

    def __init__(self, file: str, line: int, text: str) -> None:
        self._file = file
        self._line = line
        keyword = re.split(r"[\s#]", text, maxsplit=1)[0]
        self._keyword = keyword.lower()
        self._rest = text[len(keyword) :]
        self._tokens: list[tuple[str, str]] = []

    def statement(self) -> Statement:
        keyword = self._keyword
        if keyword in ("packet", "expect"):
            return self._frame()
        self._tokens = list(self._scan(self._rest))
        result = self._other(keyword)
        if self._tokens:
            raise self._error(f"'{self._tokens[0][1]}' after the end of the statement")
        return result

    def _other(self, keyword: str) -> Statement:
        match keyword:
            case "add":
                return self._add()
            case "setdefault":
                return SetDefault(self._line, self._name("table"), self._call())
            case "remove":
                self._literal("all")
                return RemoveAll(self._line)
            case "wait":
                return Wait(self._line)
            case "no_packet":
                return NoPacket(self._line)
            case "check_counter":
                return self._check_counter()
            case "check_register":
                name, index = self._cell()
                if isinstance(index, str):
                    raise self._error(f"register cell '{index}' is not a number")
                return CheckRegister(self._line, name, index, self._comparison(), self._number("value"))
            case command if command in SWITCH_COMMANDS:
                return self._switch_command(command)
        known = ", ".join(sorted([*_KEYWORDS, *SWITCH_COMMANDS]))
        raise self._error(f"unknown command '{keyword}'; there are {known}")

    # ---- packets

    def _frame(self) -> Packet | Expect:
        parts = _FRAME.fullmatch(self._rest)
        if parts is None:
            raise self._error(f"{self._keyword} takes a port number and hex digits, not '{self._rest.strip()}'")
        port, digits = self._whole("port", parts["port"]), "".join((parts["data"] or "").split()).upper()
        if self._keyword == "packet":
            if not digits or len(digits) % 2 or not re.fullmatch("[0-9A-F]+", digits):
                raise self._error(f"packet of {len(digits)} digits '{digits}': give an even number of hex digits")
            return Packet(self._line, port, bytes.fromhex(digits))
        if not re.fullmatch(r"[0-9A-F*]*\$?", digits):
            raise self._error(f"expected frame '{digits}': give hex digits, '*' for any digit, '$' for the frame's end")
        if not digits:
            return Expect(self._line, port, None, False)
        return Expect(self._line, port, digits.removesuffix("$"), digits.endswith("$"))

    # ---- tables

    def _add(self) -> Add:
        table = self._name("table")
        priority = self._number("priority") if self._kind() == "number" else None
        key: list[tuple[str, str]] = []
        name = self._name("key field or action")
        while not self._at("("):
            self._literal(":")
            key.append((name, self._match()))
            name = self._name("key field or action")
        calls = [Call(name, self._arguments())]
        while self._at("|"):
            self._take()
            calls.append(self._call())
        label = None
        if self._at("="):
            self._take()
            label = self._name("label")
        return Add(self._line, table, priority, tuple(key), tuple(calls), label)

    def _match(self) -> str:
        text = self._take("number")
        if self._tokens and self._tokens[0][1] in ("/", "&&&", ".."):
            text += self._take() + self._take("number")
        return text

    def _call(self) -> Call:
        return Call(self._name("action"), self._arguments())

    def _arguments(self) -> tuple[tuple[str, int], ...]:
        arguments: list[tuple[str, int]] = []
        self._literal("(")
        while not self._at(")"):
            if arguments:
                self._literal(",")
            name = self._name("parameter")
            self._literal(":")
            arguments.append((name, self._number(name)))
        self._take()
        return tuple(arguments)

    # ---- checks and commands of the switch

    def _check_counter(self) -> CheckCounter:
        name, index = self._cell()
        if not self._tokens:
            return CheckCounter(self._line, name, index, None, "==", 0)
        unit = self._take("name").lower()
        for known in _UNITS:
            if unit == known:
                return CheckCounter(self._line, name, index, known, self._comparison(), self._number("count"))
        raise self._error(f"'{unit}' is not what a counter counts: packets or bytes")

    def _cell(self) -> tuple[str, int | str]:
        name = self._name("name")
        self._literal("(")
        index = self._number("index") if self._kind() == "number" else self._name("label")
        self._literal(")")
        return name, index

    def _comparison(self) -> Comparison:
        sign = self._take("sign")
        for known in _COMPARISONS:
            if sign == known:
                return known
        raise self._error(f"'{sign}' is not a comparison: {' '.join(_COMPARISONS)}")

    def _switch_command(self, command: str) -> SwitchCommand:
        name, numbers, rates = "", [], []
        usage = SWITCH_COMMANDS[command]
        for word in usage.split():
            if not self._tokens:
                raise self._error(f"{command} takes {usage}")
            if word == "NAME":
                name = self._name("name")
            elif word == "RATE...":
                while self._tokens:
                    rates.append(self._rate())
            elif word.endswith("..."):
                while self._tokens:
                    numbers.append(self._number(word))
            else:
                numbers.append(self._number(word))
        return SwitchCommand(self._line, command, name, tuple(numbers), tuple(rates))

    def _rate(self) -> tuple[float, int]:
        text = self._take("number")
        try:
            rate = float(text)
        except ValueError:
            raise self._error(f"rate {text} is not a decimal number") from None
        self._literal(":")
        return rate, self._number("burst")

    # ---- tokens

    def _scan(self, text: str) -> list[tuple[str, str]]:
        tokens = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._error(f"'{text[at]}' has no place in STF")
            at = match.end()
            if match.lastgroup == "quoted":
                tokens.append(("name", match[0][1:-1]))
            elif match.lastgroup in ("number", "name", "sign"):
                tokens.append((match.lastgroup, match[0]))
        return tokens

    def _kind(self) -> str:
        return self._tokens[0][0] if self._tokens else "end of line"

    def _at(self, sign: str) -> bool:
        return bool(self._tokens) and self._tokens[0] == ("sign", sign)

    def _take(self, kind: str | None = None) -> str:
        if not self._tokens or (kind is not None and self._tokens[0][0] != kind):
            raise self._error(f"a {kind or 'token'} is wanted where {self._found()} stands")
        return self._tokens.pop(0)[1]

    def _found(self) -> str:
        return f"'{self._tokens[0][1]}'" if self._tokens else "the end of the line"

    def _literal(self, text: str) -> None:
        if not self._tokens or self._tokens[0][1].lower() != text:
            raise self._error(f"'{text}' is wanted where {self._found()} stands")
        self._tokens.pop(0)

    def _number(self, kind: str) -> int:
        return self._whole(kind, self._take("number"))

    def _whole(self, kind: str, text: str) -> int:
        try:
            return number(text)
        except ValueError:
            short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
            raise self._error(f"{kind} {short} is not a whole number of at most {MAX_BITS} bits") from None

    def _name(self, kind: str) -> str:
        """`a.b[1].c`, any part in quotes."""
        if self._kind() != "name":
            raise self._error(f"a {kind} is wanted where {self._found()} stands")
        name = self._take()
        while self._at(".") or self._at("["):
            if self._take() == ".":
                name += "." + self._take("name")
            else:
                name += f"[{self._number('index')}]"
                self._literal("]")
        return name

    def _error(self, text: str) -> StfError:
        return StfError(f"{text}", place=f"{self._file}:{self._line}", value=text)
