"""Direct counters and meters: of a table's entries and of its default entry, inside a TableEntry and as entities of
their own (specification, "Direct Resources").

In all methods `match` None is the default entry.
"""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4i, p4r

from ...entries import Match
from ...program import MeterRates, Table
from ..refusal import invalid
from .arrays import COUNT_MASK, check_count
from .meters import check_reset, decode_config, encode_config, encode_counts

Counts = tuple[int, int]
"""Contents of a counter: packets, bytes."""


class DirectResources:
    """The direct resources of one table of the P4Info, bound to one switch's memory."""

    def __init__(self, name: str, state: Table, meter: p4i.MeterSpec | None) -> None:
        """`meter`: of its direct meter. Raises `Refusal` when P4Info and program disagree."""
        self._name = name
        self._state = state
        self._meter = meter
        self.has_counter = state.schema.direct_counter is not None
        if (meter is None) != (state.schema.direct_meter is None):
            raise invalid(f"P4Info: {name} has a direct meter in only one of P4Info and program")

    @property
    def has_meter(self) -> bool:
        """True if the table has a direct meter."""
        return self._meter is not None

    def check_counter(self) -> None:
        """Check that the table has a direct counter. Raises Refusal."""
        if not self.has_counter:
            raise invalid(f"{self._name} has no direct counter")

    def check_meter(self) -> p4i.MeterSpec:
        """Return the direct meter's specification. Raises Refusal if the table has none."""
        if self._meter is None:
            raise invalid(f"{self._name} has no direct meter")
        return self._meter

    # -- inside a TableEntry

    def decode(self, entry: p4r.TableEntry) -> tuple[Counts | None, MeterRates | None]:
        """Return the counter values and meter rates that an entry requests; None if it sets none. Raises `Refusal`."""
        counts = rates = None
        if entry.HasField("counter_data"):
            self.check_counter()
            check_count(entry.counter_data, self._name)
            counts = entry.counter_data.packet_count, entry.counter_data.byte_count
        if entry.HasField("meter_config"):
            rates = decode_config(entry.meter_config, self.check_meter(), self._name)
        if entry.HasField("meter_counter_data"):
            self.check_meter()
            check_reset(entry.meter_counter_data, self._name)
        return counts, rates

    def modify(
        self,
        match: tuple[Match, ...] | None,
        priority: int,
        entry: p4r.TableEntry,
        wanted: tuple[Counts | None, MeterRates | None],
    ) -> None:
        """Apply what `decode` has read from a MODIFY: an unset counter stays, an unset meter becomes green.

        Args:
            match: Match of the entry; None: the default entry.
            priority: Priority of the entry.
            entry: Entry of the request.
            wanted: Counts and rates that `decode` returned for it.
        """
        counts, rates = wanted
        if counts is not None:
            self._state.set_counter(match, *counts, priority)
        if self.has_meter:
            self._state.set_meter(match, rates, priority)
        if entry.HasField("meter_counter_data"):
            self._state.reset_meter_counts(match, priority)

    def encode(
        self, match: tuple[Match, ...] | None, priority: int, query: p4r.TableEntry, message: p4r.TableEntry
    ) -> None:
        """Fill the direct resources that a query requests into an answer.

        Args:
            match: Match of the entry; None: the default entry.
            priority: Priority of the entry.
            query: Entry of the request.
            message: Entry of the answer; changed.
        """
        if self.has_counter and query.HasField("counter_data"):
            self.encode_counter(match, priority, message.counter_data)
        if self.has_meter and query.HasField("meter_config"):
            encode_config(self._state.meter(match, priority), message.meter_config)
        if self.has_meter and query.HasField("meter_counter_data"):
            encode_counts(self._state.meter_counts(match, priority), message.meter_counter_data)

    # -- as entities

    def write_counter(self, match: tuple[Match, ...] | None, priority: int, entry: p4r.DirectCounterEntry) -> None:
        """Set a counter; without data nothing changes. Raises `EmulatorError`."""
        self._state.counter(match, priority)
        if entry.HasField("data"):
            check_count(entry.data, self._name)
            self._state.set_counter(match, entry.data.packet_count, entry.data.byte_count, priority)

    def write_meter(self, match: tuple[Match, ...] | None, priority: int, entry: p4r.DirectMeterEntry) -> None:
        """Configure a meter, without a config back to green; reset its counts by color. Raises `EmulatorError`."""
        spec = self.check_meter()
        rates = decode_config(entry.config, spec, self._name) if entry.HasField("config") else None
        if entry.HasField("counter_data"):
            check_reset(entry.counter_data, self._name)
        self._state.set_meter(match, rates, priority)
        if entry.HasField("counter_data"):
            self._state.reset_meter_counts(match, priority)

    def to_keep(self, match: tuple[Match, ...] | None, priority: int, key: p4r.TableEntry) -> Iterator[p4r.Update]:
        """Yield updates that restore a non-zero counter and a configured meter on a fresh entry with this key."""
        if self.has_counter and self._state.counter(match, priority) != (0, 0):
            counter = p4r.DirectCounterEntry(table_entry=key)
            self.encode_counter(match, priority, counter.data)
            yield p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(direct_counter_entry=counter))
        if self.has_meter and self._state.meter(match, priority) is not None:
            meter = p4r.DirectMeterEntry(table_entry=key)
            self.encode_meter(match, priority, p4r.DirectMeterEntry(), meter)
            yield p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(direct_meter_entry=meter))

    def encode_counter(self, match: tuple[Match, ...] | None, priority: int, data: p4r.CounterData) -> None:
        """Fill in packets and bytes of one entry; `match` is None for the default entry."""
        packets, octets = self._state.counter(match, priority)
        data.packet_count = packets & COUNT_MASK
        data.byte_count = octets & COUNT_MASK
        data.SetInParent()

    def encode_meter(
        self, match: tuple[Match, ...] | None, priority: int, query: p4r.DirectMeterEntry, entry: p4r.DirectMeterEntry
    ) -> None:
        """Fill a direct meter's rates into an answer, and its counts by colour if the query requests them.

        Args:
            match: Match of the entry; None: the default entry.
            priority: Priority of the entry.
            query: Direct meter entry of the request.
            entry: Direct meter entry of the answer; changed.
        """
        encode_config(self._state.meter(match, priority), entry.config)
        if query.HasField("counter_data"):
            encode_counts(self._state.meter_counts(match, priority), entry.counter_data)
