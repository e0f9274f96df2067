"""Actions: primitives in a row, with jumps, as straight native code. Loops end after `MAX_TURNS`.

A register access picks the register's row (`emulator.compiler.layout`). The row of an index is worked out once and
kept until a field that the index is made of changes, so that hundreds of accesses at one index are loads and stores
at fixed distances, which LLVM turns into vector code. An index out of range is led to a row of zeros: reads give 0,
writes are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ..bmv2.document import Action, Const, Document, Expr, Field, Member, Primitive, Ref, parts_of
from ..bmv2.schema import UnsupportedProgram
from ..tables.rows import METER_BYTES
from . import headers
from .expressions import Expressions
from .frame import I32, I64, Frame, IRValue, const, describe, fit, int_type
from .hashing import compute
from .layout import RegisterPlace
from .metering import meter_color
from .tracing import note_log

MAX_TURNS: Final = 1 << 20
"""Jumps back that one packet may take in an action, which then ends, so that no loop holds the switch for ever."""
SESSION_BITS: Final = 15
"""Bits of a clone session's id; simple_switch ignores higher ones."""


def emit_action(frame: Frame, action: Action, params: Sequence[IRValue], exit_block: IRValue) -> None:
    """Append an action at the builder's place.

    Args:
        frame: Function under construction.
        action: The action.
        params: Value of each parameter.
        exit_block: Block that follows after `exit`; otherwise the code continues at the builder's place.
    """
    _Action(frame, action, tuple(params)).emit(exit_block)


def emit_primitive(frame: Frame, primitive: Primitive) -> None:
    """Append one primitive outside an action: in a parser or deparser."""
    _Action(frame, Action(0, "primitive", (), (primitive,)), ()).perform(primitive)


@dataclass(slots=True)
class _Row:
    pointer: IRValue
    depends: frozenset[Field]
    written: set[str] = field(default_factory=set)


