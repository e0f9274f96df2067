"""A checked codec that runs: statements one after the other, operators on whole vectors, functions by a back end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidCodec
from ...numerics.draws import Draws
from ...numerics.quantization import Float32Array
from .kernels import STORED, VECTORS, ExpressionWriter, Kernel, compiled
from .syntax import Node, parse
from .types import UINT_BITS, Checked, ValueKind, check, walk
from .vectors import Chosen, Counted, Field, Filtered, Mapped, as_array, float_sum, packed

Bytes = NDArray[np.uint8]

_LONGEST_RANGE: Final = 1 << 27
"""Numbers that `range` makes."""


class Expression(NamedTuple):
    """A compiled expression of a statement."""

    code: CodeType
    operators: list[Node]
    """Operators in it, whose results are `held` by their numbers."""
    whole: set[str]
    """Variables whose elements it takes."""


class CodecProgram:
    """One codec: `encode` makes bytes of numbers, `decode` numbers of bytes."""

    def __init__(self, text: str, file: str, *, native: bool, params: Mapping[str, float] | None = None) -> None:
        """Check a codec's text.

        Args:
            text: The text.
            file: Its name in errors.
            native: Run functions as native code, which needs Numba; else by NumPy, with the same bits.
            params: Values of its parameters, in place of the defaults.

        Raises:
            InvalidCodec: The text is no codec, or a parameter is unknown.
            MissingExtra: lark or Numba is not installed.
        """
        self.checked: Checked = check(parse(text, file), file)
        self.file = file
        self._native = native
        given = dict(params or {})
        self.params: dict[str, Any] = {}
        for name, (kind, default) in self.checked.params.items():
            self.params[name] = _parameter(name, kind, given.pop(name, default), file)
        for name, value in given.items():
            raise InvalidCodec(
                f"unknown parameter {name!r}", place=file, value=value, allowed=tuple(self.checked.params)
            )
        self._kernels: dict[int, Kernel] = {}
        self._expressions: dict[tuple[int, ValueKind], Expression] = {}

    def encode(self, values: Float32Array, draws: Draws) -> Bytes:
        """Return the code of numbers (size,), with this worker's random numbers."""
        name = self.checked.encode.parts[5]
        result: Bytes = as_array(self._run(self.checked.encode, {name: values}, values.size, draws))
        return result

    def decode(self, code: Bytes, size: int) -> Float32Array:
        """Return the numbers (size,) of a code."""
        name = self.checked.decode.parts[5]
        result: Float32Array = as_array(self._run(self.checked.decode, {name: code}, size, Draws()))
        if result.shape != (size,):
            raise InvalidCodec(f"decode returns {result.size} numbers for {size}", place=self.file, value=result.size)
        return result

    def kernel(self, node: Node) -> Kernel:
        """Return the compiled function of an operator."""
        if id(node) not in self._kernels:
            self._kernels[id(node)] = compiled(node, native=self._native)
        return self._kernels[id(node)]

    def expression(self, node: Node, kind: ValueKind) -> Expression:
        """Return a compiled expression of a statement."""
        key = id(node), kind
        if key not in self._expressions:
            operators: list[Node] = []

            def operator(each: Node) -> str:
                operators.append(each)
                return f"held[{len(operators) - 1}]"

            text = ExpressionWriter(True, operator).stored(node, kind)
            whole = {part.parts[0] for part in walk(node) if part.rule == "index"}
            self._expressions[key] = Expression(compile(text, self.file, "eval"), operators, whole)
        return self._expressions[key]

    def uniform(self, sites: int, size: int, draws: Draws) -> Float32Array:
        """Return this worker's random numbers of a function, (sites, size)."""
        chunks = np.arange(sites, dtype=np.uint32)
        if not self._native:
            return draws.own_uniform(chunks, size)
        from . import native

        out = np.empty((sites, size), np.float32)
        native.uniform(draws.own_keys(chunks), out)
        return out

    def scalar(self, name: str, values: Float32Array) -> Any:
        """Return the value of a scalar of `encode` for these numbers."""
        function = self.checked.encode
        frame = _Frame(self, {**self.params, "size": values.size, function.parts[5]: values}, Draws())
        with np.errstate(all="ignore"):
            return frame.until(function.parts[6], name)

    def _run(self, function: Node, argument: dict[str, Any], size: int, draws: Draws) -> Any:
        values = {**self.params, "size": size, **argument}
        frame = _Frame(self, values, draws)
        with np.errstate(all="ignore"):
            return frame.block(function.parts[6], _kind_of(function))


