"""Cost of a lookup: packets in memory through a table of 10 to 100,000 entries.

Exact and LPM lookups hash the key, once for each prefix length in use; their cost grows with the entries only by cache
misses. Ternary lookups hash it once for each group of masks (`emulator.tables.merging`), from the group with the best
priority on until no better match is possible.

The packets are of 4,096 flows, all of which have entries. The figure is the processor's time for a whole packet, parser
to deparser; the peer is Python's dict, queried for the same keys in a loop, once for each prefix length or mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weir.bench.measure import Aim, Figure, cpu_seconds
from weir.bench.traffic import SMALL_PAYLOAD
from weir.emulator.entries import ActionCall, Exact, Lpm, Match, TableEntry, Ternary
from weir.emulator.port import PortConfig
from weir.emulator.switch import Switch
from weir.wire.frames import encapsulate

SIZES: Final = (10, 100, 1_000, 10_000, 100_000)
LENGTHS: Final = (32, 28, 24, 20, 16)
MANY_LENGTHS: Final = tuple(range(32, 14, -1))
MASKS: Final = (1, 10, 100)
TERNARY_SIZES: Final = (1_000, 100_000)
FLOWS: Final = 4096
REPEAT: Final = 100
RUNS: Final = 7
GROWTH: Final = 2
"""Maximum ratio of a packet's cost with 100,000 entries to that with 10: the allowance for cache misses."""
TERNARY_AIM_S: Final = 0.3e-6
PROGRAM: Final = Path(__file__).parent / "programs" / "lookups.json"
_UDP_PORT: Final = {"hosts": 1, "routes": 2, "rules": 3}
_WITHOUT_LOOKUP: Final = 4
_SEND: Final = ActionCall("LookupsIngress.send", (2,))
_ALL_ONES: Final = (1 << 32) - 1


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    rig = _Rig()
    yield rig.baseline()
    for name, table, lengths in (("exact", "hosts", (32,)), (f"LPM of {len(LENGTHS)} lengths", "routes", LENGTHS)):
        by_size = []
        for size in SIZES:
            by_size.append(rig.measure(name, table, _spread(map(_prefix_mask, lengths), size)))
            yield by_size[-1]
        yield _growth(name, by_size[0], by_size[-1])
    many = _spread(map(_prefix_mask, MANY_LENGTHS), SIZES[-1])
    yield rig.measure(f"LPM of {len(MANY_LENGTHS)} lengths", "routes", many)
    for count in MASKS:
        for size in TERNARY_SIZES:
            all_but_two = (_ALL_ONES ^ 1 << a ^ 1 << b for a, b in islice(combinations(range(32), 2), count))
            figure = rig.measure(f"ternary of {count} masks", "rules", _spread(all_but_two, size))
            yield replace(figure, aim=Aim(TERNARY_AIM_S))


