"""Rates and delays as people write them: `200Mbit`, `10us`."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from .errors import TopologyError

_RATE_BPS: Final = {"bit": 1, "kbit": 10**3, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}
_DELAY_NS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_MEMORY_BYTES: Final = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_QUANTITY: Final = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z]+)")
_LARGEST: Final = 1 << 62
"""Native code adds up rates and times in 64 bits."""
_LONGEST_SHOWN: Final = 60

RATE_PATTERN: Final = rf"^\s*\d+(\.\d+)?\s*({'|'.join(_RATE_BPS)})\s*$"
"""Every text that `parse_rate` takes matches it, and of the others only those that are less than a bit per second or
are not a whole number of them.
"""
MEMORY_PATTERN: Final = rf"^\s*\d+(\.\d+)?\s*({'|'.join(_MEMORY_BYTES)})\s*$"
"""Every text that `parse_memory` takes matches it, and of the others only those that are not whole bytes."""
DELAY_PATTERN: Final = rf"^\s*\d+(\.\d+)?\s*({'|'.join(_DELAY_NS)})\s*$"
"""Every text that `parse_delay` takes matches it, and of the others only those that are not a whole number of
nanoseconds.
"""


def parse_rate(text: object) -> int:
    """Return bits per second of a rate such as `200Mbit` or `2.5Gbit`. Raises `TopologyError`."""
    rate_bps = _parse(text, _RATE_BPS)
    if rate_bps is None or rate_bps < 1:
        raise TopologyError(f"rate {_shown(text)} is not a rate; write it like 200Mbit", value=text)
    return rate_bps


def parse_memory(text: object) -> int:
    """Return bytes of an amount of memory such as `64GiB`. Raises `TopologyError`."""
    size = _parse(text, _MEMORY_BYTES)
    if size is None:
        raise TopologyError(f"memory {_shown(text)} is not an amount of memory; write it like 64GiB", value=text)
    return size


def parse_delay(text: object) -> int:
    """Return nanoseconds of a delay such as `10us` or `1.5ms`. Raises `TopologyError`."""
    delay_ns = _parse(text, _DELAY_NS)
    if delay_ns is None:
        raise TopologyError(f"delay {_shown(text)} is not a delay; write it like 10us", value=text)
    return delay_ns


def format_rate(rate_bps: int) -> str:
    """Return the shortest text that `parse_rate` reads as `rate_bps`."""
    return _format(rate_bps, ("Tbit", "Gbit", "Mbit", "kbit", "bit"), _RATE_BPS)


def format_delay(delay_ns: int) -> str:
    """Return the shortest text that `parse_delay` reads as `delay_ns`."""
    return _format(delay_ns, ("s", "ms", "us", "ns"), _DELAY_NS)


def format_memory(size: int) -> str:
    """Return the shortest text that `parse_memory` reads as `size` bytes."""
    return _format(size, ("TiB", "GiB", "MiB", "KiB", "B"), _MEMORY_BYTES)


def _parse(text: object, scale: dict[str, int]) -> int | None:
    match = _QUANTITY.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or match[2] not in scale:
        return None
    value = Decimal(match[1]) * scale[match[2]]
    return int(value) if value == int(value) and value < _LARGEST else None


def _format(value: int, units: tuple[str, ...], scale: dict[str, int]) -> str:
    unit = next((unit for unit in units if value and value % scale[unit] == 0), units[-1])
    return f"{value // scale[unit]}{unit}"


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
