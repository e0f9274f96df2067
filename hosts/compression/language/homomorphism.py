"""Derivation, from a codec's text, of whether switches can sum its codes.

A code can be summed if it is one unsigned number for each number of the gradient, `decode` is affine in it, and all
else that `decode` uses is the same at every worker: parameters, and scalars that are declared `common`. Then the sum
of what codes decode to is a · Σ code + n · b for n workers, whatever the order.
"""

from __future__ import annotations

from dataclasses import dataclass

from .kernels import captured, function_parts
from .syntax import Node
from .types import UINT_BITS, Checked, walk


@dataclass(frozen=True, slots=True)
class Derived:
    """Result of the derivation."""

    reason: str
    """Obstacle to summing codes; empty if there is none."""
    bits: int = 0
    """Bits of a worker's code."""
    quantise: Node | None = None
    """Function that makes a code of a number."""
    restore: Node | None = None
    """Function that makes a number of a code."""
    scale: str = ""
    """Name of the common scalar in `encode`; empty if there is none."""
    scale_name: str = ""
    """Its name in `decode`."""

    @property
    def homomorphic(self) -> bool:
        """True if switches may sum the codes."""
        return not self.reason


def derive(checked: Checked) -> Derived:
    """Return whether the codes of a codec can be summed, or why not."""
    encoded, decoded = _statements(checked.encode), _statements(checked.decode)
    if any(node.rule == "branch" for node in (*encoded, *decoded)):
        return Derived("it branches outside the functions of map")
    if assigned := [node.parts[0] for node in (*encoded, *decoded) if node.rule == "assignment"]:
        return Derived(f"it assigns to {assigned[0]} again")
    parts = _concatenated(encoded)
    if parts is None:
        return Derived("encode does not return one concat(…) of names")
    vectors = {node.parts[3]: node for node in encoded if node.rule == "declaration" and node.parts[2]}
    scalars = [name for name in parts if name not in vectors]
    fields = [name for name in parts if name in vectors]
    if len(fields) != 1:
        return Derived(f"a code has {len(fields)} vectors, and one can be summed")
    if private := [name for name in scalars if name not in checked.common and name not in checked.params]:
        return Derived(f"{private[0]} is another one at each worker; declare it common if workers can agree on it")
    if len(shared := [name for name in scalars if name in checked.common]) > 1:
        return Derived(f"{' and '.join(shared)} are common, and workers can agree on one scale")
    declaration = vectors[fields[0]]
    if (base := declaration.parts[1]) not in UINT_BITS:
        return Derived(f"{fields[0]} is {base}*, and unsigned numbers of a few bits can be summed")
    argument = checked.encode.parts[5]
    quantise = _mapped(declaration.parts[4], argument)
    if quantise is None:
        return Derived(f"{fields[0]} is not map({argument}, …), one code for each number")
    if any(part.rule in ("index", "length") for part in walk(quantise)):
        return Derived(f"the function of {fields[0]} looks at other numbers than its own")
    if sum(part.rule == "call" and part.parts[0] == "random" for part in walk(quantise)) > 1:
        return Derived("a code has more than one random number")
    names = [name for node in decoded if node.rule == "extraction" for name in node.parts[1:]]
    if len(names) != len(parts):
        return Derived("decode does not extract what encode has joined")
    field_name = names[parts.index(fields[0])]
    if base not in [node.parts[1] for node in decoded if node.rule == "declaration" and node.parts[3] == field_name]:
        return Derived(f"decode extracts {field_name} with another type than {base}*")
    restore = next((_mapped(node.parts[0], field_name) for node in decoded if node.rule == "returned"), None)
    if restore is None:
        return Derived(f"decode does not return map({field_name}, …)")
    parameter, inner, value = function_parts(restore)
    if inner or _degree(value, parameter) > 1:
        return Derived(f"decode is not affine in {parameter}")
    scale = shared[0] if shared else ""
    scale_name = names[parts.index(scale)] if scale else ""
    for function, common, where in ((quantise, scale, f"the function of {fields[0]}"), (restore, scale_name, "decode")):
        if private := [name for name in captured(function) if name != common and name not in checked.params]:
            return Derived(f"{where} takes {private[0]}, which is neither a parameter nor the common scale")
    return Derived("", UINT_BITS[base], quantise, restore, scale, scale_name)


def _statements(function: Node) -> list[Node]:
    return list(function.parts[6].parts)


def _concatenated(statements: list[Node]) -> list[str] | None:
    """Names that the only `return concat(…)` joins."""
    for node in statements:
        if node.rule == "returned" and node.parts[0].rule == "call" and node.parts[0].parts[0] == "concat":
            arguments = [part for part in node.parts[0].parts[1:] if part is not None]
            if all(argument.rule == "name" for argument in arguments):
                return [argument.parts[0] for argument in arguments]
    return None


def _mapped(node: Node | None, vector: str) -> Node | None:
    """The function of `map(vector, function)`."""
    if node is None or node.rule != "call" or node.parts[0] != "map":
        return None
    source = node.parts[1]
    return node.parts[2] if source.rule == "name" and source.parts[0] == vector else None


def _degree(node: Node, name: str) -> int:
    """Degree of an expression in a name: 0, 1, or 2 for all that is not affine."""
    parts = [part for part in node.parts if isinstance(part, Node)]
    degrees = [_degree(part, name) for part in parts]
    if node.rule == "name":
        return int(node.parts[0] == name)
    if not any(degrees):
        return 0
    if node.rule == "binary" and node.parts[1] in "+-":
        return max(degrees)
    if node.rule == "binary" and node.parts[1] == "*":
        return sum(degrees)
    if node.rule == "binary" and node.parts[1] == "/":
        return degrees[0] if not degrees[1] else 2
    if node.rule == "negative" or (node.rule == "cast" and node.parts[0] == "float"):
        return degrees[0]
    return 2
