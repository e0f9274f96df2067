"""Meters as the control plane sees them: three colours, colour-blind, by two rates (RFC 2698) or by one (RFC 2697).

In memory a meter is a run of 64-bit words, the peak bucket before the committed one, as it is looked at::

    | kind | rate f64 (per microsecond) | burst | tokens | tokens earned so far | rate | burst | tokens | earned |
    | green packets | green bytes | yellow packets | yellow bytes | red packets | red bytes |

`kind` is 0 (not configured: green), 1 (two rates) or 2 (a single rate). With a single rate the first bucket is the
excess one: it has no rate of its own and earns what the committed bucket has no room for.
"""

from __future__ import annotations

import ctypes
import math
import struct
from dataclasses import dataclass
from typing import Final

from ..entries import InvalidEntry
from .memory import MemoryBlock
from .rows import METER_BYTES, METER_COUNTS_AT, SINGLE_RATE, TWO_RATES

_MICROSECONDS: Final = 1e6
_CONFIG: Final = struct.Struct("<QdQQQdQQQ")
_COUNTS: Final = struct.Struct("<6Q")
assert _CONFIG.size == METER_COUNTS_AT
assert _CONFIG.size + _COUNTS.size == METER_BYTES


@dataclass(frozen=True, slots=True)
class MeterRates:
    """Rates in units (bytes or packets) per second, bursts in units."""

    committed_rate: float
    committed_burst: int
    peak_rate: float
    peak_burst: int
    excess_burst: int | None = None
    """If given, the meter has a single rate, the committed one, and yellow packets are those that this bucket
    admits.
    """


@dataclass(frozen=True, slots=True)
class ColorCounts:
    """(packets, bytes) by the color that they were given."""

    green: tuple[int, int] = (0, 0)
    yellow: tuple[int, int] = (0, 0)
    red: tuple[int, int] = (0, 0)


class MeterCell:
    """One meter at an address. Without rates it calls every packet green."""

    def __init__(self, address: int) -> None:
        self._address = address

    def get(self) -> MeterRates | None:
        """Return the rates of the cell; None: it has none and calls every packet green."""
        kind, peak, peak_burst, _, _, committed, committed_burst, _, _ = self._config()
        rate = committed * _MICROSECONDS
        if kind == SINGLE_RATE:
            return MeterRates(rate, committed_burst, rate, committed_burst, peak_burst)
        if kind == TWO_RATES:
            return MeterRates(rate, committed_burst, peak * _MICROSECONDS, peak_burst)
        return None

    def set(self, rates: MeterRates | None, where: str) -> None:
        """Restart with full buckets, unless the rates are unchanged; None makes every packet green.

        Counts by color stay. Raises `InvalidEntry`.
        """
        content = meter_content(rates, where)
        old, new = self._config(), _CONFIG.unpack(content)
        if [old[at] for at in (0, 1, 2, 5, 6)] != [new[at] for at in (0, 1, 2, 5, 6)]:
            ctypes.memmove(self._address, content, len(content))

    def counts(self) -> ColorCounts:
        """Return packets and bytes by colour."""
        content = ctypes.string_at(self._address + METER_COUNTS_AT, _COUNTS.size)
        green, green_bytes, yellow, yellow_bytes, red, red_bytes = _COUNTS.unpack(content)
        return ColorCounts((green, green_bytes), (yellow, yellow_bytes), (red, red_bytes))

    def content(self) -> bytes:
        """Return configuration, tokens and counts as bytes, for `set_content`."""
        return ctypes.string_at(self._address, METER_BYTES)

    def set_content(self, content: bytes) -> None:
        """Write bytes that `content` of a cell returned."""
        ctypes.memmove(self._address, content, METER_BYTES)

    def reset_counts(self) -> None:
        """Set packets and bytes of all three colors to 0; the buckets keep their tokens."""
        ctypes.memset(self._address + METER_COUNTS_AT, 0, _COUNTS.size)

    def _config(self) -> tuple[int, float, int, int, int, float, int, int, int]:
        return _CONFIG.unpack(ctypes.string_at(self._address, _CONFIG.size))


class MeterArray:
    """An indirect meter array."""

    def __init__(self, name: str, size: int, unit: str, memory: MemoryBlock, offset: int) -> None:
        """Create the view of an array whose cells a program's state holds.

        Args:
            name: Name of the array.
            size: Number of meters.
            unit: Unit of rates and bursts, "bytes" or "packets".
            memory: Memory of the program's state.
            offset: Place of the first cell in `memory`, in bytes.
        """
        self.name = name
        self.size = size
        self.unit = unit
        """Unit of the meter, "bytes" or "packets"."""
        self._memory = memory
        self._offset = offset

    def get(self, index: int) -> MeterRates | None:
        """None: not configured. Raises `IndexError` outside 0 … size - 1."""
        return self._cell(index).get()

    def set(self, index: int, rates: MeterRates | None) -> None:
        """Set the rates of one meter.

        Raises:
            IndexError: The index is not in 0 … size - 1.
            InvalidEntry: A rate is invalid.
        """
        self._cell(index).set(rates, f"{self.name}[{index}]")

    def counts(self, index: int) -> ColorCounts:
        """Return what one meter has counted by colour.

        Raises:
            IndexError: The index is not in 0 … size - 1.
        """
        return self._cell(index).counts()

    def reset_counts(self, index: int) -> None:
        """Reset the counts of one meter.

        Raises:
            IndexError: The index is not in 0 … size - 1.
        """
        self._cell(index).reset_counts()

    def content(self, index: int) -> bytes:
        """Return a cell's memory, for `set_content`. Raises `IndexError` outside 0 … size - 1."""
        return self._cell(index).content()

    def set_content(self, index: int, content: bytes) -> None:
        """Overwrite cells. Raises `IndexError` outside 0 … size - 1."""
        self._cell(index).set_content(content)

    def _cell(self, index: int) -> MeterCell:
        if not 0 <= index < self.size:
            raise IndexError(f"{self.name}[{index}]: the meter has {self.size} cells")
        return MeterCell(self._memory.address + self._offset + index * METER_BYTES)


def meter_content(rates: MeterRates | None, where: str) -> bytes:
    """Return a meter's memory with full buckets and without its counts. Raises `InvalidEntry`."""
    if rates is None:
        return bytes(_CONFIG.size)
    excess = rates.excess_burst or 0
    values = (rates.committed_rate, rates.committed_burst, rates.peak_rate, rates.peak_burst, excess)
    if not all(math.isfinite(value) and 0 <= value < 1 << 63 for value in values):
        raise InvalidEntry(f"{rates}: rates and bursts are numbers from 0 to 2^63", place=where, value=rates)
    if rates.committed_rate > rates.peak_rate:
        raise InvalidEntry(f"{rates}: the committed rate is larger than the peak rate", place=where, value=rates)
    committed = (rates.committed_rate / _MICROSECONDS, rates.committed_burst, rates.committed_burst, 0)
    if rates.excess_burst is not None:
        return _CONFIG.pack(SINGLE_RATE, 0.0, excess, excess, 0, *committed)
    return _CONFIG.pack(TWO_RATES, rates.peak_rate / _MICROSECONDS, rates.peak_burst, rates.peak_burst, 0, *committed)