def _parameter(name: str, kind: ValueKind, value: float, file: str) -> Any:
    """Return a parameter's value. Raises InvalidCodec for what is no number, or no whole one where int is declared."""
    try:
        if kind.base == "float" or (float(value).is_integer() and abs(value) < 1 << 63):
            return STORED[kind.base](value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidCodec(f"parameter {name} is {kind}, and {value!r} is not", place=file, value=value)


def _kind_of(function: Node) -> ValueKind:
    return ValueKind(function.parts[0], function.parts[1] is not None)


class _Frame:
    """One call of a function."""

    def __init__(self, program: CodecProgram, values: dict[str, Any], draws: Draws) -> None:
        self._program = program
        self._values = values
        self._draws = draws
        self._kinds: dict[str, ValueKind] = {}

    def block(self, block: Node, result: ValueKind) -> Any:
        """Run statements; the value of the first `return`, or None."""
        for statement in block.parts:
            match statement.rule:
                case "declaration":
                    self._declare(statement)
                case "assignment":
                    name, value = statement.parts
                    self._values[name] = self.value(value, self._kinds.get(name, value.kind))
                case "extraction":
                    source, *names = statement.parts
                    values = extracted(self._values[source], [self._kinds[name] for name in names], self._program.file)
                    self._values.update(zip(names, values, strict=True))
                case "branch":
                    condition, then, otherwise = statement.parts
                    chosen = then if self.value(condition, condition.kind) else otherwise
                    if chosen is not None and (value := self.block(chosen, result)) is not None:
                        return value
                case "returned":
                    return self.value(statement.parts[0], result)
        return None

    def until(self, block: Node, name: str) -> Any:
        """Run the declarations of a block up to that of a name; its value."""
        for statement in block.parts:
            self._declare(statement)
            if statement.parts[3] == name:
                break
        return self._values[name]

    def _declare(self, statement: Node) -> None:
        _, base, star, name, value = statement.parts
        self._kinds[name] = kind = ValueKind(base, star is not None)
        if value is not None:
            self._values[name] = self.value(value, kind)

    def value(self, node: Node, kind: ValueKind) -> Any:
        """Compute an expression as this type."""
        code, operators, whole = self._program.expression(node, kind)
        held = [self._operated(each) for each in operators]
        names = {f"v_{name}": as_array(value) if name in whole else value for name, value in self._values.items()}
        value = eval(code, {**VECTORS, **names, "held": held})
        return value if kind.vector or kind.base == "code" else STORED[kind.base](value)

    def _operated(self, node: Node) -> Any:
        name, *arguments = node.parts
        if name in ("map", "filter"):
            elements = self.value(arguments[0], arguments[0].kind)
            kernel = self._program.kernel(arguments[1])
            if kernel.loops is not None:
                captures = [as_array(self._values[capture]) for capture in kernel.captures]
                keys = self._draws.own_keys(np.arange(kernel.sites, dtype=np.uint32))
                return (Mapped if name == "map" else Filtered)(kernel, elements, captures, keys)
            elements = as_array(elements)
            uniform = self._program.uniform(kernel.sites, elements.size, self._draws)
            result = kernel.run(elements, [as_array(self._values[capture]) for capture in kernel.captures], uniform)
            return result if name == "map" else Chosen(elements, result)
        if name == "concat":
            return joined(
                [(self.value(argument, argument.kind), argument.kind) for argument in arguments if argument is not None]
            )
        if name == "range":
            count = int(self.value(arguments[0], ValueKind("int")))
            if not 0 <= count <= _LONGEST_RANGE:
                place = f"{self._program.file}:{node.line}:{node.column}"
                raise InvalidCodec(f"range of {count}; 0 to {_LONGEST_RANGE}", place=place, value=count)
            return Counted(count)
        if name == "scatter":
            at, values = (as_array(self.value(argument, argument.kind)) for argument in arguments)
            out = np.zeros(self._values["size"], np.float32)
            out[np.clip(at, 0, max(out.size - 1, 0))] = values
            return out
        vector = self.value(arguments[0], arguments[0].kind)
        combiner = arguments[1].parts[0]
        if name == "reduce" and isinstance(vector, Filtered | Chosen) and combiner == "sum" and vector.is_float:
            return vector.sum()
        if name == "reduce" and isinstance(vector, Mapped) and combiner == "max" and vector.is_float:
            return vector.largest()
        vector = as_array(vector)
        if name == "sort":
            ordered = np.sort(vector)
            return ordered[::-1].copy() if combiner == "greater" else ordered
        return reduced(vector, combiner)


def reduced(vector: NDArray[Any], combiner: str) -> Any:
    """Return the sum, least or largest element; 0 of an empty vector. Sums of floats are made in float64."""
    if not vector.size:
        return STORED["int"](0) if vector.dtype.kind in "iu" else np.float32(0)
    if combiner == "sum":
        if vector.dtype.kind in "iu":
            return vector.sum(dtype=np.int64)
        return float_sum(vector)
    return vector.min() if combiner == "min" else vector.max()


def joined(parts: Sequence[tuple[Any, ValueKind]]) -> Bytes:
    """Return numbers and vectors as bytes: 4 of a number; of a vector its length in 4, and its elements, packed."""
    pieces = []
    for value, kind in parts:
        wire = np.float32 if kind.base == "float" else np.int32
        if not kind.vector:
            pieces.append(np.array([value], wire).view(np.uint8))
            continue
        pieces.append(np.array([value.size], np.int32).view(np.uint8))
        if kind.base not in UINT_BITS:
            pieces.append(np.ascontiguousarray(as_array(value), wire).view(np.uint8))
        elif isinstance(value, Mapped):
            pieces.append(value.packed(UINT_BITS[kind.base]))
        else:
            pieces.append(packed(as_array(value), UINT_BITS[kind.base]))
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)


def extracted(code: Bytes, kinds: Sequence[ValueKind], file: str) -> list[Any]:
    """Return the numbers and vectors that `joined` made bytes of.

    Raises:
        InvalidCodec: The code is too short for them.
    """
    values: list[Any] = []
    place = 0

    def taken(count: int) -> Bytes:
        nonlocal place
        if not 0 <= count <= code.size - place:
            raise InvalidCodec(
                f"extract wants {count} bytes, and {code.size - place} are left", place=file, value=count
            )
        place += count
        return code[place - count : place].copy()

    for kind in kinds:
        wire = np.dtype(np.float32 if kind.base == "float" else np.int32)
        if not kind.vector:
            values.append(STORED[kind.base](taken(4).view(wire)[0]))
            continue
        count = int(taken(4).view(np.int32)[0])
        if kind.base in UINT_BITS:
            bits = UINT_BITS[kind.base]
            values.append(Field(taken(-(-count * bits // 8)), bits, count))
        else:
            values.append(taken(4 * count).view(wire).astype(STORED[kind.base]))
    return values
