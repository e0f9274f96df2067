"""Interface of a collective operation, and the ways in which operations use the fabric.

`summed` lets the switches add: traffic of one array, whatever the number of workers. `gathered` carries every worker's
array to all workers, who combine them: n times the traffic and n times the memory. `Stepped` is for operations of
several exchanges, each of which depends on the ones before: sums, gatherings, messages to single workers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidTensor
from ..numerics.datatypes import DataType, FloatType, as_numbers
from ..numerics.quantization import not_finite
from ..numerics.tensors import NonFinite, Reduced, Tensor
from .gathering import Gathering, words_of


class PendingExchange(Protocol):
    """An exchange on its way: a collective call, or a call on the transport."""

    def done(self) -> bool:
        """True if `wait` returns, or raises, at once."""

    def wait(self, timeout_s: float | None = None) -> Any:
        """Return the result."""


class PeerMessages(Protocol):
    """The part of a `Transport` that operations use."""

    def send_async(self, peer: int, value: object) -> PendingExchange:
        """Same contract as `Transport.send_async`."""

    def recv_async(self, peer: int) -> PendingExchange:
        """Same contract as `Transport.recv_async`."""


@runtime_checkable
class Members(Protocol):
    """The part of a `Communicator` that operations use."""

    @property
    def rank(self) -> int:
        """Rank of this worker, 0…`size` − 1."""

    @property
    def size(self) -> int:
        """Number of workers at the start."""

    @property
    def transport(self) -> PeerMessages:
        """Messages between two workers."""

    def allreduce_async(
        self, array: Any, *, name: str, nonfinite: NonFinite = "error", cuts: Iterable[int] = ()
    ) -> PendingExchange:
        """Same contract as `Communicator.allreduce_async`."""

    def all_gather_async(self, array: Any, *, name: str) -> PendingExchange:
        """Same contract as `Communicator.all_gather_async`."""

    def broadcast_async(self, array: Any, root: int = 0, *, name: str) -> PendingExchange:
        """Same contract as `Communicator.broadcast_async`."""


Steps = Generator[Sequence[PendingExchange], list[Any], NDArray[Any]]
"""Yields exchanges that are under way together, is sent their results, and returns the operation's result."""


@dataclass(frozen=True, slots=True)
class OperationCall:
    """One worker's part in a reduction."""

    values: NDArray[Any]
    """The worker's array, of any shape."""
    name: str
    weight: int
    dtype: str | None
    """Name of the type, if the array's own type does not express it."""
    nonfinite: NonFinite
    cuts: Sequence[int]
    signature: int
    """Hash of the call, which all workers must have in common."""
    rank: int
    workers: int
    lanes: int
    """Lanes of the job's messages."""
    keyed: bool = False
    """True if the job has a key."""
    rack: Members | None = None
    """The workers whose arrays are summed before the operation, where it is taken among such groups."""
    wanted: Sequence[tuple[int, int]] | None = None
    """Runs of elements whose results this worker needs, as `Tensor` has them; None: all."""
    memory: dict[str, Any] = field(default_factory=dict)
    """Contents that an operation keeps from one call to the next of this name; empty at the first."""

    def tensor(self, values: NDArray[Any], **options: Any) -> Tensor:
        """Return a tensor of this call that carries `values`."""
        return Tensor(
            values,
            workers=self.workers,
            lanes=self.lanes,
            keyed=self.keyed,
            name=self.name,
            signature=self.signature,
            **options,
        )

    def floats(self, op: str) -> tuple[NDArray[Any], FloatType]:
        """Return the array's numbers in their storage type, and that type. Raises InvalidTensor for integers."""
        numbers, kind = as_numbers(self.values, self.name, self.dtype)
        if not isinstance(kind, FloatType):
            place = f"tensor {self.name!r}"
            raise InvalidTensor(f"op={op!r} needs floating numbers, not {kind.name}", place=place, value=kind.name)
        return numbers, kind

    def check_finite(self, numbers: NDArray[Any], kind: DataType, finite: NDArray[np.bool_]) -> None:
        """Raise InvalidTensor that names the first number that is not finite, if such numbers are errors."""
        if self.nonfinite == "error" and not finite.all():
            flat = int((~finite).argmax())
            raise not_finite(self.name, flat, numbers.shape, kind.number(numbers.reshape(-1), flat))


def narrowed(values: NDArray[Any], kind: FloatType, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a result (size,) in the storage type and the shape of a call's array."""
    return kind.narrow(values.astype(np.float64)).reshape(shape)


class Started(NamedTuple):
    """A worker's tensor to submit, and the function that makes the result of its sum."""

    tensor: Tensor
    finish: Callable[[Reduced], NDArray[Any] | Started]
    """Result, of the shape and storage type of the call's array, the same bits at every worker; or the tensor that is
    to be summed next, which all workers start alike.
    """


class Stepped(NamedTuple):
    """An operation of several exchanges, the first of which is a sum whose name has the signature of the call."""

    steps: Callable[[Members], Steps]
    """Result, of the shape and storage type of the call's array; the same bits at every worker."""


@dataclass(frozen=True, slots=True)
class OperationDescription:
    """A collective operation as it is registered: one in each module of `operations`, as DESCRIPTION."""

    name: str
    """Value of the argument `op`."""
    summary: str
    """Result in one line, with x for the workers' arrays."""
    start: Callable[[OperationCall], Started | Stepped]
    """Prepare one call. Raises InvalidTensor for numbers that the operation cannot take."""
    weighted: bool = False
    """True if workers' weights count; others refuse a weight."""
    racked: bool = False
    """True if the operation can be taken among racks; others refuse a rack."""
    keeps: bool = False
    """True if the operation uses `OperationCall.memory`."""


Combine = Callable[[NDArray[Any], NDArray[np.bool_], DataType], NDArray[Any]]
"""Combine the workers' numbers (n, size), of which those are there that the mask (n, size) says, into (size,)."""


def summed(call: OperationCall, *, mean: bool = False) -> Started:
    """Sum in the fabric; with `mean`, divide by the summed weights and round once."""
    tensor = call.tensor(
        call.values,
        weight=call.weight,
        dtype=call.dtype,
        mean=mean,
        nonfinite=call.nonfinite,
        cuts=call.cuts,
        wanted=call.wanted,
    )

    def finish(reduced: Reduced) -> NDArray[Any]:
        if mean:
            reduced.check_weights()
        return reduced.values

    return Started(tensor, finish)


def gathered(call: OperationCall, combine: Combine) -> Started:
    """Carry every worker's array to all, who combine them element by element."""
    numbers, kind = as_numbers(call.values, call.name, call.dtype)
    call.check_finite(numbers, kind, kind.is_finite(numbers))
    words = words_of(numbers)
    gathering = Gathering(call.workers, len(words), call.lanes)

    def finish(reduced: Reduced) -> NDArray[Any]:
        parts, there = gathering.numbers(reduced.values, call.rank, words, kind, numbers.size)
        return combine(parts, there, kind).reshape(numbers.shape)

    contribution = gathering.contribution(call.rank, words)
    return Started(call.tensor(contribution, **gathering.part_of(call.rank)), finish)
