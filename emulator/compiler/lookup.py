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
    elif layout.strategy == "first":
        maker.first()
    else:
        maker.tuples()
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

    def _probe(
        self, slots: IRValue, mask: IRValue, words: list[IRValue], missed: IRValue, own_masks: bool = False
    ) -> IRValue:
        """Leave for `missed`, or go on with the next row that has these key words.

        Args:
            slots: Address of the slots.
            mask: Mask of a slot's number.
            words: Words that are hashed, and compared with those of rows.
            missed: Block that follows where there is no such row.
            own_masks: True to compare the key under the mask of each row, in the place of `words`.
        """
        builder = self.builder
        h = self._hash(words)
        tag = builder.lshr(h, const(64, ADDRESS_BITS))
        before = builder.block
        probe, used, tagged, compare, following, found = (
            self._block(name) for name in ("probe", "used", "tagged", "compare", "following", "found")
        )
        self.next_slot = following
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
        equal = self._matches(row) if own_masks else self._equals(row, words)
        builder.cbranch(equal, found, following)
        builder.position_at_end(following)
        cursor.add_incoming(builder.add(cursor, const(64, 1)), following)
        builder.branch(probe)
        builder.position_at_end(found)
        return row

    def _equals(self, row: IRValue, words: list[IRValue]) -> IRValue:
        builder, equal = self.builder, const(1, 1)
        for i, word in enumerate(words):
            same = builder.icmp_unsigned("==", self._load(row, KEY_AT + 8 * i), word)
            equal = builder.and_(equal, same)
        return equal

    def _matches(self, row: IRValue) -> IRValue:
        """Compare the key with a row's under the row's own mask."""
        return self._equals(row, self._masked(row, self.layout.masks_at))

    def _masked(self, place: IRValue, masks_at: int) -> list[IRValue]:
        """The key's words under the masks at an offset of a place."""
        return [self.builder.and_(word, self._load(place, masks_at + 8 * i)) for i, word in enumerate(self.words)]

    def exact(self) -> None:
        missed = self._block("missed")
        row = self._probe(self._load(self.index, 0, PTR), self._load(self.index, 8), self.words, missed)
        self.builder.ret(row)
        self.builder.position_at_end(missed)
        self.builder.ret(ir.Constant(PTR, None))

    def _group(self, number: IRValue) -> tuple[IRValue, IRValue, IRValue, list[IRValue]]:
        """A group, its slots, the mask of their numbers, and the key under the group's mask."""
        size = 8 * (GROUP_HEAD_WORDS + self.layout.words)
        group = self._at(self._at(self.index, 8 * INDEX_HEAD_WORDS), self.builder.mul(number, const(64, size)))
        masked = self._masked(group, 8 * GROUP_HEAD_WORDS)
        return group, self._load(group, 0, PTR), self._load(group, 8), masked

    def _each(self, what: str) -> tuple[IRValue, IRValue, IRValue]:
        """Begin a loop over the index's groups or rows, whose count is its first word, and go on in the loop's body.

        Returns:
            The number of the group or row, the block that goes on with the next one, and the empty block behind the
            loop.
        """
        builder = self.builder
        count, before = self._load(self.index, 0), builder.block
        loop, body, following, done = (self._block(name) for name in (f"{what}s", what, f"next_{what}", "done"))
        builder.branch(loop)
        builder.position_at_end(loop)
        number = builder.phi(I64)
        number.add_incoming(const(64, 0), before)
        builder.cbranch(builder.icmp_unsigned("<", number, count), body, done)
        builder.position_at_end(following)
        number.add_incoming(builder.add(number, const(64, 1)), following)
        builder.branch(loop)
        builder.position_at_end(body)
        return number, following, done

    def first(self) -> None:
        """Probe one group after another; the first row found is the best."""
        builder = self.builder
        number, following, done = self._each("group")
        _, slots, mask, masked = self._group(number)
        builder.ret(self._probe(slots, mask, masked, following))
        builder.position_at_end(done)
        builder.ret(ir.Constant(PTR, None))

    def tuples(self) -> None:
        """Probe the groups that have better rows than the best one so far.

        A group's slots hold its rows under the key words that they all compare, so a probe goes on behind a hit.
        """
        builder = self.builder
        best, order = builder.alloca(PTR, name="best"), builder.alloca(I64, name="order")
        best.type = order.type = PTR  # llvmlite still gives allocas a typed pointer, and checks stores against it
        builder.store(ir.Constant(PTR, None), best)
        builder.store(const(64, -1), order)
        number, following, done = self._each("group")
        (group, slots, mask, masked), promising = self._group(number), self._block("promising")
        most = self._load(group, 16)
        before = builder.load(order, typ=I64)
        builder.cbranch(builder.icmp_signed(">", most, before), promising, done)
        builder.position_at_end(promising)
        row = self._probe(slots, mask, masked, following, own_masks=True)
        own, known = builder.zext(self._load(row, 4, I32), I64), builder.load(order, typ=I64)
        wins = builder.icmp_signed(">", own, known)
        builder.store(builder.select(wins, row, builder.load(best, typ=PTR)), best)
        builder.store(builder.select(wins, own, known), order)
        builder.cbranch(builder.icmp_signed(">=", own, most), following, self.next_slot)
        builder.position_at_end(done)
        builder.ret(builder.load(best, typ=PTR))

    def ranges(self) -> None:
        """Compare entries one by one in their order; the first that matches is the best."""
        builder, layout = self.builder, self.layout
        number, following, done = self._each("row")
        found = self._block("found")
        row = self._load(self.index, builder.add(builder.shl(number, const(64, 3)), const(64, 8)), PTR)
        matches = self._matches(row)
        for i, key in enumerate(layout.ranges):
            place = layout.keys[key]
            word = builder.lshr(self.words[place.position // 64], const(64, place.position % 64))
            value = builder.and_(word, const(64, (1 << place.width) - 1))
            low, high = (self._load(row, layout.ranges_at + 16 * i + side) for side in (0, 8))
            matches = builder.and_(matches, builder.icmp_unsigned("<=", low, value))
            matches = builder.and_(matches, builder.icmp_unsigned("<=", value, high))
        builder.cbranch(matches, found, following)
        builder.position_at_end(found)
        builder.ret(row)
        builder.position_at_end(done)
        builder.ret(ir.Constant(PTR, None))
