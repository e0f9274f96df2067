"""Checksums and hashes over lists of fields: simple_switch's algorithms (its `calculations.cpp` is the reference).

The inputs form runs of one header each; a run whose header is invalid is left out, as bmv2 does. The Internet
checksum is summed straight from the headers, two of its 16-bit words at once where they are aligned; the other
algorithms read the bytes from a small buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from llvmlite import ir

from ..abi import HEADROOM
from ..bmv2.document import Calculation, Const, Expr, Field
from ..bmv2.schema import UnsupportedProgram
from .frame import I8, I16, I32, I64, PTR, Frame, IRValue, const, fit, swap

_CRC: Final = {
    # name: (width, polynomial, initial, final xor, reflected)
    "crc16": (16, 0x8005, 0, 0, True),
    "crc16_custom": (16, 0x8005, 0, 0, True),
    "crcCCITT": (16, 0x1021, 0xFFFF, 0, False),
    "crc32": (32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True),
    "crc32_custom": (32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True),
}


@dataclass(frozen=True, slots=True)
class _Run:
    header: str | None
    """The header that must be valid for these pieces to count; None for metadata and constants, which always do."""
    pieces: tuple[tuple[Expr, int], ...]

    varbit: bool = False
    """True if the run is a varbit field, whose length is its current length in the packet."""

    @property
    def bits(self) -> int:
        return sum(width for _, width in self.pieces)


def compute(frame: Frame, calculation: Calculation) -> IRValue:
    """Return the calculation's output as an i64."""
    runs = _runs(frame, calculation)
    varbit = any(run.varbit for run in runs)
    if (
        calculation.algorithm == "csum16"
        and not varbit
        and all(run.bits % 16 == 0 for run in (runs if calculation.payload else runs[:-1]))
    ):
        return _csum16(frame, calculation, runs)
    algorithm = _algorithm(frame, calculation)
    if any(run.bits % 8 for run in runs[:-1]):
        buffer, length = _bit_buffer(frame, calculation, runs)
    else:
        buffer, length = _buffer(frame, runs)
    if not calculation.payload:
        return frame.builder.call(algorithm, [buffer, length])
    return _before_payload(frame, calculation, algorithm, buffer, length)


def _payload(frame: Frame) -> tuple[IRValue, IRValue]:
    """Address and length of the payload behind all headers; a packet to be truncated counts at most its limit, as in
    bmv2.
    """
    builder = frame.builder
    start = frame.load_packet("payload", 64)
    end = builder.add(frame.load_packet("start", 64), frame.load_packet("length", 64))
    size = builder.select(builder.icmp_unsigned("<", start, end), builder.sub(end, start), const(64, 0))
    most = builder.sub(frame.load_packet("truncate", 64), const(64, 1))  # 0 is no limit
    size = builder.select(builder.icmp_unsigned("<", size, most), size, most)
    return frame.at(frame.data, start), size


def _before_payload(
    frame: Frame, calculation: Calculation, algorithm: IRValue, buffer: IRValue, length: IRValue
) -> IRValue:
    """Run the algorithm where the payload lies, with the fields in front of it for that time."""
    most = sum(width for _, width in calculation.inputs) // 8 + 1
    if most > HEADROOM:
        raise UnsupportedProgram(
            f"{most} bytes of fields before the payload; {HEADROOM} are most", place=calculation.where, value=most
        )
    payload, size = _payload(frame)
    place = frame.at(payload, frame.builder.neg(length))
    kept = frame.alloca(ir.ArrayType(I8, most), zero=False, name="under_hash_input")
    frame.copy(kept, place, length)
    frame.copy(place, buffer, length)
    result = frame.builder.call(algorithm, [place, frame.builder.add(length, size)])
    frame.copy(place, kept, length)
    return result


def _runs(frame: Frame, calculation: Calculation) -> list[_Run]:
    runs: list[_Run] = []
    for expr, width in calculation.inputs:
        header = expr.header if isinstance(expr, Field) and expr.header not in frame.metadata else None
        if isinstance(expr, Field) and frame.document.headers[expr.header].varbit == expr.name:
            runs.append(_Run(header, ((expr, width),), True))
        elif runs and runs[-1].header == header and not runs[-1].varbit:
            runs[-1] = _Run(header, (*runs[-1].pieces, (expr, width)))
        else:
            runs.append(_Run(header, ((expr, width),)))
    return runs


