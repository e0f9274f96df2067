"""One group's sums through the fabric: in the order of the calls, from a thread of its own that also takes the seat.

The seat is taken at the group's first sum, so a group that never sums large tensors is no job and costs no slots.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import torch

from ..drivers.control_client import ControlClient
from ..errors import AllreduceAborted, ControlRefused, HostError
from ..numerics.datatypes import FloatType, data_types
from ..numerics.native_types import INT32
from .call_log import LOOK_S
from .phases import Phases
from .relay_client import Callback, Relay, SharedBlock, relay
from .rendezvous import Rendezvous
from .settings import Settings
from .staging import Staged
from .work import FabricWork, completers

TYPES: Final = {
    getattr(torch, kind.name): kind.name
    for kind in data_types()
    if isinstance(kind, FloatType) and hasattr(torch, kind.name)
} | {torch.int32: INT32.name}
"""Types that go through the switches: PyTorch's type of each registered floating one, and of int32, with its name."""

_WORD_BYTES: Final = 4
"""Bytes of a lane, by which tensors of any type are copied."""

_ALIGNMENT: Final = 16
"""Bytes of the largest type: each tensor of a gather begins at a multiple of it."""

_TOLD_S: Final = 5.0
"""Seconds within which the controller's notice of a job's end reaches its hosts."""


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum to compute, with the place of its result."""

    work: FabricWork
    parts: Sequence[torch.Tensor]
    """Tensors of one type, summed as one: their numbers one after the other."""
    op: str
    """Name of a collective operation."""
    cuts: Sequence[int]
    of_mean: bool
    """The numbers are parts of a mean, divided by the number of ranks: it is theirs who are left, if ranks are lost."""
    deliver: Callable[[torch.Tensor], None]
    """Takes the sum, flat, in memory that is reused afterwards."""
    timeout_s: float
    staged: Staged | None
    """Access to the parts and the result's memory; None for the CPU's memory."""
    wanted: Sequence[tuple[int, int]] | None = None
    """Runs of elements of the flat sum, each as first and end, that `deliver` reads; None: all. The others are
    undefined.
    """
    key: str = ""
    """Name of the array for operations that keep something from one call of a name to the next."""
    refused: int = 0
    """Number of this rank's calls that were refused before."""

    @property
    def count(self) -> int:
        """Numbers in all parts together."""
        return sum(part.numel() for part in self.parts)


@dataclass(frozen=True, slots=True)
class Broadcast:
    """One rank's tensor to be copied to all."""

    work: FabricWork
    tensor: torch.Tensor
    """Tensor of any type and layout: the source at the root, the place of the copy at the others."""
    root: int
    is_root: bool
    timeout_s: float
    staged: Staged | None
    """Access to the tensor's memory; None for the CPU's."""
    refused: int = 0
    """Number of this rank's calls that were refused before."""


