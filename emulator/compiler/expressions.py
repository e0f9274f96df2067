"""Expressions of the JSON as integers of LLVM.

bmv2 computes with integers of any size and cuts a result when it reaches a field. Here every subexpression carries
the interval of values that it can take, and is computed in as many bits as that interval needs. Where only the low k
bits are wanted (an assignment, or p4c's `& 0xff...`), `modulo` computes in k bits alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from emulator.bmv2json import Bool, Const, Expr, Field, Lookahead, Op, Param, Ref
from emulator.compiler.frame import Frame, IRValue, const, fit
from emulator.schema import UnsupportedProgram

MAX_BITS: Final = 8192

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_BOOLEANS = (*_COMPARISONS, "and", "or", "not", "d2b", "valid")


@dataclass(frozen=True, slots=True)
class Number:
    """An integer known to lie in low … high, in just enough bits (two's complement if low < 0)."""

    value: IRValue
    low: int
    high: int

    @property
    def signed(self) -> bool:
        return self.low < 0


def bits_for(low: int, high: int) -> int:
    if low >= 0:
        return max(1, high.bit_length())
    return max((-low - 1).bit_length(), high.bit_length()) + 1


@dataclass(slots=True)
class Expressions:
    """Evaluates within one place of the program: an action with its parameters, a parser state, a condition."""

    frame: Frame
    where: str
    params: tuple[IRValue, ...] = ()
    lookahead: IRValue | None = None
    """The parser's function that reads bits behind the cursor."""

    # ---- truth

    def is_boolean(self, expr: Expr) -> bool:
        if isinstance(expr, Bool):
            return True
        return isinstance(expr, Op) and (expr.op in _BOOLEANS or (expr.op == "?" and self.is_boolean(expr.args[1])))

    def truth(self, expr: Expr) -> IRValue:
        builder = self.frame.builder
        match expr:
            case Bool(value):
                return const(1, int(value))
            case Op("valid", (Ref("header", name),)):
                return self.frame.is_valid(name)
            case Op("not", (operand,)):
                return builder.not_(self.truth(operand))
            case Op("and", (left, right)):
                return builder.and_(self.truth(left), self.truth(right))
            case Op("or", (left, right)):
                return builder.or_(self.truth(left), self.truth(right))
            case Op("?", (condition, left, right)):
                return builder.select(self.truth(condition), self.truth(left), self.truth(right))
            case Op("d2b", (operand,)):
                value = self.number(operand).value
                return builder.icmp_unsigned("!=", value, const(value.type.width, 0))
            case Op(op, (left, right)) if op in _COMPARISONS:
                if self.is_boolean(left):
                    return builder.icmp_unsigned(op, self.truth(left), self.truth(right))
                return self._compare(op, self.number(left), self.number(right))
        raise self._unsupported(expr, "as a condition")

    def _compare(self, op: str, left: Number, right: Number) -> IRValue:
        builder = self.frame.builder
        width = bits_for(min(left.low, right.low), max(left.high, right.high))
        compare = builder.icmp_signed if left.signed or right.signed else builder.icmp_unsigned
        return compare(op, self._extend(left, width), self._extend(right, width))

    # ---- numbers

    def number(self, expr: Expr) -> Number:
        """The exact value."""
        builder = self.frame.builder
        match expr:
            case Const(value):
                return self._constant(value)
            case Field():
                _, width, signed = self.frame.describe(expr)
                return self._of_bits(self.frame.load(expr), width, signed)
            case Param(index):
                value = self.params[index]
                return self._of_bits(value, value.type.width, False)
            case Lookahead(offset, width):
                if self.lookahead is None:
                    raise self._unsupported(expr, "outside a parser")
                return self._of_bits(self.lookahead(offset, width), width, False)
            case Op("b2d", (operand,)):
                return Number(self.truth(operand), 0, 1)
            case Op("?", (condition, left, right)):
                choice = self.truth(condition)
                return self._select(choice, self.number(left), self.number(right))
            case Op("two_comp_mod", (operand, Const(width))):
                return self._of_bits(self.modulo(operand, width), width, True)
            case Op("sat_cast", (operand, Const(width))):
                return self._clamp(self.number(operand), -(1 << (width - 1)), (1 << (width - 1)) - 1)
            case Op("usat_cast", (operand, Const(width))):
                return self._clamp(self.number(operand), 0, (1 << width) - 1)
            case Op("&", (operand, Const(mask))) | Op("&", (Const(mask), operand)) if mask >= 0:
                width = bits_for(0, mask)
                value = self.modulo(operand, width)
                if mask != (1 << width) - 1:
                    value = builder.and_(value, const(width, mask))
                return Number(value, 0, mask)
            case Op("~", (operand,)):
                inner = self.number(operand)
                low, high = -1 - inner.high, -1 - inner.low
                return self._number(builder.not_(self._extend(inner, self._width(low, high))), low, high)
            case Op("<<" | ">>" as op, (left, right)):
                return self._shift(op, self.number(left), self.number(right))
            case Op(op, (left, right)) if op in ("+", "-", "*", "&", "|", "^", "/", "%"):
                return self._arithmetic(op, self.number(left), self.number(right))
        if self.is_boolean(expr):
            return Number(self.truth(expr), 0, 1)
        raise self._unsupported(expr, "as a number")

    def modulo(self, expr: Expr, width: int) -> IRValue:
        """The value modulo 2^width, as an integer of that many bits."""
        builder = self.frame.builder
        match expr:
            case Const(value):
                return const(width, value)
            case Op("+" | "-" | "*" | "|" | "^" as op, (left, right)):
                return self._apply(op, self.modulo(left, width), self.modulo(right, width))
            case Op("&", (operand, Const(mask))) | Op("&", (Const(mask), operand)) if mask >= 0:
                inner = min(width, bits_for(0, mask))
                value = self.modulo(operand, inner)
                if mask & ((1 << inner) - 1) != (1 << inner) - 1:
                    value = builder.and_(value, const(inner, mask))
                return fit(builder, value, width)
            case Op("&", (left, right)):
                return builder.and_(self.modulo(left, width), self.modulo(right, width))
            case Op("~", (operand,)):
                return builder.not_(self.modulo(operand, width))
            case Op("<<", (left, Const(amount))):
                if amount >= width:
                    return const(width, 0)
                return builder.shl(self.modulo(left, width), const(width, amount))
            case Op("<<", (left, right)):
                base, distance = self.modulo(left, width), self.number(right)
                inside = self._compare("<", distance, self._constant(width))
                shifted = builder.shl(base, fit(builder, distance.value, width))
                return builder.select(inside, shifted, const(width, 0))
            case Op("?", (condition, left, right)):
                return builder.select(self.truth(condition), self.modulo(left, width), self.modulo(right, width))
            case Op("two_comp_mod", (operand, Const(inner))):
                return fit(builder, self.modulo(operand, min(inner, width)), width, signed=True)
        return self._extend(self.number(expr), width)

    # ---- helpers

    def _width(self, low: int, high: int) -> int:
        width = bits_for(low, high)
        if width > MAX_BITS:
            raise UnsupportedProgram(f"{self.where}: an expression may need {width} bits; the limit is {MAX_BITS}")
        return width

    def _number(self, value: IRValue, low: int, high: int) -> Number:
        return Number(fit(self.frame.builder, value, self._width(low, high)), low, high)

    def _constant(self, value: int) -> Number:
        return Number(const(bits_for(value, value), value), value, value)

    def _of_bits(self, value: IRValue, width: int, signed: bool) -> Number:
        if signed:
            return Number(value, -(1 << (width - 1)), (1 << (width - 1)) - 1)
        return Number(value, 0, (1 << width) - 1)

    def _extend(self, number: Number, width: int) -> IRValue:
        return fit(self.frame.builder, number.value, width, number.signed)

    def _apply(self, op: str, left: IRValue, right: IRValue) -> IRValue:
        builder = self.frame.builder
        operation = {
            "+": builder.add,
            "-": builder.sub,
            "*": builder.mul,
            "&": builder.and_,
            "|": builder.or_,
            "^": builder.xor,
        }[op]
        return operation(left, right)

    def _select(self, choice: IRValue, left: Number, right: Number) -> Number:
        low, high = min(left.low, right.low), max(left.high, right.high)
        width = self._width(low, high)
        value = self.frame.builder.select(choice, self._extend(left, width), self._extend(right, width))
        return Number(value, low, high)

    def _clamp(self, number: Number, low: int, high: int) -> Number:
        for op, bound in ((">", high), ("<", low)):
            limit = self._constant(bound)
            if (op == ">" and number.high > bound) or (op == "<" and number.low < bound):
                chosen = self._select(self._compare(op, number, limit), limit, number)
                inside = (number.low, bound) if op == ">" else (bound, number.high)
                number = self._number(chosen.value, min(inside[0], inside[1]), max(inside))
        return number

    def _arithmetic(self, op: str, left: Number, right: Number) -> Number:
        if op in ("/", "%"):
            return self._divide(op, left, right)
        if op == "+":
            low, high = left.low + right.low, left.high + right.high
        elif op == "-":
            low, high = left.low - right.high, left.high - right.low
        elif op == "*":
            corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
            low, high = min(corners), max(corners)
        elif op == "&" and (not left.signed or not right.signed):
            low, high = 0, min(n.high for n in (left, right) if not n.signed)
        else:
            width = bits_for(min(left.low, right.low), max(left.high, right.high))
            signed = left.signed or right.signed
            low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
        width = max(self._width(low, high), left.value.type.width if op == "&" else 1)
        width = max(width, right.value.type.width if op == "&" else 1)
        return self._number(self._apply(op, self._extend(left, width), self._extend(right, width)), low, high)

    def _divide(self, op: str, left: Number, right: Number) -> Number:
        """Division of non-negative integers; a divisor of 0 gives 0."""
        if left.signed or right.signed:
            raise UnsupportedProgram(f"{self.where}: '{op}' of signed numbers is not supported")
        width = max(left.value.type.width, right.value.type.width)
        if width > 64:
            raise UnsupportedProgram(f"{self.where}: '{op}' of numbers wider than 64 bits is not supported")
        builder = self.frame.builder
        a, b = self._extend(left, width), self._extend(right, width)
        nil = builder.icmp_unsigned("==", b, const(width, 0))
        divisor = builder.select(nil, const(width, 1), b)
        value = (builder.udiv if op == "/" else builder.urem)(a, divisor)
        return self._number(builder.select(nil, const(width, 0), value), 0, left.high)

    def _shift(self, op: str, left: Number, right: Number) -> Number:
        builder = self.frame.builder
        if right.signed:
            raise UnsupportedProgram(f"{self.where}: a shift by a signed amount is not supported")
        if op == "<<":
            reach = min(right.high, MAX_BITS)
            low, high = min(left.low << reach, left.low), max(left.high << reach, left.high)
            width = self._width(low, high)
            amount = self._extend(right, max(width, right.value.type.width))
            value = builder.shl(self._extend(left, width), fit(builder, amount, width))
            return self._number(value, low, high)
        width = max(left.value.type.width, right.value.type.width)
        amount, value = self._extend(right, width), self._extend(left, width)
        last = const(width, width - 1)
        beyond = builder.icmp_unsigned(">", amount, last)
        if left.signed:
            shifted = builder.ashr(value, builder.select(beyond, last, amount))
        else:
            shifted = builder.select(beyond, const(width, 0), builder.lshr(value, amount))
        low = left.low >> right.low if left.signed else 0
        return self._number(shifted, low, max(left.high >> right.low, 0 if not left.signed else -1))

    def _unsupported(self, expr: Expr, how: str) -> UnsupportedProgram:
        return UnsupportedProgram(f"{self.where}: {expr} {how} is not supported")
