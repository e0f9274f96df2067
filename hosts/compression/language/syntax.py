"""Text of a codec to a tree: the grammar, and nodes that know their line and column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from ....imports.extras import explained
from ...errors import InvalidCodec

GRAMMAR: Final = r"""
start: (param | function)*
param: "param" KIND NAME "=" [SIGN] NUMBER ";"
function: KIND [STAR] NAME "(" KIND [STAR] NAME ")" block
block: "{" statement* "}"
?statement: declaration | assignment | extraction | branch | returned
declaration: [COMMON] KIND [STAR] NAME ["=" expression] ";"
assignment: NAME "=" expression ";"
extraction: "extract" "(" NAME ("," NAME)* ")" ";"
branch: "if" "(" expression ")" block ["else" block]
returned: "return" expression ";"
?expression: either | either "?" expression ":" expression -> choice
?either: both | either "||" both -> disjunction
?both: equal | both "&&" equal -> conjunction
?equal: sum | sum COMPARE sum -> compare
?sum: product | sum (SIGN | PLUS) product -> binary
?product: unary | product (STAR | MUL) unary -> binary
?unary: atom | SIGN unary -> negative | "!" unary -> inverse
?atom: NUMBER -> number
     | NAME -> name
     | NAME "." "size" -> length
     | NAME "[" expression "]" -> index
     | NAME "(" [argument ("," argument)*] ")" -> call
     | KIND "(" expression ")" -> cast
     | "(" expression ")"
?argument: lambda | expression
lambda: "[" "]" "(" parameter ("," parameter)* ")" "->" KIND "{" inner* "return" expression ";" "}"
parameter: KIND NAME
inner: KIND NAME "=" expression ";"
KIND.2: /(float|int|bool|uint1|uint2|uint4|uint8|code)\b/
COMMON.2: /common\b/
SIGN: "-"
PLUS: "+"
STAR: "*"
MUL: "/" | "%"
COMPARE: "<=" | ">=" | "==" | "!=" | "<" | ">"
NUMBER: /[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?/
NAME: /[A-Za-z_][A-Za-z0-9_]*/
COMMENT: /\/\/[^\n]*/
%ignore COMMENT
%import common.WS
%ignore WS
"""


LONGEST_TEXT: Final = 1 << 16
"""Characters of a codec's text."""
_DEEPEST: Final = 60
"""Levels of blocks and expressions: Python, which codecs are compiled to, allows 200 parentheses in each other."""
_LONGEST_NUMBER: Final = 40


@dataclass(slots=True)
class Node:
    """A part of the text."""

    rule: str
    """Name of the grammar's rule."""
    parts: Sequence[Any]
    """Nodes, and strings of tokens; None for what was left out."""
    line: int
    column: int
    kind: Any = field(default=None, compare=False)
    """Type of an expression, once it is checked."""


def parse(text: str, file: str) -> Node:
    """Return the tree of a codec's text.

    Args:
        text: The text.
        file: Its name in errors.

    Raises:
        InvalidCodec: The text does not fit the grammar, or is too long or nested too deeply. Names line and column.
        MissingExtra: The package lark is not installed.
    """
    if len(text) > LONGEST_TEXT:
        raise InvalidCodec(f"has more than {LONGEST_TEXT} characters", place=file, value=len(text))
    parser, unexpected = _parser()
    try:
        tree = parser.parse(text)
    except unexpected as error:
        line, column = getattr(error, "line", 1), getattr(error, "column", 1)
        token = getattr(error, "token", None)
        shown = text.splitlines()[line - 1].strip() if 0 < line <= len(text.splitlines()) else ""
        what = f"unexpected {str(token)!r}" if token is not None and str(token) else "unexpected text"
        if line < 1:
            line, column, what = len(text.splitlines()), 1, "the text ends too early"
        raise InvalidCodec(f"{what} in: {shown}", place=f"{file}:{line}:{column}", value=str(token)) from None
    return Node("start", [_node(child, file, 1) for child in tree.children], 1, 1)


@cache
def _parser() -> tuple[Any, type[Exception]]:
    try:
        from lark import Lark
        from lark.exceptions import UnexpectedInput
    except ImportError as error:
        raise explained(error, "a codec in CompLL", "codecs") from error
    return Lark(GRAMMAR, parser="lalr", propagate_positions=True, maybe_placeholders=True), UnexpectedInput


def _node(tree: Any, file: str, depth: int) -> Any:
    if tree is None:
        return None
    if not hasattr(tree, "children"):
        token = str(tree)
        if tree.type == "NUMBER" and len(token) > _LONGEST_NUMBER:
            place = f"{file}:{tree.line}:{tree.column}"
            raise InvalidCodec(f"a number has at most {_LONGEST_NUMBER} characters", place=place, value=token)
        return token
    line, column = getattr(tree.meta, "line", 1), getattr(tree.meta, "column", 1)
    if depth > _DEEPEST:
        place = f"{file}:{line}:{column}"
        raise InvalidCodec(f"is nested too deeply; {_DEEPEST} levels are the most", place=place, value=depth)
    return Node(str(tree.data), [_node(child, file, depth + 1) for child in tree.children], line, column)
