"""Lookups specialised to a table's key: `ptr lookup(ptr index, i64 word ...)`, the matching row or null.

The memory they read is described in `emulator.tables.rows`. Slots are loaded atomically: the control plane stores
into them while packets run.
"""

from __future__ import annotations

from llvmlite import ir

from ..tables.rows import ADDRESS_BITS, GROUP_HEAD_WORDS, HASH_FACTOR, INDEX_HEAD_WORDS, KEY_AT, RowLayout
from .frame import I8, I32, I64, PTR, IRValue, const


def make_lookup(module: IRValue, name: str, layout: RowLayout) -> IRValue:
    """Return the lookup function of one table."""
    function = ir.Function(module, ir.FunctionType(PTR, [PTR, *[I64] * layout.words]), f"lookup.{name}")
    function.linkage = "internal"
    function.attributes.add("nounwind")
    maker = _Lookup(function, layout)
    if layout.strategy == "exact":
        maker.exact()
    elif layout.strategy == "range":
        maker.ranges()
    else:
        maker.tuples(first_wins=layout.strategy == "first")
    return function


class _Lookup:
    def __init__(self, function: IRValue, layout: RowLayout) -> None:
        self.function = function
        self.layout = layout
        self.index, *self.words = function.args
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))

    def _at(self, base: IRValue, offset: int | IRValue) -> IRValue:
        offset = const(64, offset) if isinstance(offset, int) else offset
        return self.builder.gep(base, [offset], inbounds=True, source_etype=I8)

    def _load(self, base: IRValue, offset: int | IRValue, type_: IRValue = I64) -> IRValue:
        return self.builder.load(self._at(base, offset), typ=type_)

    def _block(self, name: str) -> IRValue:
        return self.function.append_basic_block(name)

    def _hash(self, words: list[IRValue]) -> IRValue:
        h, builder = const(64, 0), self.builder
        for word in words:
            h = builder.mul(builder.xor(h, word), const(64, HASH_FACTOR))
            h = builder.xor(h, builder.lshr(h, const(64, 32)))
        return h

    def _probe(self, slots: IRValue, mask: IRValue, words: list[IRValue], missed: IRValue) -> IRValue:
        """Leave for `missed`, or go on with the row that has these key words."""
        builder = self.builder
        h = self._hash(words)
        tag = builder.lshr(h, const(64, ADDRESS_BITS))
        before = builder.block
        probe, used, tagged, compare, following, found = (
            self._block(name) for name in ("probe", "used", "tagged", "compare", "following", "found")
        )
        self.probed = probe
        builder.branch(probe)
        builder.position_at_end(probe)
        cursor = builder.phi(I64)
        cursor.add_incoming(h, before)
        at = builder.and_(cursor, mask)
        slot = builder.load_atomic(self._at(slots, builder.shl(at, const(64, 3))), "acquire", 8, typ=I64)
        builder.cbranch(builder.icmp_unsigned("==", slot, const(64, 0)), missed, used)
        builder.position_at_end(used)
        same_tag = builder.icmp_unsigned("==", builder.lshr(slot, const(64, ADDRESS_BITS)), tag)
        builder.cbranch(same_tag, tagged, following)
        builder.position_at_end(tagged)
        deleted = builder.icmp_unsigned("==", slot, const(64, 1))
        builder.cbranch(deleted, following, compare)
        builder.position_at_end(compare)
        row = builder.inttoptr(builder.and_(slot, const(64, (1 << ADDRESS_BITS) - 1)), PTR)
        equal = const(1, 1)
        for i, word in enumerate(words):
            same = builder.icmp_unsigned("==", self._load(row, KEY_AT + 8 * i), word)
            equal = builder.and_(equal, same)
        builder.cbranch(equal, found, following)
        builder.position_at_end(following)
        cursor.add_incoming(builder.add(cursor, const(64, 1)), following)
        builder.branch(probe)
        builder.position_at_end(found)
        return row

    def exact(self) -> None:
        missed = self._block("missed")
        row = self._probe(self._load(self.index, 0, PTR), self._load(self.index, 8), self.words, missed)
        self.builder.ret(row)
        self.builder.position_at_end(missed)
        self.builder.ret(ir.Constant(PTR, None))

    def tuples(self, first_wins: bool) -> None:
        builder, layout = self.builder, self.layout
        count = self._load(self.index, 0)
        entry = builder.block
        loop, group_block, missed, done = (self._block(name) for name in ("groups", "group", "next_group", "done"))
        builder.branch(loop)
        builder.position_at_end(loop)
        number, best, priority = builder.phi(I64), builder.phi(PTR), builder.phi(I64)
        for phi, value in ((number, const(64, 0)), (best, ir.Constant(PTR, None)), (priority, const(64, -1))):
            phi.add_incoming(value, entry)
        builder.cbranch(builder.icmp_unsigned("<", number, count), group_block, done)
        builder.position_at_end(group_block)
        size = 8 * (GROUP_HEAD_WORDS + layout.words)
        group = self._at(self._at(self.index, 8 * INDEX_HEAD_WORDS), builder.mul(number, const(64, size)))
        if not first_wins:
            promising = self._block("promising")
            better = builder.icmp_signed(">", self._load(group, 16), priority)
            builder.cbranch(better, promising, done)
            builder.position_at_end(promising)
        masked = [
            builder.and_(word, self._load(group, 8 * (GROUP_HEAD_WORDS + i))) for i, word in enumerate(self.words)
        ]
        row = self._probe(self._load(group, 0, PTR), self._load(group, 8), masked, missed)
        if first_wins:
            builder.ret(row)
        else:
            own = builder.zext(self._load(row, 4, I32), I64)
            wins = builder.icmp_signed(">", own, priority)
            new_best, new_priority = builder.select(wins, row, best), builder.select(wins, own, priority)
            found = builder.block
            builder.branch(missed)
        builder.position_at_end(missed)
        if first_wins:
            joined_best, joined_priority = best, priority
        else:
            joined_best, joined_priority = builder.phi(PTR), builder.phi(I64)
            for phi, old, new in ((joined_best, best, new_best), (joined_priority, priority, new_priority)):
                phi.add_incoming(old, self.probed)
                phi.add_incoming(new, found)
        for phi, value in (
            (number, builder.add(number, const(64, 1))),
            (best, joined_best),
            (priority, joined_priority),
        ):
            phi.add_incoming(value, missed)
        builder.branch(loop)
        builder.position_at_end(done)
        builder.ret(best)

    def ranges(self) -> None:
        """Compare entries one by one in their order; the first that matches is the best."""
        builder, layout = self.builder, self.layout
        count = self._load(self.index, 0)
        entry = builder.block
        loop, check, following, found, missed = (
            self._block(name) for name in ("entries", "check", "following", "found", "missed")
        )
        builder.branch(loop)
        builder.position_at_end(loop)
        number = builder.phi(I64)
        number.add_incoming(const(64, 0), entry)
        builder.cbranch(builder.icmp_unsigned("<", number, count), check, missed)
        builder.position_at_end(check)
        row = self._load(self.index, builder.add(builder.shl(number, const(64, 3)), const(64, 8)), PTR)
        matches = const(1, 1)
        for i, word in enumerate(self.words):
            masked = builder.and_(word, self._load(row, layout.masks_at + 8 * i))
            same = builder.icmp_unsigned("==", masked, self._load(row, KEY_AT + 8 * i))
            matches = builder.and_(matches, same)
        for i, key in enumerate(layout.ranges):
            place = layout.keys[key]
            word = builder.lshr(self.words[place.position // 64], const(64, place.position % 64))
            value = builder.and_(word, const(64, (1 << place.width) - 1))
            low, high = (self._load(row, layout.ranges_at + 16 * i + side) for side in (0, 8))
            matches = builder.and_(matches, builder.icmp_unsigned("<=", low, value))
            matches = builder.and_(matches, builder.icmp_unsigned("<=", value, high))
        builder.cbranch(matches, found, following)
        builder.position_at_end(following)
        number.add_incoming(builder.add(number, const(64, 1)), following)
        builder.branch(loop)
        builder.position_at_end(found)
        builder.ret(row)
        builder.position_at_end(missed)
        builder.ret(ir.Constant(PTR, None))