@dataclass(frozen=True)
class Gather:
    """Each rank's tensors to be copied to all.

    They are copied as rows of bytes, one for each rank, each with all of its tensors.
    """

    work: FabricWork
    sources: Sequence[torch.Tensor]
    """This rank's tensors, of any types and layouts."""
    results: Sequence[Sequence[torch.Tensor]]
    """Per source, the places of all ranks' copies: one tensor for each rank, or one with all, in the order of ranks."""
    count: Callable[[str], object]
    """Called with the path that the copies take, "fabric" or "gloo"."""
    timeout_s: float
    staged: Staged | None
    """Access to the tensors' memory; None for the CPU's."""
    refused: int = 0
    """Number of this rank's calls that were refused before."""

    @cached_property
    def ends(self) -> list[int]:
        """Bytes of a row up to the end of each source, all multiples of `_ALIGNMENT`."""
        return list(accumulate(-(-part.nbytes // _ALIGNMENT) * _ALIGNMENT for part in self.sources))

    def pieces(self, rows: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield the part of rows of bytes (ranks, row) that each source has, in its type: (ranks, its elements)."""
        for source, start in zip(self.sources, [0, *self.ends], strict=False):
            yield rows[:, start : start + source.nbytes].view(source.dtype)

    def put(self, row: torch.Tensor) -> None:
        """Copy the sources into a row of bytes (1, row)."""
        for source, piece in zip(self.sources, self.pieces(row), strict=True):
            piece.view(source.shape).copy_(source, non_blocking=True)

    def deliver(self, rows: torch.Tensor) -> None:
        """Copy all rows of bytes (ranks, row) into the results."""
        for results, piece in zip(self.results, self.pieces(rows), strict=True):
            parts = [piece.reshape(results[0].shape)] if len(results) == 1 else piece
            for result, part in zip(results, parts, strict=True):
                result.copy_(part.view(result.shape), non_blocking=True)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Everyone's batch sizes, which one rank asks the controller for."""

    work: FabricWork
    report: Sequence[float]
    """This rank's, as `wire.control_messages.balance_request` has it."""
    samples: int
    """Samples of a step, of all ranks together."""
    rule: str
    into: torch.Tensor
    """Result, int32 (ranks,): zeros if there are no sizes now."""
    timeout_s: float
    refused: int = 0
    """Number of this rank's calls that were refused before."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A report of progress."""

    values: dict[str, Any]
    phases_ns: tuple[int, int]
    """Computation and exposed communication since the last report (`hosts.torch.phases`)."""


class WeirReducer:
    """The fabric's side of one group."""

    def __init__(
        self,
        meeting: Rendezvous,
        settings: Settings,
        failed: Callable[[Exception], None],
        poll_error: Callable[[], Exception | None],
        connect: Callable[[], Any],
    ) -> None:
        """Prepare the sums of a group.

        Args:
            meeting: gives the rank its seat.
            settings: the rank's settings.
            failed: called once, on any thread, with the error that ends all sums.
            poll_error: returns such an error, if there is one, while sums wait.
            connect: connects this group's ranks by Gloo, all in the same call, for gathers in fabrics without PRESENT.
        """
        self._meeting = meeting
        self._settings = settings
        self._failed = failed
        self._poll_error = poll_error
        self._connect = connect
        self._gloo: Any = None
        """Gloo's connections for gathers. Its calls are matched by their order, which is that of the sums here."""
        self._queue: queue.SimpleQueue[Sum | Broadcast | Gather | Sizes | Progress | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._waiting: set[FabricWork] = set()
        self._error: Exception | None = None
        self._relay: Relay | None = None
        self._seat: int | None = None
        self._presents: Future[bool] = Future()
        """True if the fabric takes PRESENT in the job's rounds: the same at all ranks, once the job has begun."""
        self.place: tuple[str, int, str] | None = None
        """Address of the control service, job, and token of this rank's seat; None before the first sum."""
        self._ended = threading.Event()
        """No more sums will come."""
        self._count = 0
        self._phases = Phases()
        self._closing = False

    @property
    def error(self) -> Exception | None:
        """Error that has ended all sums; None while there is none."""
        return self._error

    @property
    def begun(self) -> bool:
        """True if a sum was started: alike at all ranks that have made the same calls."""
        return self._thread is not None

    def start(self, wanted: Sum | Broadcast | Gather | Sizes) -> None:
        """Queue a sum. Raises what the group has failed with."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._closing:
                raise AllreduceAborted("the process group was destroyed before this call")
            self._waiting.add(wanted.work)
            self._phases.begin()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="weir sums", daemon=True)
                self._thread.start()
            self._queue.put(wanted)

    def report(self, progress: dict[str, Any]) -> None:
        """Queue a report of progress behind the sums; it is dropped if there is no seat yet, or no more."""
        with self._lock:
            if self._thread is not None and self._error is None and not self._closing:
                self._queue.put(Progress(progress, self._phases.take()))

    def take_turn(self, told: Callback, device: str) -> bool:
        """Ask for a turn on a device. False: there is no seat yet, or no more, and nobody is called."""
        with self._lock:
            seat, relay_of_seat = self._seat, self._relay
        if seat is None or relay_of_seat is None:
            return False
        relay_of_seat.take_turn(seat, told, device)
        return True

    def release_turn(self) -> None:
        """End the turn, or withdraw the request for one."""
        with self._lock:
            seat, relay_of_seat = self._seat, self._relay
        if seat is not None and relay_of_seat is not None:
            relay_of_seat.release_turn(seat)

    def fail(self, error: Exception, reason: str) -> None:
        """Fail all present and future waits with the error, from any thread; the job's other ranks receive the
        reason.
        """
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            self._ended.set()
            waiting, self._waiting = self._waiting, set()
            seat, self._seat = self._seat, None
        self._failed(error)  # before anyone who waits is told, and asks
        if seat is not None and self._relay is not None:
            self._relay.leave(seat, reason)
        for work in waiting:
            completers.run(lambda work=work: work.settle(error))
        self._queue.put(None)

    def end(self, reason: str) -> None:
        """End the job for all ranks at once, so that no rank continues without another; otherwise like `fail`."""
        if self.place is not None:
            control, job, _ = self.place
            with suppress(ControlRefused), ControlClient(control) as client:  # another one's end is as good
                client.end(job, reason)
                if self._seat is not None:  # else there is nobody to be told here
                    self._ended.wait(_TOLD_S)
        self.fail(AllreduceAborted(reason), reason)

    def join(self) -> None:
        """Wait until the thread is gone, which has failed, or was told to end: it has to be before the interpreter."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def close(self) -> None:
        """Leave in good order: sums that have started in a seat are completed; waits for a seat end.

        The thread has ended on return. May be repeated.
        """
        with self._lock:
            self._closing = True
            self._queue.put(None)
        self.join()
        with self._lock:
            seat, self._seat = self._seat, None
        if seat is not None and self._relay is not None:
            self._relay.leave(seat)

    # --- the thread ---

    def _run(self) -> None:
        while True:
            try:
                wanted = self._queue.get(timeout=LOOK_S if self._waiting else None)
            except queue.Empty:
                if (error := self._poll_error()) is not None:
                    self.fail(error, str(error))
                continue
            if wanted is None:
                return
            try:
                if isinstance(wanted, Sum):
                    self._sum(wanted)
                elif isinstance(wanted, Broadcast):
                    self._broadcast(wanted)
                elif isinstance(wanted, Gather):
                    self._gather(wanted)
                elif isinstance(wanted, Sizes):
                    self._balance(wanted)
                elif self._seat is not None and self._relay is not None:
                    self._relay.report(self._seat, wanted.values, wanted.phases_ns)
            except Exception as error:  # noqa: BLE001 (the order of all sums behind it is lost with it)
                self.fail(error, f"{type(error).__name__}: {error}")

    def _sum(self, wanted: Sum) -> None:
        seat = self._seated(wanted.timeout_s)
        first = wanted.parts[0]
        size = wanted.count * first.element_size()
        assert self._relay is not None
        block = self._relay.acquire_block(size)
        flat = torch.frombuffer(block.memory, dtype=first.dtype, count=wanted.count)

        place = 0
        with torch.no_grad(), _copying(wanted.staged, block, flat):
            for part in wanted.parts:
                flat[place : place + part.numel()].view(part.shape).copy_(part, non_blocking=True)
                place += part.numel()
        self._count += 1

        def deliver() -> None:
            with (
                torch.inference_mode(wanted.parts[0].is_inference()),
                torch.no_grad(),
                _copying(wanted.staged, block, flat),
            ):
                wanted.deliver(flat)

        self._relay.sum(
            seat,
            block,
            lambda error: completers.run(lambda: self._settle(wanted.work, block, deliver, error)),
            count=wanted.count,
            dtype=TYPES[first.dtype],
            op=wanted.op,
            rescale=wanted.of_mean,
            nonfinite="poison",
            cuts=list(wanted.cuts),
            wanted=wanted.wanted,
            name=wanted.key or f"{wanted.work.description}, sum {self._count} of the group",
            timeout_s=wanted.timeout_s,
            refused=wanted.refused,
        )

    def _broadcast(self, wanted: Broadcast) -> None:
        seat = self._seated(wanted.timeout_s)
        tensor = wanted.tensor
        words = -(-tensor.numel() * tensor.element_size() // _WORD_BYTES)
        assert self._relay is not None
        block = self._relay.acquire_block(words * _WORD_BYTES)
        flat = torch.frombuffer(block.memory, dtype=tensor.dtype, count=tensor.numel()).view(tensor.shape)
        if wanted.is_root:
            with torch.no_grad(), _copying(wanted.staged, block, flat):
                flat.copy_(tensor, non_blocking=True)
        self._count += 1

        def deliver() -> None:
            if not wanted.is_root:
                inference = torch.inference_mode(tensor.is_inference())
                with inference, torch.no_grad(), _copying(wanted.staged, block, flat):
                    tensor.copy_(flat, non_blocking=True)

        self._relay.sum(
            seat,
            block,
            lambda error: completers.run(lambda: self._settle(wanted.work, block, deliver, error)),
            count=words,
            dtype=INT32.name,
            op="broadcast",
            root=wanted.root,
            name=f"{wanted.work.description}, sum {self._count} of the group",
            timeout_s=wanted.timeout_s,
            refused=wanted.refused,
        )

    def _gather(self, wanted: Gather) -> None:
        """Copy tensors through the switches, or over Gloo if the fabric takes no PRESENT: then each rank would send
        zeros for all others.
        """
        seat = self._seated(wanted.timeout_s)
        through_switches = self._wait_begun()
        wanted.count("fabric" if through_switches else "gloo")
        relay, meeting = self._relay, self._meeting
        assert relay is not None
        row = wanted.ends[-1]
        block = relay.acquire_block(meeting.size * row)
        flat = torch.frombuffer(block.memory, dtype=torch.uint8, count=meeting.size * row)
        rows = flat.view(meeting.size, row)
        own = rows[meeting.rank : meeting.rank + 1]
        with torch.no_grad(), _copying(wanted.staged, block, flat):
            wanted.put(own)
        self._count += 1

        def deliver() -> None:
            inference = torch.inference_mode(wanted.results[0][0].is_inference())
            with inference, torch.no_grad(), _copying(wanted.staged, block, flat):
                wanted.deliver(rows)

        def told(error: Exception | None) -> None:
            completers.run(lambda: self._settle(wanted.work, block, deliver, error))

        if not through_switches:
            if self._gloo is None:
                self._gloo = self._connect()
            call = self._gloo._allgather_base(flat, own.view(-1))
            call.get_future().add_done_callback(lambda future: told(_error_of(future)))
            return
        relay.sum(
            seat,
            block,
            told,
            count=row // _WORD_BYTES,
            dtype=INT32.name,
            op="all_gather",
            name=f"{wanted.work.description}, sum {self._count} of the group",
            timeout_s=wanted.timeout_s,
            refused=wanted.refused,
        )

    def _wait_begun(self) -> bool:
        """Wait until the job has begun; return whether the fabric takes PRESENT in its rounds."""
        while True:
            with suppress(TimeoutError):
                return self._presents.result(LOOK_S)
            if (error := self._error or self._poll_error()) is not None:
                raise error

    def _balance(self, wanted: Sizes) -> None:
        seat = self._seated(wanted.timeout_s)
        assert self._relay is not None
        block, block_back = self._relay.acquire_block(wanted.into.nbytes), self._relay.release_block
        sizes = torch.frombuffer(block.memory, dtype=torch.int32, count=wanted.into.numel())

        def told(error: HostError | None) -> None:
            if isinstance(error, ControlRefused):  # at every rank, and sums go on
                block_back(block)
                if self._claim(wanted.work):
                    self._phases.end()
                    wanted.work.settle(error)
            else:
                self._settle(wanted.work, block, lambda: wanted.into.copy_(sizes), error)

        self._relay.balance(
            seat,
            block,
            lambda error: completers.run(lambda: told(error)),
            report=list(wanted.report),
            samples=wanted.samples,
            rule=wanted.rule,
            timeout_s=wanted.timeout_s,
            refused=wanted.refused,
        )

    def _settle(
        self, work: FabricWork, block: SharedBlock, deliver: Callable[[], object], error: Exception | None
    ) -> None:
        if error is not None:
            self.fail(error, f"{type(error).__name__}: {error}")  # which tells whoever waits
        wrong: Exception | None = None
        claimed = self._claim(work)
        try:
            if claimed:
                deliver()
        except Exception as raised:  # noqa: BLE001 (whoever waits is to have it)
            wrong = raised
        assert self._relay is not None
        self._relay.release_block(block)
        if claimed:
            self._phases.end()
            work.settle(wrong)

    def _claim(self, work: FabricWork) -> bool:
        """Return whether the work is still waited for; the caller then settles it.

        Work that has failed gets no result: its tensors belong to the caller again.
        """
        with self._lock:
            waited_for = work in self._waiting
            self._waiting.discard(work)
        return waited_for

    def _seated(self, timeout_s: float) -> int:
        if self._seat is None:
            self._check()  # a failed rank must not register a job that no one joins
            job, token = self._meeting.seat(timeout_s, self._check)
            self.place = self._settings.control, job, token
            self._relay = relay()
            seat = self._relay.open_seat(
                self._over,
                self._presents.set_result,
                control=self._settings.control,
                job=job,
                token=token,
                timeout_s=timeout_s,
                nic=self._settings.nic,
            )
            with self._lock:
                if self._error is None:
                    self._seat = seat
                    return seat
            self._relay.leave(seat, "the group was aborted")
            self._check()
        assert self._seat is not None
        return self._seat

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if (error := self._poll_error()) is not None:
            raise error
        if self._closing:
            raise AllreduceAborted("the process group was destroyed before all ranks had come to its first sum")

    def _over(self, error: HostError | None) -> None:
        error = error or AllreduceAborted("the job is over")
        completers.run(lambda: self.fail(error, ""))


def _error_of(future: Any) -> Exception | None:
    """Return the error of a complete future of Gloo's; None if it has none."""
    try:
        future.value()
    except RuntimeError as error:
        return error
    return None


def _copying(staged: Staged | None, block: SharedBlock, flat: torch.Tensor) -> AbstractContextManager[None]:
    """Return a context in which numbers are copied between a call's tensors and the block's memory."""
    return staged.copying(block.memory, flat.data_ptr()) if staged is not None else nullcontext()
