"""Deep gradient compression: sampled top-k with momentum correction and masking, by all-gather (Lin et al., 2018)."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidTensor
from ...numerics.quantization import Float32Array
from ..codec import Codec, CodecDescription, number_text
from ..states import State, check_size, checked_numbers, split
from .graddrop import GradDrop

_VELOCITY: Final = "velocity/"
_ACCUMULATED: Final = "accumulated/"


class DeepGradientCompression(GradDrop):
    """Each worker accumulates its own velocity; what is sent is removed from velocity and accumulation."""

    def __init__(self, ratio: float, momentum: float) -> None:
        super().__init__("dgc", ratio)
        if not 0 <= momentum < 1:
            raise InvalidTensor(
                f"momentum must be at least 0 and below 1, got {momentum}", place="codec dgc", value=momentum
            )
        self.name = f"dgc({number_text(ratio)}, {number_text(momentum)})"
        self._momentum = np.float32(momentum)
        self._velocity: dict[str, Float32Array] = {}
        self._accumulated: dict[str, Float32Array] = {}

    @property
    def keeps_residuals(self) -> bool:
        return True

    def compensate(self, name: str, values: Float32Array) -> Float32Array:
        zeros = np.zeros_like(values)
        velocity, accumulated = self._velocity.get(name, zeros), self._accumulated.get(name, zeros)
        check_size(velocity, values, "velocity", name)
        check_size(accumulated, values, "accumulation", name)
        self._velocity[name] = velocity * self._momentum + values
        return accumulated + self._velocity[name]

    def update(self, name: str, values: Float32Array, sent: Float32Array) -> None:
        gone = (sent != 0) | ~np.isfinite(values)  # a NaN would stay for ever
        self._accumulated[name] = np.where(gone, np.float32(0), values)
        self._velocity[name][gone] = 0

    def state_dict(self) -> State:
        return {
            **{f"{_VELOCITY}{name}": array.copy() for name, array in self._velocity.items()},
            **{f"{_ACCUMULATED}{name}": array.copy() for name, array in self._accumulated.items()},
        }

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        velocities, rest = split(state, _VELOCITY)
        accumulations, rest = split(rest, _ACCUMULATED)
        found = (
            checked_numbers(velocities, _VELOCITY, self.name),
            checked_numbers(accumulations, _ACCUMULATED, self.name),
        )
        super().load_state_dict(rest)
        self._velocity, self._accumulated = found


def make(ratio: float = 0.01, momentum: float = 0.9) -> Codec:
    """Create DGC; the optimiser then has no momentum of its own."""
    return DeepGradientCompression(ratio, momentum)


DESCRIPTION: Final = CodecDescription("dgc", "sampled top-k with momentum correction, by all-gather", make)
