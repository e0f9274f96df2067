"""Functions of map and filter as Python source: one expression over arrays for NumPy, one loop for Numba.

Both compute in float32 and int64, operation by operation in the order of the text, so their bits are the same.
Numbers outside an unsigned type become its nearest one; an index outside its vector becomes the nearest inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....imports.extras import explained
from ...numerics.quantization import Float32Array
from .syntax import Node
from .types import UINT_BITS, ValueKind, walk

STORED: Final = {"float": np.float32, "int": np.int64, "bool": np.bool_, **dict.fromkeys(UINT_BITS, np.uint8)}
"""NumPy's types of values."""


class Kernel(NamedTuple):
    """A compiled function of an operator."""

    captures: Sequence[str]
    """Names that it takes from outside."""
    sites: int
    """Random numbers of an element."""
    run: Callable[[NDArray[Any], Sequence[Any], Float32Array], NDArray[Any]]
    """Elements (n,), values of `captures` and random numbers (sites, n) to results (n,)."""
    stored: Any
    """NumPy's type of a result."""
    loops: Any = None
    """The same as native loops, which draw their own random numbers (`native.Loops`); None: NumPy."""
    dense: Any = None
    """`loops` for elements 0 … n − 1, which are indices into vectors of n or more."""
    indexed: Sequence[str] = ()
    """Captured vectors that `dense` indexes by the element itself."""


class ExpressionWriter:
    """Writes expressions of the syntax tree as Python text."""

    def __init__(
        self, vectors: bool, operator: Callable[[Node], str] | None = None, *, keyed: bool = False, counter: str = ""
    ) -> None:
        """Create the writer.

        Args:
            vectors: Write expressions over arrays, for NumPy; else over one element, for Numba.
            operator: Returns the text of a call of an operator; None: there are no such calls.
            keyed: Draw random numbers by keys in the loop, and do not take them as arguments.
            counter: Name of a variable that is always an index in range; "": none.
        """
        self._vectors = vectors
        self._operator = operator
        self._keyed = keyed
        self._counter = counter
        self.sites = 0
        """Calls of random."""

    def number(self, node: Node, kind: str) -> str:
        """Write an expression as float32 or int64."""
        text = self.expression(node)
        return f"f32({text})" if kind == "float" else f"i64({text})"

    def stored(self, node: Node, kind: ValueKind) -> str:
        """Write an expression converted to the type of a variable or result."""
        if kind.vector or kind.base in ("bool", "code"):
            return self.expression(node)
        if kind.base in UINT_BITS:
            return f"to_uint({self.expression(node)}, {(1 << UINT_BITS[kind.base]) - 1})"
        return self.number(node, kind.base)

    def expression(self, node: Node) -> str:
        """Return the Python text of an expression of the syntax tree."""
        text: str = getattr(self, f"_{node.rule}")(node)
        return text

    def _number(self, node: Node) -> str:
        return node.parts[0] if node.kind.base == "int" else f"f32({node.parts[0]})"

    def _name(self, node: Node) -> str:
        return f"v_{node.parts[0]}"

    def _length(self, node: Node) -> str:
        return f"v_{node.parts[0]}.size"

    def _index(self, node: Node) -> str:
        index = node.parts[1]
        if self._counter and index.rule == "name" and index.parts[0] == self._counter:
            return f"v_{node.parts[0]}[np.uint64(i)]"
        return f"at(v_{node.parts[0]}, {self.expression(index)})"

    def _choice(self, node: Node) -> str:
        condition, first, second = node.parts
        if node.kind.number:
            texts = [self.number(branch, "float" if node.kind.base == "float" else "int") for branch in (first, second)]
        else:
            texts = [self.expression(first), self.expression(second)]
        if self._vectors:
            return f"where({self.expression(condition)}, {texts[0]}, {texts[1]})"
        return f"({texts[0]} if {self.expression(condition)} else {texts[1]})"

    def _disjunction(self, node: Node) -> str:
        return f"({self.expression(node.parts[0])} | {self.expression(node.parts[1])})"

    def _conjunction(self, node: Node) -> str:
        return f"({self.expression(node.parts[0])} & {self.expression(node.parts[1])})"

    def _inverse(self, node: Node) -> str:
        return f"({self.expression(node.parts[0])} == False)"

    def _compare(self, node: Node) -> str:
        left, operator, right = node.parts
        kind = "float" if "float" in (left.kind.base, right.kind.base) else "int"
        return f"({self.number(left, kind)} {operator} {self.number(right, kind)})"

    def _binary(self, node: Node) -> str:
        left, operator, right = node.parts
        return f"({self.number(left, node.kind.base)} {operator} {self.number(right, node.kind.base)})"

    def _negative(self, node: Node) -> str:
        return f"(-{self.number(node.parts[1], node.kind.base)})"

    def _cast(self, node: Node) -> str:
        return self.number(node.parts[1], node.parts[0])

    def _call(self, node: Node) -> str:
        name, *arguments = node.parts
        if name == "random":
            low, high = (self.number(argument, "float") for argument in arguments)
            drawn = f"uniform[{self.sites}]" if self._vectors else f"uniform[{self.sites}, i]"
            if self._keyed:
                drawn = f"drawn(keys[{self.sites}], i)"
            self.sites += 1
            return f"({low} + ({high} - {low}) * {drawn})"
        if name in ("abs", "floor", "sqrt", "min", "max"):
            kind = "float" if node.kind.base == "float" else "int"
            return f"{name}_({', '.join(self.number(argument, kind) for argument in arguments)})"
        assert self._operator is not None
        return self._operator(node)


