"""Compressed sums and means: a codec's state over the calls of one worker, and how its codes use the fabric.

Homomorphic codecs are summed by the switches. Codes of others travel to all workers, who decode and add them in the
order of ranks, so that all have the same bits.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors.values import Checks
from ..compression.codec import Codec, Context
from ..compression.codecs import CODECS, file_details, make_codec
from ..compression.feedback import ErrorFeedback
from ..compression.language.codec import ENDING
from ..compression.states import State, checked_calls, owned, split
from ..compression.trial import one_code_error
from ..errors import InvalidTensor
from ..numerics.datatypes import DataType, FloatType, as_numbers
from ..numerics.draws import Draws, mixed
from ..numerics.lane_codes import LaneType
from ..numerics.quantization import Float32Array
from ..numerics.tensors import Reduced
from .gathering import Gathering, array_of, words_of
from .operation import OperationCall, Started, narrowed

_OPERATIONS: Final = ("sum", "mean")
_CALLS: Final = "calls/"
_CODEC: Final = "codec"


class Compression:
    """Lossy compression of one worker's calls: a codec, its residuals by the names of arrays, and a seed.

    Every worker creates its own object with the same arguments. Residuals belong to a name, so arrays of several sizes
    need several names.
    """

    def __init__(self, codec: Codec, *, seed: int = 0, details: str = "") -> None:
        """Compress by this codec.

        Args:
            codec: Such as `make_codec` creates.
            seed: Of random numbers, the same at every worker.
            details: What workers compare of the codec besides its name.
        """
        self.codec = codec
        self._seed = seed
        self._details = details
        self._calls: dict[str, int] = {}
        """Calls by the name of their array: each has random numbers of its own."""

    @classmethod
    def packed(cls, bits: int = 8, *, rotated: bool = True, feedback: bool = True, seed: int = 0) -> Compression:
        """Return packed numbers of 15, 10, 8, 7 or 6 bits, which take 2.0, 1.33, 1.0, 1.0 or 0.8 bytes a number.

        Args:
            bits: Bits of the field that holds the sum of the workers' codes: 6, 7, 8, 10 or 15.
            rotated: True to rotate chunks before they are quantised, which spreads outliers.
            feedback: True for error feedback: what a code loses is added to the next array of the same name.
            seed: Seed of random numbers, the same at every worker.

        Raises:
            InvalidTensor: There are no packed numbers of so many bits.
        """
        return cls.named("packed", feedback=feedback, seed=seed, bits=bits, rotated=rotated)

    @classmethod
    def named(cls, codec: str, *, feedback: bool | None = None, seed: int = 0, **options: Any) -> Compression:
        """Return compression by a codec's name, or by the path of a Python file with one.

        Args:
            codec: Name or path; docs/compression.md lists the names.
            feedback: True to wrap the codec in error feedback, unless it keeps residuals itself; None: if that helps
                the codec. Its description says so; for a file in CompLL it is the case if the error of one code is at
                most the numbers themselves (`one_code_error`).
            seed: Seed of random numbers, the same at every worker.
            **options: Options of the codec.

        Raises:
            InvalidTensor: The codec, an option or its value is unknown.
        """
        checks = Checks(InvalidTensor, "compression")
        made, seed = make_codec(codec, **options), checks.integer("seed", seed, -(1 << 63))
        if feedback is not None:
            feedback = checks.flag("feedback", feedback)
        elif codec.endswith(ENDING):
            feedback = one_code_error(make_codec(codec, **{**options, "native": False})) <= 1  # not compiled: same bits
        else:
            feedback = CODECS.describe(codec).feedback
        wrapped = ErrorFeedback(made) if feedback and not made.keeps_residuals else made
        return cls(wrapped, seed=seed, details=file_details(codec, options))

    @property
    def name(self) -> str:
        """Codec, options and seed: all workers must have the same."""
        return f"{self.codec.name}{self._details}, seed {self._seed}"

    def state_dict(self) -> State:
        """Return residuals and counts of calls, as arrays by name, for checkpoints."""
        calls: State = {f"{_CALLS}{name}": np.array(count) for name, count in self._calls.items()}
        return {**self.codec.state_dict(), **calls, _CODEC: np.array(self.name)}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a checkpoint.

        Args:
            state: Residuals and counts of calls, as `state_dict` returned them.

        Raises:
            InvalidTensor: It was saved from another codec, or with other options or another seed; or an entry is
                unknown or has another type or shape. Nothing has changed then.
        """
        calls, rest = split(owned(state, self.name, _CODEC), _CALLS)
        counts = checked_calls(calls, _CALLS, self.name)
        self.codec.load_state_dict(rest)
        self._calls = counts

    def next_seed(self, name: str) -> int:
        """Return the seed of the next call of an array's name, an integer of 64 bits; each call advances it."""
        count = self._calls[name] = self._calls.get(name, 0) + 1
        return mixed(self._seed, zlib.crc32(name.encode()), count)

    def start(self, call: OperationCall, op: str) -> Started:
        """Start a sum or a mean of a call's array.

        Args:
            call: The call, with an array of a floating type and weight 1.
            op: "sum" or "mean".

        Raises:
            InvalidTensor: The array, a weight or the operation cannot be compressed.
        """
        if op not in _OPERATIONS:
            raise InvalidTensor(
                f"op={op!r} cannot be compressed", place=f"tensor {call.name!r}", value=op, allowed=_OPERATIONS
            )
        if call.weight != 1:
            raise InvalidTensor(
                f"weight {call.weight}; compression counts every worker alike",
                place=f"tensor {call.name!r}",
                value=call.weight,
            )
        numbers, kind = as_numbers(call.values, call.name, call.dtype)
        if not isinstance(kind, FloatType):
            raise InvalidTensor(
                f"{kind.name} cannot be compressed; floating types can", place=f"tensor {call.name!r}", value=kind.name
            )
        with np.errstate(over="ignore"):
            values = np.array(kind.widen(numbers), np.float32).ravel()
        if call.nonfinite != "error" and not isinstance(self.codec.kind, LaneType):
            raise InvalidTensor(
                f"nonfinite={call.nonfinite!r}; codes of {self.codec.name} may leave out a NaN",
                place=f"tensor {call.name!r}",
                value=call.nonfinite,
                allowed=("error",),
            )
        call.check_finite(numbers, kind, np.isfinite(values))
        values = self.codec.compensate(call.name, values)
        draws = Draws(self.next_seed(call.name), call.rank)
        encoder = _OneCall(self.codec, call, kind, op == "mean", values, Context(values.size, call.workers, draws))
        return encoder.start_presum() or encoder.send(encoder.context)


