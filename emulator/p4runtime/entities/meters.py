"""Meters: MeterEntry and the configs of direct meters.

A meter without a config calls every packet green. The switch holds rates; here are their P4Runtime form and its rules
(specification, "MeterEntry & DirectMeterEntry").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from finsy.proto import p4i, p4r

from ...program import ColorCounts, MeterArray, MeterRates
from ..refusal import invalid
from .arrays import COUNT_MASK, cells, check_modify

MAX_RATE: Final = 1 << 41
"""Bytes or packets per second. No port is faster, and up to here a rate is read back as it was written."""
_MAX_BURST: Final = 1 << 62

_MeterSpec = p4i.MeterSpec
_TYPES: Final = {
    "@two_rate_three_color": _MeterSpec.TWO_RATE_THREE_COLOR,
    "@single_rate_three_color": _MeterSpec.SINGLE_RATE_THREE_COLOR,
    "@single_rate_two_color": _MeterSpec.SINGLE_RATE_TWO_COLOR,
}


class MeterService:
    """One indirect meter of the P4Info, bound to one switch's memory."""

    def __init__(self, info: p4i.Meter, state: MeterArray, size: int) -> None:
        """Raises `Refusal` when P4Info and program disagree on the unit."""
        self.id = info.preamble.id
        self.name = info.preamble.name
        self._spec = spec_of(info)
        self._state = state
        self._size = size
        unit = {_MeterSpec.BYTES: "bytes", _MeterSpec.PACKETS: "packets"}.get(info.spec.unit)
        if unit != state.unit:
            raise invalid(f"P4Info: {self.name} does not meter {state.unit}, as in the program")

    def write(self, kind: p4r.Update.Type.ValueType, entry: p4r.MeterEntry) -> None:
        """Write a MODIFY; without an index all cells, without a config back to green; counts by color can be reset.

        Raises `EmulatorError`.
        """
        check_modify(kind, self.name)
        wanted = cells(entry.index, entry.HasField("index"), self._size, self.name)
        rates = decode_config(entry.config, self._spec, self.name) if entry.HasField("config") else None
        if entry.HasField("counter_data"):
            check_reset(entry.counter_data, self.name)
        for index in wanted:
            self._state.set(index, rates)
            if entry.HasField("counter_data"):
                self._state.reset_counts(index)

    def read(self, query: p4r.MeterEntry) -> Iterator[p4r.Entity]:
        """Yield the cell of a query, or all cells without an index. Raises Refusal."""
        wanted = cells(query.index, query.HasField("index"), self._size, self.name)
        for index in wanted:
            entity = p4r.Entity()
            message = entity.meter_entry
            message.meter_id = self.id
            message.index.index = index
            encode_config(self._state.get(index), message.config)
            if query.HasField("counter_data"):
                encode_counts(self._state.counts(index), message.counter_data)
            yield entity

    def remember(self, entry: p4r.MeterEntry) -> Callable[[], None]:
        """Return a function that restores the cells that a MODIFY is about to write, tokens and counts included."""
        wanted = cells(entry.index, entry.HasField("index"), self._size, self.name)
        kept = [self._state.content(index) for index in wanted]

        def bring_back() -> None:
            for index, content in zip(wanted, kept, strict=True):
                self._state.set_content(index, content)

        return bring_back

    def configured(self) -> Iterator[p4r.Entity]:
        """Return the cells that have a config."""
        return (entity for entity in self.read(p4r.MeterEntry()) if entity.meter_entry.HasField("config"))


def spec_of(meter: p4i.Meter | p4i.DirectMeter) -> p4i.MeterSpec:
    """Return a meter's type and unit. The type may stand in an annotation alone, where p4c leaves it."""
    spec = p4i.MeterSpec()
    spec.CopyFrom(meter.spec)
    for annotation in meter.preamble.annotations:
        spec.type = _TYPES.get(annotation, spec.type)
    return spec


def decode_config(config: p4r.MeterConfig, spec: p4i.MeterSpec, label: str) -> MeterRates:
    """Return the rates that a message asks for. Raises `Refusal`."""
    for name, value, most in (
        ("cir", config.cir, MAX_RATE),
        ("pir", config.pir, MAX_RATE),
        ("cburst", config.cburst, _MAX_BURST),
        ("pburst", config.pburst, _MAX_BURST),
        ("eburst", config.eburst, _MAX_BURST),
    ):
        if not 0 <= value <= most:
            raise invalid(f"{label}: {name} is {value}; it must be 0 to {most}")
    excess = config.eburst if spec.type == _MeterSpec.SINGLE_RATE_THREE_COLOR else None
    if config.eburst and excess is None:
        raise invalid(f"{label}: eburst is {config.eburst}; only a single-rate three-color meter has one")
    if spec.type != _MeterSpec.TWO_RATE_THREE_COLOR and (config.pir, config.pburst) != (config.cir, config.cburst):
        raise invalid(
            f"{label} has a single rate: pir and pburst must equal cir {config.cir} and cburst {config.cburst}"
        )
    if config.cir > config.pir:
        raise invalid(f"{label}: cir {config.cir} is above pir {config.pir}")
    return MeterRates(config.cir, config.cburst, config.pir, config.pburst, excess)


def encode_config(rates: MeterRates | None, config: p4r.MeterConfig) -> None:
    """Write rates into a message; None leaves it unset."""
    if rates is not None:
        config.cir, config.cburst = round(rates.committed_rate), rates.committed_burst
        config.pir, config.pburst = round(rates.peak_rate), rates.peak_burst
        config.eburst = rates.excess_burst or 0
        config.SetInParent()


def encode_counts(counts: ColorCounts, data: p4r.MeterCounterData) -> None:
    """Write a meter's counts by colour into a message."""
    for message, (packets, octets) in (
        (data.green, counts.green),
        (data.yellow, counts.yellow),
        (data.red, counts.red),
    ):
        message.packet_count, message.byte_count = packets & COUNT_MASK, octets & COUNT_MASK
        message.SetInParent()


def check_reset(data: p4r.MeterCounterData, label: str) -> None:
    """Check that counts by colour are set to zero, the only value that can be written. Raises `Refusal`."""
    for name, color in (("green", data.green), ("yellow", data.yellow), ("red", data.red)):
        if color.packet_count or color.byte_count:
            raise invalid(
                f"{label}: {name} is {color.packet_count} packets, {color.byte_count} bytes; "
                "counts by color can only be reset to 0"
            )
