"""Communication hooks of DistributedDataParallel that compress gradients, over any back end.

::

    bucket ─ compensate by parameter ─▶ encode ─▶ all_reduce of int32 lanes ─▶ decode ─▶ mean, into the bucket
                                          │         (all_gather of codes that cannot be summed)
                                          └─ update by parameter, with what the own code decodes to

The back end weir sums int32 lanes in the switches; others sum them as they sum int32. Codecs run on the CPU in NumPy.
State belongs to parameters, not to buckets, which DistributedDataParallel builds again after the first step.

PyTorch compares the annotations of hooks with its classes, so this module does not postpone their evaluation.
"""

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.futures import Future

from ...collectives.compression import Compression
from ...compression.codec import Codec, Context
from ...compression.states import State, check_numbered, checked_calls, owned, split
from ...numerics.draws import Draws, mixed
from ...numerics.encodings import ChunkPlace, Encoding, encoding_of
from ...numerics.lane_codes import LARGEST_SCALE, NAN_CODE, LaneType
from ...numerics.quantization import Float32Array
from .agreement import check_alike
from .group_queues import settle

Finish = Callable[[], tuple[Float32Array, Float32Array]]
"""Returns a sum of numbers (size,), and what this rank's own code decodes to."""

_log = logging.getLogger(__name__)

_CALLS: Final = "calls/"
_HOOK: Final = "hook"


