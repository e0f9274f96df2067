"""HiTopKComm beside flat top-k and dense sums in the fabric: racks with a slow link between, in the packet fabric.

::

    rank: ring reduce-scatter in its rack ─▶ largest of its shard ─▶ gather with the ranks of its place in other racks
                                       ring gather in its rack ◀─ sum of the racks' codes ◀┘

Messages are the transport's packets, sums by the switches are the job's, both in virtual time. Codecs are measured in
processor time of one core; they overlap with nothing. All-gathers count the decoding of one code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Final

import numpy as np

from ...hosts.compression.codec import Codec, Context
from ...hosts.compression.codecs import make_codec
from ...hosts.compression.trial import measure
from ...hosts.numerics.draws import Draws
from ...hosts.numerics.quantization import Float32Array
from ...hosts.transport.options import TransportOptions
from ...hosts.transport.transport import Transport
from ...topologies import Topology
from ...topologies.mininet.processes import run_until_ended
from ...topologies.units import parse_rate
from ...training import Processes
from ...training.processes import Wakeup
from ...wire.aggregation import LANES, message_bytes
from ...wire.frames import FRAME_HEADER_BYTES
from ...wire.transport import HEADER_BYTES
from ..backends.virtual_time import Cluster
from ..config import RunConfig
from .exchange_times import switch_sum_s
from .paper import Paper, Quantity, Sample

EXCHANGE: Final = Quantity("sum of 2^20 numbers, with codecs", "ms")
NETWORK: Final = Quantity("of it on the network", "ms")
FORMULA: Final = Quantity("network time by the formula", "ms")
SIZE: Final = 1 << 20
RATIO: Final = 0.01
RACK_RATE: Final = "1Gbit"
RATES: Final = ("1Gbit", "100Mbit", "25Mbit")
"""Rates of the link between a rack and the other."""
TOP_K: Final = {"ratio": RATIO}

Steps = Generator[Any, Wakeup, None]
Parts = list[Any]
"""Arrays by place in a ring; None where another rank has it."""


def reduced(end: Transport, ring: Sequence[int], parts: Parts, add: Callable[[Any, Any], Any]) -> Steps:
    """Sum arrays over a ring: afterwards this rank's own part is the sum of all ranks'.

    Args:
        end: This rank's transport.
        ring: Ranks in their order, this one included.
        parts: One array for each place, which are replaced.
        add: Adds what arrives to a part.
    """
    place, count = ring.index(end.rank), len(ring)
    for step in range(1, count):
        end.send_async(ring[(place + 1) % count], parts[(place - step) % count])
        arrived, _ = yield end.recv_async(ring[place - 1])
        at = (place - step - 1) % count
        parts[at] = add(parts[at], arrived)


def gathered(end: Transport, ring: Sequence[int], parts: Parts) -> Steps:
    """Pass each rank's own part around a ring; arguments are those of `reduced`."""
    place, count = ring.index(end.rank), len(ring)
    for step in range(count - 1):
        end.send_async(ring[(place + 1) % count], parts[(place - step) % count])
        parts[(place - step - 1) % count], _ = yield end.recv_async(ring[place - 1])


