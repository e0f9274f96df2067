"""Collectives of arrays over one job's workers, by any driver of the worker's core."""

from __future__ import annotations

import hashlib
import math
import operator
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypedDict, TypeVar, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from ...errors.values import Checks, shown
from ...wire.control import CallRecord, JobReport
from ..errors import EndpointClosed, HostError, InvalidTensor, WorkerMissing
from ..numerics.tensors import NonFinite, Reduced, Tensor, as_cuts
from ..transport.transport import Transport
from .arrays import opened
from .call_log import CallLog
from .compression import Compression
from .gathering import Gathering, array_of, words_of
from .handle import Handle, SteppedHandle
from .operation import Members, OperationDescription
from .operations import OPERATIONS, OperationCall, Started, Stepped
from .progress import ProgressReport, measured, report_of
from .step_meter import StepMeter

_POLICIES: Final = get_args(NonFinite)
_LONGEST_DETAIL: Final = 80
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Reduction(TypedDict, total=False):
    """Options of a reduction; the same at every worker, except for the weight."""

    op: str
    """Name of an operation (`operations`), or the path of a Python file with one; by default "sum". "mean" is
    Σ weight · x / Σ weight, over those workers that are in it. "max" and "min" send every worker's array to all: n
    times the traffic and n times the memory.
    """
    name: str
    """Name of the array in errors; by default "tensor"."""
    weight: int
    """Weight of this worker in a mean, such as the samples behind its gradient; by default 1, and at most
    (2³² − 1) / workers. Operations without weights refuse it.
    """
    dtype: str | None
    """Names a type that the array's own cannot: "bfloat16" for uint16."""
    nonfinite: NonFinite
    """Treatment of NaN and infinity: by default "error", to refuse them; "propagate", to sum them as IEEE addition
    does; "poison", to make all numbers of their chunk NaN, which costs nothing on the wire.
    """
    cuts: Iterable[int]
    """Elements, in C order, at which a new chunk begins; any iterable of integers, by default none. Layers in one array
    are summed as exactly as each alone if there is a cut in front of each; a cut costs less than a chunk. "adasum" is
    taken for each layer.
    """
    rack: Members | None
    """Communicator of this worker's rack, for "adasum": arrays are summed in each rack, and Adasum is taken among the
    racks. Every worker is in one rack, and the racks' workers of rank 0 exchange for all.
    """
    compression: Compression | None
    """Lossy compression of a sum or a mean of floating numbers (docs/compression.md); by default None."""


class WorkerDriver(Protocol):
    """Driver of a worker's packets and time: `udp.UdpWorker`, `sharding.ShardedDriver`, or an emulated fabric."""

    @property
    def rank(self) -> int:
        """This worker's rank, 0…n − 1."""

    @property
    def workers(self) -> int:
        """n, the job's size at its start."""

    @property
    def lanes(self) -> int:
        """Lanes of the job's messages."""

    @property
    def keyed(self) -> bool:
        """True if the job has a key, which authenticates its sums."""

    def submit(self, tensor: Tensor, /) -> int:
        """Same contract as `WorkerCore.submit`."""

    def wait(self, handle: int, timeout_s: float) -> Reduced:
        """Return the sum, once it is complete. Raises `AllreduceTimeout`, saying what it waits for, after
        `timeout_s`.
        """

    def done(self, handle: int) -> bool:
        """Same contract as `WorkerCore.done`."""


def _counts_refusals(
    call: Callable[Concatenate[Communicator, _Arguments], _Result],
) -> Callable[Concatenate[Communicator, _Arguments], _Result]:
    """Decorate a call: if it is refused it counts as one more refused call, here and at the rack's communicator."""

    @wraps(call)
    def counted(communicator: Communicator, /, *values: _Arguments.args, **how: _Arguments.kwargs) -> _Result:
        rack = how.get("rack")
        before = {each: each.refused for each in (communicator, rack) if isinstance(each, Communicator)}
        try:
            return call(communicator, *values, **how)
        except InvalidTensor:
            for each, refused in before.items():
                each.refused = refused + 1  # also if the call consists of others, which have counted
            raise

    return counted