def _bits(frame: Frame, run: _Run, start: int, count: int) -> IRValue:
    """Bits start … start + count of a run; those behind its end are 0."""
    builder = frame.builder
    direct = _contiguous(frame, run, start, count)
    if direct is not None:
        return direct
    result, position = const(count, 0), 0
    for expr, width in run.pieces:
        first, last = max(start, position), min(start + count, position + width)
        if first < last:
            piece = frame.load(expr) if isinstance(expr, Field) else _constant(expr, width)
            piece = fit(builder, builder.lshr(piece, const(width, position + width - last)), max(last - first, 1))
            shift = const(count, start + count - last)
            result = builder.or_(result, builder.shl(fit(builder, piece, count), shift))
        position += width
    return result


def _constant(expr: Expr, width: int) -> IRValue:
    assert isinstance(expr, Const)
    return const(width, expr.value)


def _contiguous(frame: Frame, run: _Run, start: int, count: int) -> IRValue | None:
    """A single load, when the wanted bits lie in the header as they lie in the run."""
    offset = _offset(frame, run, start, count)
    if offset is None or run.header is None:
        return None
    pointer = frame.at(frame.place(run.header).data, offset)
    return swap(frame.builder, frame.builder.load(pointer, typ=ir.IntType(count), align=1))


def _offset(frame: Frame, run: _Run, start: int, count: int) -> int | None:
    """The byte of the header at which such a load begins."""
    if run.header is None or count % 8:
        return None
    position, first, expected = 0, None, None
    for expr, width in run.pieces:
        assert isinstance(expr, Field)
        offset = frame.describe(expr)[0]
        if position + width > start and position < start + count:
            if first is None:
                first = offset + start - position
            elif offset != expected:
                return None
            expected = offset + width
        position += width
    if first is None or first % 8 or position < start + count:
        return None
    return first // 8


def _two_words(frame: Frame, run: _Run, start: int) -> IRValue | None:
    """32 bits of a run by a load that the optimiser does not join with others: parsers and actions store few bytes at
    a time, and a load of what several of them have stored waits for all.
    """
    offset = _offset(frame, run, start, 32)
    if offset is None or run.header is None or (frame.layout.header_offset[run.header] + offset) % 4:
        return None
    pointer = frame.at(frame.place(run.header).data, offset)
    return swap(frame.builder, frame.builder.load_atomic(pointer, "unordered", 4, typ=I32))


def _present(frame: Frame, run: _Run) -> IRValue | None:
    return None if run.header is None else frame.is_valid(run.header)


def _csum16(frame: Frame, calculation: Calculation, runs: list[_Run]) -> IRValue:
    builder = frame.builder
    total = const(64, 0)
    for run in runs:
        part, start = const(64, 0), 0
        while start < run.bits:
            two = _two_words(frame, run, start)  # 2^16 is 1 modulo 2^16 - 1
            part = builder.add(part, fit(builder, _bits(frame, run, start, 16) if two is None else two, 64))
            start += 16 if two is None else 32
        present = _present(frame, run)
        total = builder.add(total, part if present is None else builder.select(present, part, const(64, 0)))
    if calculation.payload:
        total = builder.add(total, builder.call(_sum16(frame), list(_payload(frame))))
    return _fold(builder, total)


def _fold(builder: IRValue, total: IRValue) -> IRValue:
    """Ones' complement of the ones' complement sum of 16-bit words."""
    return builder.xor(_carry(builder, total), const(64, 0xFFFF))


def _carry(builder: IRValue, total: IRValue) -> IRValue:
    """Add the carries of a sum of 16-bit words back into it."""
    for _ in range(4):
        low = builder.and_(total, const(64, 0xFFFF))
        total = builder.add(low, builder.lshr(total, const(64, 16)))
    return total