@dataclass(frozen=True, slots=True)
class Racks:
    """Ranks by rack, and the codec of the numbers that cross."""

    ranks: Sequence[Sequence[int]]
    codec: Codec

    def of(self, rank: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the ranks of this one's rack, and those of its place in all racks."""
        own = next(rack for rack in self.ranks if rank in rack)
        return own, [rack[own.index(rank)] for rack in self.ranks]

    def code(self, values: Float32Array) -> Any:
        """Return the code of a shard or of an array."""
        return self.codec.encode(values, Context(values.size, len(self.ranks), Draws()))

    def total(self, codes: Sequence[Any], size: int) -> Float32Array:
        """Return the sum of what codes of `size` numbers decode to."""
        return self.codec.merge(codes, Context(size, len(codes), Draws()))


def hierarchical(end: Transport, racks: Racks, values: Float32Array, results: list[Float32Array]) -> Steps:
    """Sum as HiTopKComm does, with rings inside the racks.

    Args:
        end: This rank's transport.
        racks: The racks.
        values: This rank's numbers, (size,); a multiple of a rack's ranks.
        results: The sum at each rank; this one's is set.
    """
    rack, column = racks.of(end.rank)
    parts: Parts = np.split(values, len(rack))
    yield from reduced(end, rack, parts, np.add)
    place = rack.index(end.rank)
    codes: Parts = [None] * len(column)
    codes[column.index(end.rank)] = racks.code(parts[place])
    yield from gathered(end, column, codes)
    parts[place] = racks.total(codes, parts[place].size)
    yield from gathered(end, rack, parts)
    results[end.rank] = np.concatenate(parts)


def crossing(end: Transport, racks: Racks, sums: Sequence[Float32Array], results: list[Float32Array]) -> Steps:
    """Exchange the largest sums of racks whose switches have summed: codes alone travel, between and inside racks.

    Args:
        end: This rank's transport.
        racks: The racks.
        sums: Sum of each rack, (size,).
        results: The sum at each rank; this one's is set.
    """
    rack, column = racks.of(end.rank)
    own, place = column.index(end.rank), rack.index(end.rank)
    shards = np.split(sums[own], len(rack))
    codes: Parts = [None] * len(column)
    codes[own] = racks.code(shards[place])
    yield from gathered(end, column, codes)
    rows: Parts = [None] * len(rack)
    rows[place] = np.concatenate(codes)
    yield from gathered(end, rack, rows)
    results[end.rank] = np.concatenate(
        [racks.total(np.split(row, len(column)), shard.size) for row, shard in zip(rows, shards, strict=True)]
    )


def flat(end: Transport, racks: Racks, values: Float32Array, results: list[Float32Array]) -> Steps:
    """Gather the codes of all ranks by one ring, and sum them at each rank.

    Args:
        end: Transport of this rank.
        racks: Racks, with their codec.
        values: This rank's numbers, float32.
        results: Receives the sum at the place of this rank.
    """
    codes: Parts = [None] * end.size
    codes[end.rank] = racks.code(values)
    yield from gathered(end, range(end.size), codes)
    results[end.rank] = racks.total(codes, values.size)


Program = Callable[[Transport, Racks, Any, list[Float32Array]], Steps]


async def message_time_s(
    config: RunConfig, program: Program, racks: Racks, inputs: Sequence[Any]
) -> tuple[float, list[Float32Array]]:
    """Return the time of an exchange by messages, with all packets, in s, and the result at each rank.

    Args:
        config: The run, with the fabric and the workers.
        program: What each rank does.
        racks: The racks.
        inputs: The program's input at each rank.
    """
    results: list[Float32Array] = [np.zeros(0, np.float32)] * len(inputs)
    async with Cluster(config, config.strategies[-1], values=LANES, exchanging=True) as cluster:
        ends = cluster.transports(options=TransportOptions(life_ns=1_000_000_000))
        started_ns = cluster.now_ns
        steps = [program(end, racks, value, results) for end, value in zip(ends, inputs, strict=True)]
        await cluster.play(Processes(steps, lambda *_: 0), lambda: False)
        return 1e-9 * (cluster.now_ns - started_ns), results


@dataclass(frozen=True, slots=True)
class SumFormulas:
    """Times of exchanges by α and β: latency of an empty message, and bytes with their headers at line rate."""

    topology: Topology
    rack_bps: float
    between_bps: float
    ranks: int
    """Ranks of a rack."""
    racks: int

    def _latency_s(self, between: bool) -> float:
        """Return the time of one full packet to the next rank of a rack, or of another."""
        frame = 8 * (TransportOptions().payload_bytes + HEADER_BYTES + FRAME_HEADER_BYTES)
        rates = [self.rack_bps, *(2 * [self.between_bps] if between else []), self.rack_bps]
        delay_s = 1e-9 * self.topology.links[0].delay_ns
        return sum(frame / rate + delay_s for rate in rates)

    def _message_s(self, size: float, rate_bps: float) -> float:
        """Return the time of a message of so many bytes on a link."""
        payload = TransportOptions().payload_bytes
        return 8 * size * (payload + HEADER_BYTES + FRAME_HEADER_BYTES) / payload / rate_bps

    def inside_s(self, size: float) -> float:
        """Return the time of reduce-scatter or gather of `size` bytes by a ring inside a rack."""
        return (self.ranks - 1) * (self._latency_s(False) + self._message_s(size / self.ranks, self.rack_bps))

    def across_s(self, size: float) -> float:
        """Return the time in which all ranks gather `size` bytes of each rank of their place in other racks."""
        slowest = max(self._message_s(self.ranks * size, self.between_bps), self._message_s(size, self.rack_bps))
        return (self.racks - 1) * (self._latency_s(True) + slowest)

    def ring_s(self, size: float, rounds: int) -> float:
        """Return the time of rounds around all ranks, with `size` bytes from each to the next in every round."""
        slowest = self._message_s(size, min(self.rack_bps, self.between_bps))
        return rounds * (self._latency_s(True) + slowest)

    def summed_s(self, lane_bytes: float, *, between: bool = True) -> float:
        """Return the time of a sum by the switches, of so many bytes of lanes on every link."""
        rate_bps = min(self.rack_bps, self.between_bps) if between else self.rack_bps
        chunk = 4 * LANES
        return (
            2 * self._latency_s(between)
            + 8 * lane_bytes * (message_bytes(LANES) + FRAME_HEADER_BYTES) / chunk / rate_bps
        )


_DENSE: Final[Mapping[str, tuple[str, Mapping[str, int]]]] = {
    "packed15": ("packed", {"bits": 15}),
    "packed7": ("packed", {"bits": 7}),
}
"""Codecs of the dense sums by the switches."""


def racks_of(config: RunConfig) -> Racks:
    """Return the workers of each leaf as a rack."""
    topology = config.topology
    leaves: dict[str, list[int]] = {}
    for rank, host in enumerate(config.job.workers):
        leaves.setdefault(topology.attached_switch(host).name, []).append(rank)
    return Racks(list(leaves.values()), make_codec("topk", **TOP_K))


def rack_run(config: RunConfig, racks: Racks) -> RunConfig:
    """Return the run of the first rack's workers alone."""
    job = {**config.model_dump()["job"], "workers": [config.job.workers[rank] for rank in racks.ranks[0]]}
    return config.replaced("rack", job=job)


CONTENDERS: Final = ("hitopkcomm", "rack-switches", "flat", *_DENSE)


def network_time_s(config: RunConfig, size: int, contender: str) -> float:
    """Return the time of a contender's exchange of `size` normal numbers with all packets, in s."""
    if contender in _DENSE:
        codec, options = _DENSE[contender]
        return switch_sum_s(config, size, codec, options, steps=0)
    racks, rng = racks_of(config), np.random.default_rng(20)
    inputs = [rng.standard_normal(size).astype(np.float32) for _ in config.job.workers]

    def by_messages(program: Program, values: Sequence[Any]) -> float:
        return run_until_ended(message_time_s(config, program, racks, values))[0]

    if contender == "rack-switches":
        sums = [np.sum([inputs[rank] for rank in rack], axis=0, dtype=np.float32) for rack in racks.ranks]
        return switch_sum_s(rack_run(config, racks), size, steps=0) + by_messages(crossing, [sums] * len(inputs))
    return by_messages(hierarchical if contender == "hitopkcomm" else flat, inputs)


def formula_times_s(config: RunConfig, size: int) -> dict[str, float]:
    """Return the time of each contender's exchange by the formula, in s."""
    racks, workers = racks_of(config), len(config.job.workers)
    generated = config.fabric["generate"]
    ranks = len(racks.ranks[0])
    formulas = SumFormulas(
        config.topology,
        parse_rate(generated["rate"]),
        parse_rate(generated["uplink_rate"]),
        ranks,
        len(racks.ranks),
    )
    codec = racks.codec
    code = codec.bytes_on_wire(size // ranks, 1)
    lanes = {
        name: make_codec(codec, **options).bytes_on_wire(size, workers) for name, (codec, options) in _DENSE.items()
    }
    across = formulas.across_s(code)
    return {
        "hitopkcomm": 2 * formulas.inside_s(4 * size) + across,
        "rack-switches": formulas.summed_s(4 * size, between=False)
        + across
        + formulas.inside_s(ranks * len(racks.ranks) * code),
        "flat": formulas.ring_s(codec.bytes_on_wire(size, 1), workers - 1),
        **{name: formulas.summed_s(size_bytes) for name, size_bytes in lanes.items()},
    }


def coding_times_s(size: int, ranks: int) -> dict[str, float]:
    """Return one worker's processor time of each contender's codec, in s.

    Args:
        size: Numbers of the array.
        ranks: Ranks of a rack.
    """

    def coding(codec: Codec, numbers: int) -> float:
        measure(codec, 1 << 12, time.process_time)  # compiles
        return sum(measure(codec, numbers, time.process_time))

    shard = coding(make_codec("topk", **TOP_K), size // ranks)
    return {
        "hitopkcomm": shard,
        "rack-switches": shard,
        "flat": coding(make_codec("topk", **TOP_K), size),
        **{name: coding(make_codec(codec, **options), size) for name, (codec, options) in _DENSE.items()},
    }


def exchanges(paper: Paper) -> Iterator[Sample]:
    """Measure `EXCHANGE` and `NETWORK` of all contenders, and compute `FORMULA`, at each rate between the racks.

    Lengths of codes do not depend on the numbers, so that turns differ by the codecs' processor times alone.
    """
    config = RunConfig.load(paper.files[0])
    coding = [coding_times_s(SIZE, len(racks_of(config).ranks[0])) for _ in range(paper.seeds)]
    runs = {}
    for rate in RATES:
        fabric = {**config.fabric, "generate": {**config.fabric["generate"], "uplink_rate": rate}}
        runs[rate] = config.replaced("rate", fabric=fabric)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        measured = {
            (rate, name): pool.submit(network_time_s, run, SIZE, name)
            for rate, run in runs.items()
            for name in CONTENDERS
        }
        for (rate, name), future in measured.items():
            network_s, formula_s = future.result(), formula_times_s(runs[rate], SIZE)[name]
            for turn, own_s in enumerate(coding, 1):
                total_s = network_s + own_s[name]
                for figure, value in ((EXCHANGE, total_s), (NETWORK, network_s), (FORMULA, formula_s)):
                    condition = f"racks of {RACK_RATE}/s, {rate}/s between them"
                    yield Sample(figure.name, condition, name, turn, 1e3 * value)
