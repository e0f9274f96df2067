"""Interface of a codec: compensate, encode, merge, decode, update, as GRACE has them, with a property for switches.

::

    gradient ─ compensate ─▶ values ─ encode ─▶ code ─ switches, or all-gather and merge ─▶ decode ─▶ sum
                               └─────────── update, with what the own code decodes to ◀──────────┘

A codec's `kind` is the type of numbers by which the fabric sums its codes; None: codes cannot be summed. Codecs that
need parameters in common compute them by `presum`: a small float32 array that is summed over the workers first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors.values import shown
from ...wire.aggregation import LANES
from ..errors import InvalidTensor
from ..numerics.datatypes import DataType
from ..numerics.draws import Draws
from ..numerics.lane_codes import LaneType
from ..numerics.quantization import Float32Array
from ..numerics.tensors import reference_sum
from .states import State


@dataclass(frozen=True, slots=True)
class Context:
    """One call, as all workers know it; `draws.rank` is the worker's own."""

    size: int
    """Numbers of the array."""
    workers: int
    """Number of workers at the start of the job."""
    draws: Draws
    agreed: Float32Array | None = None
    """Sum over the workers of what the codec asked for."""


class Codec(ABC):
    """One compression algorithm. Its methods see flat float32 arrays (size,)."""

    name: str
    """Algorithm and options, numbers by `number_text`; part of a call's signature."""

    @property
    def kind(self) -> DataType | None:
        """Type by which the fabric sums codes; None if codes cannot be summed."""
        return None

    @property
    def homomorphic(self) -> bool:
        """True if the result depends on the sum of codes and the number of contributors alone."""
        return self.kind is not None

    @property
    def keeps_residuals(self) -> bool:
        """True if the codec itself adds what it has not sent to the next gradient."""
        return False

    def presum(self, values: Float32Array, context: Context) -> Float32Array | None:
        """Return what is to be summed over the workers before codes are made; None if nothing."""
        return None

    def compensate(self, name: str, values: Float32Array) -> Float32Array:
        """Return a gradient with what this worker has not sent of earlier ones of this name."""
        return values

    @abstractmethod
    def encode(self, values: Float32Array, context: Context) -> NDArray[Any]:
        """Return the code, whose shape and type depend on the size and the number of workers alone."""

    @abstractmethod
    def decode(self, code: NDArray[Any], context: Context) -> Float32Array:
        """Return the numbers (size,) of a code, or of a sum of codes."""

    def merge(self, codes: Sequence[NDArray[Any]], context: Context) -> Float32Array:
        """Return the sum over workers (size,), as any fabric must return it, from their codes by rank."""
        if (kind := self.kind) is not None:
            total = reference_sum(codes, workers=context.workers, dtype=kind, seed=context.draws.seed)
            return self.decode(total, context)
        total = np.zeros(context.size, np.float32)
        for code in codes:
            total += self.decode(code, context)
        return total

    def update(self, name: str, values: Float32Array, sent: Float32Array) -> None:  # noqa: B027 (most codecs have no state)
        """Update the codec's state after a call.

        Args:
            name: Name of the tensor.
            values: Values that were encoded, (size,).
            sent: What their code decodes to, (size,).
        """

    @abstractmethod
    def bytes_on_wire(self, size: int, workers: int) -> int:
        """Return bytes of lanes that one worker sends up, and receives, for an array of `size` numbers."""

    def state_dict(self) -> State:
        """Return this worker's state, by names, for checkpoints."""
        return {}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state that `state_dict` returned; a codec without state refuses all entries.

        Raises:
            InvalidTensor: An entry is unknown, or no array of the right type and shape.
        """
        if state:
            raise InvalidTensor(
                f"unknown entry {shown(next(iter(state)))}",
                place=f"state of {self.name}",
                value=next(iter(state)),
                allowed=("the entries that state_dict returned",),
            )


class LaneCodec(Codec):
    """A codec whose codes are a lane code's fields: the fabric sums numbers of that type."""

    def __init__(self, kind: LaneType) -> None:
        self.name = kind.name
        self._kind = kind

    @property
    def kind(self) -> DataType:
        return self._kind

    def encode(self, values: Float32Array, context: Context) -> NDArray[Any]:
        """Return the numbers themselves: they are quantised when the chunks' scales are agreed."""
        return values

    def decode(self, code: NDArray[Any], context: Context) -> Float32Array:
        return code

    def bytes_on_wire(self, size: int, workers: int) -> int:
        chunk = LANES * self._kind.code.layout(workers).per_lane
        return -(-size // chunk) * 4 * LANES


class GatheredCodec(Codec):
    """A codec whose codes differ in more than their sum: they travel by all-gather."""

    @abstractmethod
    def code_bytes(self, size: int) -> int:
        """Return the length in bytes of the code of `size` values."""

    def bytes_on_wire(self, size: int, workers: int) -> int:
        return workers * self.code_bytes(size)


@dataclass(frozen=True, slots=True)
class CodecDescription:
    """A codec as it is registered: one in each module of `codecs`, as DESCRIPTION."""

    name: str
    """Name in `Compression.named`."""
    summary: str
    """The algorithm in one line."""
    make: Callable[..., Codec]
    """Create the codec from its options."""
    feedback: bool = True
    """True if error feedback helps: not where rounding adds more than the numbers themselves, nor to votes."""


def kept(size: int, ratio: float) -> int:
    """Return how many of `size` numbers a sparse codec keeps: at least one."""
    return min(size, max(1, round(size * ratio)))


def number_text(number: float) -> str:
    """Return the shortest text from which the number can be read again: equal texts mean equal options."""
    return str(number).removesuffix(".0")
