"""Three-colour meters, colour-blind: two rates (RFC 2698) with bmv2's arithmetic, or a single one (RFC 2697).

Their memory is described in `emulator.tables.meters`.
"""

from __future__ import annotations

from typing import Final

from llvmlite import ir

from ..tables.rows import METER_COUNTS_AT, SINGLE_RATE, TWO_RATES
from .frame import I8, I64, PTR, Frame, IRValue, const

_DOUBLE = ir.DoubleType()
_GREEN: Final = 0
_YELLOW: Final = 1
_RED: Final = 2
_PEAK: Final = 8
_COMMITTED: Final = 40


def meter_color(frame: Frame, meter: IRValue, unit: str) -> IRValue:
    """Send the packet through the meter at this address; 0 (green), 1 (yellow) or 2 (red), an i64."""
    length = frame.load_packet("length", 64)
    amount = const(64, 1) if unit == "packets" else length
    return frame.builder.call(_execute(frame.module), [meter, frame.load_packet("now", 64), amount, length])


def _execute(module: IRValue) -> IRValue:
    """`i64 meter(ptr meter, i64 now, i64 amount, i64 length)`."""
    existing = module.globals.get("meter")
    if existing is not None:
        return existing
    function = ir.Function(module, ir.FunctionType(I64, [PTR, I64, I64, I64]), "meter")
    function.linkage = "internal"
    function.attributes.add("nounwind")
    _Meter(function).emit()
    return function


class _Meter:
    def __init__(self, function: IRValue) -> None:
        self.function = function
        self.base, self.now, self.amount, self.length = function.args
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.colors: list[tuple[IRValue, int]] = []
        """Blocks that lead to `colored`, each with the color it decides on."""
        self.colored = self._block("colored")

    def emit(self) -> None:
        builder = self.builder
        two_rates, single_rate = self._block("two_rates"), self._block("single_rate")
        kind = builder.switch(builder.load(self.base, typ=I64), self.colored)
        self.colors.append((builder.block, _GREEN))
        kind.add_case(const(64, TWO_RATES), two_rates)
        kind.add_case(const(64, SINGLE_RATE), single_rate)
        builder.position_at_end(two_rates)
        self._two_rates()
        builder.position_at_end(single_rate)
        self._single_rate()
        builder.position_at_end(self.colored)
        color = builder.phi(I64)
        for block, value in self.colors:
            color.add_incoming(const(64, value), block)
        counts = builder.gep(self._at(METER_COUNTS_AT), [builder.shl(color, const(64, 4))], source_etype=I8)
        for offset, more in ((0, const(64, 1)), (8, self.length)):
            place = builder.gep(counts, [const(64, offset)], source_etype=I8)
            builder.store(builder.add(builder.load(place, typ=I64), more), place)
        builder.ret(color)

    def _two_rates(self) -> None:
        """The peak rate first, then the committed one."""
        builder = self.builder
        for color, bucket in ((_RED, _PEAK), (_YELLOW, _COMMITTED)):
            _, burst, tokens, _ = self._bucket(bucket)
            have, most = builder.add(builder.load(tokens, typ=I64), self._earn(bucket)), builder.load(burst, typ=I64)
            have = self._least(have, most)
            builder.store(have, tokens)
            self._decide(builder.icmp_unsigned("<", have, self.amount), color)
            builder.store(builder.sub(have, self.amount), tokens)
        self._leave(_GREEN)

    def _single_rate(self) -> None:
        """The committed bucket fills first, what it has no room for goes to the excess one."""
        builder = self.builder
        _, committed_burst, committed_tokens, _ = self._bucket(_COMMITTED)
        _, excess_burst, excess_tokens, _ = self._bucket(_PEAK)
        filled = builder.add(builder.load(committed_tokens, typ=I64), self._earn(_COMMITTED))
        have = self._least(filled, builder.load(committed_burst, typ=I64))
        excess = builder.add(builder.load(excess_tokens, typ=I64), builder.sub(filled, have))
        excess = self._least(excess, builder.load(excess_burst, typ=I64))
        builder.store(have, committed_tokens)
        builder.store(excess, excess_tokens)
        green, beyond, yellow = (self._block(name) for name in ("green", "beyond", "yellow"))
        builder.cbranch(builder.icmp_unsigned(">=", have, self.amount), green, beyond)
        builder.position_at_end(green)
        builder.store(builder.sub(have, self.amount), committed_tokens)
        self._leave(_GREEN)
        builder.position_at_end(beyond)
        self.colors.append((builder.block, _RED))
        builder.cbranch(builder.icmp_unsigned(">=", excess, self.amount), yellow, self.colored)
        builder.position_at_end(yellow)
        builder.store(builder.sub(excess, self.amount), excess_tokens)
        self._leave(_YELLOW)

    def _earn(self, bucket: int) -> IRValue:
        """Tokens since the last packet. They are counted from the beginning of time, so that rounding never adds up."""
        builder = self.builder
        rate, _, _, last = self._bucket(bucket)
        earned = builder.fmul(builder.uitofp(self.now, _DOUBLE), builder.load(rate, typ=_DOUBLE))
        since_start = builder.fptoui(earned, I64)
        more = builder.sub(since_start, builder.load(last, typ=I64))
        builder.store(since_start, last)
        return more

    def _bucket(self, at: int) -> tuple[IRValue, ...]:
        """Places of its rate, burst, tokens and tokens earned so far."""
        return tuple(self._at(at + 8 * word) for word in range(4))

    def _least(self, one: IRValue, other: IRValue) -> IRValue:
        return self.builder.select(self.builder.icmp_unsigned("<", one, other), one, other)

    def _decide(self, condition: IRValue, color: int) -> None:
        """Give the packet this color if the condition holds, else go on."""
        further = self._block("further")
        self.colors.append((self.builder.block, color))
        self.builder.cbranch(condition, self.colored, further)
        self.builder.position_at_end(further)

    def _leave(self, color: int) -> None:
        self.colors.append((self.builder.block, color))
        self.builder.branch(self.colored)

    def _at(self, offset: int) -> IRValue:
        return self.builder.gep(self.base, [const(64, offset)], source_etype=I8)

    def _block(self, name: str) -> IRValue:
        return self.function.append_basic_block(name)
