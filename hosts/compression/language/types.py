"""Types of a codec's text: each expression is checked before anything runs, and errors name line and column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from ...errors import InvalidCodec
from .syntax import Node

UINT_BITS: Final[Mapping[str, int]] = {"uint1": 1, "uint2": 2, "uint4": 4, "uint8": 8}
_NUMBERS: Final = {"float", "int", *UINT_BITS}
COMBINERS: Final = ("sum", "min", "max")
ORDERS: Final = ("greater", "smaller")
_LARGEST_INT: Final = (1 << 63) - 1
_FUNCTIONS: Final = {"abs": 1, "floor": 1, "sqrt": 1, "min": 2, "max": 2}
OPERATORS: Final = ("map", "filter", "reduce", "sort", "concat", "range", "scatter")


@dataclass(frozen=True, slots=True)
class ValueKind:
    """Type of a value."""

    base: str
    vector: bool = False

    def __str__(self) -> str:
        return self.base + "*" * self.vector

    @property
    def number(self) -> bool:
        """True for a scalar of a numeric type."""
        return self.base in _NUMBERS and not self.vector

    @property
    def whole(self) -> bool:
        """True for a scalar of an integer type."""
        return self.number and self.base != "float"


FLOAT: Final = ValueKind("float")
INT: Final = ValueKind("int")
BOOL: Final = ValueKind("bool")
CODE: Final = ValueKind("code")
FLOATS: Final = ValueKind("float", True)


@dataclass(slots=True)
class Checked:
    """A codec whose types fit."""

    file: str
    params: dict[str, tuple[ValueKind, float]]
    """Parameters and their defaults."""
    encode: Node
    decode: Node
    common: list[str] = field(default_factory=list)
    """Scalars of `encode` that workers agree on."""


def check(tree: Node, file: str) -> Checked:
    """Check a tree of `syntax.parse`, and note the types of its expressions.

    Raises:
        InvalidCodec: A type does not fit, a name is unknown, or a function is missing.
    """
    params: dict[str, tuple[ValueKind, float]] = {}
    functions: dict[str, Node] = {}
    for node in tree.parts:
        if node.rule == "param":
            base, name, sign, number = node.parts
            if base not in ("float", "int"):
                _fail(file, node, f"a parameter is float or int, not {base}", base)
            if name in params or name == "size":
                _fail(file, node, f"{name} exists already", name)
            params[name] = ValueKind(base), float(number) * (-1 if sign else 1)
        elif (name := node.parts[2]) in functions:
            _fail(file, node, f"{name} exists already", name)
        else:
            functions[name] = node
    for name in ("encode", "decode"):
        if name not in functions:
            _fail(file, tree, f"there is no function {name}", name)
    wanted = {"encode": (CODE, FLOATS), "decode": (FLOATS, CODE)}
    checked = Checked(file, params, functions["encode"], functions["decode"])
    for name, node in functions.items():
        if name not in wanted:
            _fail(file, node, f"a codec has the functions encode and decode, not {name}", name)
        base, star, _, argument_base, argument_star, argument, block = node.parts
        kinds = ValueKind(base, star is not None), ValueKind(argument_base, argument_star is not None)
        if kinds != wanted[name]:
            _fail(file, node, f"{name} is {wanted[name][0]} {name}({wanted[name][1]} …)", str(kinds[0]))
        scope = {param: kind for param, (kind, _) in params.items()}
        scope["size"] = INT
        if argument in scope:
            _fail(file, node, f"{argument} exists already", argument)
        scope[argument] = kinds[1]
        checker = _Checker(file, scope, kinds[0], checked.common)
        if not checker.block(block):
            _fail(file, node, f"{name} can end without a return", name)
    return checked


def walk(node: Any) -> Iterator[Node]:
    """Yield a node and all below it."""
    if isinstance(node, Node):
        yield node
        for part in node.parts:
            yield from walk(part)


def _fail(file: str, node: Node, message: str, value: str) -> NoReturn:
    raise InvalidCodec(message, place=f"{file}:{node.line}:{node.column}", value=value)


class _Checker:
    """Types in one function."""

    def __init__(self, file: str, scope: dict[str, ValueKind], result: ValueKind, common: list[str]) -> None:
        self._file = file
        self._scope = scope
        self._result = result
        self._common = common
        self._inside = False
        """True in the body of a lambda."""
        self._empty: set[str] = set()
        """Names that were declared and may have no value yet."""

    def fail(self, node: Node, message: str, value: object) -> NoReturn:
        _fail(self._file, node, message, str(value))

    def block(self, block: Node) -> bool:
        """Check statements; return whether they always end with a `return`."""
        returns = False
        for statement in block.parts:
            returns |= getattr(self, f"_{statement.rule}")(statement) is True
        return returns

    def _declaration(self, node: Node) -> None:
        common, base, star, name, value = node.parts
        kind = ValueKind(base, star is not None)
        if value is not None:
            self._fits(kind, self.expression(value), value)
        if name in self._scope:
            self.fail(node, f"{name} exists already", name)
        if common:
            if kind != FLOAT:
                self.fail(node, f"what workers agree on is a float, not {kind}", kind)
            self._common.append(name)
        self._scope[name] = kind
        (self._empty.add if value is None else self._empty.discard)(name)

    def _assignment(self, node: Node) -> None:
        name, value = node.parts
        self._fits(self._named(name, node), self.expression(value), value)
        self._empty.discard(name)

    def _extraction(self, node: Node) -> None:
        source, *names = node.parts
        if self._valued(source, node) != CODE:
            self.fail(node, f"extract takes a code, and {source} is {self._scope[source]}", source)
        for name in names:
            if self._named(name, node).base in ("code", "bool"):
                self.fail(node, f"{name} cannot be extracted: it is {self._scope[name]}", name)
            self._empty.discard(name)

    def _branch(self, node: Node) -> bool:
        condition, *blocks = node.parts
        self._fits(BOOL, self.expression(condition), condition)
        before, empty, returns = set(self._empty), set(), []
        for block in blocks:
            outer = dict(self._scope)
            self._empty = set(before)
            returns.append(block is not None and self.block(block))
            if not returns[-1]:
                empty |= self._empty & outer.keys()
            self._scope = outer
        self._empty = empty
        return all(returns)

    def _returned(self, node: Node) -> bool:
        self._fits(self._result, self.expression(node.parts[0]), node.parts[0])
        return True

    def _named(self, name: str, node: Node) -> ValueKind:
        if name not in self._scope:
            self.fail(node, f"unknown name {name}", name)
        return self._scope[name]

    def _valued(self, name: str, node: Node) -> ValueKind:
        kind = self._named(name, node)
        if name in self._empty:
            self.fail(node, f"{name} may have no value here", name)
        return kind

    def _fits(self, wanted: ValueKind, found: ValueKind, node: Node) -> None:
        """Whole numbers become floats, and numbers the nearest of an unsigned type; nothing else changes its type."""
        if wanted == found:
            return
        if wanted.number and found.number and (wanted == FLOAT or wanted.base in UINT_BITS or found.whole):
            return
        hint = "; round it by int(…)" if wanted == INT and found == FLOAT else ""
        self.fail(node, f"{wanted} is wanted, and this is {found}{hint}", found)

    # --- expressions ---

    def expression(self, node: Node) -> ValueKind:
        kind: ValueKind = getattr(self, f"_of_{node.rule}")(node)
        node.kind = kind
        return kind

    def _number_of(self, node: Node) -> ValueKind:
        kind = self.expression(node)
        if not kind.number:
            self.fail(node, f"a number is wanted, and this is {kind}", kind)
        return kind

    def _of_number(self, node: Node) -> ValueKind:
        text = node.parts[0]
        if not text.isdigit():
            return FLOAT
        if int(text) > _LARGEST_INT:
            self.fail(node, f"{text} is beyond int, of 64 bits", text)
        return INT

    def _of_name(self, node: Node) -> ValueKind:
        return self._valued(node.parts[0], node)

    def _of_length(self, node: Node) -> ValueKind:
        kind = self._valued(node.parts[0], node)
        if not kind.vector:
            self.fail(node, f"{node.parts[0]} has no size: it is {kind}", kind)
        return INT

    def _of_index(self, node: Node) -> ValueKind:
        name, at = node.parts
        kind = self._valued(name, node)
        if not kind.vector:
            self.fail(node, f"{name} is no vector but {kind}", kind)
        self._fits(INT, self.expression(at), at)
        return ValueKind(kind.base)

    def _of_choice(self, node: Node) -> ValueKind:
        condition, first, second = node.parts
        self._fits(BOOL, self.expression(condition), condition)
        kinds = self.expression(first), self.expression(second)
        if kinds[0] == kinds[1] and not kinds[0].vector:
            return kinds[0]
        if not all(kind.number for kind in kinds):
            self.fail(node, f"a choice is between numbers or bools, and these are {kinds[0]} and {kinds[1]}", kinds[1])
        return FLOAT if FLOAT in kinds else INT

    def _of_both(self, node: Node) -> ValueKind:
        for part in node.parts:
            self._fits(BOOL, self.expression(part), part)
        return BOOL

    _of_disjunction = _of_conjunction = _of_inverse = _of_both

    def _of_compare(self, node: Node) -> ValueKind:
        self._number_of(node.parts[0])
        self._number_of(node.parts[2])
        return BOOL

    def _of_binary(self, node: Node) -> ValueKind:
        left, operator, right = node.parts
        kinds = self._number_of(left), self._number_of(right)
        if operator == "%" and FLOAT in kinds:
            self.fail(node, "% is of whole numbers", "%")
        return FLOAT if FLOAT in kinds or operator == "/" else INT

    def _of_negative(self, node: Node) -> ValueKind:
        return FLOAT if self._number_of(node.parts[1]) == FLOAT else INT

    def _of_cast(self, node: Node) -> ValueKind:
        base, value = node.parts
        if base not in ("int", "float"):
            self.fail(node, f"there is no conversion {base}(…); int and float are", base)
        self._number_of(value)
        return ValueKind(base)

    def _of_lambda(self, node: Node) -> ValueKind:
        self.fail(node, "a function is an argument of map and filter alone", "lambda")

    def _of_call(self, node: Node) -> ValueKind:
        name, *arguments = node.parts
        arguments = [argument for argument in arguments if argument is not None]
        if name == "random":
            if not self._inside:
                self.fail(node, "random is for functions of map and filter", name)
            self._count(node, name, arguments, 2)
            for argument in arguments:
                self._number_of(argument)
            return FLOAT
        if name in _FUNCTIONS:
            self._count(node, name, arguments, _FUNCTIONS[name])
            kinds = [self._number_of(argument) for argument in arguments]
            return FLOAT if FLOAT in kinds or name in ("floor", "sqrt") else INT
        if name not in OPERATORS:
            self.fail(node, f"unknown operator {name}; there are {', '.join([*OPERATORS, *_FUNCTIONS])}, random", name)
        if self._inside:
            self.fail(node, f"{name} cannot stand in the function of another operator", name)
        kind: ValueKind = getattr(self, f"_{name}")(node, arguments)
        return kind

    def _count(self, node: Node, name: str, arguments: Sequence[Node], count: int) -> None:
        if len(arguments) != count:
            self.fail(node, f"{name} takes {count} arguments, and has {len(arguments)}", len(arguments))

    def _vector(self, node: Node, name: str) -> ValueKind:
        kind = self.expression(node)
        if not kind.vector:
            self.fail(node, f"{name} takes a vector, and this is {kind}", kind)
        return kind

    def _map(self, node: Node, arguments: Sequence[Node]) -> ValueKind:
        self._count(node, "map", arguments, 2)
        return ValueKind(self._applied(arguments[1], self._vector(arguments[0], "map"), "map").base, True)

    def _filter(self, node: Node, arguments: Sequence[Node]) -> ValueKind:
        self._count(node, "filter", arguments, 2)
        kind = self._vector(arguments[0], "filter")
        if (result := self._applied(arguments[1], kind, "filter")) != BOOL:
            self.fail(arguments[1], f"filter's function returns bool, and this {result}", result)
        return kind

    def _applied(self, node: Node, vector: ValueKind, name: str) -> ValueKind:
        """Return the result type of a function of the vector's elements."""
        if node.rule != "lambda":
            self.fail(node, f"{name} takes a function: [](float x) -> float {{ return …; }}", node.rule)
        *head, value = node.parts
        parameters = [part for part in head if isinstance(part, Node) and part.rule == "parameter"]
        inner = [part for part in head if isinstance(part, Node) and part.rule == "inner"]
        (base,) = [part for part in head if isinstance(part, str)]
        if len(parameters) != 1 or parameters[0].parts[0] != vector.base:
            given = ", ".join(part.parts[0] for part in parameters)
            self.fail(node, f"{name}'s function takes {vector.base}, an element of its vector, and this {given}", given)
        if base == "code":
            self.fail(node, "a function returns a number or bool", base)
        outer, empty, self._inside = dict(self._scope), set(self._empty), True
        self._scope[parameters[0].parts[1]] = ValueKind(vector.base)
        self._empty.discard(parameters[0].parts[1])
        for part in inner:
            self._fits(ValueKind(part.parts[0]), self.expression(part.parts[2]), part.parts[2])
            self._scope[part.parts[1]] = ValueKind(part.parts[0])
            self._empty.discard(part.parts[1])
        self._fits(ValueKind(base), self.expression(value), value)
        self._scope, self._empty, self._inside = outer, empty, False
        node.kind = ValueKind(base)
        return ValueKind(base)

    def _choice_of(self, node: Node, name: str, known: Sequence[str]) -> None:
        if node.rule != "name" or node.parts[0] not in known:
            self.fail(node, f"{name} takes one of {', '.join(known)}", node.parts[0])

    def _reduce(self, node: Node, arguments: Sequence[Node]) -> ValueKind:
        self._count(node, "reduce", arguments, 2)
        kind = self._vector(arguments[0], "reduce")
        self._choice_of(arguments[1], "reduce", COMBINERS)
        return FLOAT if kind.base == "float" else INT

    def _sort(self, node: Node, arguments: Sequence[Node]) -> ValueKind:
        self._count(node, "sort", arguments, 2)
        self._choice_of(arguments[1], "sort", ORDERS)
        return self._vector(arguments[0], "sort")

    def _range(self, node: Node, arguments: Sequence[Node]) -> ValueKind:
        self._count(node, "range", arguments, 1)
        self._fits(INT, self.expression(arguments[0]), arguments[0])
        return ValueKind("int", True)

    def _scatter(self, node: Node, arguments: Sequence[Node]) -> ValueKind:
        self._count(node, "scatter", arguments, 2)
        for argument, wanted in zip(arguments, (ValueKind("int", True), FLOATS), strict=True):
            self._fits(wanted, self.expression(argument), argument)
        return FLOATS

    def _concat(self, node: Node, arguments: Sequence[Node]) -> ValueKind:
        for argument in arguments:
            kind = self.expression(argument)
            if kind.base in ("code", "bool"):
                self.fail(argument, f"concat takes numbers and vectors, and this is {kind}", kind)
        return CODE
