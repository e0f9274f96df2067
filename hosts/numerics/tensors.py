"""State of one tensor in flight: its rounds, the data received so far, its sum (docs/design.md §3.3)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Final, Literal, Self, SupportsIndex, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors.values import Checks, shown
from ...wire.aggregation import LANES
from ...wire.fields import BY_NAME
from ..array_types import BoolArray, IntArray
from ..errors import CallMismatch, HostError, InvalidTensor, NoMean
from .datatypes import LARGEST_EXPONENT, DataType, FloatType, as_numbers
from .draws import Draws
from .encodings import ChunkPlace, encoding_of
from .quantization import Int32Array, index_of, not_finite

MAX_WEIGHTS: Final = BY_NAME["weight"].mask
"""Upper bound of the sum of all workers' weights."""
NonFinite = Literal["error", "propagate", "poison"]
Restore = Callable[[NDArray[Any]], Any]
"""Turns a result, in the type's storage, into an array of the kind that was handed in."""

_NO_DRAWS: Final = Draws()
_BLOCK_CHUNKS: Final = 256
"""Chunks whose exponents are computed at once, so that temporaries stay in cache."""
_PACKET_CHUNKS: Final = 120
"""Chunks of a batch of packets that are encoded or decoded at once: temporaries stay in cache, and those of four bytes
per lane below 128 KiB. The C library returns larger ones to the kernel after each use, whose new pages then cost more
than the numbers in them (mallopt(3), M_MMAP_THRESHOLD).
"""


def _as_stored(values: NDArray[Any]) -> Any:
    return values


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """The sum of one tensor over the workers."""

    name: str
    kind: DataType
    values: NDArray[Any]
    """The sum, of the submitted tensor's shape, as its type stores it."""
    weights: NDArray[np.uint32]
    """(C,) summed weight of each chunk. They differ only where a worker was lost in the middle of the tensor."""
    chunk_values: int | NDArray[np.int64] = LANES
    """Elements of a chunk; of each of them (C,), where the tensor was cut."""
    restore: Restore = _as_stored

    @property
    def array(self) -> Any:
        """The sum, of the shape and kind of the array that was handed in."""
        return self.restore(self.values)

    def mean(self) -> Any:
        """Return the sum divided by the summed weight, chunk by chunk: the weighted mean, if workers submit weight ·
        gradient.

        Of the shape and kind of `array`. Right also where a worker is missing from some chunks. The sum is already
        rounded to its type: its half an ulp is divided, too, and the mean of an infinite sum is infinite. `op="mean"`
        of the call divides before the rounding.

        Raises:
            NoMean: a chunk's weights sum to 0.
            InvalidTensor: the numbers are integers.
        """
        kind = self.kind
        if not isinstance(kind, FloatType):
            raise InvalidTensor(
                f"the mean of {kind.name} must be asked for when it is summed",
                place=f"tensor {self.name!r}",
                value=kind.name,
            )
        self.check_weights()
        sums, mean = self.values.ravel(), np.empty(self.values.size, kind.storage)
        if not isinstance(self.chunk_values, int):
            mean[:] = kind.narrow(
                np.divide(kind.widen(sums), np.repeat(self.weights, self.chunk_values), dtype=np.float64)
            )
            return self.restore(mean.reshape(self.values.shape))
        for chunk in range(0, len(self.weights), _BLOCK_CHUNKS):
            block = slice(chunk * self.chunk_values, (chunk + _BLOCK_CHUNKS) * self.chunk_values)
            weights = self.weights[chunk : chunk + _BLOCK_CHUNKS]
            divisors = weights[:1]
            if np.ptp(weights):  # a worker was lost
                divisors = np.repeat(weights, self.chunk_values)[: len(sums[block])]
            mean[block] = kind.narrow(np.divide(kind.widen(sums[block]), divisors, dtype=np.float64))
        return self.restore(mean.reshape(self.values.shape))

    def as_of_all(self, workers: int) -> NDArray[Any]:
        """Return the sum, of the submitted tensor's shape, times what it lacks: `workers` / the summed weight, chunk
        by chunk.

        Of parts of a mean, each divided by the number of workers and submitted with weight 1, it is their mean where
        workers were lost, too; the sum itself where none was. Raises as `mean` does.
        """
        kind = self.kind
        if (self.weights == workers).all():
            return self.values
        if not isinstance(kind, FloatType):
            raise InvalidTensor(
                f"{kind.name} cannot be scaled where a worker was lost", place=f"tensor {self.name!r}", value=kind.name
            )
        self.check_weights()
        divisors = np.repeat(self.weights, self.chunk_values)[: self.values.size].reshape(self.values.shape)
        return kind.narrow(kind.widen(self.values) * (workers / divisors.astype(np.float64)))

    def check_weights(self) -> None:
        """Raise NoMean if a chunk has no mean."""
        if not self.weights.all():
            raise NoMean("a chunk's weights sum to 0; submit positive weights", place=f"tensor {self.name!r}", value=0)


