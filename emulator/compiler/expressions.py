"""Expressions of the JSON as integers of LLVM.

bmv2 computes with integers of any size and cuts a result when it reaches a field. Here every subexpression carries
the interval of values that it can take, and is computed in as many bits as that interval needs. Where only the low k
bits are wanted (an assignment, or p4c's `& 0xff...`), `modulo` computes in k bits alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

from llvmlite import ir

from ..bmv2.document import Bool, Const, Element, Expr, Field, Lookahead, Member, Op, Param, Ref
from ..bmv2.schema import UnsupportedProgram
from .frame import I8, Frame, HeaderPlace, IRValue, const, describe, fit

MAX_BITS: Final = 8192
_INLINE_BITS: Final = 256
"""The widest products and shifts that stand where they are used: the code of wider ones grows with the square."""

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_BOOLEANS = (*_COMPARISONS, "and", "or", "not", "d2b", "valid", "valid_union")


@dataclass(frozen=True, slots=True)
class Number:
    """An integer known to lie in low … high, in just enough bits (two's complement if low < 0)."""

    value: IRValue
    low: int
    high: int

    @property
    def signed(self) -> bool:
        """True if the range has negative values."""
        return self.low < 0


def bits_for(low: int, high: int) -> int:
    """Return the width in bits of the smallest integer type for low … high; two's complement if low < 0."""
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
        """True if an expression's value is a truth value, not a number."""
        if isinstance(expr, Bool):
            return True
        return isinstance(expr, Op) and (expr.op in _BOOLEANS or (expr.op == "?" and self.is_boolean(expr.args[1])))

    def truth(self, expr: Expr) -> IRValue:
        """Return code that computes a boolean expression, of type i1. Raises UnsupportedProgram."""
        builder = self.frame.builder
        match expr:
            case Bool(value):
                return const(1, int(value))
            case Op("valid", (Ref("header", name),)):
                return self.frame.is_valid(name)
            case Op("valid", (Element() as element,)):
                return self.frame.is_valid_at(self.place(element))
            case Op("valid_union", (Ref("header_union", name),)):
                valid = [self.frame.is_valid(header) for header in self.frame.document.unions[name]]
                return reduce(builder.or_, valid)
            case Op("valid_union", (Element(stack, index),)):
                columns = self.frame.document.union_stacks[stack]
                members = [self.place(Element(column, index)) for column in columns]
                return reduce(builder.or_, [self.frame.is_valid_at(member) for member in members])
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

    # ---- headers

    def place(self, header: Expr) -> HeaderPlace:
        """Return the header that an expression names or picks."""
        frame = self.frame
        match header:
            case Ref("header", name):
                return frame.place(name)
            case Element(stack, index):
                number = self.number(index)
                headers = frame.document.stacks[stack].headers
                if number.low == number.high and 0 <= number.low < len(headers):
                    return frame.place(headers[number.low])
                width = max(64, number.value.type.width)
                value = self._extend(number, width)
                if width > 64:
                    beyond = frame.builder.icmp_unsigned(">", value, const(width, len(headers)))
                    value = frame.builder.select(beyond, const(width, len(headers)), value)
                return frame.element(stack, fit(frame.builder, value, 64))
        raise self._unsupported(header, "as a header")

    def _filled(self, stack: str) -> IRValue:
        counter = self.frame.document.stacks[stack].counter if stack in self.frame.document.stacks else stack
        return self.frame.builder.load(self.frame.filled(counter), typ=I8)

    def _compare(self, op: str, left: Number, right: Number) -> IRValue:
        builder = self.frame.builder
        width = bits_for(min(left.low, right.low), max(left.high, right.high))
        compare = builder.icmp_signed if left.signed or right.signed else builder.icmp_unsigned
        return compare(op, self._extend(left, width), self._extend(right, width))

    # ---- numbers

    def number(self, expr: Expr) -> Number:
        """Compile an expression of exact integers."""
        builder = self.frame.builder
        match expr:
            case Const(value):
                return self._constant(value)
            case Field():
                _, width, signed = self.frame.describe(expr)
                return self._of_bits(self.frame.load(expr), width, signed)
            case Member(header, name):
                place = self.place(header)
                _, width, signed = describe(place.header, name)
                return self._of_bits(self.frame.load_in(place, name), width, signed)
            case Op("last_stack_index", (Ref("stack", name),)):
                filled = fit(builder, self._filled(name), 9)
                return Number(builder.sub(filled, const(9, 1)), -1, 254)
            case Op("size_stack", (Ref("stack", name),)):
                return self._of_bits(self._filled(name), 8, False)
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
        """Return the value modulo 2^width, as an integer of that many bits."""
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
                shifted = self._by_amount("shl", base, fit(builder, distance.value, width))
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
            raise UnsupportedProgram(
                f"an expression may need {width} bits; the limit is {MAX_BITS}", place=self.where, value=width
            )
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
            "*": partial(self._by_amount, "mul"),
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
        """Division of integers, which cuts towards zero as bmv2's does; a divisor of 0 gives 0."""
        width = max(left.value.type.width + right.signed, right.value.type.width + left.signed)
        builder, signed = self.frame.builder, left.signed or right.signed
        a, b = self._extend(left, width), self._extend(right, width)
        nil = builder.icmp_unsigned("==", b, const(width, 0))
        divisor = builder.select(nil, const(width, 1), b)
        if width > 64:
            value = self._divide_long(op, a, divisor, signed)
        elif signed:
            value = (builder.sdiv if op == "/" else builder.srem)(a, divisor)
        else:
            value = (builder.udiv if op == "/" else builder.urem)(a, divisor)
        value = builder.select(nil, const(width, 0), value)
        largest = max(-left.low, left.high)
        low = -largest if signed else 0
        bits = self._width(low, largest)
        return Number(fit(builder, value, bits, signed), low, largest)

    def _divide_long(self, op: str, a: IRValue, b: IRValue, signed: bool) -> IRValue:
        """Division of integers that the processor cannot divide, by their magnitudes."""
        builder, zero = self.frame.builder, const(a.type.width, 0)
        a_negative = builder.and_(builder.icmp_signed("<", a, zero), const(1, int(signed)))
        b_negative = builder.and_(builder.icmp_signed("<", b, zero), const(1, int(signed)))
        magnitudes = [builder.select(a_negative, builder.neg(a), a), builder.select(b_negative, builder.neg(b), b)]
        value = builder.call(_long_division(self.frame.module, op, a.type.width), magnitudes)
        negative = builder.xor(a_negative, b_negative) if op == "/" else a_negative
        return builder.select(negative, builder.neg(value), value)

    def _shift(self, op: str, left: Number, right: Number) -> Number:
        builder = self.frame.builder
        if right.signed:
            raise UnsupportedProgram("a shift by a signed amount is not supported", place=self.where)
        if op == "<<":
            reach = min(right.high, MAX_BITS)
            low, high = min(left.low << reach, left.low), max(left.high << reach, left.high)
            width = self._width(low, high)
            amount = self._extend(right, max(width, right.value.type.width))
            value = self._by_amount("shl", self._extend(left, width), fit(builder, amount, width))
            return self._number(value, low, high)
        width = max(left.value.type.width, right.value.type.width)
        amount, value = self._extend(right, width), self._extend(left, width)
        last = const(width, width - 1)
        beyond = builder.icmp_unsigned(">", amount, last)
        if left.signed:
            shifted = self._by_amount("ashr", value, builder.select(beyond, last, amount))
        else:
            shifted = builder.select(beyond, const(width, 0), self._by_amount("lshr", value, amount))
        low = left.low >> right.low if left.signed else 0
        return self._number(shifted, low, max(left.high >> right.low, 0 if not left.signed else -1))

    def _by_amount(self, op: str, left: IRValue, right: IRValue) -> IRValue:
        """A product, or a shift by an amount known only at run time; for wide integers a function call, as the code is
        long.
        """
        width = left.type.width
        if width > _INLINE_BITS and not isinstance(right, ir.Constant) and not isinstance(left, ir.Constant):
            return self.frame.builder.call(_wide(self.frame.module, op, width), [left, right])
        return getattr(self.frame.builder, op)(left, right)

    def _unsupported(self, expr: Expr, how: str) -> UnsupportedProgram:
        return UnsupportedProgram(f"{expr} {how} is not supported", place=self.where, value=expr)


def _wide(module: IRValue, op: str, width: int) -> IRValue:
    """`iW f(iW a, iW b)` for LLVM's `op`, which the processor has no instruction for: once per width in a program."""
    name = f"{op}.{width}"
    existing = module.globals.get(name)
    if existing is not None:
        return existing
    number = ir.IntType(width)
    function = ir.Function(module, ir.FunctionType(number, [number, number]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    builder.ret(getattr(builder, op)(*function.args))
    return function


def _long_division(module: IRValue, op: str, width: int) -> IRValue:
    """`iW f(iW a, iW b)`: a / b or a % b of unsigned integers, one bit of the quotient at a time."""
    name = f"{'quotient' if op == '/' else 'remainder'}.{width}"
    existing = module.globals.get(name)
    if existing is not None:
        return existing
    number, wide = ir.IntType(width), ir.IntType(width + 1)
    function = ir.Function(module, ir.FunctionType(number, [number, number]), name)
    function.linkage = "internal"
    entry, loop, done = (function.append_basic_block(label) for label in ("entry", "loop", "done"))
    builder = ir.IRBuilder(entry)
    divisor = builder.zext(function.args[1], wide)
    builder.branch(loop)
    builder.position_at_end(loop)
    step, rest, quotient, remainder = (builder.phi(kind) for kind in (ir.IntType(32), number, number, wide))
    starts = (const(32, 0), function.args[0], const(width, 0), const(width + 1, 0))
    grown = builder.shl(remainder, const(width + 1, 1))
    grown = builder.or_(grown, builder.zext(builder.lshr(rest, const(width, width - 1)), wide))
    goes = builder.icmp_unsigned(">=", grown, divisor)
    following = (
        builder.add(step, const(32, 1)),
        builder.shl(rest, const(width, 1)),
        builder.or_(builder.shl(quotient, const(width, 1)), builder.zext(goes, number)),
        builder.select(goes, builder.sub(grown, divisor), grown),
    )
    for phi, start, value in zip((step, rest, quotient, remainder), starts, following, strict=True):
        phi.add_incoming(start, entry)
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_unsigned("<", following[0], const(32, width)), loop, done)
    builder.position_at_end(done)
    builder.ret(following[2] if op == "/" else builder.trunc(following[3], number))
    return function
