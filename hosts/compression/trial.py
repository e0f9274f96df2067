"""Trials of a codec without a network: whether it keeps its contract, and how fast it is.

Whoever writes a codec runs them by `weir codec check` and `weir codec bench`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ..errors import InvalidCodec, InvalidTensor
from ..numerics.draws import Draws
from ..numerics.lane_codes import LARGEST_SCALE, LaneType
from ..numerics.quantization import Float32Array
from ..numerics.tensors import Tensor, reference_sum, sum_locally
from .codec import Codec, Context

SIZES: Final = (*range(1, 34), 255, 1000, 4097)
_WORKERS: Final = 3
_TOLERANCE: Final = 1e-4
_SEED: Final = 7
_MANY: Final = 1 << 16
"""Numbers of which an error is measured."""
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
        InvalidCodec: A shape, a type, or the claim that codes can be summed is wrong, or finite numbers become others.
    """
    linear = True
    for arrays in (*(_normal(size, _WORKERS) for size in SIZES), *_edges()):
        size = arrays[0].size
        try:
            parts = contributions(codec, arrays)
            total = _summed(codec, arrays)
        except InvalidTensor as error:
            if error.place.startswith("tensor"):  # the sum of lanes has refused a scale
                raise InvalidCodec(
                    f"the scale of {size} finite numbers ({_shown(arrays)}) is NaN, infinite or above "
                    f"{LARGEST_SCALE:g}; a common scale is finite for all finite numbers",
                    place=codec.name,
                    value=size,
                ) from error
            raise
        for result in (*parts, total):
            if result.shape != (size,) or result.dtype != np.float32:
                raise InvalidCodec(
                    f"{size} numbers become {result.shape} of {result.dtype}", place=codec.name, value=size
                )
            if not (finite := np.isfinite(result)).all():
                raise InvalidCodec(
                    f"{size} finite numbers ({_shown(arrays)}) become {result[~finite][0]} at index "
                    f"{int((~finite).argmax())}; decode returns finite numbers for finite ones. A division by 0, the "
                    "root of a negative number or a number beyond float32 are the usual reasons",
                    place=codec.name,
                    value=float(result[~finite][0]),
                )
        right = np.sum(parts, axis=0, dtype=np.float64)
        linear &= bool(np.allclose(total, right, atol=_TOLERANCE * max(1.0, float(np.abs(right).max()))))
    if not codec.homomorphic and not linear:
        raise InvalidCodec(
            "merge is not the sum of what the codes decode to", place=codec.name, value=size, allowed=("their sum",)
        )
    per_number = codec.bytes_on_wire(_MANY, 8) / _MANY
    return Findings(codec.name, codec.homomorphic, linear, per_number, one_code_error(codec))


def one_code_error(codec: Codec) -> float:
    """Return the squared error of one code of normal numbers, relative to their square.

    Error feedback keeps errors bounded if this is at most 1 (Karimireddy et al., 2019, a contraction). Above, what
    rounding adds is larger than the numbers, and grows from step to step.
    """
    values = _normal(_MANY, 1)
    return float(np.square(contributions(codec, values)[0] - values[0]).sum() / np.square(values[0]).sum())


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


def _edges() -> list[list[Float32Array]]:
    """Arrays of zeros, as of a layer that is not used, and of equal numbers."""
    return [[np.full(33, number, np.float32)] * _WORKERS for number in (0.0, 0.5)]


def _shown(arrays: Sequence[Float32Array]) -> str:
    values = arrays[0]
    return "all 0" if not values.any() else f"{values.min():.3g} to {values.max():.3g}"


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