def _checked_weight(weight: SupportsIndex, workers: int, name: str) -> int:
    """Return a tensor's weight as an integer; NumPy's integers are accepted. Raises InvalidTensor."""
    most = MAX_WEIGHTS // workers
    try:
        number = operator.index(weight)
    except TypeError:
        raise InvalidTensor(
            f"weight {shown(weight)} is not an integer", place=f"tensor {name!r}", value=weight
        ) from None
    if not 0 <= number <= most:
        raise InvalidTensor(
            f"weight {shown(number)} is not in 0…{most}; the weights of {workers} workers may add up to "
            f"{MAX_WEIGHTS}, beyond which their sum would wrap",
            place=f"tensor {name!r}",
            value=number,
        )
    return number


class Tensor:
    """A tensor to be summed: P scale rounds, then C rounds with lanes. `local` rounds count from its first one.

    Local round l carries the exponent of chunk l (0 where there is none) and, from P on, the lanes of chunk l − P. The
    numbers of a chunk are kept until its sum arrives and takes their place, so that a tensor takes its own size once.
    After the loss of a worker the chunks without a sum get other rounds, see `agree_again`.
    """

    def __init__(
        self,
        array: ArrayLike,
        *,
        workers: int,
        lanes: int = LANES,
        name: str = "tensor",
        weight: int = 1,
        dtype: str | DataType | None = None,
        mean: bool = False,
        nonfinite: NonFinite = "error",
        signature: int | None = None,
        cuts: Iterable[int] = (),
        draws: Draws = _NO_DRAWS,
        keyed: bool = False,
        alone: bool = False,
        adds: BoolArray | None = None,
        wanted: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Copy a tensor for its sum over a job.

        Args:
            array: numbers of any shape and layout.
            workers: number of workers of the job at its start.
            lanes: number of lanes in the job's messages.
            name: name for error messages.
            weight: summed as well, such as the number of samples behind a gradient: at most (2³² − 1) / `workers`, so
                that the sum of all cannot wrap.
            dtype: type of the numbers if the array's own cannot express it ("bfloat16"), or its name.
            mean: return the sum of weight · x divided by the summed weight.
            nonfinite: treatment of NaN and infinity.
            signature: odd number of 32 bits, the same at all workers, see `CallMismatch`; None: unchecked.
            cuts: elements, in C order, at which another chunk begins. The parts on both sides of a cut share no
                exponent and are summed as if each were a tensor of its own.
            draws: seeds of lossy types.
            keyed: the job has a key, so that int32 takes lanes whose sums cannot wrap.
            alone: each int32 is one worker's, to which all others add zeros.
            adds: mask of the chunks (C,) that this worker adds numbers to; in the others its numbers are 0, and it
                sends no lanes. None: all.
            wanted: runs of elements in C order, each as first and end, whose sums this worker needs. The other elements
                of the result are undefined, but for those in a chunk with a needed one. None: all.

        Raises:
            InvalidTensor: the array cannot be summed; the error names tensor and element.
        """
        weight = _checked_weight(weight, workers, name)
        numbers, kind = as_numbers(array, name, dtype)
        cuts = as_cuts(cuts, name)
        try:
            encoding = encoding_of(
                kind,
                workers,
                lanes,
                mean=mean,
                propagate=nonfinite == "propagate",
                poison=nonfinite == "poison",
                keyed=keyed,
                alone=alone,
            )
            encoding.check_weight(weight)
        except InvalidTensor as error:
            raise error.within(f"tensor {name!r}") from None
        self._layers = _layers(name, numbers.size, cuts, encoding.values)
        count = sum(chunks for _, _, chunks in self._layers)
        self.name = name
        self.weight = weight
        self._encoding = encoding
        self._workers = workers
        self._signature = signature
        self._shape: tuple[int, ...] = numbers.shape
        self._draws = draws
        self._numbers = np.arange(count, dtype=np.uint32)
        self._sizes = np.full(count, encoding.values, np.int64)
        """Numbers of the tensor in each chunk, (C,)."""
        for (first, last), place in self._places():
            if last > first:
                self._sizes[(place + last - first - 1) // encoding.values] -= (first - last) % encoding.values
        self._adds = adds
        self._wanted = None if wanted is None else self._chunks_with(wanted)
        self._values = self._chunks(numbers, kind)
        self._own_exponents = self._prepare()
        self._agreed = np.zeros(count, np.uint8)
        self._weights = np.zeros(count, np.uint32)
        self.failure: HostError | None = None
        """Error that prevents the sum; None as long as a sum is possible."""
        self.place(0, 0, 1)

    def _prepare(self) -> NDArray[np.uint8]:
        """Prepare the values in place and return each chunk's exponent (C,). Raises InvalidTensor."""
        exponents = np.empty(len(self._numbers), np.uint8)
        for start in range(0, len(exponents), _BLOCK_CHUNKS):
            block = slice(start, start + _BLOCK_CHUNKS)
            largest = self._encoding.prepare(self._values[block], self.weight, self._place(block))
            if (beyond := largest > LARGEST_EXPONENT).any():
                raise self._complaint(start + int(beyond.argmax()))
            exponents[block] = largest
        return exponents

    def _chunks(self, numbers: NDArray[Any], kind: DataType) -> NDArray[Any]:
        """Return a copy of the tensor's numbers as chunks (count, v), each layer's last one filled with zeros."""
        chunks = np.empty((len(self._numbers), self._encoding.values), kind.storage)
        flat = chunks.ravel()
        if len(self._layers) > 1:
            flat[:] = 0
            apart = numbers.ravel()
            for (first, last), place in self._places():
                flat[place : place + last - first] = apart[first:last]
        else:
            flat[: numbers.size].reshape(numbers.shape)[...] = numbers
            flat[numbers.size :] = 0
        return chunks

    def _chunks_with(self, runs: Sequence[tuple[int, int]]) -> BoolArray:
        """Return the mask of the chunks that have elements of these runs, (C,). Raises InvalidTensor."""
        layers = np.array(self._layers, np.int64).reshape(-1, 3)
        first_chunks = np.cumsum(layers[:, 2]) - layers[:, 2]
        ends = np.zeros(len(self._numbers) + 1, np.int64)
        size = self._layers[-1][1]
        filled = [run for run in _as_runs(runs, self.name) if run[0] < run[1]]
        for run in filled:
            if run[0] < 0 or run[1] > size:
                raise InvalidTensor(
                    f"wanted elements {run[0]}…{run[1] - 1} are not among its {size}",
                    place=f"tensor {self.name!r}",
                    value=run,
                )
        bounds = np.array(filled, np.int64).reshape(-1, 2)
        for elements, step, behind in ((bounds[:, 0], 1, 0), (bounds[:, 1] - 1, -1, 1)):
            layer = np.searchsorted(layers[:, 1], elements, side="right")
            chunks = first_chunks[layer] + (elements - layers[layer, 0]) // self._encoding.values
            np.add.at(ends, chunks + behind, step)
        wanted: BoolArray = np.cumsum(ends[:-1]) > 0
        return wanted

    @property
    def wants_all(self) -> bool:
        """True if this worker needs the sums of all chunks."""
        return self._wanted is None

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers, filled up to whole chunks."""
        return self._values.nbytes

    def _place(self, chunks: IntArray | slice) -> ChunkPlace:
        return ChunkPlace(self._numbers[chunks], self._draws, self._sizes[chunks])

    def place(self, handle: int, start: int, lead: int) -> None:
        """Assign rounds to the tensor.

        Args:
            handle: Its number in the stream.
            start: Its first round.
            lead: Window by which all of the job's workers cut tensors.
        """
        self.handle = handle
        self._order: IntArray | None = None  # the chunks that its rounds sum, in this order; None: all
        self._passed_on: BoolArray | None = None  # mask of the chunks that later rounds sum
        self._lay(start, lead, self._own_exponents)
        self._open = np.array([self.end - start])
        self._delivered = np.zeros(1, np.bool_)

    def _lay(self, start: int, lead: int, exponents: NDArray[np.uint8]) -> None:
        """Lay rounds for chunks with these exponents, from `start` on."""
        count = len(exponents)
        self.start = start
        self.scale_rounds = min(lead, count)
        """P: its first rounds, which carry exponents and no lanes."""
        if not count and self._signature is not None:
            self.scale_rounds = 1  # to be compared, and to be a barrier
        self.end = start + self.scale_rounds + count
        self._carried = np.zeros(self.end - start, np.uint8)
        self._carried[:count] = exponents

    @property
    def remaining(self) -> int:
        """Number of rounds that are not complete here."""
        return int(self._open[0])

    @property
    def delivered(self) -> bool:
        """True once its sum was handed over; rounds that are summed again later change it no more."""
        return bool(self._delivered[0])

    def note_delivery(self) -> None:
        """Note that its sum was handed over."""
        self._delivered[0] = True

    def agree_again(self, final: BoolArray, start: int, lead: int) -> tuple[Self | None, BoolArray]:
        """Pass the chunks without a final sum on to later rounds, which agree on their exponents once more.

        Args:
            final: mask of this tensor's rounds that are final, (end − start,).
            start: first of the later rounds.
            lead: as in `place`.

        Returns:
            The tensor with the later rounds, or None if all are final, and the mask of the rounds that are still of
            use. Both tensors share the numbers, the sum, `delivered` and `remaining`, which does not change here.
        """
        if final.all():
            return None, final
        lanes = final[self.scale_rounds :]
        chunks = np.flatnonzero(~lanes)
        useful = final.copy()
        useful[: len(lanes)][: self.scale_rounds] &= lanes[: self.scale_rounds]
        if self._signature is not None:
            useful[0] = final[0]  # the calls are still to be compared
        if self._order is not None:
            chunks = self._order[chunks]
        if self._passed_on is None:
            self._passed_on = np.zeros(len(self._values), np.bool_)
        self._passed_on[chunks] = True
        later = copy(self)
        later._order, later._passed_on = chunks, None
        later._lay(start, lead, self._own_exponents[chunks])
        return later, useful

    def count_rounds(self, more: int) -> None:
        """Add to the number of rounds that are not complete here."""
        self._open += more

    def end_at(self, end: int) -> None:
        """Leave rounds from this one on to others."""
        self.end = min(self.end, end)

    @property
    def _chunk_count(self) -> int:
        """Number of chunks that its rounds sum: none of a later tensor that only compares the calls again."""
        return len(self._values) if self._order is None else len(self._order)

    def _chunks_of(self, places: IntArray) -> IntArray | slice:
        """Return the chunks at these places of the order in which its rounds sum them."""
        return _run(places if self._order is None else self._order[places])

    @property
    def may_wrap(self) -> bool:
        """True if the sum of a lane over the workers may exceed 32 bits."""
        return self._encoding.may_wrap

    @property
    def message_lanes(self) -> int:
        """Number of lanes in the messages that it was made for."""
        return self._encoding.lanes

    def cut(self, shares: Sequence[int]) -> list[Self]:
        """This tensor's chunks as tensors of sizes in these proportions, to be summed by as many jobs; the sums meet in
        this one again.
        """
        bounds = [len(self._values) * part // sum(shares) for part in accumulate(shares, initial=0)]
        pieces = []
        for first, last in pairwise(bounds):
            piece = type(self).__new__(type(self))
            piece.__dict__.update(self.__dict__)
            for field in ("_values", "_own_exponents", "_agreed", "_weights", "_numbers", "_sizes"):
                setattr(piece, field, getattr(self, field)[first:last])
            piece._adds = None if self._adds is None else self._adds[first:last]
            piece._wanted = None if self._wanted is None else self._wanted[first:last]
            piece._shape, piece._layers = piece._values.shape, []
            pieces.append(piece)
        return pieces

    # --- contributions of this worker ---

    def exponents(self, local: IntArray) -> NDArray[np.uint8]:
        """This worker's biased exponents that the local rounds carry."""
        return self._carried[local]

    def weights(self, local: IntArray) -> IntArray | int:
        """Return the weight of each local round, (k,) → (k,); the first round has the call's signature instead."""
        return self.weight if self._signature is None else np.where(local == 0, self._signature, self.weight)

    def adds_to(self, local: IntArray) -> BoolArray | bool:
        """Return whether this worker adds numbers, and not only zeros, in local rounds; (k,), of rounds ≥ P."""
        if self._adds is None or not self._chunk_count:
            return True
        return self._adds[self._chunks_of(np.maximum(local - self.scale_rounds, 0))]

    def wants(self, local: IntArray) -> BoolArray | bool:
        """Return whether this worker needs the sums of local rounds; (k,), of rounds ≥ P."""
        if self._wanted is None or not self._chunk_count:
            return True
        return self._wanted[self._chunks_of(np.maximum(local - self.scale_rounds, 0))]

    def lanes(self, local: IntArray, out: Int32Array | None = None) -> Int32Array:
        """Return this worker's lanes for local rounds ≥ P, whose exponents were agreed P rounds earlier.

        Args:
            local: Rounds of this tensor, (k,), from 0.
            out: Array for the lanes, int32 (k, lanes); None: a new one.

        Returns:
            Lanes, int32 (k, lanes).
        """
        if out is None:
            out = np.empty((len(local), self._encoding.lanes), np.int32)
        for rows, chunks in self._blocks(local):
            out[rows] = self._encoding.encode(
                self._values[chunks], self._agreed[chunks], self.weight, self._place(chunks)
            )
        return out

    def _blocks(self, local: IntArray) -> Iterator[tuple[slice, IntArray | slice]]:
        """Yield the rows of few local rounds ≥ P at a time, with the chunks that they sum."""
        chunks = self._chunks_of(local - self.scale_rounds)
        for start in range(0, len(local), _PACKET_CHUNKS):
            end = min(start + _PACKET_CHUNKS, len(local))
            if isinstance(chunks, slice):
                yield slice(start, end), slice(chunks.start + start, chunks.start + end)
            else:
                yield slice(start, end), chunks[start:end]

    # --- results ---

    def add_results(self, local: IntArray, exponents: IntArray, weights: IntArray, lanes: Int32Array | None) -> None:
        """Note results of local rounds.

        Args:
            local: Rounds of this tensor, (k,), from 0.
            exponents: Agreed biased exponents that they carry, (k,).
            weights: Summed weights, (k,).
            lanes: Summed lanes (k, lanes) of rounds ≥ P; None for scale rounds, which are before P, and for rounds that
                this worker does not want.
        """
        if self._signature is not None and len(first := np.flatnonzero(local == 0)):
            self._compare(int(weights[first[0]]))
        carrying = np.flatnonzero(local < self._chunk_count)
        carried = local[carrying] if self._order is None else self._order[local[carrying]]
        if self._passed_on is not None:
            kept = ~self._passed_on[carried]
            carrying, carried = carrying[kept], carried[kept]
        self._agreed[carried] = exponents[carrying]
        if lanes is not None:
            for rows, chunks in self._blocks(local):
                self._values[chunks] = self._encoding.decode(
                    lanes[rows], self._agreed[chunks], weights[rows], self._place(chunks)
                )
                self._weights[chunks] = weights[rows]
        elif not self.wants_all and len(ended := np.flatnonzero(local >= self.scale_rounds)):
            self._weights[self._chunks_of(local[ended] - self.scale_rounds)] = weights[ended]
        self._open -= len(local)

    def contributed(self, array: ArrayLike) -> NDArray[Any]:
        """Return what this worker added to the finished sum: the decoded lanes of its own numbers alone.

        Args:
            array: The array that this tensor was made of, with weight 1.

        Returns:
            The numbers, of the tensor's shape; equal to `array` only if the type loses nothing.
        """
        alone = replace(self._encoding, mean=False)
        numbers, kind = as_numbers(array, self.name, self._encoding.kind)
        chunks = self._chunks(numbers, kind)
        for start in range(0, len(chunks), _BLOCK_CHUNKS):
            block = slice(start, start + _BLOCK_CHUNKS)
            place, agreed = self._place(block), self._agreed[block]
            alone.prepare(chunks[block], 1, place)
            lanes = alone.encode(chunks[block], agreed, 1, place)
            chunks[block] = alone.decode(lanes, agreed, np.ones(len(lanes), np.int64), place)
        return self._joined(chunks)

    def _joined(self, chunks: NDArray[Any]) -> NDArray[Any]:
        """Return the numbers of chunks (count, v) in the tensor's shape."""
        flat = chunks.ravel()
        if len(self._layers) <= 1:
            return flat[: math.prod(self._shape)].reshape(self._shape)
        parts = [flat[place : place + last - first] for (first, last), place in self._places()]
        return np.concatenate(parts).reshape(self._shape)

    def reduced(self) -> Reduced:
        """Return the finished sum, in this tensor's own memory where it was not cut and all of it is wanted."""
        values, weights = self._values, self._weights
        if self._wanted is not None:  # chunks that are not wanted may be summed again, from the same numbers
            values, weights = np.zeros_like(values), weights.copy()
            np.copyto(values, self._values, where=self._wanted[:, None])
        chunk_values = self._encoding.values if len(self._layers) <= 1 else self._sizes
        return Reduced(self.name, self._encoding.kind, self._joined(values), weights, chunk_values)

    def _places(self) -> Iterator[tuple[tuple[int, int], int]]:
        """Yield each layer's elements, as first and end, and the first of its chunks."""
        place = 0
        for first, last, chunks in self._layers:
            yield (first, last), place
            place += chunks * self._encoding.values

    # --- validation ---

    def _compare(self, total: int) -> None:
        """Summed signatures are k times one's own, for some k of the n workers, if all are the same.

        Signatures are odd, so that they have an inverse modulo 2³². Another worker's passes by chance, n in 2³¹.
        """
        assert self._signature is not None
        times = total * pow(self._signature, -1, 1 << 32) % (1 << 32)
        if not 1 <= times <= self._workers:
            self.failure = CallMismatch(
                f"the workers do not make the same call here; this one's is of shape "
                f"{self._shape}, {self._encoding.kind.name}. Every worker must make the same calls in the same order, "
                "with the same names, shapes, types and operations",
                place=f"tensor {self.name!r}",
                value=self._shape,
            )

    def _complaint(self, chunk: int) -> InvalidTensor:
        """About the first element of a chunk that cannot be summed."""
        encoding = self._encoding
        kind, values = encoding.kind, self._values[chunk]
        finite = kind.is_finite(values)
        index = encoding.refused(values, self.weight) if finite.all() else int((~finite).argmax())
        value, place = kind.number(values, index), chunk * encoding.values + index
        first, start = [(first, start) for (first, _), start in self._places() if start <= place][-1]  # of its layer
        flat = first + place - start
        if not finite.all():
            return not_finite(self.name, flat, self._shape, value)
        return InvalidTensor(
            f"element {flat} (index {index_of(flat, self._shape)}) is {value}, which times its "
            f"weight {self.weight} is too large for a mean of {kind.name} over {self._workers} workers",
            place=f"tensor {self.name!r}",
            value=flat,
        )


def as_cuts(cuts: Iterable[int], name: str) -> tuple[int, ...]:
    """Return the elements at which a tensor is cut, from any iterable of integers: a list, an array, an iterator.

    Raises:
        InvalidTensor: the value is not iterable, or an element is not an integer.
    """
    try:
        return tuple(map(operator.index, cuts))
    except TypeError:
        raise InvalidTensor(
            f"cuts {shown(cuts)} are not integers; give the elements' numbers", place=f"tensor {name!r}", value=cuts
        ) from None


def _as_runs(runs: Iterable[tuple[int, int]], name: str) -> list[tuple[int, int]]:
    """Return runs of elements as pairs of Python's integers. Raises InvalidTensor."""
    try:
        return [(operator.index(first), operator.index(end)) for first, end in runs]
    except (TypeError, ValueError):
        raise InvalidTensor(
            f"wanted {shown(runs)} are not runs of elements; give each as its first element and its end",
            place=f"tensor {name!r}",
            value=runs,
        ) from None


def ends_of(cuts: Sequence[int], size: int, name: str) -> list[int]:
    """Return the ends of a tensor's parts: 0, the elements at which it is cut, and its size.

    Raises:
        InvalidTensor: The cuts do not ascend strictly between 0 and the size.
    """
    ends = [0, *cuts, size]
    if cuts and any(first >= last for first, last in pairwise(ends)):
        raise InvalidTensor(
            f"cuts {shown(list(cuts))} do not ascend from 1 to {size - 1}; each is the first element of a part",
            place=f"tensor {name!r}",
            value=list(cuts),
        )
    return ends


def _layers(name: str, size: int, cuts: Sequence[int], chunk_values: int) -> list[tuple[int, int, int]]:
    """First element, the one behind the last, and chunks of every part of a tensor that is cut there."""
    return [(first, last, -(-(last - first) // chunk_values)) for first, last in pairwise(ends_of(cuts, size, name))]


def _run(numbers: IntArray) -> IntArray | slice:
    """Numbers as a slice, which copies nothing, where they are a run."""
    first, count = int(numbers[0]), len(numbers)
    if count > 1 and (int(numbers[-1]) - first != count - 1 or np.count_nonzero(numbers[1:] - numbers[:-1] != 1)):
        return numbers
    return slice(first, first + count)


def reference_sum(
    arrays: Sequence[ArrayLike],
    *,
    workers: int | None = None,
    lanes: int = LANES,
    name: str = "tensor",
    weights: Sequence[int] | None = None,
    dtype: str | DataType | None = None,
    mean: bool = False,
    nonfinite: NonFinite = "error",
    cuts: Iterable[int] = (),
    seed: int = 0,
) -> NDArray[Any]:
    """Compute the sum that every fabric must return, bit for bit.

    After the loss of a worker each chunk is the sum either of all workers or of the survivors, as its weight shows.

    Args:
        arrays: one array per worker, of one shape and type.
        workers: the job's size at its start, which sets the scale; the number of arrays by default. After the loss of a
            worker it is larger than that.
        lanes: number of lanes in the job's messages.
        name: name for error messages.
        weights: weight per worker, 1 by default.
        dtype: type of the numbers if the arrays' own cannot express it.
        mean: return the weighted mean.
        nonfinite: treatment of NaN and infinity, as in the job.
        cuts: elements at which a new chunk begins.
        seed: seed of a lossy type's call.

    Raises:
        InvalidTensor: the arrays cannot be summed.
    """
    checks = Checks(InvalidTensor, f"tensor {shown(name)}")
    contributions: list[Any] = checks.items("arrays", arrays, "arrays, one for each worker")
    if not contributions:
        raise InvalidTensor("no arrays to sum", place=f"tensor {name!r}", value=arrays)
    count = len(contributions) if workers is None else checks.integer("workers", workers, 1, MAX_WEIGHTS)
    checks.choice("nonfinite", nonfinite, get_args(NonFinite))
    lanes, mean = checks.integer("lanes", lanes, 1, LANES), checks.flag("mean", mean)
    seed = checks.integer("seed", seed, -(1 << 63))
    if weights is not None and len(weights := checks.items("weights", weights, "integers")) != len(contributions):  # type: ignore[assignment]
        raise checks.refuse("weights", weights, f"are not {len(contributions)}, one for each array")
    if count < len(contributions):
        raise InvalidTensor(
            f"{len(contributions)} arrays for a job of {count} workers",
            place=f"tensor {name!r}",
            value=len(contributions),
        )
    shape = np.shape(contributions[0])
    ends = as_cuts(cuts, name)
    tensors = []
    for rank, array in enumerate(contributions):
        if np.shape(array) != shape:
            raise InvalidTensor(
                f"array {rank} has shape {np.shape(array)}, array 0 has {shape}", place=f"tensor {name!r}", value=rank
            )
        tensors.append(
            Tensor(
                array,
                workers=count,
                lanes=lanes,
                name=f"{name} of worker {rank}",
                weight=1 if weights is None else weights[rank],
                dtype=dtype,
                mean=mean,
                nonfinite=nonfinite,
                cuts=ends,
                draws=Draws(seed, rank),
            )
        )
    sum_locally(tensors, tensors[:1])
    return tensors[0].reduced().values


def sum_locally(tensors: Sequence[Tensor], takers: Sequence[Tensor]) -> None:
    """Sum the tensors of all workers of a job here, as any fabric does; `takers`, some of them, then have the sum.

    They were made for messages of as many lanes.
    """
    for tensor in tensors:
        tensor.place(tensor.handle, 0, lead=tensor.end)
    alike = tensors[0]
    for local in np.split(np.arange(alike.end), [alike.scale_rounds]):  # all exponents first, then all lanes
        exponents = np.zeros(len(local), np.int64)
        totals = np.zeros(len(local), np.uint32)  # as the header's field has it
        sums = np.zeros((len(local), alike.message_lanes), np.int32) if len(local) and local[0] else None
        for tensor in tensors:
            np.maximum(exponents, tensor.exponents(local), out=exponents)
            totals += np.asarray(tensor.weights(local), np.uint32)
            if sums is not None:
                sums += tensor.lanes(local)
        for tensor in tensors:
            taken = None if sums is None or tensor not in takers else sums.copy()
            tensor.add_results(local, exponents, totals.astype(np.int64), taken)
