"""Hook that sums each gradient as a plan says: raw or compressed, in parts, while others are encoded.

::

    compute thread   ask 1 │ ask 2 │ encode 1 │ encode 2 │ decode 1 │ …
    network thread         │ scales 1 │ scales 2 │ sum 1 │ sum 2 │ sum of raw ones

Raw gradients of a bucket are summed as one. The network thread makes all calls in the order of the tasks, which is the
same at all ranks; planned hooks of several models share it (`group_queues`).

PyTorch compares the annotations of hooks with its classes, so this module does not postpone their evaluation.
"""

import threading
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch.futures import Future

from ....errors.values import Checks
from ...compression.codec import Context
from ...compression.selective import SummationChoice
from ...compression.task_graph import COMPUTE, NETWORK, Task
from ...errors import EndpointClosed, InvalidTensor
from ...numerics.draws import Draws, mixed
from ...numerics.encodings import encoding_of
from ...numerics.lane_codes import LaneType
from ...numerics.quantization import Float32Array
from ..two_queues import Action, Submitted, TwoQueues
from .compressed import CodecState, LaneSum
from .group_queues import queues_of, release

Plan = Mapping[int, SummationChoice]
"""Choice by the numbers of a gradient: a plan's costs depend on nothing else."""

_WAY: Final = "switch"


class PlannedState(CodecState):
    """State of `planned_hook`: a plan, a codec, and the two queues of this rank."""

    def __init__(self, plan: Plan, codec: str = "packed", **options: Any) -> None:
        """Create the state of one model's hook, alike at every rank.

        Args:
            plan: Choice for each size of a gradient, as `dict(zip(sizes, selective.plan(costs, nodes, sizes)))`; other
                sizes are summed raw.
            codec: Codec of compressed gradients, which is one that switches sum in lanes.
            **options: As those of `CodecState`.

        Raises:
            InvalidTensor: The plan is no mapping of sizes to choices, or has another way than the switches; the codec
                is unknown, or it has no lanes.
        """
        super().__init__(codec, **options)
        if not isinstance(self.codec.kind, LaneType):
            raise InvalidTensor(
                "codes are not summed in lanes; use codec_hook for this codec", place="planned_hook", value=codec
            )
        checks = Checks(InvalidTensor, "planned_hook")
        given: object = plan
        if not isinstance(given, Mapping):
            raise checks.refuse("plan", given, "is no mapping", "choices by the sizes of gradients")
        for size, choice in given.items():
            checks.integer("the size of a gradient in the plan", size, 1)
            checks.instance(f"the choice of {size} numbers", choice, SummationChoice)
            if choice.way != _WAY:
                raise InvalidTensor(
                    f"way {choice.way!r}; all gradients go by the process group's all_reduce. Plan without the costs "
                    "of servers and rings",
                    place=f"plan of {size} numbers",
                    value=choice.way,
                    allowed=(_WAY,),
                )
        self.plan = plan
        self._closed = False
        self.last: Submitted | None = None
        """Graph of the last bucket: its tasks, and their measured spans once its future is complete."""

    def parts_of(self, size: int) -> int:
        """Return in how many parts a gradient is compressed; 0 if it stays raw."""
        choice = self.plan.get(size)
        return min(choice.parts, size) if choice is not None and choice.compressed else 0

    def words(self) -> str:
        """Same contract as `CodecState.words`, with the parts of each size that is compressed."""
        parts = ", ".join(f"{size}: {count}" for size in sorted(self.plan) if (count := self.parts_of(size)))
        return f"planned {super().words()}, parts of sizes: {parts or 'all raw'}"

    def queues(self) -> TwoQueues:
        """Return the queues of this rank's group.

        Raises:
            EndpointClosed: The state is closed.
        """
        if self._closed:
            raise EndpointClosed("this state of planned_hook is closed; make a new one for more steps")
        return queues_of(self.process_group, self)

    def close(self) -> None:
        """End the threads, after the last step of all models that share them."""
        self._closed = True
        release(self)


