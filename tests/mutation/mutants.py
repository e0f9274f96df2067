"""Mutants of a Python module: cosmic-ray's operators, and statements left out."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from weir.tests.paths import ROOT

_FAMILIES: Final = (
    *("ReplaceBinaryOperator", "ReplaceComparisonOperator", "ReplaceUnaryOperator", "AddNot", "ReplaceTrueWithFalse"),
    *("ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceBreakWithContinue"),
    *("ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop"),
)
"""Families of cosmic-ray's operators, which are named FAMILY_CHANGE. The others break names and decorators: imports
fail.
"""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change."""

    path: str
    """Path from the repository's root."""
    line: int
    before: str
    """The lines that are changed, without indentation."""
    after: str
    content: str
    """The whole file with the change."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  →  {self.after}"


Place = tuple[str, tuple[Callable[[], str | None], ...]]
"""A module's path, and the changes that can be made at one place of it, of which each returns the changed module."""


def places_of(path: str) -> list[Place]:
    """All places of a module where something can be changed."""
    return [(path, tuple(changes)) for changes in _places((ROOT / path).read_text())]


def mutant_of(place: Place, rng: random.Random) -> Mutant | None:
    """One of the changes of a place; None where none changes what is run."""
    path, changes = place
    source = (ROOT / path).read_text()
    meaning = _meaning(source)
    for change in rng.sample(changes, len(changes)):
        content = change()
        if content is not None and _meaning(content) not in (meaning, None):
            return _mutant(path, source, content)
    return None


def _mutant(path: str, source: str, content: str) -> Mutant:
    old, new = source.splitlines(), content.splitlines()
    first = next(index for index, (one, other) in enumerate(zip(old, new, strict=False)) if one != other)
    last = next(index for index, (one, other) in enumerate(zip(old[::-1], new[::-1], strict=False)) if one != other)
    before, after = (
        " ".join(line.strip() for line in lines[first : len(lines) - last]) or "(nothing)" for lines in (old, new)
    )
    return Mutant(path, first + 1, before, after, content)


def _places(source: str) -> Iterator[list[Callable[[], str | None]]]:
    nodes = list(ast_nodes(get_ast(source)))
    names = [name for name in sorted(operator_names()) if name.partition("/")[2].startswith(_FAMILIES)]
    for _, family in groupby(names, lambda name: name.split("_")[0]):
        replacements = [get_operator(name)() for name in family]
        at: dict[Any, list[Callable[[], str | None]]] = {}
        for operator in replacements:
            positions = [where for node in nodes for where in operator.mutation_positions(node)]
            for occurrence, where in enumerate(positions):
                change = _by_operator(source, operator, occurrence)
                at.setdefault(where, []).append(change)
        yield from at.values()
    for statement in ast.walk(ast.parse(source)):
        if _has_an_effect(statement):
            yield [_without(source, statement)]


def _by_operator(source: str, operator: Any, occurrence: int) -> Callable[[], str | None]:
    def change() -> str | None:
        content: str | None = mutate_code(source, operator, occurrence)
        return content

    return change


def _has_an_effect(statement: ast.AST) -> bool:
    """Return whether a statement is a call for its own sake, or writes into an object or an array; missing names are
    found by their readers.
    """
    match statement:
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            return True
        case ast.Assign(targets=targets):
            return all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
        case _:
            return False


def _without(source: str, statement: ast.AST) -> Callable[[], str]:
    assert isinstance(statement, ast.stmt)
    first, last, indentation = statement.lineno - 1, statement.end_lineno, statement.col_offset
    assert last is not None

    def change() -> str:
        lines = source.splitlines(keepends=True)
        lines[first:last] = [f"{lines[first][:indentation]}pass\n", *["\n"] * (last - first - 1)]
        return "".join(lines)

    return change


def _meaning(source: str) -> str | None:
    """Executed part of the source, without annotations, docstrings and a dataclass's slots. None if it is not
    Python.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    return ast.dump(_Bare().visit(tree))


class _Bare(ast.NodeTransformer):
    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call):  # slots save memory, and change nothing else
                decorator.keywords = [keyword for keyword in decorator.keywords if keyword.arg != "slots"]
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)
