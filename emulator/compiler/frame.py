"""One native function under construction, and how it reads and writes fields.

A header field is loaded as the bytes that cover it, turned to native order and cut out; LLVM makes single
instructions of the common widths. Standard metadata are fields of the PACKET record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from llvmlite import ir

from ..abi import PACKET
from ..bmv2.document import Document, Field, Header
from ..bmv2.schema import UnsupportedProgram
from .layout import Layout, header_storage, storage_bytes

I8: Final = ir.IntType(8)
I16: Final = ir.IntType(16)
I32: Final = ir.IntType(32)
I64: Final = ir.IntType(64)
PTR: Final = ir.PointerType()
VOID: Final = ir.VoidType()

IRValue = Any
"""llvmlite carries no types."""


def int_type(width: int) -> IRValue:
    """Return LLVM's integer type of `width` bits."""
    return ir.IntType(width)


def const(width: int, value: int) -> IRValue:
    """Return the constant `value` modulo 2^`width`."""
    return ir.Constant(ir.IntType(width), value & ((1 << width) - 1))


def fit(builder: IRValue, value: IRValue, width: int, signed: bool = False) -> IRValue:
    """Extend or cut an integer to a width.

    Args:
        builder: Builder of the instructions.
        value: The integer.
        width: Width in bits.
        signed: True to extend by the sign, False by zeros.
    """
    have = value.type.width
    if have == width:
        return value
    if have > width:
        return builder.trunc(value, int_type(width))
    return (builder.sext if signed else builder.zext)(value, int_type(width))


def _aligned(stored: IRValue) -> int:
    """Alignment of a metadata field's address in the PHV; LLVM would assume more for wide integers."""
    return min(8, storage_bytes(stored.width))


def swap(builder: IRValue, value: IRValue) -> IRValue:
    """Return the reverse the bytes of an integer of whole bytes (llvm.bswap wants an even number of them)."""
    width = value.type.width
    if width == 8:
        return value
    if width % 16 == 0:
        return builder.bswap(value)
    wide = builder.bswap(builder.zext(value, int_type(width + 8)))
    return builder.trunc(builder.lshr(wide, const(width + 8, 8)), value.type)


def describe(header: Header, name: str) -> tuple[int, int, bool]:
    """Return (bit offset, width, signed) of a field; a varbit field lies behind the others."""
    if name == "$valid$":
        return 0, 1, False
    offset = 0
    for field_name, width, signed in header.fields:
        if field_name == name:
            return (header.bits if name == header.varbit else offset), width, signed
        if field_name != header.varbit:
            offset += width
    raise UnsupportedProgram(f"no field {header.name}.{name} in the program", value=header.name)


@dataclass(frozen=True, slots=True)
class HeaderPlace:
    """A header in the PHV: one of its own, or a stack's element that is picked at run time."""

    header: Header
    data: IRValue
    valid: IRValue
    varbit: IRValue
    """Address of the u32 that counts the varbit field's bytes; None without one."""
    siblings: tuple[IRValue, ...]
    """Validity bytes of the other members of its union."""


