"""Error feedback around any codec: what a code loses of a gradient is added to the next one of the same name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..numerics.datatypes import DataType
from ..numerics.quantization import Float32Array
from .codec import Codec, Context
from .states import State, check_size, checked_numbers, split

_RESIDUAL: Final = "residual/"


class ErrorFeedback(Codec):
    """A codec with a residual for each tensor (Seide et al., 2014; Karimireddy et al., 2019)."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.name = f"{codec.name}+feedback"
        self._residuals: dict[str, Float32Array] = {}

    @property
    def kind(self) -> DataType | None:
        return self.codec.kind

    @property
    def keeps_residuals(self) -> bool:
        return True

    def presum(self, values: Float32Array, context: Context) -> Float32Array | None:
        return self.codec.presum(values, context)

    def compensate(self, name: str, values: Float32Array) -> Float32Array:
        values = self.codec.compensate(name, values)
        residual = self._residuals.get(name)
        if residual is None:
            return values
        check_size(residual, values, "residual", name)
        return values + residual

    def encode(self, values: Float32Array, context: Context) -> NDArray[Any]:
        return self.codec.encode(values, context)

    def decode(self, code: NDArray[Any], context: Context) -> Float32Array:
        return self.codec.decode(code, context)

    def merge(self, codes: Sequence[NDArray[Any]], context: Context) -> Float32Array:
        return self.codec.merge(codes, context)

    def update(self, name: str, values: Float32Array, sent: Float32Array) -> None:
        """Keep the difference; 0 where it is not finite, so that a NaN does not stay for ever."""
        self.codec.update(name, values, sent)
        with np.errstate(invalid="ignore"):
            residual = values - sent
        residual[~np.isfinite(residual)] = 0
        self._residuals[name] = residual

    def bytes_on_wire(self, size: int, workers: int) -> int:
        return self.codec.bytes_on_wire(size, workers)

    def state_dict(self) -> State:
        own: State = {f"{_RESIDUAL}{name}": residual.copy() for name, residual in self._residuals.items()}
        return {**self.codec.state_dict(), **own}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        residuals, rest = split(state, _RESIDUAL)
        found = checked_numbers(residuals, _RESIDUAL, self.name)
        self.codec.load_state_dict(rest)
        self._residuals = found