def function_parts(node: Node) -> tuple[str, list[Node], Node]:
    """Return the parameter, the inner declarations and the result of a function."""
    (parameter,) = [part for part in node.parts[:-1] if isinstance(part, Node) and part.rule == "parameter"]
    inner = [part for part in node.parts[:-1] if isinstance(part, Node) and part.rule == "inner"]
    return parameter.parts[1], inner, node.parts[-1]


def captured(node: Node) -> list[str]:
    """Return the names that a function takes from outside."""
    parameter, inner, _ = function_parts(node)
    own = {parameter, *(part.parts[1] for part in inner)}
    named = [part.parts[0] for part in walk(node) if part.rule in ("name", "length", "index")]
    return sorted({name for name in named if name not in own})


def compiled(node: Node, *, native: bool) -> Kernel:
    """Compile a function of map or filter.

    Args:
        node: Its checked tree.
        native: Compile a loop by Numba; else an expression for NumPy.

    Raises:
        MissingExtra: Numba is asked for and not installed.
    """
    parameter, inner, value = function_parts(node)
    captures = captured(node)
    stored = STORED[node.kind.base]
    names = "".join(f", v_{name}" for name in captures)

    def lines(writer: ExpressionWriter) -> list[str]:
        held = [f"v_{part.parts[1]} = {writer.stored(part.parts[2], ValueKind(part.parts[0]))}" for part in inner]
        return [*held, writer.stored(value, node.kind)]

    writer = ExpressionWriter(not native)
    *body, result = lines(writer)
    if not native:
        text = "".join(f"\n    {line}" for line in [*body, f"return {result}"])
        return _vectorised(f"def kernel(v_{parameter}, uniform{names}):{text}", captures, writer.sites, stored)
    text = "".join(f"\n        {line}" for line in [f"v_{parameter} = elements[i]", *body, f"out[i] = {result}"])
    text = f"def kernel(out, elements, uniform{names}):\n    for i in range(elements.size):{text}"
    elements = []
    for counter in ("", parameter):
        *body, result = lines(ExpressionWriter(False, keyed=True, counter=counter))
        inside = "".join(f"\n    {line}" for line in [*body, f"return {result}"])
        elements.append(f"def element(i, v_{parameter}, keys{names}):{inside}")
    indexed = [
        part.parts[0]
        for part in walk(node)
        if part.rule == "index" and part.parts[1].rule == "name" and part.parts[1].parts[0] == parameter
    ]
    return _native(text, elements, Kernel(captures, writer.sites, _unset, stored, indexed=sorted(set(indexed))))


def _unset(*_: Any) -> Any:
    raise NotImplementedError


def _vectorised(text: str, captures: Sequence[str], sites: int, stored: Any) -> Kernel:
    space: dict[str, Any] = dict(VECTORS)
    exec(text, space)

    def run(elements: NDArray[Any], values: Sequence[Any], uniform: Float32Array) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            result = np.asarray(space["kernel"](elements, uniform, *values), stored)
        return np.broadcast_to(result, elements.shape) if result.shape != elements.shape else result

    return Kernel(captures, sites, run, stored)


def _native(text: str, elements: Sequence[str], made: Kernel) -> Kernel:
    try:
        from . import native
    except ImportError as error:
        raise explained(error, "native code of a codec", "codecs") from error
    kernel = native.compiled(text)

    def run(elements: NDArray[Any], values: Sequence[Any], uniform: Float32Array) -> NDArray[Any]:
        out = np.empty(elements.size, made.stored)
        kernel(out, np.ascontiguousarray(elements), uniform, *values)
        return out

    return made._replace(run=run, loops=native.loops_of(elements[0]), dense=native.loops_of(elements[1], counted=True))


def _f32(values: Any) -> Any:
    return np.asarray(values, np.float32)[()]


def _i64(values: Any) -> Any:
    return np.asarray(values).astype(np.int64)[()]


def _at(vector: NDArray[Any], index: Any) -> Any:
    if not vector.size:
        return np.zeros(np.shape(index), vector.dtype)[()]
    return vector[np.clip(index, 0, vector.size - 1)]


def _to_uint(values: Any, top: int) -> Any:
    return np.where(values > 0, np.where(values < top, values, top), 0).astype(np.uint8)[()]


def _least(a: Any, b: Any) -> Any:
    return np.where(a < b, a, b)


def _greatest(a: Any, b: Any) -> Any:
    return np.where(a > b, a, b)


VECTORS: Final[dict[str, Any]] = {
    "f32": _f32,
    "i64": _i64,
    "at": _at,
    "to_uint": _to_uint,
    "where": np.where,
    "abs_": np.abs,
    "floor_": np.floor,
    "sqrt_": np.sqrt,
    "min_": _least,
    "max_": _greatest,
}
"""Names of NumPy's kernels."""
