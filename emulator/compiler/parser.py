"""Parser and deparser: headers between the frame and the PHV.

A state is a basic block; the cursor counts bytes from the start of the frame. Where the frame is too short the parser
stops with PacketTooShort, what was not extracted stays invalid, and the packet goes on to ingress.
"""

from __future__ import annotations

from emulator.abi import DROP_PORT
from emulator.bmv2json import Const, Field, ParseState, Primitive, Ref
from emulator.compiler.expressions import Expressions
from emulator.compiler.frame import I32, I64, Frame, IRValue, const, fit, int_type, swap
from emulator.schema import UnsupportedProgram


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

    def emit(self) -> None:
        frame, document = self.frame, self.frame.document
        frame.builder.store(const(32, document.errors.get("NoError", 0)), self.error)
        frame.builder.branch(self.blocks[document.parser.init_state])
        for state in document.parser.states.values():
            frame.builder.position_at_end(self.blocks[state.name])
            self._state(state)
        frame.builder.position_at_end(self.done)
        builder = frame.builder
        frame.store_packet("parser_error", builder.load(self.error, typ=I32))
        frame.store_packet("payload", builder.add(self.start, builder.load(self.cursor, typ=I64)))

    def _state(self, state: ParseState) -> None:
        for op in state.ops:
            self._op(op)
        self._transition(state)

    def _stop_unless(self, condition: IRValue, error: IRValue) -> None:
        frame = self.frame
        failed, going = frame.block("parse_error"), frame.block("parse_on")
        frame.builder.cbranch(condition, going, failed)
        frame.builder.position_at_end(failed)
        frame.builder.store(error, self.error)
        frame.builder.branch(self.done)
        frame.builder.position_at_end(going)

    def _error(self, name: str, where: str) -> IRValue:
        errors = self.frame.document.errors
        if name not in errors:
            raise UnsupportedProgram(f"{where}: the program's error list lacks {name}")
        return const(32, errors[name])

    def _need(self, size: IRValue, where: str) -> IRValue:
        """Stop with PacketTooShort unless `size` more bytes are there; returns the cursor behind them."""
        builder = self.frame.builder
        end = builder.add(builder.load(self.cursor, typ=I64), size)
        self._stop_unless(builder.icmp_unsigned("<=", end, self.length), self._error("PacketTooShort", where))
        return end

    def _op(self, op: Primitive) -> None:
        frame = self.frame
        expressions = self._expressions(op.where)
        match op.op, op.args:
            case "extract", (Ref("header", name),):
                size = frame.header_bytes(name)
                end = self._need(const(64, size), op.where)
                source = frame.at(self.bytes, frame.builder.load(self.cursor, typ=I64))
                frame.copy(frame.header_pointer(name), source, size)
                frame.set_valid(name, const(1, 1))
                frame.builder.store(end, self.cursor)
            case (("set" | "assign"), (Field() as target, source_expr)):
                frame.store(target, expressions.modulo(source_expr, frame.width(target)))
            case "verify", (condition, error):
                holds = expressions.truth(condition)
                self._stop_unless(holds, expressions.modulo(error, 32))
            case "advance", (bits,):
                if isinstance(bits, Const) and bits.value % 8:
                    raise UnsupportedProgram(f"{op.where}: advance by {bits.value} bits, not by whole bytes")
                size_bytes = frame.builder.lshr(expressions.modulo(bits, 64), const(64, 3))
                frame.builder.store(self._need(size_bytes, op.where), self.cursor)
            case "add_header", (Ref("header", name),):
                size = const(32, frame.header_bytes(name))
                frame.add_to_length(frame.builder.select(frame.is_valid(name), const(32, 0), size))
                frame.set_valid(name, const(1, 1))
            case "remove_header", (Ref("header", name),):
                size = const(32, -frame.header_bytes(name))
                frame.add_to_length(frame.builder.select(frame.is_valid(name), size, const(32, 0)))
                frame.set_valid(name, const(1, 0))
            case name, _:
                raise UnsupportedProgram(f"{op.where}: parser operation '{name}' is not supported")

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
            target = self.done if transition.next_state is None else self.blocks[transition.next_state]
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

    def _key(self, state: ParseState) -> IRValue | None:
        """The transition key: its fields padded to whole bytes, one behind the other."""
        if not state.key:
            return None
        builder = self.frame.builder
        parts = [self._expressions(state.where).number(part).value for part in state.key]
        widths = [(part.type.width + 7) // 8 * 8 for part in parts]
        total = sum(widths)
        key = const(total, 0)
        for part, width in zip(parts, widths, strict=True):
            key = builder.or_(
                builder.shl(key, const(total, width)) if width < total else key, fit(builder, part, total)
            )
        return key


def emit_deparser(frame: Frame) -> None:
    """Append the deparser: valid headers in front of the payload; `start` and `length` follow.

    A packet that would grow out of its headroom is dropped.
    """
    builder, document = frame.builder, frame.document
    payload = frame.load_packet("payload", 64)
    end = builder.add(frame.load_packet("start", 64), frame.load_packet("length", 64))
    end = builder.select(builder.icmp_unsigned("<", end, payload), payload, end)  # a clone cut within its headers
    total = const(64, 0)
    valid = {}
    for name in document.deparse_order:
        valid[name] = frame.is_valid(name)
        size = builder.select(valid[name], const(64, frame.header_bytes(name)), const(64, 0))
        total = builder.add(total, size)
    fits, grown, done = frame.block("deparse"), frame.block("too_large"), frame.block("deparsed")
    builder.cbranch(builder.icmp_unsigned("<=", total, payload), fits, grown)
    builder.position_at_end(grown)
    frame.store_packet("egress_spec", const(16, DROP_PORT))
    builder.branch(done)
    builder.position_at_end(fits)
    position = start = builder.sub(payload, total)
    for name in document.deparse_order:
        emit, after = frame.block(f"emit.{name}"), frame.block(f"emitted.{name}")
        before = builder.block
        builder.cbranch(valid[name], emit, after)
        builder.position_at_end(emit)
        size_bytes = frame.header_bytes(name)
        frame.copy(frame.at(frame.data, position), frame.header_pointer(name), size_bytes)
        behind = builder.add(position, const(64, size_bytes))
        builder.branch(after)
        builder.position_at_end(after)
        joined = builder.phi(I64)
        joined.add_incoming(position, before)
        joined.add_incoming(behind, emit)
        position = joined
    frame.store_packet("start", start)
    frame.store_packet("length", builder.sub(end, start))
    builder.branch(done)
    builder.position_at_end(done)