def _bit_buffer(frame: Frame, calculation: Calculation, runs: list[_Run]) -> tuple[IRValue, IRValue]:
    """`_buffer` for runs that do not fill whole bytes: behind such a one the next begins within its last byte."""
    if any(run.varbit for run in runs):
        raise UnsupportedProgram(
            f"{calculation.algorithm} over a varbit field and fields that do not fill whole bytes",
            place=calculation.where,
            value=calculation.algorithm,
        )
    builder = frame.builder
    width = (sum(run.bits for run in runs) + 7) // 8 * 8
    bits, length = const(width, 0), const(64, 0)
    for run in runs:
        longer = builder.shl(bits, const(width, run.bits)) if run.bits < width else const(width, 0)
        longer = builder.or_(longer, fit(builder, _bits(frame, run, 0, run.bits), width))
        present = _present(frame, run)
        bits = longer if present is None else builder.select(present, longer, bits)
        size = const(64, run.bits)
        length = builder.add(length, size if present is None else builder.select(present, size, const(64, 0)))
    unused = fit(builder, builder.sub(const(64, width), length), max(width, 64))
    wide = builder.shl(fit(builder, bits, max(width, 64)), unused)
    gone = builder.icmp_unsigned("==", length, const(64, 0))
    wide = builder.select(gone, const(wide.type.width, 0), wide)
    buffer = frame.alloca(ir.ArrayType(I8, width // 8 + 8), zero=False, name="hash_bits")
    builder.store(swap(builder, fit(builder, wide, width)), buffer, align=1)
    return buffer, builder.lshr(builder.add(length, const(64, 7)), const(64, 3))


def _buffer(frame: Frame, runs: list[_Run]) -> tuple[IRValue, IRValue]:
    """Write the runs one behind the other; returns (address, length in bytes)."""
    builder = frame.builder
    size = sum((run.bits + 7) // 8 for run in runs) + 8
    buffer = frame.alloca(ir.ArrayType(I8, size), zero=False, name="hash_input")
    length = const(64, 0)
    for run in runs:
        place = frame.at(buffer, length)
        if run.varbit:
            length = builder.add(length, _copy_varbit(frame, run, place))
            continue
        padded = (run.bits + 7) // 8 * 8
        start = 0
        while start < padded:
            count = next(n for n in (64, 32, 16, 8) if start + n <= padded)
            word = swap(builder, _bits(frame, run, start, count))
            builder.store(word, frame.at(place, start // 8), align=1)
            start += count
        taken = const(64, padded // 8)
        present = _present(frame, run)
        length = builder.add(length, taken if present is None else builder.select(present, taken, const(64, 0)))
    return buffer, length


def _copy_varbit(frame: Frame, run: _Run, target: IRValue) -> IRValue:
    """Write a varbit field's bytes; returns how many, 0 where its header is invalid."""
    assert run.header is not None
    header = frame.place(run.header)
    size = fit(frame.builder, frame.builder.load(header.varbit, typ=I32), 64)
    size = frame.builder.select(frame.is_valid_at(header), size, const(64, 0))
    frame.copy(target, frame.at(header.data, frame.fixed_bytes(header.header)), size)
    return size


def _algorithm(frame: Frame, calculation: Calculation) -> IRValue:
    name = calculation.algorithm
    if name in _CRC:
        return _crc(frame, *_CRC[name])
    if name == "csum16":
        return _helper(frame, "csum16", lambda b, f: b.ret(_fold(b, b.call(_sum16(frame), list(f.args)))))
    if name == "xor16":
        return _helper(frame, "xor16", _xor16)
    if name == "identity":
        return _helper(frame, "identity", _identity)
    raise UnsupportedProgram(f"hash algorithm '{name}' is not supported", place=calculation.where, value=name)


def _helper(frame: Frame, name: str, body: Callable[[IRValue, IRValue], object]) -> IRValue:
    """`i64 name(ptr bytes, i64 length)`, made once per module."""
    existing = frame.module.globals.get(name)
    if existing is not None:
        return existing
    function = ir.Function(frame.module, ir.FunctionType(I64, [PTR, I64]), name)
    function.linkage = "internal"
    function.attributes.add("nounwind")
    body(ir.IRBuilder(function.append_basic_block("entry")), function)
    return function


def _loop(
    builder: IRValue,
    function: IRValue,
    start: IRValue,
    step: int,
    limit: IRValue,
    body: Callable[[IRValue, IRValue], IRValue],
) -> IRValue:
    """`for (i = 0; i + step <= limit; i += step) value = body(i, value)`; returns the last value."""
    before = builder.block
    head, inner, after = (function.append_basic_block(name) for name in ("head", "inner", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    index, value = builder.phi(I64), builder.phi(start.type)
    index.add_incoming(const(64, 0), before)
    value.add_incoming(start, before)
    following = builder.add(index, const(64, step))
    builder.cbranch(builder.icmp_unsigned("<=", following, limit), inner, after)
    builder.position_at_end(inner)
    new = body(index, value)
    index.add_incoming(following, builder.block)
    value.add_incoming(new, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return value


def _word16(builder: IRValue, base: IRValue, index: IRValue) -> IRValue:
    place = builder.gep(base, [index], source_etype=I8)
    return builder.zext(builder.bswap(builder.load(place, typ=I16, align=1)), I64)


def _last_byte(builder: IRValue, base: IRValue, length: IRValue) -> IRValue:
    """The byte behind the last whole 16-bit word, as the upper half of a word; 0 where there is none."""
    odd = builder.icmp_unsigned("==", builder.and_(length, const(64, 1)), const(64, 1))
    at = builder.select(odd, builder.sub(length, const(64, 1)), const(64, 0))
    byte = builder.load(builder.gep(base, [at], source_etype=I8), typ=I8)
    word = builder.shl(builder.zext(byte, I64), const(64, 8))
    return builder.select(odd, word, const(64, 0))


def _sum16(frame: Frame) -> IRValue:
    def body(builder: IRValue, function: IRValue) -> None:
        base, length = function.args
        total = _loop(
            builder, function, const(64, 0), 2, length, lambda i, v: builder.add(v, _word16(builder, base, i))
        )
        builder.ret(builder.add(total, _last_byte(builder, base, length)))

    return _helper(frame, "sum16", body)


def _xor16(builder: IRValue, function: IRValue) -> None:
    base, length = function.args
    value = _loop(builder, function, const(64, 0), 2, length, lambda i, v: builder.xor(v, _word16(builder, base, i)))
    builder.ret(builder.xor(value, _last_byte(builder, base, length)))


def _identity(builder: IRValue, function: IRValue) -> None:
    base, length = function.args
    eight = const(64, 8)
    limit = builder.select(builder.icmp_unsigned("<", length, eight), length, eight)

    def body(index: IRValue, value: IRValue) -> IRValue:
        byte = builder.zext(builder.load(builder.gep(base, [index], source_etype=I8), typ=I8), I64)
        return builder.or_(builder.shl(value, eight), byte)

    builder.ret(_loop(builder, function, const(64, 0), 1, limit, body))


def _crc(frame: Frame, width: int, polynomial: int, initial: int, final: int, reflected: bool) -> IRValue:
    name = f"crc{width}{'r' if reflected else ''}_{polynomial:x}"
    table_type = ir.ArrayType(I32, 256)

    def body(builder: IRValue, function: IRValue) -> None:
        table = ir.GlobalVariable(frame.module, table_type, f"{name}_table")
        table.linkage, table.global_constant = "internal", True
        table.initializer = ir.Constant(table_type, _crc_table(width, polynomial, reflected))
        base, length = function.args

        def step(index: IRValue, crc: IRValue) -> IRValue:
            byte = builder.zext(builder.load(builder.gep(base, [index], source_etype=I8), typ=I8), I32)
            top = crc if reflected else builder.lshr(crc, const(32, width - 8))
            entry = builder.and_(builder.xor(top, byte), const(32, 0xFF))
            word = builder.load(builder.gep(table, [builder.zext(entry, I64)], source_etype=I32), typ=I32)
            if reflected:
                return builder.xor(builder.lshr(crc, const(32, 8)), word)
            shifted = builder.and_(builder.shl(crc, const(32, 8)), const(32, (1 << width) - 1))
            return builder.xor(shifted, word)

        crc = _loop(builder, function, const(32, initial), 1, length, step)
        builder.ret(builder.zext(builder.xor(crc, const(32, final)), I64))

    return _helper(frame, name, body)


def _crc_table(width: int, polynomial: int, reflected: bool) -> list[int]:
    top, mask = 1 << (width - 1), (1 << width) - 1
    if reflected:
        polynomial = int(f"{polynomial:0{width}b}"[::-1], 2)
    table = []
    for byte in range(256):
        crc = byte if reflected else byte << (width - 8)
        for _ in range(8):
            if reflected:
                crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
            else:
                crc = (crc << 1 ^ (polynomial if crc & top else 0)) & mask
        table.append(crc)
    return table
