"""Two-rate three-colour meters, colour-blind, with bmv2's arithmetic. Their memory is `emulator.tables.meters`'s."""

from __future__ import annotations

from llvmlite import ir

from emulator.compiler.frame import I8, I64, PTR, Frame, IRValue, const

_DOUBLE = ir.DoubleType()


def meter_color(frame: Frame, meter: IRValue, unit: str) -> IRValue:
    """Send the packet through the meter at this address; 0 (green), 1 (yellow) or 2 (red), an i64."""
    amount = const(64, 1) if unit == "packets" else frame.load_packet("length", 64)
    return frame.builder.call(_execute(frame.module), [meter, frame.load_packet("now", 64), amount])


def _execute(module: IRValue) -> IRValue:
    """`i64 meter(ptr meter, i64 now, i64 amount)`: the peak rate first, then the committed one.

    Tokens are counted from the beginning of time, so that rounding never adds up.
    """
    existing = module.globals.get("meter")
    if existing is not None:
        return existing
    function = ir.Function(module, ir.FunctionType(I64, [PTR, I64, I64]), "meter")
    function.linkage = "internal"
    function.attributes.add("nounwind")
    base, now, amount = function.args
    entry, green = function.append_basic_block("entry"), function.append_basic_block("green")
    builder = ir.IRBuilder(entry)

    def at(offset: int) -> IRValue:
        return builder.gep(base, [const(64, offset)], source_etype=I8)

    configured = function.append_basic_block("configured")
    builder.cbranch(builder.icmp_unsigned("==", builder.load(base, typ=I64), const(64, 0)), green, configured)
    builder.position_at_end(configured)
    for color, first in ((2, 8), (1, 40)):
        rate, burst, tokens, last = (at(first + 8 * word) for word in range(4))
        earned = builder.fmul(builder.uitofp(now, _DOUBLE), builder.load(rate, typ=_DOUBLE))
        since_start = builder.fptoui(earned, I64)
        more = builder.sub(since_start, builder.load(last, typ=I64))
        builder.store(since_start, last)
        have, most = builder.add(builder.load(tokens, typ=I64), more), builder.load(burst, typ=I64)
        have = builder.select(builder.icmp_unsigned("<", have, most), have, most)
        exceeded, within = function.append_basic_block("exceeded"), function.append_basic_block("within")
        builder.store(have, tokens)
        builder.cbranch(builder.icmp_unsigned("<", have, amount), exceeded, within)
        builder.position_at_end(exceeded)
        builder.ret(const(64, color))
        builder.position_at_end(within)
        builder.store(builder.sub(have, amount), tokens)
    builder.branch(green)
    builder.position_at_end(green)
    builder.ret(const(64, 0))
    return function