class _Action:
    def __init__(self, frame: Frame, action: Action, params: tuple[IRValue, ...]) -> None:
        self.frame = frame
        self.action = action
        self.params = params
        self.rows: dict[tuple[int, Expr], _Row] = {}
        self.exit_block: IRValue = None
        """Block that a packet continues at when it leaves its control by `exit`; None outside controls."""
        self.turns: IRValue = None
        """Counts the jumps back; None for an action that has none so far."""

    def emit(self, exit_block: IRValue) -> None:
        frame, body = self.frame, self.action.body
        self.exit_block = exit_block
        targets = {self._target(p) for p in body if p.op in ("_jump", "_jump_if_zero")}
        blocks = {index: frame.block(f"{self.action.name}.{index}") for index in sorted(targets)}
        end = frame.block(f"{self.action.name}.end") if blocks.get(len(body)) is None else blocks[len(body)]
        exits = any(p.op == "exit" for p in body)
        exited = frame.alloca(int_type(1)) if exits else None
        if exited is not None:
            frame.builder.store(const(1, 0), exited)

        def way(index: int, primitive: Primitive) -> IRValue:
            target = self._target(primitive)
            there = blocks.get(target, end)
            return there if target > index else self._back(there, end)

        for index, primitive in enumerate(body):
            if index in blocks:
                if not frame.builder.block.is_terminated:
                    frame.builder.branch(blocks[index])
                frame.builder.position_at_end(blocks[index])
                self.rows.clear()
            elif frame.builder.block.is_terminated:
                frame.builder.position_at_end(frame.block("unreached"))
            if primitive.op == "exit":
                assert exited is not None
                frame.builder.store(const(1, 1), exited)
            elif primitive.op == "_jump":
                frame.builder.branch(way(index, primitive))
            elif primitive.op == "_jump_if_zero":
                value = self._expressions(primitive).number(primitive.args[0]).value
                zero = frame.builder.icmp_unsigned("==", value, const(value.type.width, 0))
                following = frame.block(f"{self.action.name}.then")
                frame.builder.cbranch(zero, way(index, primitive), following)
                frame.builder.position_at_end(following)
            else:
                self.perform(primitive)
        if not frame.builder.block.is_terminated:
            frame.builder.branch(end)
        frame.builder.position_at_end(end)
        if exited is not None:
            following = frame.block(f"{self.action.name}.on")
            frame.builder.cbranch(frame.builder.load(exited, typ=int_type(1)), exit_block, following)
            frame.builder.position_at_end(following)

    def _back(self, target: IRValue, end: IRValue) -> IRValue:
        """A block that leads back to `target`, or to `end` after too many turns."""
        frame = self.frame
        if self.turns is None:
            self.turns = frame.alloca(I32, name="turns")
        block = frame.block(f"{self.action.name}.back")
        with frame.builder.goto_block(block):
            count = frame.builder.add(frame.builder.load(self.turns, typ=I32), const(32, 1))
            frame.builder.store(count, self.turns)
            frame.builder.cbranch(frame.builder.icmp_unsigned("<=", count, const(32, MAX_TURNS)), target, end)
        return block

    def _target(self, primitive: Primitive) -> int:
        target = primitive.args[-1]
        if not isinstance(target, Const) or not 0 <= target.value <= len(self.action.body):
            raise UnsupportedProgram(f"jump to {target} is not supported", place=primitive.where, value=target)
        return target.value

    def _expressions(self, primitive: Primitive) -> Expressions:
        return Expressions(self.frame, primitive.where, self.params)

    def _assign(self, target: Field, value: IRValue) -> None:
        self.frame.store(target, value)
        self._invalidate_rows(target)

    def _invalidate_rows(self, target: Field) -> None:
        """Work out again the rows whose index a changed field is part of."""
        for key in [key for key, row in self.rows.items() if target in row.depends]:
            del self.rows[key]

    def perform(self, primitive: Primitive) -> None:
        """Append one primitive. Raises UnsupportedProgram."""
        if primitive.op == "no_op":
            return
        expressions = self._expressions(primitive)
        if primitive.op == "log_msg":
            note_log(self.frame, primitive, expressions)
        elif self._change_headers(primitive, expressions):
            self.rows.clear()
        elif not (
            self._change_field(primitive, expressions)
            or self._access_array(primitive, expressions)
            or self._direct_packet(primitive, expressions)
        ):
            kinds = ", ".join(
                arg.kind if isinstance(arg, Ref) else type(arg).__name__.lower() for arg in primitive.args
            )
            raise UnsupportedProgram(
                f"primitive '{primitive.op}' ({kinds}) is not supported", place=primitive.where, value=primitive.op
            )

    def _change_field(self, primitive: Primitive, expressions: Expressions) -> bool:
        """Append a primitive that computes one field or condition; return whether this is one."""
        frame, builder = self.frame, self.frame.builder
        match primitive.op, primitive.args:
            case "assign", (Field() as target, source):
                if source != target:
                    self._assign(target, expressions.modulo(source, frame.width(target)))
            case "modify_field_rng_uniform", (target, low, high):
                self._random(expressions, target, low, high)
            case "modify_field_with_hash_based_offset", (Field() as target, base, Ref("calculation", name), size):
                hashed = compute(frame, frame.document.calculations[name])
                modulus = expressions.modulo(size, 64)
                nil = builder.icmp_unsigned("==", modulus, const(64, 0))
                offset = builder.urem(hashed, builder.select(nil, const(64, 1), modulus))
                value = builder.add(offset, expressions.modulo(base, 64))
                self._assign(target, fit(builder, value, frame.width(target)))
            case (("assert" | "assume"), (condition,)):
                self._assert(expressions, condition)
            case _:
                return False
        return True

    def _access_array(self, primitive: Primitive, expressions: Expressions) -> bool:
        """Append an access to a register, counter or meter; return whether this is one."""
        frame, builder = self.frame, self.frame.builder
        match primitive.op, primitive.args:
            case "register_read", (Field() as target, Ref("register_array", name), index):
                place = frame.layout.registers[name]
                row = self._row(primitive, place, index, name)
                value = builder.load(
                    frame.at(row.pointer, place.offset), typ=int_type(8 * place.bytes), align=_align(place)
                )
                value = fit(builder, fit(builder, value, place.width), frame.width(target))
                self._assign(target, value)
            case "register_write", (Ref("register_array", name), index, source):
                place = frame.layout.registers[name]
                row = self._row(primitive, place, index)
                row.written.add(name)
                value = fit(builder, expressions.modulo(source, place.width), 8 * place.bytes)
                builder.store(value, frame.at(row.pointer, place.offset), align=_align(place))
            case "count", (Ref("counter_array", name), index):
                self._count(primitive, name, index)
            case "execute_meter", (Ref("meter_array", name), index, target):
                self._execute_meter(expressions, name, index, target)
            case _:
                return False
        return True

    def _direct_packet(self, primitive: Primitive, expressions: Expressions) -> bool:
        """Append a primitive that decides where the packet or a copy goes, or how much of it; return whether it is."""
        frame, builder = self.frame, self.frame.builder
        match primitive.op, primitive.args:
            case (("mark_to_drop" | "drop"), ()):
                self._drop()
            case "mark_to_drop", (Ref("header", name),):
                self._drop_in(expressions, name)
            case (("clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress"), (session, fields)):
                one_up = builder.add(fit(builder, expressions.modulo(session, SESSION_BITS), 32), const(32, 1))
                frame.store_packet("clone_session", one_up)
                frame.store_packet("clone_field_list", self._preserving(primitive, fields))
            case (("resubmit" | "recirculate" as request), (fields,)):
                frame.store_packet(request, self._preserving(primitive, fields))
            case "generate_digest", (_, Const(number)):
                frame.store_packet("digest", const(32, number))
            case "truncate", (length,):
                old, one = frame.load_packet("truncate"), const(32, 1)
                wanted = builder.add(expressions.modulo(length, 32), one)
                shorter = builder.icmp_unsigned("<", builder.sub(wanted, one), builder.sub(old, one))  # 0 is no limit
                frame.store_packet("truncate", builder.select(shorter, wanted, old))
            case _:
                return False
        return True

    def _change_headers(self, primitive: Primitive, expressions: Expressions) -> bool:
        """Append a primitive on whole headers, unions or stacks; return whether this is one."""
        frame = self.frame
        match primitive.op, primitive.args:
            case "assign", (Member(header, name), source):
                element = expressions.place(header)
                frame.store_in(element, name, expressions.modulo(source, describe(element.header, name)[1]))
            case "assign_VL", (target, source):
                headers.assign_varbit(frame, expressions, target, source)
            case "add_header", (header,):
                headers.add_header(frame, expressions.place(header))
            case "remove_header", (header,):
                headers.remove_header(frame, expressions.place(header))
            case "assign_header", (Ref("header", target_name), Ref("header", source_name)) if (
                target_name in frame.metadata or source_name in frame.metadata
            ):
                headers.assign_fields(frame, target_name, source_name)
            case "assign_header", (target_header, source_header):
                headers.assign_header(frame, expressions.place(target_header), expressions.place(source_header))
            case "assign_union", (Ref("header_union", target_name), Ref("header_union", source_name)):
                headers.assign_all(frame, frame.document.unions[target_name], frame.document.unions[source_name])
            case (
                ("assign_header_stack" | "assign_union_stack"),
                (Ref("stack", target_name), Ref("stack", source_name)),
            ):
                headers.assign_stack(frame, target_name, source_name)
            case (("push" | "pop"), (Ref("stack", name), Const(count))):
                headers.shift_stack(frame, name, count if primitive.op == "push" else -count)
            case _:
                return False
        return True

    def _preserving(self, primitive: Primitive, fields: Expr) -> IRValue:
        """The field list's id, or 0 for an empty one."""
        if not isinstance(fields, Const):
            raise UnsupportedProgram("a field list that is not constant is not supported", place=primitive.where)
        return const(32, fields.value)

    def _random(self, expressions: Expressions, target: Expr, low: Expr, high: Expr) -> None:
        """A number of low … high from the packet's own generator (SplitMix64); nothing where low > high."""
        frame, builder = self.frame, self.frame.builder
        least, most = expressions.modulo(low, 64), expressions.modulo(high, 64)
        draw, after = frame.block("random"), frame.block("random.done")
        builder.cbranch(builder.icmp_unsigned("<=", least, most), draw, after)
        builder.position_at_end(draw)
        state = builder.add(frame.load_packet("random_state", 64), const(64, 0x9E3779B97F4A7C15))
        frame.store_packet("random_state", state)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            state = builder.mul(builder.xor(state, builder.lshr(state, const(64, shift))), const(64, factor))
        state = builder.xor(state, builder.lshr(state, const(64, 31)))
        count = builder.add(builder.sub(most, least), const(64, 1))
        whole = builder.icmp_unsigned("==", count, const(64, 0))
        inside = builder.add(least, builder.urem(state, builder.select(whole, const(64, 1), count)))
        self._store(expressions, target, builder.select(whole, state, inside))
        builder.branch(after)
        builder.position_at_end(after)

    def _store(self, expressions: Expressions, target: Expr, value: IRValue) -> None:
        """Assign an unsigned integer to a field."""
        builder = self.frame.builder
        if isinstance(target, Member):
            element = expressions.place(target.header)
            width = describe(element.header, target.name)[1]
            self.frame.store_in(element, target.name, fit(builder, value, width))
            self.rows.clear()
        else:
            assert isinstance(target, Field)
            self._assign(target, fit(builder, value, self.frame.width(target)))

    def _execute_meter(self, expressions: Expressions, name: str, index: Expr, target: Expr) -> None:
        """Run a meter; an index out of range has no effect."""
        frame, builder = self.frame, self.frame.builder
        meter = frame.document.meters[name]
        number = expressions.number(index)
        width = max(64, number.value.type.width)
        value = fit(builder, number.value, width, number.signed)
        inside, after = frame.block("meter"), frame.block("metered")
        builder.cbranch(builder.icmp_unsigned("<", value, const(width, meter.size)), inside, after)
        builder.position_at_end(inside)
        offset = builder.mul(fit(builder, value, 64), const(64, METER_BYTES))
        place = frame.at(frame.at(frame.state, frame.layout.meter_offset[name]), offset)
        self._store(expressions, target, meter_color(frame, place, meter.unit))
        builder.branch(after)
        builder.position_at_end(after)

    def _assert(self, expressions: Expressions, condition: Expr) -> None:
        """Drop a packet for which the condition does not hold; bmv2 would end."""
        frame, builder = self.frame, self.frame.builder
        value = expressions.number(condition).value
        failed, after = frame.block("assertion_failed"), frame.block("assertion_held")
        builder.cbranch(builder.icmp_unsigned("==", value, const(value.type.width, 0)), failed, after)
        builder.position_at_end(failed)
        self._drop()
        frame.store_packet("resubmit", const(32, 0))
        frame.store_packet("recirculate", const(32, 0))
        builder.branch(self.exit_block or after)
        builder.position_at_end(after)

    def _drop(self) -> None:
        """Mark the packet as dropped."""
        self.frame.store_packet("egress_spec", self.frame.load_packet("drop_port", 16))
        self.frame.store_packet("mcast_grp", const(16, 0))
        for target, name in self.frame.document.intrinsic.items():
            if name in ("egress_spec", "mcast_grp"):
                self._invalidate_rows(target)

    def _drop_in(self, expressions: Expressions, metadata: str) -> None:
        """Mark the packet as dropped in standard metadata, or in a copy of them that an action or control received."""
        self._store(expressions, Field(metadata, "egress_spec"), self.frame.load_packet("drop_port", 16))
        if any(name == "mcast_grp" for name, _, _ in self.frame.document.headers[metadata].fields):
            self._store(expressions, Field(metadata, "mcast_grp"), const(16, 0))

    # ---- registers and counters

    def _row(self, primitive: Primitive, place: RegisterPlace, index: Expr, reads: str | None = None) -> _Row:
        key = (place.rows, index)
        row = self.rows.get(key)
        if row is None or reads in row.written:
            depends = fields_behind(self.frame.document, index)
            row = self.rows[key] = _Row(self._row_pointer(primitive, place, index), depends)
        return row

    def _row_pointer(self, primitive: Primitive, place: RegisterPlace, index: Expr) -> IRValue:
        frame, builder = self.frame, self.frame.builder
        number = self._expressions(primitive).number(index)
        rows = frame.at(frame.state, place.rows)
        if number.low == number.high and 0 <= number.low < place.size:
            return frame.at(rows, number.low * place.stride)
        width = max(64, number.value.type.width)
        value = fit(builder, number.value, width, number.signed)
        if number.low >= 0 and number.high < place.size:
            position = fit(builder, value, 64)
        else:
            inside = builder.icmp_unsigned("<", value, const(width, place.size))
            before = builder.block
            outside, after = frame.block("out_of_range"), frame.block("in_range")
            builder.cbranch(inside, after, outside)
            builder.position_at_end(outside)
            frame.zero(frame.at(rows, place.size * place.stride), place.stride)
            builder.branch(after)
            builder.position_at_end(after)
            position = builder.phi(I64)
            value = self._cut_before(before, value)
            position.add_incoming(value, before)
            position.add_incoming(const(64, place.size), outside)
        return frame.at(rows, builder.mul(position, const(64, place.stride), flags=("nuw", "nsw")))

    def _cut_before(self, block: IRValue, value: IRValue) -> IRValue:
        if value.type.width == 64:
            return value
        with self.frame.builder.goto_block(block):
            return fit(self.frame.builder, value, 64)

    def _count(self, primitive: Primitive, name: str, index: Expr) -> None:
        frame, builder = self.frame, self.frame.builder
        counter = frame.document.counters[name]
        if counter.table is not None:
            return  # a direct counter counts with its entry's hit
        number = self._expressions(primitive).number(index)
        base = frame.at(frame.state, frame.layout.counter_offset[name])
        width = max(64, number.value.type.width)
        value = fit(builder, number.value, width, number.signed)
        after = None
        if number.low < 0 or number.high >= counter.size:
            counted, after = frame.block("count"), frame.block("counted")
            builder.cbranch(builder.icmp_unsigned("<", value, const(width, counter.size)), counted, after)
            builder.position_at_end(counted)
        add_to_counter(frame, frame.at(base, builder.mul(fit(builder, value, 64), const(64, 16))))
        if after is not None:
            builder.branch(after)
            builder.position_at_end(after)


def fields_behind(document: Document, index: Expr) -> frozenset[Field]:
    """Return the fields that an expression reads; of a stack's element, which is picked at run time, those of all
    elements.
    """
    fields = {item for item in parts_of(index) if isinstance(item, Field)}
    for item in parts_of(index):
        if isinstance(item, Member):
            fields |= {Field(header, item.name) for header in document.stacks[item.header.stack].headers}
    return frozenset(fields)


def _align(place: RegisterPlace) -> int:
    return min(8, place.bytes)


def add_to_counter(frame: Frame, cell: IRValue) -> None:
    """Add one packet and its bytes to a (packets, bytes) pair."""
    builder = frame.builder
    for offset, amount in ((0, const(64, 1)), (8, frame.load_packet("length", 64))):
        place = frame.at(cell, offset)
        builder.store(builder.add(builder.load(place, typ=I64), amount), place)