class Communicator:
    """Collective operations of one worker of a job. Every worker makes the same calls in the same order.

    Arrays are NumPy's, or PyTorch's on the CPU, of any shape; a result has the kind, shape and type of its array, and
    the same bits at every worker (docs/collectives.md). `name` stands for the array in errors. Calls that end in
    `_async` return a `Handle` at once; memory is the only limit of calls in flight.

    A communicator is a context manager, which closes it. `weir.join` closes those that are still open when the
    interpreter exits.

    Raises:
        InvalidTensor: An array or an option is refused, before anything is sent; every call.
        AllreduceTimeout: The result is not complete after `timeout_s`; every call that waits.
        CallMismatch: The workers' calls differ, or a worker has gone on after a call that was refused at it alone.
        EndpointClosed: The communicator is closed.
    """

    def __init__(
        self,
        driver: WorkerDriver,
        *,
        timeout_s: float = 60.0,
        connect: Callable[[], Transport] | None = None,
        left: Mapping[int, int] | None = None,
        leave: Callable[[str], object] = lambda _: None,
        calls: CallLog | None = None,
        report: Callable[[JobReport], object] = lambda _: None,
        join_groups: Callable[[], Sequence[Communicator]] | None = None,
    ) -> None:
        """Sum by this driver.

        Args:
            driver: Moves this worker's packets.
            timeout_s: Time limit of one call, after which it raises `AllreduceTimeout`.
            connect: Opens the transport to the job's other workers.
            left: `left` of this communicator, updated by its owner.
            leave: Leaves the job, in good order or, with a reason, as a rank that has failed. Called once, by `close`.
            calls: Log of this communicator's calls, which the controller compares with the other workers'.
            report: Receives each report of progress.
            join_groups: Joins the groups along the dimensions of a mesh; None: there is no mesh.
        """
        self._driver = driver
        self.timeout_s = Checks(HostError, "communicator").seconds("timeout_s", timeout_s)
        self._connect = connect
        self._join_groups = join_groups
        self.left: Mapping[int, int] = {} if left is None else left
        """Ranks that left the job in good order and that the sums go on without, each with the number of its calls.
        Always empty unless the job's policy is `continue`.
        """
        self._leave = leave
        self._send_report = report
        self._meter = StepMeter(time.monotonic_ns)
        self._closed = False
        self._memory: dict[tuple[str, str], dict[str, Any]] = {}
        """`OperationCall.memory` by operation and name."""
        self._stepped: SteppedHandle | None = None
        """The last call in several exchanges."""
        self._calls = CallLog() if calls is None else calls
        self.refused = 0
        """Number of refused calls, which is in the signatures of later ones. Callers that refuse calls set it, too."""

    def close(self, reason: str = "") -> None:
        """Leave the job; later calls raise `EndpointClosed`. May be repeated.

        Args:
            reason: Failure of this rank, told to the others, which do not wait for it; "": it leaves in good order. It
                then stays for 10 s at most: while others need results which it holds, while messages and replies of its
                transport have not arrived, and with published values until the others leave.
        """
        if not self._closed:
            self._closed = True
            self._leave(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the job: in good order, or by an exception as a rank that has failed."""
        self.close("" if error is None else described(error))

    def report(self, **progress: Unpack[ProgressReport]) -> None:
        """Report the job's progress to the controller, once in a step. It sends nothing to other workers.

        Every worker may call it; only the one with the lowest rank that takes part sends. Several steps share a report
        if they take less than 50 ms. A report is never waited for, and may be lost while there is no controller.

        Args:
            **progress: `step`, and all known keys of `ProgressReport`. Computation is by default all time since the
                last report that calls and handles did not block; that blocked time is exposed communication.

        Raises:
            HostError: A value is no number, or out of range.
        """
        report = report_of(progress)
        self._send_report(measured(report, progress, *self._meter.finish_step()))

    @cached_property
    def transport(self) -> Transport:
        """Messages to single workers of the job, opened on first use (docs/transport.md).

        Raises:
            HostError: This communicator's hosts have no transport; opening it may raise other errors.
        """
        if self._connect is None:
            raise HostError("transport: this communicator has none; those of weir.join have one")
        return self._connect()

    @cached_property
    def mesh(self) -> tuple[Communicator, ...]:
        """Communicator of this worker's group along each dimension of the mesh (`weir launch --mesh 2x2x2`).

        The worker's rank in a group is its coordinate in that dimension. The groups are joined on first use, which
        waits for their workers, so all workers use it. Closing this communicator closes them.

        Raises:
            HostError: The job has no mesh of two or more dimensions; joining may raise other errors.
        """
        if self._join_groups is None:
            raise HostError(
                "mesh: this job has none; start it with one of two or more dimensions: weir launch --mesh 2x2"
            )
        return tuple(self._join_groups())

    @property
    def rank(self) -> int:
        """This worker's rank, 0…`size` − 1."""
        return self._driver.rank

    @property
    def size(self) -> int:
        """Number of workers at the start."""
        return self._driver.workers

    # --- all-reduce ---

    def allreduce(self, array: Any, **how: Unpack[Reduction]) -> Any:
        """Reduce an array over all workers, element by element. The default operation is the sum.

        Floating sums are of fixed-point numbers, in units of the largest |x| among the 256 numbers (85 of float64) of a
        chunk at all workers. For n workers, r = ⌈log₂ n⌉ and the least e ≥ −127 with |x| < 2^e:

        - A float32 sum is at most n · 2^(e + r − 31) and half an ulp from the exact one.
        - A number below 2^(r − 31) of its chunk's largest becomes 0: about 4e-9 of it with 8 workers, 3e-8 with 64,
          5e-7 with 1,024.
        - The bound of float64 is n · 2^(e + 3r − 93), for e ≥ −1016 rounded up to a multiple of 8.
        - A mean has the bound of a sum of weight · x, over the summed weight.

        A chunk may span layers of several scales unless the key `cuts` separates them. docs/collectives.md derives the
        bounds.

        Args:
            array: Numbers of any shape, the same shape and type at every worker.
            **how: Keys of `Reduction`, such as `op`, `weight` and `nonfinite`.

        Returns:
            The result, of the shape, type and kind of `array`, with the same bits at every worker.
        """
        return self.allreduce_async(array, **how).wait()

    def allreduce_async(self, array: Any, **how: Unpack[Reduction]) -> Handle:
        """Start an `allreduce` without waiting.

        Args:
            array: Numbers of any shape; copied, so that it may change at once.
            **how: Keys of `Reduction`.

        Returns:
            A handle, whose `wait` returns the result.
        """
        return self._reduce(array, None, **how)

    def reduced_async(
        self,
        array: Any,
        finish: Callable[[Reduced], Any],
        *,
        wanted: Sequence[tuple[int, int]] | None = None,
        **how: Unpack[Reduction],
    ) -> Handle:
        """Start a sum or a mean whose result is computed from the sum and its weights.

        Args:
            array: Numbers of any shape; copied.
            finish: Function of the `Reduced`; its value is the handle's result.
            wanted: Runs of elements in C order, each as first and end, whose sums this worker needs; the others are
                undefined, and need not be sent to it. None: all. Workers may differ in it.
            **how: Keys of `Reduction`; `op` must be one that is a single sum.
        """
        return self._reduce(array, None, finish, wanted=wanted, **how)

    @_counts_refusals
    def allreduce_many(self, arrays: Mapping[str, Any], *, weight: int = 1) -> dict[str, Reduced]:
        """Sum many named arrays, all in flight together.

        Args:
            arrays: Arrays by name; the same names, in the same order, at every worker.
            weight: This worker's weight in means.

        Returns:
            By name, the sum with its summed weights: `Reduced.array`, or `Reduced.mean` for the weighted mean.
        """
        if not isinstance(arrays, Mapping):
            raise Checks(InvalidTensor).refuse("arrays", arrays, "are no arrays by name", "a mapping")
        handles = []
        for name, array in arrays.items():
            values, dtype, restore = opened(array, name)
            call = self._call("allreduce", name, values, dtype, op="sum", policy="error")
            tensor = self._tensor(values, name=name, weight=weight, dtype=dtype, signature=_signature(call))
            handles.append(self._start(call, tensor, partial(replace, restore=restore)))
        return dict(zip(arrays, wait_all(handles), strict=True))

    def reduce(self, array: Any, root: int = 0, **how: Unpack[Reduction]) -> Any:
        """Reduce as `allreduce` does, for one worker alone: sums and means are sent to no other.

        Args:
            array: Numbers of any shape, the same shape and type at every worker.
            root: Rank of the worker that gets the result.
            **how: Keys of `Reduction`.

        Returns:
            The result at `root`; None at the others.
        """
        return self.reduce_async(array, root, **how).wait()

    def reduce_async(self, array: Any, root: int = 0, **how: Unpack[Reduction]) -> Handle:
        """Start a `reduce` without waiting. Arguments are those of `reduce`; the array is copied."""
        return self._reduce(array, root, **how)

    def reduce_scatter(self, array: Any, **how: Unpack[Reduction]) -> Any:
        """Reduce as `allreduce` does, each worker getting its part of the result: of sums and means, no more is sent to
        it.

        Args:
            array: Parts by rank along the first axis, (n, …).
            **how: Keys of `Reduction`. Parts share no chunk, whatever `cuts` has.

        Returns:
            This worker's part, (…).

        Raises:
            InvalidTensor: The first axis is not n, or as in `allreduce`.
        """
        return self.reduce_scatter_async(array, **how).wait()

    @_counts_refusals
    def reduce_scatter_async(self, array: Any, **how: Unpack[Reduction]) -> Handle:
        """Start a `reduce_scatter` without waiting. Arguments are those of `reduce_scatter`; the array is copied."""
        name = how.get("name", "tensor")
        shape = np.shape(opened(array, name)[0])
        if not shape or shape[0] != self.size:
            raise InvalidTensor(
                f"shape {shape} has no part for each of {self.size} workers along its first axis",
                place=f"tensor {name!r}",
                value=shape,
            )
        part = math.prod(shape[1:])
        bounds = range(part, part * self.size, part) if part else ()
        how["cuts"] = sorted({*as_cuts(how.get("cuts", ()), name), *bounds})
        own = (self.rank * part, self.rank * part + part)
        return self._reduce(array, None, scattered=True, wanted=[own], **how)

    @_counts_refusals
    def _reduce(
        self,
        array: Any,
        root: int | None,
        finish: Callable[[Reduced], Any] | None = None,
        *,
        scattered: bool = False,
        wanted: Sequence[tuple[int, int]] | None = None,
        op: str = "sum",
        name: str = "tensor",
        weight: int | None = None,
        dtype: str | None = None,
        nonfinite: NonFinite = "error",
        cuts: Iterable[int] = (),
        compression: Compression | None = None,
        rack: Members | None = None,
    ) -> Handle:
        """Start a reduction for the rank `root`, or for all if None; if `scattered`, each worker gets its part.

        `finish` replaces the operation's own result function. `wanted` is as in `reduced_async`.
        """
        checks = Checks(InvalidTensor, f"tensor {shown(name)}")
        if dtype is not None:
            checks.text("dtype", dtype)
        if compression is not None:
            checks.instance("compression", compression, Compression)
        collective = "reduce_scatter" if scattered else "allreduce" if root is None else "reduce"
        if root is not None:
            root = self._checked_root(root, name)
            wanted = None if root == self.rank else ()
        cuts = as_cuts(cuts, name)
        operation = OPERATIONS.describe(op)
        _check_reduction(operation, name, None if finish is not None else weight, rack, nonfinite)
        values, dtype, restore = opened(array, name, dtype)

        def own(result: Any) -> Any:
            if root not in (None, self.rank):
                return None
            return restore(result[self.rank].copy() if scattered else result)

        way = operation.name if compression is None else f"{operation.name} {compression.name}"
        made_call = self._call(collective, name, values, dtype, root=root, op=way, policy=nonfinite, cuts=cuts)
        call = OperationCall(
            values=values,
            name=name,
            weight=1 if weight is None else weight,
            dtype=dtype,
            nonfinite=nonfinite,
            cuts=cuts,
            signature=_signature(made_call),
            rank=self.rank,
            workers=self.size,
            lanes=self._driver.lanes,
            keyed=self._driver.keyed,
            rack=rack,
            wanted=wanted,
            memory=self._memory.setdefault((operation.name, name), {}) if operation.keeps else {},
        )
        started = operation.start(call) if compression is None else compression.start(call, operation.name)
        if isinstance(started, Stepped):
            if finish is not None:
                raise InvalidTensor(
                    f"op={operation.name!r} is more than one sum", place=f"tensor {name!r}", value=operation.name
                )
            return self._start_steps(started, name, own)
        tensor, made = started

        def restored(reduced: Reduced, made: Callable[[Reduced], Any] = made) -> Any:
            result = made(reduced)
            if isinstance(result, Started):
                return Started(result.tensor, partial(restored, made=result.finish))
            return own(result)

        return self._start(made_call, tensor, finish or restored, may_continue=compression is not None)

    # --- bit patterns ---

    def broadcast(self, array: Any, root: int = 0, *, name: str = "tensor") -> Any:
        """Send one worker's array to all, bit by bit.

        Args:
            array: The array, at `root`; an array of its shape and type at the others, whose numbers do not matter. Any
                type of fixed size.
            root: Rank of the sender.
            name: Name in errors.

        Returns:
            The root's array.

        Raises:
            WorkerMissing: The root was lost before everyone had its array.
        """
        return self.broadcast_async(array, root, name=name).wait()

    @_counts_refusals
    def broadcast_async(self, array: Any, root: int = 0, *, name: str = "tensor") -> Handle:
        """Start a `broadcast` without waiting. Arguments are those of `broadcast`; the array is copied."""
        root = self._checked_root(root, name)
        values, dtype, restore = opened(array, name)
        plain = _plain(values, name)
        is_root = root == self.rank
        words = words_of(values) if is_root else np.zeros(-(-values.nbytes // 4), np.int32)
        call = self._call("broadcast", name, values, dtype, root=root)
        tensor = self._tensor(
            words,
            name=name,
            weight=int(is_root),
            signature=_signature(call),
            alone=True,
            adds=np.full(-(-len(words) // self._driver.lanes), is_root),
            wanted=() if is_root else None,
        )

        def finish(reduced: Reduced) -> Any:
            if not reduced.weights.all():
                raise WorkerMissing(
                    f"rank {root} was lost before everyone had all of its array", place=f"tensor {name!r}", value=root
                )
            return restore(array_of(words if is_root else reduced.values, plain, values.shape))

        return self._start(call, tensor, finish)

    @_counts_refusals
    def broadcast_bytes(self, data: bytes | None, root: int = 0, *, name: str = "bytes") -> bytes:
        """Send bytes of the worker with the rank `root` to all.

        Args:
            data: Bytes of any number at `root`; ignored at the others.
            root: Rank of the sender.
            name: Name in errors.

        Returns:
            The bytes of `root`.

        Raises:
            InvalidTensor: `data` at `root` is not bytes-like; raised at every worker, and the job stays in step.
        """
        Checks(InvalidTensor, "broadcast").text("name", name)
        root = self._checked_root(root, name)
        try:
            content = np.frombuffer(memoryview(data).cast("B"), np.uint8) if root == self.rank else None  # type: ignore[arg-type]
            size = -1 if content is None else len(content)
        except TypeError:
            content, size = None, -1
        size = int(self.broadcast(np.array([size]), root, name=f"{name}: length")[0])
        if size < 0:
            raise InvalidTensor(
                f"rank {root} passed no bytes" + (f" but {type(data).__name__}" if root == self.rank else ""),
                place=f"broadcast {name!r}",
                value=data if root == self.rank else None,
                allowed=("bytes",),
            )
        received: NDArray[np.uint8] = self.broadcast(
            np.zeros(size, np.uint8) if content is None else content, root, name=name
        )
        return received.tobytes()

    def all_gather(self, array: Any, *, name: str = "tensor") -> Any:
        """Collect the arrays of all workers, bit by bit. The traffic is n times that of one array.

        Args:
            array: Array of any type of fixed size, the same shape and type at every worker.
            name: Name in errors.

        Returns:
            The arrays along a new first axis by rank, (n, …).

        Raises:
            WorkerMissing: A worker was lost before everyone had its array.
        """
        return self.all_gather_async(array, name=name).wait()

    def all_gather_async(self, array: Any, *, name: str = "tensor") -> Handle:
        """Start an `all_gather` without waiting. Arguments are those of `all_gather`; the array is copied."""

        def complete(parts: Any, present: NDArray[np.bool_]) -> Any:
            if not present.all():
                missing = ", ".join(str(rank) for rank in np.flatnonzero(~present))
                raise WorkerMissing(
                    f"ranks were lost before everyone had all of their arrays: {missing}",
                    place=f"tensor {name!r}",
                    value=missing,
                )
            return parts

        return self._gather(array, name, complete)

    def gather_present_async(self, array: Any, *, name: str = "tensor") -> Handle:
        """Start an `all_gather` that tolerates lost workers. Arguments are those of `all_gather`; the array is copied.

        Returns:
            A handle of a pair: the arrays (n, …) by rank, and a mask of the present workers, bool (n,), the same at
            all. Arrays of lost workers are incomplete.
        """
        return self._gather(array, name, lambda parts, present: (parts, present))

    @_counts_refusals
    def _gather(self, array: Any, name: str, result: Callable[[Any, NDArray[np.bool_]], Any]) -> Handle:
        """Start a gathering; `result` combines all arrays and the mask of present workers."""
        values, dtype, restore = opened(array, name)
        plain, shape = _plain(values, name), values.shape
        words = words_of(values)
        gathering = Gathering(self.size, len(words), self._driver.lanes)
        call = self._call("all_gather", name, values, dtype)
        contribution = gathering.contribution(self.rank, words)
        tensor = self._tensor(contribution, name=name, signature=_signature(call), **gathering.part_of(self.rank))

        def finish(reduced: Reduced) -> Any:
            parts, pieces = gathering.parts(reduced.values, self.rank, words)
            present: NDArray[np.bool_] = np.all(pieces, axis=1)
            return result(restore(array_of(parts, plain, (self.size, *shape))), present)

        return self._start(call, tensor, finish)

    @_counts_refusals
    def barrier(self, *, name: str = "barrier") -> None:
        """Return when every worker has called it. `name` is its name in errors."""
        nothing = np.zeros(0, np.int32)
        call = self._call("barrier", name, nothing, None)
        self._start(call, self._tensor(nothing, name=name, signature=_signature(call)), lambda _: None).wait()

    # --- within ---

    def _tensor(self, values: NDArray[Any], **options: Any) -> Tensor:
        driver = self._driver
        return Tensor(values, workers=self.size, lanes=driver.lanes, keyed=driver.keyed, **options)

    def _call(
        self,
        collective: str,
        name: str,
        values: NDArray[Any],
        dtype: str | None,
        *,
        root: int | None = None,
        op: str = "",
        policy: str = "",
        cuts: Sequence[int] = (),
    ) -> CallRecord:
        """Everything on which all workers must agree (docs/design.md §3.3). Raises InvalidTensor for no name."""
        Checks(InvalidTensor, collective).text("name", name)
        details = [
            f"root {root}" if root is not None else "",
            f"op {op}" if op else "",
            f"nonfinite {policy}" if policy else "",
            dtype or str(values.dtype),
            f"shape {values.shape}",
            f"cuts {_short(str(list(cuts)))}" if cuts else "",
            f"refused calls before: {self.refused}" if self.refused else "",
        ]
        return CallRecord(collective, name, tuple(filter(None, details)))

    def _start(
        self, call: CallRecord, tensor: Tensor, finish: Callable[[Reduced], Any], *, may_continue: bool = False
    ) -> Handle:
        self._check(tensor.name)
        note = partial(self._calls.note, call)
        note()
        self._meter.add_bytes(tensor.nbytes)
        number = self._driver.submit(tensor)
        return Handle(
            self._driver, number, self.timeout_s, finish, may_continue=may_continue, note=note, meter=self._meter
        )

    def _start_steps(self, started: Stepped, name: str, finish: Callable[[Any], Any]) -> Handle:
        self._check(name)
        within = Communicator(self._driver, timeout_s=self.timeout_s, connect=lambda: self.transport, calls=self._calls)
        within._meter = self._meter
        within.refused = self.refused
        self._stepped = SteppedHandle(started.steps(within), self.timeout_s, finish, self._meter)
        return self._stepped

    def _check(self, name: str) -> None:
        """Refuse a call after `close`, or behind one in several exchanges that was not waited for.

        The later exchanges of that one would come before or behind this call's, at each worker as time has it.
        """
        if self._closed:
            raise EndpointClosed("its communicator was closed", place=f"tensor {name!r}")
        if self._stepped is not None and not self._stepped.is_taken:
            raise InvalidTensor(
                "wait for the last call before the next one: its operation makes several exchanges",
                place=f"tensor {name!r}",
            )

    def _checked_root(self, root: int, name: str) -> int:
        """The root as Python's int, so that NumPy's has the same signature."""
        try:
            rank = operator.index(root)
        except TypeError:
            rank = -1
        if not 0 <= rank < self.size:
            raise InvalidTensor(
                f"root {shown(root)} is not a rank in 0…{self.size - 1}", place=f"tensor {name!r}", value=root
            )
        return rank


def described(error: BaseException) -> str:
    """Return text of an exception as the reason of a rank's failure."""
    return f"{type(error).__name__}: {error}"


def wait_all(handles: Iterable[Handle]) -> list[Any]:
    """Return the results of many calls, in the handles' order. Raises what the first failed call raises."""
    return [handle.wait() for handle in handles]


def _check_reduction(
    operation: OperationDescription, name: str, weight: int | None, rack: Members | None, nonfinite: NonFinite
) -> None:
    """Check that an operation takes what a call of it has. Raises InvalidTensor."""
    if weight is not None and not operation.weighted:
        raise InvalidTensor(
            f"a weight has no effect with op={operation.name!r}",
            place=f"tensor {name!r}",
            value=weight,
            allowed=("no weight", 'op="mean"'),
        )
    if rack is not None and not isinstance(rack, Communicator):
        raise Checks(InvalidTensor, f"tensor {name!r}").refuse("rack", rack, "is no communicator", "a Communicator")
    if rack is not None and not operation.racked:
        raise InvalidTensor(
            f"op={operation.name!r} is not taken among racks",
            place=f"tensor {name!r}",
            value=operation.name,
            allowed=tuple(each.name for each in OPERATIONS.values() if each.racked),
        )
    if not isinstance(nonfinite, str) or nonfinite not in _POLICIES:
        raise InvalidTensor(
            f"unknown policy {shown(nonfinite)} for NaN and infinity",
            place=f"tensor {name!r}",
            value=nonfinite,
            allowed=_POLICIES,
        )


def _plain(values: NDArray[Any], name: str) -> np.dtype[Any]:
    """The type of an array whose bytes are all there is to it."""
    if values.dtype.hasobject:
        raise InvalidTensor(
            f"dtype {values.dtype} holds Python objects, whose bytes say nothing elsewhere",
            place=f"tensor {name!r}",
            value=values.dtype.name,
        )
    return values.dtype


def _short(text: str) -> str:
    """A long text as its beginning and a digest of all of it."""
    if len(text) <= _LONGEST_DETAIL:
        return text
    return f"{text[:_LONGEST_DETAIL]}… (digest {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()})"


def _signature(call: CallRecord) -> int:
    """Hash of a call, as an odd number of 32 bits."""
    words = (call.collective, call.name, call.details)
    return int.from_bytes(hashlib.blake2b(repr(words).encode(), digest_size=4).digest()) | 1
