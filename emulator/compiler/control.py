"""A control's graph of tables and conditions as basic blocks."""

from __future__ import annotations

from ..bmv2.document import Calculation, Conditional, Pipeline, Table
from ..tables.rows import HIT_AT, METER_AT, RowLayout, action_codes, param_offsets, profile_actions, row_layout
from .actions import add_to_counter, emit_action
from .expressions import Expressions
from .frame import I32, I64, PTR, Frame, IRValue, const, fit, int_type
from .hashing import compute
from .layout import is_static
from .lookup import make_lookup
from .metering import meter_color
from .tracing import note_table


def emit_control(frame: Frame, pipeline: Pipeline) -> None:
    """Append a control; every way through it ends at the builder's new place."""
    _Control(frame, pipeline).emit()


class _Control:
    def __init__(self, frame: Frame, pipeline: Pipeline) -> None:
        self.frame = frame
        self.pipeline = pipeline
        self.done = frame.block(f"{pipeline.name}.done")
        self.blocks = {name: frame.block(name) for name in pipeline.nodes}

    def emit(self) -> None:
        builder = self.frame.builder
        builder.branch(self._to(self.pipeline.init))
        for name, node in self.pipeline.nodes.items():
            builder.position_at_end(self.blocks[name])
            if isinstance(node, Conditional):
                condition = Expressions(self.frame, node.where).truth(node.condition)
                builder.cbranch(condition, self._to(node.true_next), self._to(node.false_next))
            elif is_static(node):
                self._static(node)
            else:
                self._table(node)
        builder.position_at_end(self.done)

    def _to(self, name: str | None) -> IRValue:
        return self.done if name is None else self.blocks[name]

    def _next(self, table: Table, code: int) -> str | None:
        return table.next_by_action[code] if code < len(table.next_by_action) else table.base_next

    def _static(self, table: Table) -> None:
        assert table.default_action is not None
        action = self.frame.document.actions[table.default_action]
        params = [const(width, v) for (_, width), v in zip(action.params, table.default_params, strict=True)]
        emit_action(self.frame, action, params, self.done)
        after = table.next_on_miss if table.splits_on_hit else self._next(table, action_codes(table).index(action.id))
        self.frame.builder.branch(self._to(after))

    def _table(self, table: Table) -> None:
        frame, builder = self.frame, self.frame.builder
        layout = row_layout(frame.document, table)
        root = frame.at(frame.state, frame.layout.table_root[table.name])
        null = frame.block(f"{table.name}.nothing")
        hit = const(1, 0)
        row: IRValue = None
        words: list[IRValue] = []
        if table.key:
            row, words = self._look_up(table, layout, root)
            hit = builder.icmp_unsigned("!=", row, PTR(None))
        if layout.indirect and row is None:  # no key, so no entries, and an action profile has no default
            builder.branch(null)
        elif layout.indirect:
            source, params = self._member(table, layout, row, hit, null)
            self._actions(table, source, params, hit, null, words)
        else:
            default = builder.load_atomic(frame.at(root, 8), "acquire", 8, typ=PTR)
            source = default if row is None else builder.select(hit, row, default)
            params = frame.at(source, layout.params_at)
            self._note_lookup(table, row, default, hit)
            self._actions(table, source, params, hit, null, words)
        builder.position_at_end(null)
        note_table(frame, table, 0, hit, words)
        if table.splits_on_hit:
            builder.branch(self._to(table.next_on_miss))
        else:
            builder.branch(self._to(table.base_next))

    def _look_up(self, table: Table, layout: RowLayout, root: IRValue) -> tuple[IRValue, list[IRValue]]:
        """The row that answers the packet's key, or null; and in a traced program the words of the key, for its notes.

        A table without entries has no index: it misses before a key is made.
        """
        frame, builder = self.frame, self.frame.builder
        lookup = make_lookup(frame.module, table.name, layout)
        noted = self._key_words(table, layout) if frame.layout.steps is not None else []
        index = builder.load_atomic(root, "acquire", 8, typ=PTR)
        filled, after = frame.block(f"{table.name}.filled"), frame.block(f"{table.name}.looked_up")
        empty = builder.block
        builder.cbranch(builder.icmp_unsigned("!=", index, PTR(None)), filled, after)
        builder.position_at_end(filled)
        entry = builder.call(lookup, [index, *(noted or self._key_words(table, layout))])
        looked_up = builder.block
        builder.branch(after)
        builder.position_at_end(after)
        row = builder.phi(PTR)
        row.add_incoming(PTR(None), empty)
        row.add_incoming(entry, looked_up)
        return row, noted

    def _key_words(self, table: Table, layout: RowLayout) -> list[IRValue]:
        frame, builder = self.frame, self.frame.builder
        words = [const(64, 0)] * layout.words
        for key, place in zip(table.key, layout.keys, strict=True):
            value = frame.load(key.target)
            if key.mask is not None:
                value = builder.and_(value, const(place.width, key.mask))
            for start in range(0, place.width, 64):
                word = (place.position + start) // 64
                part = builder.lshr(value, const(place.width, start)) if start else value
                part = builder.shl(fit(builder, part, 64), const(64, place.position % 64))
                words[word] = builder.or_(words[word], part)
        return words

    def _note_lookup(self, table: Table, row: IRValue, default: IRValue, hit: IRValue) -> None:
        """Record a lookup. A table without a key has no row and never hits."""
        frame, builder = self.frame, self.frame.builder
        if row is None:
            self._note_default(table, default)
        elif table.counters or table.support_timeout or table.meter is not None:
            noted, missed, after = frame.block("note_hit"), frame.block("note_miss"), frame.block("noted")
            builder.cbranch(hit, noted, missed)
            builder.position_at_end(noted)
            self._note(table, row)
            builder.branch(after)
            builder.position_at_end(missed)
            self._note_default(table, default)
            builder.branch(after)
            builder.position_at_end(after)

    def _note_default(self, table: Table, default: IRValue) -> None:
        """Update the default row's cell after a miss.

        An unconfigured meter leaves the packet's color unchanged, as in bmv2, whose default entries have no meters.
        """
        frame, builder = self.frame, self.frame.builder
        if not table.counters and table.meter is None:
            return
        cell = builder.load(frame.at(default, 8), typ=PTR)
        if table.counters:
            add_to_counter(frame, cell)
        if table.meter is not None:
            metered, after = frame.block("meter_miss"), frame.block("metered_miss")
            configured = builder.load(frame.at(cell, METER_AT), typ=I64)
            builder.cbranch(builder.icmp_unsigned("!=", configured, const(64, 0)), metered, after)
            builder.position_at_end(metered)
            self._meter(table, cell)
            builder.branch(after)
            builder.position_at_end(after)

    def _note(self, table: Table, row: IRValue) -> None:
        """Update the entry's cell after a hit: counts, time of the hit, tokens taken from the meter."""
        frame, builder = self.frame, self.frame.builder
        cell = builder.load(frame.at(row, 8), typ=PTR)
        if table.counters:
            add_to_counter(frame, cell)
        if table.support_timeout:
            builder.store(frame.load_packet("now", 64), frame.at(cell, HIT_AT))
        if table.meter is not None:
            self._meter(table, cell)

    def _meter(self, table: Table, cell: IRValue) -> None:
        frame = self.frame
        meter = frame.document.meters[table.meter or ""]
        assert meter.target is not None
        color = meter_color(frame, frame.at(cell, METER_AT), meter.unit)
        frame.store(meter.target, fit(frame.builder, color, frame.width(meter.target)))

    def _member(
        self, table: Table, layout: RowLayout, row: IRValue, hit: IRValue, null: IRValue
    ) -> tuple[IRValue, IRValue]:
        """The row of the member that the entry names, by itself or through its group's selector; `null` without one."""
        frame, builder = self.frame, self.frame.builder
        on_hit, on_miss = frame.block(f"{table.name}.hit"), frame.block(f"{table.name}.miss")
        builder.cbranch(hit, on_hit, on_miss)
        builder.position_at_end(on_miss)
        root = frame.at(frame.state, frame.layout.table_root[table.name])
        self._note_default(table, builder.load_atomic(frame.at(root, 8), "acquire", 8, typ=PTR))
        builder.branch(null)
        builder.position_at_end(on_hit)
        if layout.cell_bytes:
            self._note(table, row)
        cell = builder.load(frame.at(row, layout.params_at), typ=PTR)
        value = builder.load_atomic(cell, "acquire", 8, typ=I64)
        profile = self.pipeline.profiles[table.profile or ""]
        incoming = [(value, builder.block)]
        chosen = frame.block(f"{table.name}.member")
        if profile.selector is not None:
            group, select = frame.block(f"{table.name}.group"), frame.block(f"{table.name}.select")
            is_group = builder.trunc(value, I32)
            is_group = builder.icmp_unsigned("!=", builder.and_(is_group, const(32, 1)), const(32, 0))
            builder.cbranch(is_group, group, chosen)
            builder.position_at_end(group)
            block = builder.inttoptr(builder.sub(value, const(64, 1)), PTR)
            count = builder.load(block, typ=I64)
            builder.cbranch(builder.icmp_unsigned("==", count, const(64, 0)), null, select)
            builder.position_at_end(select)
            number = self._drawn(profile.selector, count)
            place = frame.at(block, builder.add(builder.shl(number, const(64, 3)), const(64, 8)))
            member_cell = builder.load(place, typ=PTR)
            incoming.append((builder.load_atomic(member_cell, "acquire", 8, typ=I64), builder.block))
        builder.branch(chosen)
        builder.position_at_end(chosen)
        member = builder.phi(I64)
        for item, block in incoming:
            member.add_incoming(item, block)
        found_block = frame.block(f"{table.name}.found")
        builder.cbranch(builder.icmp_unsigned("!=", member, const(64, 0)), found_block, null)
        builder.position_at_end(found_block)
        source = builder.inttoptr(member, PTR)
        return source, frame.at(source, 8)

    def _drawn(self, selector: Calculation, count: IRValue) -> IRValue:
        """Choose a group's member for a packet by the hash of its fields; an only member needs no hash."""
        frame, builder = self.frame, self.frame.builder
        several, after = frame.block("several"), frame.block("drawn")
        alone = builder.block
        builder.cbranch(builder.icmp_unsigned(">", count, const(64, 1)), several, after)
        builder.position_at_end(several)
        hashed = fit(builder, builder.trunc(compute(frame, selector), I32), 64)  # 32 bits, as in bmv2
        drawn = builder.urem(hashed, count)
        ended = builder.block
        builder.branch(after)
        builder.position_at_end(after)
        number = builder.phi(I64)
        number.add_incoming(const(64, 0), alone)
        number.add_incoming(drawn, ended)
        return number

    def _actions(
        self, table: Table, source: IRValue, params: IRValue, hit: IRValue, null: IRValue, words: list[IRValue]
    ) -> None:
        frame, builder = self.frame, self.frame.builder
        code = builder.load(source, typ=I32)
        switch = builder.switch(code, null)
        profile_codes = profile_actions(frame.document, table.profile) if table.profile is not None else None
        for number, action_id in enumerate(action_codes(table)):
            action = frame.document.actions[action_id]
            block = frame.block(f"{table.name}.{action.name}")
            code_number = number if profile_codes is None else profile_codes.index(action.name)
            switch.add_case(const(32, code_number), block)
            builder.position_at_end(block)
            values = []
            for (_, width), offset in zip(action.params, param_offsets(action), strict=True):
                stored = (width + 63) // 64 * 64
                loaded = builder.load(frame.at(params, offset), typ=int_type(stored), align=8)
                values.append(fit(builder, loaded, width))
            note_table(frame, table, number + 1, hit, [*words, *values])
            emit_action(frame, action, values, self.done)
            if table.splits_on_hit:
                builder.cbranch(hit, self._to(table.next_on_hit), self._to(table.next_on_miss))
            else:
                builder.branch(self._to(self._next(table, number)))