@dataclass(frozen=True, slots=True)
class _OneCall:
    """One compressed call on its way."""

    codec: Codec
    call: OperationCall
    kind: FloatType
    mean: bool
    values: Float32Array
    """Compensated numbers, (size,)."""
    context: Context

    def start_presum(self) -> Started | None:
        """Sum what the codec asks for first; None if it asks for nothing."""
        wanted = self.codec.presum(self.values, self.context)
        if wanted is None:
            return None
        tensor = self.call.tensor(wanted, nonfinite=self.call.nonfinite)
        return Started(tensor, lambda reduced: self.send(replace(self.context, agreed=reduced.values)))

    def send(self, context: Context) -> Started:
        """Sum codes in the switches, or gather them."""
        code = self.codec.encode(self.values, context)
        if (kind := self.codec.kind) is None:
            return self._gathered(code, context)
        return self._summed(code, kind, context)

    def _summed(self, code: NDArray[Any], kind: DataType, context: Context) -> Started:
        lanes = isinstance(kind, LaneType)
        tensor = self.call.tensor(
            code,
            dtype=kind,
            mean=self.mean,
            nonfinite=self.call.nonfinite,
            draws=context.draws,
            cuts=self.call.cuts if lanes else (),
        )

        def finish(reduced: Reduced) -> NDArray[Any]:
            if self.mean:
                reduced.check_weights()
            own = tensor.contributed(code) if lanes and self.codec.keeps_residuals else code
            return self._result(self.codec.decode(reduced.values, context), own, context)

        return Started(tensor, finish)

    def _gathered(self, code: NDArray[Any], context: Context) -> Started:
        words = words_of(code)
        gathering = Gathering(self.call.workers, len(words), self.call.lanes)

        def finish(reduced: Reduced) -> NDArray[Any]:
            parts, pieces = gathering.parts(reduced.values, self.call.rank, words)
            there = np.flatnonzero(pieces.all(axis=1))
            codes = [array_of(parts[rank], code.dtype, code.shape) for rank in there]
            total = self.codec.merge(codes, context)
            if self.mean:
                total /= np.float32(max(len(codes), 1))
            return self._result(total, code, context)

        contribution = gathering.contribution(self.call.rank, words)
        return Started(self.call.tensor(contribution, **gathering.part_of(self.call.rank)), finish)

    def _result(self, total: Float32Array, sent: NDArray[Any], context: Context) -> NDArray[Any]:
        """Return the result in the array's type and shape, after the codec has noted what it sent."""
        self.codec.update(self.call.name, self.values, self.codec.decode(sent, context))
        return narrowed(total, self.kind, self.call.values.shape)
