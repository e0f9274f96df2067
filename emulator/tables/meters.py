"""Meters as the control plane sees them: two rates, three colours (RFC 2698, colour-blind).

In memory a meter is a run of 64-bit words, the peak rate before the committed one, as it is looked at::

    | configured | rate f64 (per microsecond) | burst | tokens | tokens earned so far | rate | burst | tokens | earned |
"""

from __future__ import annotations

import ctypes
import math
import struct
from dataclasses import dataclass
from typing import Final

from emulator.entries import InvalidEntry
from emulator.tables.rows import METER_BYTES

_MICROSECONDS: Final = 1e6
_FORMAT: Final = struct.Struct("<QdQQQdQQQ")
assert _FORMAT.size == METER_BYTES


@dataclass(frozen=True, slots=True)
class MeterRates:
    """Rates in units (bytes or packets) per second, bursts in units."""

    committed_rate: float
    committed_burst: int
    peak_rate: float
    peak_burst: int


class MeterCell:
    """One meter at an address. Without rates it calls every packet green."""

    def __init__(self, address: int) -> None:
        self._address = address

    def get(self) -> MeterRates | None:
        content = ctypes.string_at(self._address, METER_BYTES)
        configured, peak, peak_burst, _, _, committed, committed_burst, _, _ = _FORMAT.unpack(content)
        if not configured:
            return None
        return MeterRates(committed * _MICROSECONDS, committed_burst, peak * _MICROSECONDS, peak_burst)

    def set(self, rates: MeterRates | None, where: str) -> None:
        """Start anew with full buckets; None: every packet is green. Raises `InvalidEntry`."""
        content = bytes(METER_BYTES)
        if rates is not None:
            values = (rates.committed_rate, rates.committed_burst, rates.peak_rate, rates.peak_burst)
            if not all(math.isfinite(value) and 0 <= value < 1 << 63 for value in values):
                raise InvalidEntry(f"{where}: {rates}: rates and bursts are numbers from 0 to 2^63")
            if rates.committed_rate > rates.peak_rate:
                raise InvalidEntry(f"{where}: {rates}: the committed rate is larger than the peak rate")
            peak, committed = rates.peak_rate / _MICROSECONDS, rates.committed_rate / _MICROSECONDS
            content = _FORMAT.pack(
                *(1, peak, rates.peak_burst, rates.peak_burst, 0),
                *(committed, rates.committed_burst, rates.committed_burst, 0),
            )
        ctypes.memmove(self._address, content, METER_BYTES)


class MeterArray:
    """An indirect meter array."""

    def __init__(self, name: str, size: int, unit: str, address: int) -> None:
        self.name = name
        self.size = size
        self.unit = unit
        """"bytes" or "packets"."""
        self._address = address

    def get(self, index: int) -> MeterRates | None:
        """None: not configured. Raises `IndexError` outside 0 … size - 1."""
        return self._cell(index).get()

    def set(self, index: int, rates: MeterRates | None) -> None:
        """Raises `IndexError` outside 0 … size - 1, `InvalidEntry`."""
        self._cell(index).set(rates, f"{self.name}[{index}]")

    def _cell(self, index: int) -> MeterCell:
        if not 0 <= index < self.size:
            raise IndexError(f"{self.name}[{index}]: the meter has {self.size} cells")
        return MeterCell(self._address + index * METER_BYTES)