@dataclass(slots=True)
class Frame:
    """Function under construction: its arguments, its local variables, and access to the packet's fields."""

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
        """Begin `void name(noalias state, noalias packet, noalias phv, noalias data)`.

        Args:
            document: Parsed BMv2 JSON.
            layout: Layout of packets and state in memory.
            module: LLVM module that receives the function.
            name: Name of the function.
        """
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
        """Append a basic block to the function."""
        return self.function.append_basic_block(name)

    def alloca(self, type_: IRValue, zero: bool = True, name: str = "") -> IRValue:
        """Allocate a local variable in the entry block; zeroed unless `zero` is False."""
        builder = ir.IRBuilder(self.entry)
        place = builder.alloca(type_, name=name)
        if zero:
            builder.store(ir.Constant(type_, 0), place)
        place.type = PTR  # llvmlite still gives allocas a typed pointer, and checks stores against it
        return place

    def at(self, base: IRValue, offset: int | IRValue) -> IRValue:
        """Return the address `offset` bytes behind `base`."""
        if isinstance(offset, int):
            if offset == 0:
                return base
            offset = const(64, offset)
        return self.builder.gep(base, [offset], inbounds=True, source_etype=I8)

    # ---- the packet record

    def load_packet(self, name: str, width: int = 32) -> IRValue:
        """Load a field of the packet's record (`emulator.abi.PACKET`) as an integer of `width` bits."""
        dtype, offset = PACKET.fields[name][:2]  # type: ignore[index]
        stored = int_type(dtype.itemsize * 8)
        value = self.builder.load(self.at(self.packet, offset), typ=stored, align=dtype.itemsize)
        return fit(self.builder, value, width)

    def store_packet(self, name: str, value: IRValue) -> None:
        """Store an integer of any width in a field of the packet's record (`emulator.abi.PACKET`)."""
        dtype, offset = PACKET.fields[name][:2]  # type: ignore[index]
        value = fit(self.builder, value, dtype.itemsize * 8)
        self.builder.store(value, self.at(self.packet, offset), align=dtype.itemsize)

    # ---- fields

    def width(self, target: Field) -> int:
        """Return a field's width in bits."""
        return self.describe(target)[1]

    def describe(self, target: Field) -> tuple[int, int, bool]:
        """Return (bit offset in its header, width, signed)."""
        return describe(self.document.headers[target.header], target.name)

    def load(self, target: Field) -> IRValue:
        """Return the field's bits, as an integer of its width."""
        if target.name == "$valid$" and target.header in self.metadata:
            return const(1, 1)
        if target.header not in self.metadata:
            return self.load_in(self.place(target.header), target.name)
        width = self.width(target)
        if target in self.document.intrinsic:
            return self.load_packet(self.document.intrinsic[target], width)
        place, stored = self._metadata(target, width)
        return fit(self.builder, self.builder.load(place, typ=stored, align=_aligned(stored)), width)

    def store(self, target: Field, value: IRValue) -> None:
        """Write an integer of the field's width."""
        if target.header not in self.metadata:
            self.store_in(self.place(target.header), target.name, value)
        elif target in self.document.intrinsic:
            self.store_packet(self.document.intrinsic[target], value)
        else:
            place, stored = self._metadata(target, self.width(target))
            self.builder.store(fit(self.builder, value, stored.width), place, align=_aligned(stored))

    def load_in(self, place: HeaderPlace, name: str) -> IRValue:
        """Return a header's field; a varbit field as the number that its bytes make, as bmv2 compares them."""
        builder = self.builder
        if name == "$valid$":
            return self.validity_bit(place)
        offset, width, _ = describe(place.header, name)
        covering, right = self._covering(offset, width)
        raw = builder.load(self.at(place.data, offset // 8), typ=int_type(covering), align=1)
        value = swap(builder, raw)
        if name == place.header.varbit:
            unused = builder.sub(const(32, place.header.varbit_bytes), builder.load(place.varbit, typ=I32))
            unused = fit(builder, builder.shl(unused, const(32, 3)), max(width, 32))
            cut = builder.lshr(fit(builder, value, max(width, 32)), unused)
            gone = builder.icmp_unsigned(">=", unused, const(unused.type.width, width))
            return fit(builder, builder.select(gone, const(cut.type.width, 0), cut), width)
        if right:
            value = builder.lshr(value, const(covering, right))
        return fit(builder, value, width)

    def store_in(self, header: HeaderPlace, name: str, value: IRValue) -> None:
        """Store an integer in a field of a header, or its validity in "$valid$". Raises UnsupportedProgram for a
        varbit.
        """
        if name == "$valid$":
            self.set_validity_bit(header, value)
            return
        if name == header.header.varbit:
            raise UnsupportedProgram(
                f"assignment of a number to {header.header.name}.{name} is not supported", value=header.header.name
            )
        builder = self.builder
        offset, width, _ = describe(header.header, name)
        covering, right = self._covering(offset, width)
        place = self.at(header.data, offset // 8)
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

    def _metadata(self, target: Field, width: int) -> tuple[IRValue, IRValue]:
        offset = self.layout.scalar_offset.get(target)
        if offset is not None:
            return self.at(self.phv, offset), int_type(8 * storage_bytes(width))
        if target not in self.locals:
            self.locals[target] = self.alloca(int_type(width))
        return self.locals[target], int_type(width)

    # ---- headers

    def place(self, header: str) -> HeaderPlace:
        """Return a header by its name."""
        layout = self.layout
        siblings = next((union for union in self.document.unions.values() if header in union), ())
        return HeaderPlace(
            self.document.headers[header],
            self.at(self.phv, layout.header_offset[header]),
            self.at(self.phv, layout.valid_offset[header]),
            self.at(self.phv, layout.varbit_offset[header]) if header in layout.varbit_offset else None,
            tuple(self.at(self.phv, layout.valid_offset[name]) for name in siblings if name != header),
        )

    def element(self, stack: str, index: IRValue) -> HeaderPlace:
        """Return a stack's element by an index (i64); out of range, one of zeros, whose changes are lost."""
        layout, builder = self.layout, self.builder
        columns = [column for column in self.document.stacks.values() if column.name != stack]
        own = self.document.stacks[stack]
        header = self.document.headers[own.headers[0]]
        inside = builder.icmp_unsigned("<", index, const(64, len(own.headers)))
        spare_bytes = header_storage(header) + 8
        spare = self.alloca(ir.ArrayType(I8, spare_bytes), zero=False, name="no_element")
        self.zero(spare, spare_bytes)
        behind = self.at(spare, spare_bytes - 8)

        def pick(first: int, stride: int, other: IRValue) -> IRValue:
            offset = builder.add(builder.mul(index, const(64, stride)), const(64, first))
            return builder.select(inside, self.at(self.phv, offset), other)

        return HeaderPlace(
            header,
            pick(layout.header_offset[own.headers[0]], layout.header_stride[stack], spare),
            pick(layout.valid_offset[own.headers[0]], 1, behind),
            pick(layout.varbit_offset[own.headers[0]], 4, self.at(behind, 4)) if header.varbit else None,
            tuple(
                pick(layout.valid_offset[column.headers[0]], 1, self.at(behind, 1))
                for column in columns
                if column.counter == own.counter
            ),
        )

    def filled(self, counter: str) -> IRValue:
        """Return the address of the byte that counts the elements which the parser has filled."""
        return self.at(self.phv, self.layout.next_offset[counter])

    def is_valid(self, header: str) -> IRValue:
        """Return a header's validity, of type i1; metadata is always valid."""
        return const(1, 1) if header in self.metadata else self.is_valid_at(self.place(header))

    def is_valid_at(self, place: HeaderPlace) -> IRValue:
        """Return whether the header is there: what the deparser and checksums go by."""
        return self.builder.trunc(self.builder.load(place.valid, typ=I8), int_type(1))

    def validity_bit(self, place: HeaderPlace) -> IRValue:
        """Return the field `$valid$`, which a program can also write by itself, as bmv2 lets it."""
        held = self.builder.load(place.valid, typ=I8)
        return self.builder.trunc(self.builder.xor(held, self.builder.lshr(held, const(8, 1))), int_type(1))

    def set_validity_bit(self, place: HeaderPlace, value: IRValue) -> None:
        """Write the field `$valid$` alone: the header is there as before. Bit 1 says that both differ."""
        builder = self.builder
        there = builder.zext(self.is_valid_at(place), I8)
        differs = builder.xor(there, fit(builder, value, 8))
        builder.store(builder.or_(there, builder.shl(differs, const(8, 1))), place.valid)

    def set_valid(self, place: HeaderPlace, valid: IRValue) -> None:
        """Set the validity; a member of a union that becomes valid makes the others invalid."""
        builder = self.builder
        valid = fit(builder, valid, 8)
        for sibling in place.siblings:
            kept = builder.select(
                builder.icmp_unsigned("!=", valid, const(8, 0)), const(8, 0), builder.load(sibling, typ=I8)
            )
            builder.store(kept, sibling)
        builder.store(valid, place.valid)

    def add_to_length(self, size: IRValue) -> None:
        """Count a header (i32 bytes) that the program has added or, negative, removed; see `settle_length`."""
        if self._length_change is None:
            self._length_change = self.alloca(I32, name="length_change")
        old = self.builder.load(self._length_change, typ=I32)
        self.builder.store(self.builder.add(old, size), self._length_change)

    def settle_length(self, length: IRValue) -> None:
        """Let the next side, or a clone, see in `packet_length` the `length` with the headers added or removed since.

        As in simple_switch, what the program itself has written there is lost.
        """
        if self._length_change is not None:
            length = self.builder.add(length, self.builder.load(self._length_change, typ=I32))
        self.store_packet("packet_length", length)

    def fixed_bytes(self, header: Header) -> int:
        """Return bytes of a header without its varbit field."""
        if header.bits % 8:
            raise UnsupportedProgram("on the wire it has whole bytes", place=f"header {header.name}", value=header.bits)
        return header.bits // 8

    def header_bytes(self, place: HeaderPlace) -> IRValue:
        """Return bytes of a header on the wire, an i64."""
        fixed = const(64, self.fixed_bytes(place.header))
        if place.varbit is None:
            return fixed
        return self.builder.add(fixed, fit(self.builder, self.builder.load(place.varbit, typ=I32), 64))

    def copy_header(self, target: HeaderPlace, source: HeaderPlace) -> None:
        """Copy the fields."""
        self.copy(target.data, source.data, header_storage(target.header))
        if target.varbit is not None:
            self.builder.store(self.builder.load(source.varbit, typ=I32), target.varbit)

    # ---- memory

    def copy(self, target: IRValue, source: IRValue, size: int | IRValue) -> None:
        """Copy `size` bytes between two places that do not overlap."""
        memcpy = self.module.declare_intrinsic("llvm.memcpy", [PTR, PTR, I64])
        length = const(64, size) if isinstance(size, int) else size
        self.builder.call(memcpy, [target, source, length, const(1, 0)])

    def zero(self, target: IRValue, size: int) -> None:
        """Set `size` bytes to 0."""
        memset = self.module.declare_intrinsic("llvm.memset", [PTR, I64])
        self.builder.call(memset, [target, const(8, 0), const(64, size), const(1, 0)])