class CodecState:
    """State of a hook: a codec, and what this rank has not sent of each parameter's gradients."""

    def __init__(
        self,
        codec: str,
        *,
        process_group: Any = None,
        feedback: bool | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        """Create the state of one model's hook, alike at every rank.

        Args:
            codec: Name of a codec, or the path of a Python file with one (docs/compression.md).
            process_group: Group whose ranks train together; None: the default one.
            feedback: Wrap the codec in error feedback; None: if that helps it.
            seed: Of random numbers, the same at every rank.
            **options: Options of the codec.

        Raises:
            InvalidTensor: The codec, an option or its value is unknown.
        """
        compression = Compression.named(codec, feedback=feedback, seed=seed, **options)
        self.codec: Codec = compression.codec
        self.process_group = process_group
        self._seed = seed
        self._words = compression.name
        self._warned = False
        self._compared: Callable[[], Any] = lambda: None
        """Returns the group whose ranks have compared their states, if it is still there."""
        self._calls: dict[int, int] = {}
        """Calls by the bucket's index."""
        self._names: dict[torch.Tensor, str] = {}
        """Names of parameters: their places in the order in which they first came."""

    def names(self, parameters: Sequence[torch.Tensor]) -> list[str]:
        """Return the names of parameters, by which their state is kept."""
        return [self._names.setdefault(parameter, str(len(self._names))) for parameter in parameters]

    def words(self) -> str:
        """Return what all ranks must have alike: the codec, its options, the seed, and the calls before."""
        calls = ", ".join(f"{count} of bucket {bucket}" for bucket, count in sorted(self._calls.items()))
        return self._words + (f", calls before: {calls}" if calls else "")

    def check_alike(self, device: torch.device) -> None:
        """Compare the states of all ranks, at the first call over a group.

        Args:
            device: Where the group's back end takes tensors.

        Raises:
            CallMismatch: They differ; raised at every rank.
        """
        group = self.process_group or dist.group.WORLD
        if self._compared() is not group:
            settle(group)
            check_alike(self.words(), group, device)
            self._compared = weakref.ref(group)

    def warn_of_range(self, buffer: torch.Tensor, *, finite: bool, fits: bool = True) -> None:
        """Log once that finite gradients become NaN.

        Args:
            buffer: Gradients of a bucket.
            finite: False if they have a NaN or an infinity as float32.
            fits: False if they need a larger scale than the largest.
        """
        if self._warned or (finite and fits):
            return
        if not fits:
            reason = f"need a scale above {LARGEST_SCALE:g}, the largest"
        elif buffer.dtype == torch.float64 and bool(torch.isfinite(buffer).all()):
            reason = f"are beyond float32, {torch.finfo(torch.float32).max:g}"
        else:
            return  # not finite before
        self._warned = True
        _log.warning(
            "%s: finite gradients of this rank %s, so they become NaN at all ranks; clip them, or lower the loss's "
            "scale. This is logged once",
            self.codec.name,
            reason,
        )

    def next_draws(self, bucket: int) -> Draws:
        """Return the seeds of a bucket's next call."""
        count = self._calls[bucket] = self._calls.get(bucket, 0) + 1
        return Draws(mixed(self._seed, bucket, count), dist.get_rank(self.process_group))

    def state_dict(self) -> State:
        """Return this rank's state for a checkpoint of its own."""
        calls: State = {f"{_CALLS}{bucket}": np.array(count) for bucket, count in self._calls.items()}
        return {**self.codec.state_dict(), **calls, _HOOK: np.array(self._words)}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state that `state_dict` returned at the same rank. All ranks load theirs of one step.

        Raises:
            InvalidTensor: It was saved from another codec, or with other options or another seed; or an entry is
                unknown or has another type or shape. Nothing has changed then.
        """
        entries = owned(state, self._words, _HOOK)
        check_numbered(entries, self._words)
        calls, rest = split(entries, _CALLS)
        counts = checked_calls(calls, _CALLS, self._words)
        self.codec.load_state_dict(rest)
        self._calls = {int(bucket): count for bucket, count in counts.items()}


class PackedState(CodecState):
    """State of `packed_hook`."""

    def __init__(
        self, bits: int = 8, *, process_group: Any = None, feedback: bool = True, seed: int = 0, rotated: bool = True
    ) -> None:
        """Create it; `bits` of a field: 6, 7, 8, 10 or 15. The rest as `CodecState`."""
        super().__init__(
            "packed", process_group=process_group, feedback=feedback, seed=seed, bits=bits, rotated=rotated
        )


class TopKState(CodecState):
    """State of `topk_hook`."""

    def __init__(self, ratio: float = 0.01, *, process_group: Any = None, feedback: bool = True) -> None:
        """Create it; `ratio` of each bucket's numbers is kept."""
        super().__init__("topk", process_group=process_group, feedback=feedback, ratio=ratio)


class DgcState(CodecState):
    """State of `dgc_hook`."""

    def __init__(self, ratio: float = 0.01, momentum: float = 0.9, *, process_group: Any = None, seed: int = 0) -> None:
        """Create it; the optimiser then has no momentum of its own."""
        super().__init__("dgc", process_group=process_group, seed=seed, ratio=ratio, momentum=momentum)


def codec_hook(state: CodecState, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Average a bucket by the codec of its state.

    Register it as `model.register_comm_hook(CodecState("tbq", threshold=0.01), codec_hook)`. It works inside torch's
    `fp16_compress_wrapper`, and inside `bf16_compress_wrapper` where PyTorch allows that: with CUDA and NCCL.

    A NaN or an infinity at any rank becomes NaN at all: in its chunk if switches sum lanes, else in the whole bucket.
    So do finite numbers beyond float32, and those that need a larger scale than 2^23.5; both are logged once.

    Args:
        state: The state, of this model alone.
        bucket: A `GradBucket`, as DistributedDataParallel passes it.

    Returns:
        A future of the mean over the ranks, in the bucket's own buffer.

    Raises:
        CallMismatch: The ranks' states differ, at the first call.
    """
    codec, group, buffer = state.codec, state.process_group, bucket.buffer()
    settle(group)
    state.check_alike(buffer.device)
    names = state.names(bucket.parameters())
    gradients = [gradient.detach().to("cpu", torch.float32).numpy().ravel() for gradient in bucket.gradients()]
    parts = [codec.compensate(name, gradient) for name, gradient in zip(names, gradients, strict=True)]
    values = np.concatenate(parts)
    ends = np.cumsum([part.size for part in parts])[:-1]
    context = Context(values.size, dist.get_world_size(group), state.next_draws(bucket.index()))
    if (wanted := codec.presum(values, context)) is not None:
        agreed = torch.from_numpy(wanted).to(buffer.device)
        dist.all_reduce(agreed, group=group)
        context = replace(context, agreed=agreed.cpu().numpy())
    future, finish = _send(state, values, context, buffer)

    def done(waited: Future[Any]) -> torch.Tensor:
        waited.value()  # raises what the sum has failed with
        total, own = finish()
        for name, part, sent in zip(names, parts, np.split(own, ends), strict=True):
            codec.update(name, part, sent)
        buffer.copy_(torch.from_numpy(total / np.float32(context.workers)))
        result: torch.Tensor = buffer
        return result

    return future.then(done)


def packed_hook(state: PackedState, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Average a bucket in packed numbers, of 0.8 to 2 bytes each; see `codec_hook`."""
    return codec_hook(state, bucket)


def topk_hook(state: TopKState, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Average the largest gradients of a bucket, by all-gather; see `codec_hook`."""
    return codec_hook(state, bucket)


def dgc_hook(state: DgcState, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Average a bucket by deep gradient compression, by all-gather; see `codec_hook`."""
    return codec_hook(state, bucket)


def compll_hook(
    path: str, *, process_group: Any = None, feedback: bool | None = None, seed: int = 0, **params: float
) -> Callable[[object, dist.GradBucket], Future[torch.Tensor]]:
    """Return a hook by a codec written in CompLL, with state of its own.

    Register it as `model.register_comm_hook(None, compll_hook("tbq.compll", threshold=0.01))`.

    Args:
        path: Path of the codec's file.
        process_group: Group whose ranks train together; None: the default one.
        feedback: Add what a code loses to the next gradient; None: if the error of one code is at most the numbers
            themselves, so that errors stay bounded. TernGrad's is larger.
        seed: Of random numbers, the same at every rank.
        **params: Values of the codec's parameters.

    Raises:
        InvalidCodec: The file is no codec.
    """
    state = CodecState(path, process_group=process_group, feedback=feedback, seed=seed, **params)

    def hook(_: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:
        return codec_hook(state, bucket)

    return hook


def _send(
    state: CodecState, values: Float32Array, context: Context, buffer: torch.Tensor
) -> tuple[Future[Any], Finish]:
    """Start to sum numbers (size,) of a bucket's buffer; the sum is there when the future is complete."""
    codec, group, device = state.codec, state.process_group, buffer.device
    code = codec.encode(values, context)
    if not isinstance(codec.kind, LaneType):
        finite = bool(np.isfinite(values).all())
        state.warn_of_range(buffer, finite=finite)
        if codec.kind is None:
            return gather_codes(codec, code, context, finite, device, group)
        return _sum_codes(codec, code if finite else np.full_like(code, np.nan), context, device, group)
    encoding = encoding_of(codec.kind, context.workers, poison=True)
    lanes = LaneSum(encoding, code, context, device, group)
    state.warn_of_range(buffer, finite=lanes.finite, fits=lanes.fits)
    lanes.agree()
    lanes.encode()
    return lanes.start(), lanes.finish


def _sum_codes(
    codec: Codec, code: NDArray[Any], context: Context, device: torch.device, group: Any
) -> tuple[Future[Any], Finish]:
    """Start to sum codes of float32; a rank with a NaN or an infinity sends NaN, and all numbers become NaN."""
    numbers = torch.from_numpy(code.copy()).to(device)
    work = dist.all_reduce(numbers, group=group, async_op=True)

    def finish() -> tuple[Float32Array, Float32Array]:
        total, own = numbers.cpu().numpy(), codec.decode(code, context)
        if np.isnan(total).any():
            return np.full(context.size, np.nan, np.float32), own
        return codec.decode(total, context), own

    return work.get_future(), finish


class LaneSum:
    """One call's sum of numbers as lanes, in the steps of which compute and network alternate."""

    def __init__(
        self, encoding: Encoding, values: Float32Array, context: Context, device: torch.device, group: Any
    ) -> None:
        """Prepare the sum of `values` (size,) and ask for the scales of its chunks."""
        count = -(-values.size // encoding.values)
        self._chunks = np.zeros((count, encoding.values), np.float32)
        self._chunks.ravel()[: values.size] = values
        self._encoding, self._context, self._size, self._group = encoding, context, values.size, group
        chunks = np.arange(count, dtype=np.uint32)
        sizes = np.minimum(values.size - chunks.astype(np.int64) * encoding.values, encoding.values)
        self._place = ChunkPlace(chunks, context.draws, sizes)
        codes = encoding.prepare(self._chunks, 1, self._place)
        self.finite = bool((codes != NAN_CODE).all())
        """False if there is a NaN or an infinity."""
        self.fits = bool((codes <= NAN_CODE).all())
        """False if a chunk needs a larger scale than there is."""
        asked = np.minimum(codes, NAN_CODE).astype(np.uint8)
        self._scales = torch.from_numpy(asked).to(device)
        self._lanes = torch.empty(0)
        self._own: NDArray[np.int32] = np.empty((0, 0), np.int32)

    def agree(self) -> None:
        """Agree on the largest scale of each chunk; waits for all ranks."""
        dist.all_reduce(self._scales, dist.ReduceOp.MAX, group=self._group)

    def encode(self) -> None:
        """Make this rank's lanes, by the agreed scales."""
        self._agreed = self._scales.cpu().numpy()
        self._own = self._encoding.encode(self._chunks, self._agreed, 1, self._place)
        self._lanes = torch.from_numpy(self._own.ravel().copy()).to(self._scales.device)

    def start(self) -> Future[Any]:
        """Start to sum the lanes."""
        work = dist.all_reduce(self._lanes, group=self._group, async_op=True)
        started: Future[Any] = work.get_future()
        return started

    def finish(self) -> tuple[Float32Array, Float32Array]:
        """Return the sum of numbers (size,), and what this rank's own lanes decode to, once the lanes are summed."""
        return self._decoded(self._lanes.cpu().numpy(), self._context.workers), self._decoded(self._own, 1)

    def _decoded(self, lanes: NDArray[np.int32], contributors: int) -> Float32Array:
        count = len(self._chunks)
        weights = np.full(count, contributors, np.int64)
        numbers: Float32Array = self._encoding.decode(lanes.reshape(count, -1), self._agreed, weights, self._place)
        return numbers.ravel()[: self._size]


def gather_codes(
    codec: Codec, code: NDArray[Any], context: Context, finite: bool, device: torch.device, group: Any
) -> tuple[Future[Any], Finish]:
    """Start to gather all ranks' codes, each behind a byte that is 0 if the rank has a NaN or an infinity.

    Args:
        codec: The codec, whose codes are not summed.
        code: This rank's code.
        context: The call; its `workers` are the group's ranks.
        finite: False if this rank's numbers have a NaN or an infinity; all results are NaN then.
        device: Where the group's back end takes tensors.
        group: The ranks that gather.

    Returns:
        A future that is complete when all codes are here, and a function that then returns the sum of numbers (size,)
        and what this rank's own code decodes to.
    """
    bytes_of_code = np.ascontiguousarray(code).view(np.uint8).ravel()
    mine = torch.from_numpy(np.concatenate([np.array([finite], np.uint8), bytes_of_code])).to(device)
    parts = [torch.empty_like(mine) for _ in range(context.workers)]
    work = dist.all_gather(parts, mine, group=group, async_op=True)

    def finish() -> tuple[Float32Array, Float32Array]:
        received = [part.cpu().numpy() for part in parts]
        own = codec.decode(code, context)
        if not all(part[0] for part in received):
            return np.full(context.size, np.nan, np.float32), own
        codes = [part[1:].copy().view(code.dtype).reshape(code.shape) for part in received]
        return codec.merge(codes, context), own

    return work.get_future(), finish
