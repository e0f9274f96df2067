"""The parser: headers from the frame into the PHV.

A state is a basic block; the cursor counts bytes from the start of the frame. Where the frame is too short the parser
stops with PacketTooShort, what was not extracted stays invalid, and the packet goes on to ingress. So it does with
ParserTimeout where states have led back to each other too often.
"""

from __future__ import annotations

from typing import Final

from llvmlite import ir

from ..bmv2.document import Const, Expr, Field, Parser, ParseState, Primitive, Ref, Transition
from .actions import emit_primitive
from .expressions import Expressions
from .frame import I8, I32, I64, PTR, Frame, IRValue, const, fit, int_type, swap
from .tracing import note_parser_error, note_state

MAX_RETURNS: Final = 16384
"""Transitions between states of a cycle that one packet may take: more than the bytes of the longest usual frame."""


def emit_parser(frame: Frame) -> None:
    """Append the parser; afterwards `payload` and `parser_error` of the record are set."""
    _Parser(frame).emit()


class _Parser:
    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.cursor = frame.alloca(I64, name="cursor")
        self.error = frame.alloca(I32, name="parser_error")
        self.start = frame.load_packet("start", 64)
        self.length = frame.load_packet("length", 64)
        self.bytes = frame.at(frame.data, self.start)
        self.done = frame.block("parsed")
        parser = frame.document.parser
        self.blocks = {name: frame.block(f"parse.{name}") for name in parser.states}
        self.reachable = _reachable(parser)
        self.returns: IRValue = None
        """Counts the transitions within cycles; None for a parser that has none so far."""

    def emit(self) -> None:
        frame, document = self.frame, self.frame.document
        frame.builder.store(const(32, document.errors["NoError"]), self.error)
        frame.builder.branch(self.blocks[document.parser.init_state])
        for state in document.parser.states.values():
            frame.builder.position_at_end(self.blocks[state.name])
            self._state(state)
        frame.builder.position_at_end(self.done)
        builder = frame.builder
        frame.store_packet("parser_error", builder.load(self.error, typ=I32))
        frame.store_packet("payload", builder.add(self.start, builder.load(self.cursor, typ=I64)))

    def _state(self, state: ParseState) -> None:
        note_state(self.frame, state.name)
        for op in state.ops:
            self._op(op)
        self._transition(state)

    def _stop_unless(self, condition: IRValue, error: IRValue) -> None:
        frame = self.frame
        failed, going = frame.block("parse_error"), frame.block("parse_on")
        frame.builder.cbranch(condition, going, failed)
        frame.builder.position_at_end(failed)
        note_parser_error(frame, error)
        frame.builder.store(error, self.error)
        frame.builder.branch(self.done)
        frame.builder.position_at_end(going)

    def _error(self, name: str) -> IRValue:
        return const(32, self.frame.document.errors[name])

    def _need(self, size: IRValue, where: str) -> IRValue:
        """Stop with PacketTooShort unless `size` more bytes are there; returns the cursor behind them."""
        builder = self.frame.builder
        end = builder.add(builder.load(self.cursor, typ=I64), size)
        self._stop_unless(builder.icmp_unsigned("<=", end, self.length), self._error("PacketTooShort"))
        return end

    def _op(self, op: Primitive) -> None:
        frame = self.frame
        expressions = self._expressions(op.where)
        match op.op, op.args:
            case "extract", (target,):
                self._extract(op, target, None)
            case "extract_VL", (target, bits):
                self._extract(op, target, bits)
            case (("set" | "assign"), (Field() as target, source_expr)):
                frame.store(target, expressions.modulo(source_expr, frame.width(target)))
            case "verify", (condition, error):
                holds = expressions.truth(condition)
                self._stop_unless(holds, expressions.modulo(error, 32))
            case "advance", (bits,):
                size_bytes = self._whole_bytes(expressions.modulo(bits, 64), op.where)
                frame.builder.store(self._need(size_bytes, op.where), self.cursor)
            case "shift", (Const(size),):
                frame.builder.store(self._need(const(64, size), op.where), self.cursor)
            case _:
                emit_primitive(frame, op)

    def _whole_bytes(self, bits: IRValue, where: str) -> IRValue:
        """Convert bits to bytes; stop with ParserInvalidArgument unless they are whole bytes."""
        builder = self.frame.builder
        rest = builder.and_(bits, const(64, 7))
        if not (isinstance(bits, ir.Constant) and bits.constant % 8 == 0):
            whole = builder.icmp_unsigned("==", rest, const(64, 0))
            self._stop_unless(whole, self._error("ParserInvalidArgument"))
        return builder.lshr(bits, const(64, 3))

    def _extract(self, op: Primitive, target: Expr, varbit_bits: Expr | None) -> None:
        """Copy a header from the frame; into a stack, the first element that is not filled."""
        frame, builder, counter = self.frame, self.frame.builder, None
        if isinstance(target, Ref) and target.kind == "stack":
            stack = frame.document.stacks[target.name]
            counter = frame.filled(stack.counter)
            filled = builder.load(counter, typ=I8)
            room = builder.icmp_unsigned("<", filled, const(8, len(stack.headers)))
            self._stop_unless(room, self._error("StackOutOfBounds"))
            place = frame.element(stack.name, fit(builder, filled, 64))
        else:
            place = self._expressions(op.where).place(target)
        fixed, front = frame.fixed_bytes(place.header), place.header.varbit_at // 8
        varbit = None
        size = const(64, fixed)
        if varbit_bits is not None:
            bits = fit(builder, self._expressions(op.where).modulo(varbit_bits, 32), 64)
            varbit = self._whole_bytes(bits, op.where)
            size = builder.add(size, varbit)
        end = self._need(size, op.where)
        source = frame.at(self.bytes, builder.load(self.cursor, typ=I64))
        if varbit is None:
            frame.copy(place.data, source, fixed)
        else:
            room = builder.icmp_unsigned("<=", varbit, const(64, place.header.varbit_bytes))
            self._stop_unless(room, self._error("HeaderTooShort"))
            frame.copy(place.data, source, front)
            frame.copy(frame.at(place.data, fixed), frame.at(source, front), varbit)
            if fixed > front:
                behind = frame.at(frame.at(source, front), varbit)
                frame.copy(frame.at(place.data, front), behind, fixed - front)
            builder.store(fit(builder, varbit, 32), place.varbit)
        if counter is not None:
            builder.store(builder.add(builder.load(counter, typ=I8), const(8, 1)), counter)
        frame.set_valid(place, const(1, 1))
        builder.store(end, self.cursor)

    def _expressions(self, where: str) -> Expressions:
        return Expressions(self.frame, where, (), lambda offset, width: self._lookahead(offset, width, where))

    def _lookahead(self, offset: int, width: int, where: str) -> IRValue:
        builder = self.frame.builder
        self._need(const(64, (offset + width + 7) // 8), where)
        covering = ((offset % 8) + width + 7) // 8 * 8
        cursor = builder.add(builder.load(self.cursor, typ=I64), const(64, offset // 8))
        raw = builder.load(self.frame.at(self.bytes, cursor), typ=int_type(covering), align=1)
        value = builder.lshr(swap(builder, raw), const(covering, covering - offset % 8 - width))
        return fit(builder, value, width)

    def _transition(self, state: ParseState) -> None:
        frame = self.frame
        key = self._key(state)
        for transition in state.transitions:
            target = self._target(state, transition)
            if transition.value_set is not None:
                self._value_set(state, transition, key, target)
                continue
            if transition.value is None:
                frame.builder.branch(target)
                return
            assert key is not None
            width = key.type.width
            masked, value = key, transition.value
            if transition.mask is not None:
                masked = frame.builder.and_(key, const(width, transition.mask))
                value &= transition.mask
            following = frame.block(f"{state.name}.next")
            frame.builder.cbranch(frame.builder.icmp_unsigned("==", masked, const(width, value)), target, following)
            frame.builder.position_at_end(following)
        frame.builder.branch(self.done)  # without an error: simple_switch accepts where no case matches

    def _target(self, state: ParseState, transition: Transition) -> IRValue:
        """Block that a transition leads to; within a cycle by way of the counter that ends it."""
        if transition.next_state is None:
            return self.done
        if state.name not in self.reachable[transition.next_state]:
            return self.blocks[transition.next_state]
        frame = self.frame
        if self.returns is None:
            self.returns = frame.alloca(I32, name="returns")
        block = frame.block(f"{state.name}.return")
        with frame.builder.goto_block(block):
            builder = frame.builder
            count = builder.add(builder.load(self.returns, typ=I32), const(32, 1))
            builder.store(count, self.returns)
            self._stop_unless(builder.icmp_unsigned("<=", count, const(32, MAX_RETURNS)), self._error("ParserTimeout"))
            builder.branch(self.blocks[transition.next_state])
        return block

    def _value_set(self, state: ParseState, transition: Transition, key: IRValue, target: IRValue) -> None:
        """Go to `target` if the value set, as it is now, has a member that matches."""
        frame, builder = self.frame, self.frame.builder
        width = (key.type.width + 63) // 64 * 64
        mask = (1 << width) - 1 if transition.mask is None else transition.mask
        root = frame.at(frame.state, frame.layout.value_set_root[transition.value_set or ""])
        block = builder.load_atomic(root, "acquire", 8, typ=PTR)
        is_member = builder.call(
            _value_set_lookup(frame.module, width), [block, fit(builder, key, width), const(width, mask)]
        )
        following = frame.block(f"{state.name}.next")
        builder.cbranch(is_member, target, following)
        builder.position_at_end(following)

    def _key(self, state: ParseState) -> IRValue | None:
        """The transition key: its fields padded to whole bytes, one behind the other."""
        if not state.key:
            return None
        builder = self.frame.builder
        expressions = self._expressions(state.where)
        parts = [expressions.modulo(part, width) for part, width in zip(state.key, state.key_widths, strict=True)]
        widths = [(width + 7) // 8 * 8 for width in state.key_widths]
        total = sum(widths)
        key = const(total, 0)
        for part, width in zip(parts, widths, strict=True):
            key = builder.or_(
                builder.shl(key, const(total, width)) if width < total else key, fit(builder, part, total)
            )
        return key


def _reachable(parser: Parser) -> dict[str, set[str]]:
    """The states to which each state may lead, by any number of transitions; itself among them."""
    result = {}
    for first in parser.states:
        reached, pending = {first}, [first]
        while pending:
            for transition in parser.states[pending.pop()].transitions:
                following = transition.next_state
                if following is not None and following not in reached:
                    reached.add(following)
                    pending.append(following)
        result[first] = reached
    return result


def _value_set_lookup(module: IRValue, width: int) -> IRValue:
    """`i1 f(ptr block, iW key, iW mask)`; a block is a count followed by that many pairs of (value, mask)."""
    name = f"value_set.{width}"
    existing = module.globals.get(name)
    if existing is not None:
        return existing
    number = int_type(width)
    function = ir.Function(module, ir.FunctionType(int_type(1), [PTR, number, number]), name)
    function.linkage = "internal"
    block, key, mask = function.args
    entry, loop, check, found, missed = (
        function.append_basic_block(label) for label in ("entry", "loop", "check", "found", "missed")
    )
    builder = ir.IRBuilder(entry)
    count = builder.load(block, typ=I64)
    builder.branch(loop)
    builder.position_at_end(loop)
    index = builder.phi(I64)
    index.add_incoming(const(64, 0), entry)
    builder.cbranch(builder.icmp_unsigned("<", index, count), check, missed)
    builder.position_at_end(check)
    offset = builder.add(builder.mul(index, const(64, width // 4)), const(64, 8))
    value = builder.load(builder.gep(block, [offset], source_etype=I8), typ=number, align=8)
    own_at = builder.gep(block, [builder.add(offset, const(64, width // 8))], source_etype=I8)
    differs = builder.and_(builder.xor(key, value), builder.and_(mask, builder.load(own_at, typ=number, align=8)))
    index.add_incoming(builder.add(index, const(64, 1)), check)
    builder.cbranch(builder.icmp_unsigned("==", differs, const(width, 0)), found, loop)
    builder.position_at_end(found)
    builder.ret(const(1, 1))
    builder.position_at_end(missed)
    builder.ret(const(1, 0))
    return function
