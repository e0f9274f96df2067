"""Costs of a codec as measured, and of links by their rate and latency, for plans of compression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ...wire.aggregation import LANES, message_bytes
from ...wire.frames import FRAME_HEADER_BYTES
from .codec import Codec
from .selective import CommunicationCosts, Line, fitted
from .trial import measure

_LARGE: Final = 1 << 20
"""Numbers of an array whose code has its usual length."""


def coding_costs(codec: Codec, workers: int, sizes: Sequence[int], clock: Callable[[], float]) -> CommunicationCosts:
    """Return the measured costs of a codec, without those of any link. Merging is part of decoding.

    Args:
        codec: The codec.
        workers: Number of workers, on which the length of a code depends.
        sizes: Numbers of the arrays to measure, two or more.
        clock: Returns seconds.

    Returns:
        Times of encoding by the numbers of an array, and of decoding by the length of codes in numbers of 4 bytes.
    """
    measure(codec, 1 << 12, clock)  # compiles
    spans = [measure(codec, size, clock) for size in sizes]
    received = codec.bytes_on_wire(_LARGE, workers) / (4 * _LARGE)
    ratio = received if codec.homomorphic else received / workers
    return CommunicationCosts(
        encode=fitted(sizes, [1e3 * span[0] for span in spans]),
        decode=fitted([ratio * size for size in sizes], [1e3 * span[1] for span in spans]),
        merge=Line(0.0, 0.0),
        ratio=ratio,
        switch_ratio=received,
    )


def with_links(costs: CommunicationCosts, workers: int, rate_bps: float, latency_ms: float) -> CommunicationCosts:
    """Return costs with those of all ways over links of a rate.

    Sums by the switches have their packets' headers. Messages of servers and rings have none.

    Args:
        costs: Costs of the codec.
        workers: Number of workers.
        rate_bps: Rate of every link.
        latency_ms: Time of an empty message.
    """
    number_ms = 32e3 / rate_bps
    headers = (FRAME_HEADER_BYTES + message_bytes(LANES)) / (4 * LANES)
    from_all = Line((workers - 1) * number_ms, latency_ms)
    return replace(
        costs,
        gather=from_all,
        broadcast=from_all,
        send=Line(number_ms, latency_ms),
        hop=Line(headers * number_ms, latency_ms),
    )
