"""P4 programs full of random expressions, from a seed.

Each parses one header of odd-width fields, runs a list of random assignments and branches on it, and sends it back.
Every operator of P4's bit<W> and int<W> that bmv2 knows at run time occurs: wrapping and saturating sums, products,
shifts, slices, concatenation, comparison, casts between widths and signs, and assignments to slices.
"""

from __future__ import annotations

import random
from typing import Final

WIDTHS: Final = (1, 3, 7, 8, 9, 13, 16, 19, 31, 32, 33, 48, 63, 64, 65, 128)
STATEMENTS: Final = 24
DEPTH: Final = 4

TEMPLATE: Final = """#include <core.p4>
#include <v1model.p4>
header data_t {{ {fields} }}
struct headers_t {{ data_t data; }}
struct metadata_t {{ {metadata} }}
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {{
    state start {{ packet.extract(hdr.data); transition accept; }}
}}
control Verify(inout headers_t hdr, inout metadata_t meta) {{ apply {{ }} }}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {{
    apply {{
        standard.egress_spec = 1;
{statements}
    }}
}}
control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {{ apply {{ }} }}
control Update(inout headers_t hdr, inout metadata_t meta) {{ apply {{ }} }}
control Deparse(packet_out packet, in headers_t hdr) {{ apply {{ packet.emit(hdr.data); }} }}
V1Switch(Parse(), Verify(), Forward(), Leave(), Update(), Deparse()) main;
"""


class ExpressionProgram:
    """Program of one expression: `source` is P4; `header_bytes` is the minimum length of its packets."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        widths = self._rng.sample(WIDTHS, 9)
        widths.append(-sum(widths) % 8 + 8)
        fields = [(f"hdr.data.f{i}", width, self._rng.random() < 0.3 and width > 1) for i, width in enumerate(widths)]
        metadata = [(f"meta.m{i}", self._rng.choice(WIDTHS), False) for i in range(4)]
        self._variables = self._targets = fields + metadata
        self.header_bytes = sum(widths) // 8
        body = [
            f"{name} = (bit<{width}>) (bit<{source_width}>) {source};"
            for (name, width, _), (source, source_width, _) in zip(metadata, fields, strict=False)
        ]
        body += [self._statement() for _ in range(STATEMENTS)]
        self.source = TEMPLATE.format(
            fields=" ".join(f"{type_name(width, signed)} {name.split('.')[-1]};" for name, width, signed in fields),
            metadata=" ".join(f"{type_name(width, False)} {name.split('.')[-1]};" for name, width, _ in metadata),
            statements="\n".join(f"        {line}" for line in body),
        )

    def _statement(self) -> str:
        rng = self._rng
        name, width, signed = rng.choice(self._targets)
        if rng.random() < 0.15 and width > 2 and not signed:
            high = rng.randrange(width)
            low = rng.randrange(high + 1)
            assignment = f"{name}[{high}:{low}] = {self._bits(high - low + 1, DEPTH - 1)};"
        elif signed:
            assignment = f"{name} = {self._signed(width, DEPTH)};"
        else:
            assignment = f"{name} = {self._bits(width, DEPTH)};"
        if rng.random() < 0.25:
            return f"if ({self._truth(2)}) {{ {assignment} }} else {{ {self._statement()} }}"
        return assignment

    def _bits(self, width: int, depth: int) -> str:
        """An expression of type bit<width>."""
        rng = self._rng
        same = [name for name, w, signed in self._variables if w == width and not signed]
        if depth == 0 or rng.random() < 0.1:
            if same and rng.random() < 0.7:
                return rng.choice(same)
            if rng.random() < 0.5:
                return f"{width}w{rng.choice((0, 1, (1 << width) - 1, rng.getrandbits(width)))}"
            name, other, signed = rng.choice(self._variables)
            return f"(bit<{width}>) " + (f"(bit<{other}>) {name}" if signed else name)

        def operand(of: int = width) -> str:
            return self._bits(of, depth - 1)

        kind = rng.randrange(10)
        if kind <= 2:
            return f"({operand()} {rng.choice(('+', '-', '&', '|', '^', '|+|', '|-|'))} {operand()})"
        if kind == 3:
            return f"({operand()} {rng.choice(('<<', '>>'))} {self._bits(8, 0)})"
        if kind == 4:
            return f"(~{operand()})" if rng.random() < 0.5 else f"(-{operand()})"
        if kind == 5:
            return f"({self._truth(depth - 1)} ? {operand()} : {operand()})"
        if kind == 6 and width > 1:
            left = rng.randrange(1, width)
            return f"({operand(left)} ++ {operand(width - left)})"
        if kind == 7:
            wider = [(name, w) for name, w, signed in self._variables if w >= width and not signed]
            if wider:
                name, other = rng.choice(wider)
                low = rng.randrange(other - width + 1)
                return f"{name}[{low + width - 1}:{low}]"
        if kind == 8 and width > 1:
            return f"(bit<{width}>) {self._signed(width, depth - 1)}"
        if kind == 9:
            return f"({operand()} * {operand()})"
        return f"(bit<{width}>) {self._bits(rng.choice(WIDTHS), depth - 1)}"

    def _signed(self, width: int, depth: int) -> str:
        """An expression of type int<width>, width at least 2."""
        rng = self._rng
        same = [name for name, w, signed in self._variables if w == width and signed]
        if depth == 0 or rng.random() < 0.1:
            if same:
                return rng.choice(same)
            return f"(int<{width}>) {self._bits(width, 0)}"

        def operand() -> str:
            return self._signed(width, depth - 1)

        kind = rng.randrange(6)
        if kind <= 1:
            return f"({operand()} {rng.choice(('+', '-', '|+|', '|-|', '&', '^', '*'))} {operand()})"
        if kind == 2:
            return f"({operand()} {rng.choice(('<<', '>>'))} {self._bits(8, 0)})"
        if kind == 3:
            return f"(int<{width}>) {self._signed(rng.choice(WIDTHS[1:]), depth - 1)}"
        if kind == 4:
            return f"(-{operand()})"
        return f"(int<{width}>) {self._bits(width, depth - 1)}"

    def _truth(self, depth: int) -> str:
        rng = self._rng
        width = rng.choice(WIDTHS[1:])
        if depth > 0 and rng.random() < 0.4:
            return f"({self._truth(depth - 1)} {rng.choice(('&&', '||'))} !{self._truth(depth - 1)})"
        make = self._signed if rng.random() < 0.4 else self._bits
        return f"({make(width, depth)} {rng.choice(('==', '!=', '<', '<=', '>', '>='))} {make(width, depth)})"


def type_name(width: int, signed: bool) -> str:
    return f"{'int' if signed else 'bit'}<{width}>"
