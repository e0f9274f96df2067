"""One native function under construction, and how it reads and writes fields.

A header field is loaded as the bytes that cover it, turned to native order and cut out; LLVM makes single
instructions of the common widths. Standard metadata are fields of the PACKET record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from llvmlite import ir

from emulator.abi import PACKET
from emulator.bmv2json import Document, Field
from emulator.compiler.layout import Layout, storage_bytes
from emulator.schema import UnsupportedProgram

I1: Final = ir.IntType(1)
I8: Final = ir.IntType(8)
I16: Final = ir.IntType(16)
I32: Final = ir.IntType(32)
I64: Final = ir.IntType(64)
PTR: Final = ir.PointerType()
VOID: Final = ir.VoidType()

IRValue = Any
"""llvmlite carries no types."""


def int_type(width: int) -> IRValue:
    return ir.IntType(width)


def const(width: int, value: int) -> IRValue:
    """`value` modulo 2^width."""
    return ir.Constant(ir.IntType(width), value & ((1 << width) - 1))


def fit(builder: IRValue, value: IRValue, width: int, signed: bool = False) -> IRValue:
    """Extend or cut an integer to `width` bits."""
    have = value.type.width
    if have == width:
        return value
    if have > width:
        return builder.trunc(value, int_type(width))
    return (builder.sext if signed else builder.zext)(value, int_type(width))


def swap(builder: IRValue, value: IRValue) -> IRValue:
    """Reverse the bytes of an integer of whole bytes (llvm.bswap wants an even number of them)."""
    width = value.type.width
    if width == 8:
        return value
    if width % 16 == 0:
        return builder.bswap(value)
    wide = builder.bswap(builder.zext(value, int_type(width + 8)))
    return builder.trunc(builder.lshr(wide, const(width + 8, 8)), value.type)


@dataclass(slots=True)
class Frame:
    document: Document
    layout: Layout
    module: IRValue
    function: IRValue
    builder: IRValue
    state: IRValue
    packet: IRValue
    phv: IRValue
    data: IRValue
    entry: IRValue
    """Block of the allocas; the function's body begins behind it."""
    locals: dict[Field, IRValue] = field(default_factory=dict)
    metadata: frozenset[str] = frozenset()
    _length_change: IRValue | None = None

    @classmethod
    def open(cls, document: Document, layout: Layout, module: IRValue, name: str) -> Frame:
        """Begin `void name(noalias state, noalias packet, noalias phv, noalias data)`."""
        function = ir.Function(module, ir.FunctionType(VOID, [PTR] * 4), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        for argument, argument_name in zip(function.args, ("state", "packet", "phv", "data"), strict=True):
            argument.name = argument_name
            argument.add_attribute("noalias")
            argument.attributes.align = 8
        entry = function.append_basic_block("entry")
        body = function.append_basic_block("body")
        metadata = frozenset(header.name for header in document.headers.values() if header.metadata)
        state, packet, phv, data = function.args
        return cls(
            document, layout, module, function, ir.IRBuilder(body), state, packet, phv, data, entry, {}, metadata
        )

    def close(self) -> None:
        """Join the allocas to the body; the current block must be terminated already."""
        with self.builder.goto_block(self.entry):
            self.builder.branch(self.function.blocks[1])

    def block(self, name: str) -> IRValue:
        return self.function.append_basic_block(name)

    def alloca(self, type_: IRValue, zero: bool = True, name: str = "") -> IRValue:
        builder = ir.IRBuilder(self.entry)
        place = builder.alloca(type_, name=name)
        if zero:
            builder.store(ir.Constant(type_, 0), place)
        place.type = PTR  # llvmlite still gives allocas a typed pointer, and checks stores against it
        return place

    def at(self, base: IRValue, offset: int | IRValue) -> IRValue:
        if isinstance(offset, int):
            if offset == 0:
                return base
            offset = const(64, offset)
        return self.builder.gep(base, [offset], inbounds=True, source_etype=I8)

    # ---- the packet record

    def load_packet(self, name: str, width: int = 32) -> IRValue:
        dtype, offset = PACKET.fields[name][:2]  # type: ignore[index]
        stored = int_type(dtype.itemsize * 8)
        value = self.builder.load(self.at(self.packet, offset), typ=stored, align=dtype.itemsize)
        return fit(self.builder, value, width)

    def store_packet(self, name: str, value: IRValue) -> None:
        dtype, offset = PACKET.fields[name][:2]  # type: ignore[index]
        value = fit(self.builder, value, dtype.itemsize * 8)
        self.builder.store(value, self.at(self.packet, offset), align=dtype.itemsize)

    # ---- fields

    def width(self, target: Field) -> int:
        return self.describe(target)[1]

    def describe(self, target: Field) -> tuple[int, int, bool]:
        """(bit offset in its header, width, signed)."""
        if target.name == "$valid$":
            return 0, 1, False
        offset = 0
        for name, width, signed in self.document.headers[target.header].fields:
            if name == target.name:
                return offset, width, signed
            offset += width
        raise UnsupportedProgram(f"no field {target.header}.{target.name} in the program")

    def load(self, target: Field) -> IRValue:
        """The field's bits, as an integer of its width."""
        offset, width, _ = self.describe(target)
        builder = self.builder
        if target.name == "$valid$":
            return self.is_valid(target.header)
        if target.header in self.metadata:
            if target.header == "standard_metadata" and target.name in (PACKET.names or ()):
                return self.load_packet(target.name, width)
            place, stored = self._metadata(target, width)
            return fit(builder, builder.load(place, typ=stored), width)
        covering, right = self._covering(offset, width)
        raw = builder.load(self._bytes(target.header, offset), typ=int_type(covering), align=1)
        value = swap(builder, raw)
        if right:
            value = builder.lshr(value, const(covering, right))
        return fit(builder, value, width)

    def store(self, target: Field, value: IRValue) -> None:
        """Write an integer of the field's width."""
        offset, width, _ = self.describe(target)
        builder = self.builder
        if target.name == "$valid$":
            raise UnsupportedProgram(f"assignment to {target.header}.$valid$ is not supported")
        if target.header in self.metadata:
            if target.header == "standard_metadata" and target.name in (PACKET.names or ()):
                self.store_packet(target.name, value)
                return
            place, stored = self._metadata(target, width)
            builder.store(fit(builder, value, stored.width), place)
            return
        covering, right = self._covering(offset, width)
        place = self._bytes(target.header, offset)
        value = fit(builder, value, covering)
        if covering != width:
            keep = ((1 << covering) - 1) ^ (((1 << width) - 1) << right)
            old = swap(builder, builder.load(place, typ=int_type(covering), align=1))
            value = builder.or_(builder.and_(old, const(covering, keep)), builder.shl(value, const(covering, right)))
        builder.store(swap(builder, value), place, align=1)

    def _covering(self, offset: int, width: int) -> tuple[int, int]:
        """Bits of the bytes that cover a field, and how many of them lie to its right."""
        covering = ((offset % 8) + width + 7) // 8 * 8
        return covering, covering - offset % 8 - width

    def _bytes(self, header: str, offset: int) -> IRValue:
        return self.at(self.phv, self.layout.header_offset[header] + offset // 8)

    def _metadata(self, target: Field, width: int) -> tuple[IRValue, IRValue]:
        offset = self.layout.scalar_offset.get(target)
        if offset is not None:
            return self.at(self.phv, offset), int_type(8 * storage_bytes(width))
        if target not in self.locals:
            self.locals[target] = self.alloca(int_type(width))
        return self.locals[target], int_type(width)

    # ---- headers

    def is_valid(self, header: str) -> IRValue:
        if header in self.metadata:
            return const(1, 1)
        place = self.at(self.phv, self.layout.valid_offset[header])
        return self.builder.icmp_unsigned("!=", self.builder.load(place, typ=I8), const(8, 0))

    def set_valid(self, header: str, valid: IRValue) -> None:
        place = self.at(self.phv, self.layout.valid_offset[header])
        self.builder.store(fit(self.builder, valid, 8), place)

    def add_to_length(self, size: IRValue) -> None:
        """Count a header (i32 bytes) that the program has added or, negative, removed; see `settle_length`."""
        if self._length_change is None:
            self._length_change = self.alloca(I32, name="length_change")
        old = self.builder.load(self._length_change, typ=I32)
        self.builder.store(self.builder.add(old, size), self._length_change)

    def settle_length(self) -> None:
        """Let egress see `packet_length` with the headers that ingress added or removed, as simple_switch does."""
        if self._length_change is not None:
            change = self.builder.load(self._length_change, typ=I32)
            self.store_packet("packet_length", self.builder.add(self.load_packet("packet_length"), change))

    def header_bytes(self, header: str) -> int:
        bits = self.document.headers[header].bits
        if bits % 8:
            raise UnsupportedProgram(f"header {header} has {bits} bits: a header on the wire has whole bytes")
        return bits // 8

    def header_pointer(self, header: str) -> IRValue:
        return self.at(self.phv, self.layout.header_offset[header])

    # ---- memory

    def copy(self, target: IRValue, source: IRValue, size: int) -> None:
        memcpy = self.module.declare_intrinsic("llvm.memcpy", [PTR, PTR, I64])
        self.builder.call(memcpy, [target, source, const(64, size), const(1, 0)])

    def zero(self, target: IRValue, size: int) -> None:
        memset = self.module.declare_intrinsic("llvm.memset", [PTR, I64])
        self.builder.call(memset, [target, const(8, 0), const(64, size), const(1, 0)])