class _Rig:
    """A switch with the program; its tables are filled and emptied in turn."""

    def __init__(self) -> None:
        self._switch = Switch(1, ports=range(1, 3), port=PortConfig(queue_packets=None))
        self._switch.load(PROGRAM.read_bytes())
        self._rng = np.random.default_rng(1)

    def baseline(self) -> Figure:
        """A packet that looks nothing up."""
        frames = _frames(self._rng.integers(0, 1 << 32, FLOWS), _WITHOUT_LOOKUP)
        self._packet_s(frames)  # the first run finds cold caches
        return Figure("no lookup", "s", tuple(self._packet_s(frames) for _ in range(RUNS)), less_is_better=True)

    def measure(self, name: str, table: str, masks: NDArray[np.int64]) -> Figure:
        """A packet whose address is looked up in a table that holds one entry for each of `masks` (n,)."""
        values = _distinct_values(masks, self._rng)
        priorities = 1 + self._rng.permutation(len(masks))
        assert self._switch.state is not None
        filled: Any = self._switch.state.tables[f"LookupsIngress.{table}"]
        by_mask: dict[int, dict[int, int]] = {mask: {} for mask in masks.tolist()}
        for value, mask, priority in zip(values.tolist(), masks.tolist(), priorities.tolist(), strict=True):
            filled.insert(_entry(table, value, mask, priority))
            by_mask[mask][value] = priority
        hit = self._rng.integers(0, len(masks), FLOWS)
        addresses = values[hit] | self._rng.integers(0, 1 << 32, FLOWS) & ~masks[hit]
        frames = _frames(addresses, _UDP_PORT[table])
        assert len(self._switch.process(frames, None, 1).lengths) == FLOWS, "every flow must have its entry"
        peer = partial(_best_of_all if table == "rules" else _first, by_mask, addresses.tolist())
        turns = [(self._packet_s(frames), cpu_seconds(peer) / FLOWS) for _ in range(RUNS)]
        filled.reset()
        mine, theirs = zip(*turns, strict=True)
        return Figure(f"{name}, {len(masks):,} entries", "s", mine, "Python dict", theirs, less_is_better=True)

    def _packet_s(self, frames: NDArray[np.uint8]) -> float:
        return cpu_seconds(partial(self._switch.process, frames, None, 1, REPEAT)) / (len(frames) * REPEAT)


def _growth(name: str, least: Figure, most: Figure) -> Figure:
    """Ratio of a packet's cost with the most entries to that with the fewest; the peer's lookup likewise."""

    def times(large: Sequence[float], small: Sequence[float]) -> tuple[float, ...]:
        return tuple(a / b for a, b in zip(large, small, strict=True))

    return Figure(
        f"{name}, {SIZES[-1]:,} against {SIZES[0]} entries",
        "times",
        times(most.values, least.values),
        most.peer,
        times(most.peer_values, least.peer_values),
        less_is_better=True,
        aim=Aim(GROWTH),
    )


def _first(by_mask: dict[int, dict[int, int]], addresses: Sequence[int]) -> None:
    """Look addresses up in dicts by mask: the first mask wins, as the longest prefix does."""
    for address in addresses:
        for mask, priorities in by_mask.items():
            if address & mask in priorities:
                break


def _best_of_all(by_mask: dict[int, dict[int, int]], addresses: Sequence[int]) -> None:
    """Look addresses up in dicts by mask: the greatest priority wins."""
    for address in addresses:
        max(priorities.get(address & mask, 0) for mask, priorities in by_mask.items())


def _prefix_mask(length: int) -> int:
    return _ALL_ONES ^ _ALL_ONES >> length


def _spread(masks: Iterable[int], size: int) -> NDArray[np.int64]:
    """The masks in turn, one for each of `size` entries."""
    return np.resize(np.fromiter(masks, np.int64), size)


def _distinct_values(masks: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """A random value under each mask; no two entries are the same."""
    values = rng.integers(0, 1 << 32, len(masks)) & masks
    while True:
        _, kept = np.unique(np.stack((masks, values)), axis=1, return_index=True)
        again = np.setdiff1d(np.arange(len(masks)), kept)
        if not again.size:
            return values
        values[again] = rng.integers(0, 1 << 32, again.size) & masks[again]


def _entry(table: str, value: int, mask: int, priority: int) -> TableEntry:
    match: Match
    if table == "hosts":
        match = Exact(value)
    elif table == "routes":
        match = Lpm(value, mask.bit_count())
    else:
        return TableEntry((Ternary(value, mask),), _SEND, priority)
    return TableEntry((match,), _SEND)


def _frames(addresses: NDArray[np.int64], udp_port: int) -> NDArray[np.uint8]:
    return encapsulate(
        np.zeros((len(addresses), SMALL_PAYLOAD), np.uint8),
        source=1,
        destination=addresses,
        source_mac=2,
        destination_mac=1,
        source_port=9,
        destination_port=udp_port,
    )
