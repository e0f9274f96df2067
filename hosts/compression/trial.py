"""Trials of a codec without a network: whether it keeps its contract, and how fast it is.

Whoever writes a codec runs them by `weir codec check` and `weir codec bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ..errors import InvalidCodec
from ..numerics.draws import Draws
from ..numerics.lane_codes import LaneType
from ..numerics.quantization import Float32Array
from ..numerics.tensors import Tensor, reference_sum, sum_locally
from .codec import Codec, Context

SIZES: Final = (*range(1, 34), 255, 1000, 4097)
_WORKERS: Final = 3
_TOLERANCE: Final = 1e-4
_SEED: Final = 7
_WINDOW: Final = 64
"""Messages that are made and read at once."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Facts about a codec that keeps its contract."""

    name: str
    homomorphic: bool
    linear: bool
    """True if the sum of codes decodes to the sum of what codes decode to; false for votes."""
    bytes_per_number: float
    """Bytes on one worker's link and direction, with 8 workers."""
    error: float
    """Squared error of one code relative to the square of normal numbers."""


def check(codec: Codec) -> Findings:
    """Try a codec on arrays of many sizes.

    Raises:
        InvalidCodec: A shape, a type, or the claim that codes can be summed is wrong.
    """
    linear = True
    for size in SIZES:
        arrays = _normal(size, _WORKERS)
        parts = contributions(codec, arrays)
        total = _summed(codec, arrays)
        for result in (*parts, total):
            if result.shape != (size,) or result.dtype != np.float32:
                raise InvalidCodec(
                    f"{size} numbers become {result.shape} of {result.dtype}", place=codec.name, value=size
                )
        right = np.sum(parts, axis=0, dtype=np.float64)
        linear &= bool(np.allclose(total, right, atol=_TOLERANCE * max(1.0, float(np.abs(right).max()))))
    if not codec.homomorphic and not linear:
        raise InvalidCodec(
            "merge is not the sum of what the codes decode to", place=codec.name, value=size, allowed=("their sum",)
        )
    size = 1 << 16
    values = _normal(size, 1)
    error = float(np.square(contributions(codec, values)[0] - values[0]).sum() / np.square(values[0]).sum())
    return Findings(codec.name, codec.homomorphic, linear, codec.bytes_on_wire(size, 8) / size, error)


def contributions(codec: Codec, arrays: Sequence[Float32Array], *, seed: int = _SEED) -> list[Float32Array]:
    """Return what each worker's code decodes to, of one call of them all.

    Args:
        codec: The codec, whose state is neither used nor changed.
        arrays: The workers' numbers by rank, (size,) each.
        seed: Of the call's random numbers.
    """
    contexts, codes = _encoded(codec, arrays, seed)
    if isinstance(codec.kind, LaneType):
        tensors = [
            Tensor(code, workers=len(arrays), dtype=codec.kind, draws=context.draws)
            for code, context in zip(codes, contexts, strict=True)
        ]
        sum_locally(tensors, tensors)
        codes = [tensor.contributed(code) for tensor, code in zip(tensors, codes, strict=True)]
    return [codec.decode(code, context) for code, context in zip(codes, contexts, strict=True)]


def measure(codec: Codec, size: int, clock: Callable[[], float]) -> tuple[float, float]:
    """Return the seconds of one worker's encoding and decoding of `size` normal numbers, the best of three.

    `clock` returns seconds. Scales are agreed within the time of encoding. Lanes are written to messages, and read from
    them, in the byte order of packets, a window at a time; gathered codes are not.
    """
    values = _normal(size, 1)[0]
    messages = np.empty((0, 0), ">i4")
    spans = []
    for _ in range(3):
        start = clock()
        contexts, codes = _encoded(codec, [values])
        if isinstance(codec.kind, LaneType):
            tensor = Tensor(codes[0], workers=2, dtype=codec.kind, draws=contexts[0].draws)
            tensor.place(0, 0, tensor.end)
            head, tail = np.split(np.arange(tensor.end), [tensor.scale_rounds])
            tensor.add_results(head, tensor.exponents(head).astype(np.int64), np.ones(len(head), np.int64), None)
            if not messages.size:
                messages = np.zeros((len(tail), tensor.message_lanes), ">i4")
            windows = np.array_split(np.arange(len(tail)), max(1, len(tail) // _WINDOW))
            for window in windows:
                messages[window[0] : window[-1] + 1] = tensor.lanes(tail[window])
            middle = clock()
            for window in windows:
                sums = messages[window[0] : window[-1] + 1].astype(np.int32)
                tensor.add_results(tail[window], np.zeros(len(window), np.int64), np.ones(len(window), np.int64), sums)
        else:
            middle = clock()
            codec.decode(codes[0], contexts[0])
        spans.append((middle - start, clock() - middle))
    return min(span[0] for span in spans), min(span[1] for span in spans)


def _normal(size: int, workers: int) -> list[Float32Array]:
    rng = np.random.default_rng(size)
    return [rng.standard_normal(size).astype(np.float32) for _ in range(workers)]


def _encoded(
    codec: Codec, arrays: Sequence[Float32Array], seed: int = _SEED
) -> tuple[list[Context], list[Float32Array]]:
    contexts = [Context(arrays[0].size, len(arrays), Draws(seed, rank)) for rank in range(len(arrays))]
    asked = [codec.presum(array, context) for array, context in zip(arrays, contexts, strict=True)]
    if wanted := [request for request in asked if request is not None]:
        agreed = reference_sum(wanted)
        contexts = [replace(context, agreed=agreed) for context in contexts]
    return contexts, [codec.encode(array, context) for array, context in zip(arrays, contexts, strict=True)]


def _summed(codec: Codec, arrays: Sequence[Float32Array]) -> Float32Array:
    contexts, codes = _encoded(codec, arrays)
    return codec.merge(codes, contexts[0])