def planned_hook(state: PlannedState, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Average a bucket as the plan of its state says.

    Register it as `model.register_comm_hook(PlannedState(plan), planned_hook)`.

    Args:
        state: The state, of this model alone.
        bucket: A `GradBucket`, as DistributedDataParallel passes it.

    Returns:
        A future of the mean over the ranks, in the bucket's own buffer.

    Raises:
        CallMismatch: The ranks' states differ, at the first call.
        EndpointClosed: The state is closed.
    """
    queues = state.queues()
    state.check_alike(bucket.buffer().device)
    run = _BucketTasks(state, bucket)
    state.last = queues.submit(run.tasks, run.actions, run.done)
    if bucket.is_last():  # DistributedDataParallel then sums what parameters were used, from this thread
        run.over.wait()
    return run.future


class _Piece:
    """A part of a compressed gradient on its way: its numbers are encoded and decoded by the compute queue."""

    def __init__(self, state: PlannedState, values: Float32Array, draws: Draws, buffer: torch.Tensor) -> None:
        self._state, self._values, self._draws, self._buffer = state, values, draws, buffer
        self.total: Float32Array = values
        """Sum over the ranks, in the end."""
        self.own: Float32Array = values
        """Numbers that this rank's own code decodes to, in the end."""

    def request_scales(self) -> None:
        """Ask for the scales."""
        state, group = self._state, self._state.process_group
        context = Context(self._values.size, dist.get_world_size(group), self._draws)
        assert isinstance(state.codec.kind, LaneType)
        encoding = encoding_of(state.codec.kind, context.workers, poison=True)
        numbers = state.codec.encode(self._values, context)
        self._sum = LaneSum(encoding, numbers, context, self._buffer.device, group)
        state.warn_of_range(self._buffer, finite=self._sum.finite, fits=self._sum.fits)

    def agree(self) -> None:
        self._sum.agree()

    def encode(self) -> None:
        self._sum.encode()

    def merge(self) -> None:
        self._sum.start().wait()

    def decode(self) -> None:
        self.total, self.own = self._sum.finish()


class _BucketTasks:
    """One bucket's tasks."""

    def __init__(self, state: PlannedState, bucket: dist.GradBucket) -> None:
        self.future: Future[torch.Tensor] = Future()
        self.over = threading.Event()
        """Set once the future is complete."""
        self.tasks: list[Task] = []
        self.actions: list[Action] = []
        self._state, self._buffer = state, bucket.buffer()
        self._names = state.names(bucket.parameters())
        self._values = [gradient.detach().to("cpu", torch.float32).numpy().ravel() for gradient in bucket.gradients()]
        parts = [state.parts_of(value.size) for value in self._values]
        self._raw = [index for index, count in enumerate(parts) if not count]
        self._pieces: dict[int, list[_Piece]] = {}
        """Pieces of each compressed gradient."""
        draws = state.next_draws(bucket.index())
        for index, count in enumerate(parts):
            if count:
                self._values[index] = state.codec.compensate(self._names[index], self._values[index])
                self._pieces[index] = [
                    _Piece(state, piece, Draws(mixed(draws.seed, index, part), draws.rank), self._buffer)
                    for part, piece in enumerate(np.array_split(self._values[index], count))
                ]
        self._add_tasks()

    def _add_tasks(self) -> None:
        pieces = [(index, part, piece) for index, own in self._pieces.items() for part, piece in enumerate(own)]
        encoded: list[int] = []
        merged: list[int] = []
        for place, (index, part, piece) in enumerate(pieces):
            asked = self._add("encode", COMPUTE, index, part, piece.request_scales)
            agreed = self._add("send", NETWORK, index, part, piece.agree, asked)
            encoded.append(self._add("encode", COMPUTE, index, part, piece.encode, agreed))
            if place:  # its lanes are made while this piece's scales are agreed
                before = pieces[place - 1]
                merged.append(self._add("merge", NETWORK, *before[:2], before[2].merge, encoded[place - 1]))
        if pieces:
            last = pieces[-1]
            merged.append(self._add("merge", NETWORK, *last[:2], last[2].merge, encoded[-1]))
        if self._raw:
            self._add("merge", NETWORK, self._raw[0], 0, self._sum_raw)
        for (index, part, piece), after in zip(pieces, merged, strict=True):
            self._add("decode", COMPUTE, index, part, piece.decode, after)

    def _add(self, kind: str, queue: str, gradient: int, part: int, action: Action, *after: int) -> int:
        """Append a task and return its place."""
        self.tasks.append(Task(kind, queue, gradient, part, after))
        self.actions.append(action)
        return len(self.tasks) - 1

    def _sum_raw(self) -> None:
        """Sum the raw gradients as one."""
        flat = torch.from_numpy(np.concatenate([self._values[index] for index in self._raw])).to(self._buffer.device)
        dist.all_reduce(flat, group=self._state.process_group)
        ends = np.cumsum([self._values[index].size for index in self._raw])[:-1]
        for index, part in zip(self._raw, np.split(flat.cpu().numpy(), ends), strict=True):
            self._values[index] = part

    def done(self, error: BaseException | None) -> None:
        """Complete the future: with the means in the bucket's buffer, or what a task has failed with."""
        try:
            self._complete(error)
        finally:
            self.over.set()

    def _complete(self, error: BaseException | None) -> None:
        if error is not None:
            self.future.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            return
        try:
            for index, pieces in self._pieces.items():
                own = np.concatenate([piece.own for piece in pieces])
                self._state.codec.update(self._names[index], self._values[index], own)
                self._values[index] = np.concatenate([piece.total for piece in pieces])
            ranks = np.float32(dist.get_world_size(self._state.process_group))
            self._buffer.copy_(torch.from_numpy(np.concatenate(self._values) / ranks))
        except Exception as raised:  # noqa: BLE001 (whoever waits is to have it)
            self.future.set_exception(raised)
        else:
            self.future.set_result(self._buffer)
