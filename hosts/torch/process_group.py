"""Process group that `init_process_group("weir")` makes, and that torchft reconfigures.

Sums, broadcasts and gathers of large tensors go through the switches; every other call is the same call of an inner
Gloo group.
Each method is defined here: one that PyTorch's C++ does not find would run its own with the interpreter's lock held,
for which Gloo's threads wait.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate
from typing import Any, Final, Unpack

import torch
import torch.distributed as dist
from torch.autograd.profiler import record_function
from torch.distributed.constants import default_pg_timeout

from ..collectives.progress import ProgressReport, report_of
from ..errors import AllreduceAborted, AllreduceTimeout, HostError, InvalidTensor
from .call_log import GroupCallLog, counts_refusals, described
from .contiguous import CopiedWork, contiguous_words, plain
from .layers import inner_ends, sizes_of_shards, watch_modules
from .reducer import TYPES, Broadcast, Gather, Sizes, Sum, WeirReducer
from .relay_client import end_relay
from .rendezvous import Rendezvous
from .settings import Settings
from .staging import DEVICES, Staged
from .work import FabricWork, GlooWork, completers

_log = logging.getLogger(__name__)

_CPU: Final = torch.device("cpu")
_GLOO: Final = dist.ProcessGroup.BackendType.GLOO
_SUM: Final = dist.ReduceOp.SUM
_AVG: Final = dist.ReduceOp.AVG

_WORDS: Final = {"sum": "SUM", "mean": "AVG"}
"""PyTorch's words for operations."""

COPY_RANKS: Final = 3
COPY_BYTES = 1 << 20
"""Sizes of a group and of a result from which broadcasts and all_gathers go through the switches.

Gloo's source of a broadcast sends a tensor ⌈log₂ n⌉ times, and its ring of an all_gather sends n − 1 parts over each
rank's link. Here a rank sends its numbers once. Two ranks send as much over Gloo. Smaller results are faster over Gloo,
with fewer processes.
"""

_OF_TWO: Final = frozenset({"send", "recv", "recv_anysource"})
"""Calls between two ranks only, which have no place in the order of all ranks' calls."""

_UNCOUNTED: Final = _OF_TWO | {"monitored_barrier"}
"""Calls that may fail at one rank while the others are in step. A monitored barrier raises only after it has waited."""

_groups: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_groups.clear)  # threads and seats are the parent's

_fresh_stores = False
"""True if each group of this process has a fresh store, in any attempt of torchrun."""


_world: Rendezvous | None = None
"""Meeting of the default group's ranks, if it is one of these groups."""


def create(options: Any) -> Any:
    """Create the back end of a group; PyTorch calls it for each group.

    Args:
        options: PyTorch's `DistributedBackendOptions`: the store at which the group's ranks meet, its rank and size,
            its time-out, and the ranks of the default group in it, none for the default group itself.

    Returns:
        The process group.

    Raises:
        InvalidPlan: A setting in the environment is invalid.
        HostError: The jobs of a mesh (`WEIR_MESH`) are refused; raised at every rank.
    """
    global _world
    store, rank, size, timeout = options.store, options.group_rank, options.group_size, options.timeout
    ranks = list(options.global_ranks_in_group)
    if not ranks:
        _world = None
    group = WeirProcessGroup(store, rank, size, timeout, ranks=ranks)
    if not ranks:
        group.meet_as_mesh()
        _world = group.meeting
    return group


def unconfigured(timeout: timedelta) -> Any:
    """Return a group of this process alone, for torchft's Manager, until `configure` extends it.

    As torchft expects, waiting for a call raises nothing: its future does, and `errored` returns the error that has
    ended the sums.
    """
    return WeirProcessGroup(dist.HashStore(), 0, 1, timeout, raises=False)


def expect_fresh_stores() -> None:
    """Assume from now on that ranks of different attempts of torchrun meet at fresh stores."""
    global _fresh_stores
    _fresh_stores = True


def failures() -> list[Exception]:
    """Return errors of this process's groups that are not shut down."""
    return [error for group in list(_groups) if (error := group.errored()) is not None]


def end_all(reason: str) -> None:
    """Fail all calls of all groups with the reason, here and at the other ranks; callable from any thread."""
    for group in list(_groups):
        group.end(reason)


class WeirProcessGroup(dist.ProcessGroup):
    """One rank of one group."""

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        timeout: timedelta,
        *,
        raises: bool = True,
        ranks: Sequence[int] = (),
    ) -> None:
        """Make a rank of a group.

        Args:
            store: Store at which the group's ranks meet.
            rank: Rank of this process in the group.
            size: Number of ranks.
            timeout: Time limit of the group's calls.
            raises: Whether waiting for a call raises what it has failed with, or its future alone.
            ranks: Ranks of the default group that are in this one; none: it is no part of that group.
        """
        super().__init__(rank, size)
        self._ranks = ranks
        self._raises = raises
        self._settings = Settings.read()
        if _fresh_stores:
            self._settings = replace(self._settings, restart=0)
        self._rank, self._size = rank, size
        self.carried: Counter[str] = Counter()
        """Number of calls through the switches ("fabric …") and over Gloo ("gloo …"), by their names."""
        self._said = False
        self._set_up(store, timeout)
        watch_modules(WeirProcessGroup)
        _groups.add(self)

    def _set_up(self, store: Any, timeout: timedelta) -> None:
        if timeout == default_pg_timeout and self._settings.timeout is not None:
            timeout = self._settings.timeout
        self._timeout = timeout
        gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo/", store), self._rank, self._size, timeout=timeout)
        self._set_default_backend(_GLOO)
        self._register_backend(_CPU, _GLOO, gloo)
        self._inner = dist.ProcessGroup(dist.PrefixStore("inner/", store), self._rank, self._size)
        self._inner._set_default_backend(_GLOO)
        self._inner._register_backend(_CPU, _GLOO, gloo)
        if "cuda" in DEVICES and torch.cuda.is_available():
            for group in (self, self._inner):
                group._register_backend(torch.device("cuda"), _GLOO, gloo)
        self._error: Exception | None = None
        world = _world if self._ranks else None
        self.meeting = meeting = Rendezvous(
            dist.PrefixStore("fabric/", store), self._rank, self._size, self._settings, world, self._ranks
        )
        self._calls = log = GroupCallLog(
            dist.PrefixStore("compare/", store), self._rank, self._size, timeout, self._settings.host
        )
        rank, size = self._rank, self._size

        def connect() -> Any:
            """Connect the ranks by Gloo once more, on another thread than the script's."""
            own_store = store.clone() if hasattr(store, "clone") else store
            return dist.ProcessGroupGloo(dist.PrefixStore("queued/", own_store), rank, size, timeout=timeout)

        self._sums = sums = WeirReducer(meeting, self._settings, self._failed, log.poll, connect)

        def failure() -> Exception | None:
            """Return the error for threads that wait on this set of Gloo connections."""
            if sums.error is None and (differing := log.poll()) is not None:
                sums.fail(differing, str(differing))
            return sums.error

        def reason(error: Exception) -> Exception:
            """Return the cause of an error that has broken Gloo's connections."""
            absent = AllreduceTimeout(f"{log.stall}; {error}") if log.stall else error
            found = sums.error or log.found or absent
            if self._sums is sums:
                self._failed(found)
            return found

        self._failure, self._reason = failure, reason

    def meet_as_mesh(self, shape: Sequence[int] = ()) -> None:
        """Register the jobs of the default group and of a mesh of its ranks, unless the former has one.

        Args:
            shape: Sizes of the mesh; by default those of the settings, if they name any.

        Raises:
            HostError: A mesh of another number of ranks, or one without room; raised at every rank.
        """
        shape = shape or self._settings.mesh
        if shape and self._sums.place is None and not self._sums.begun:
            self._sums.place = self._settings.control, *self.meeting.seat_of_mesh(shape, self._timeout.total_seconds())

    # --- properties of the group ---

    def getBackendName(self) -> str:
        return "weir"

    def name(self) -> str:
        return "weir"

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def getRank(self) -> int:
        return self._rank

    def getSize(self) -> int:
        return self._size

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time-out of calls from now on."""
        self._timeout = timeout
        self._inner.set_timeout(timeout)

    # --- failures ---

    def errored(self) -> Exception | None:
        """Return the error of the group, in torchft's interface; None while there is none."""
        return self._error

    def abort(self) -> None:
        """Fail all calls in flight at once, from any thread; the other ranks' policy handles the loss of this one."""
        self._sums.fail(AllreduceAborted("the process group was aborted"), "its process group was aborted")

    def end(self, reason: str) -> None:
        """Fail all calls in flight, here and at the other ranks, under any policy; callable from any thread."""
        self._sums.end(reason)

    def shutdown(self) -> None:
        """Leave in good order. May be repeated."""
        self._sums.close()
        _groups.discard(self)

    def _failed(self, error: Exception) -> None:
        """No more sums will come."""
        if self._error is None:
            self._error = error

    def configure(
        self,
        store_addr: str,
        replica_id: str,
        rank: int,
        world_size: int,
        quorum_id: int | None = None,
        group_rank: int | None = None,
        group_world_size: int | None = None,
        global_ranks: list[int] | None = None,
    ) -> None:
        """Become one rank of a new group, in torchft's interface. Calls in flight fail.

        Args:
            store_addr: Meeting point of the ranks, HOST:PORT/PREFIX; fresh at each call.
            replica_id: Ignored, as all that follow `world_size`.
            rank: Rank of this process in the group.
            world_size: Number of ranks.
            quorum_id: Ignored.
            group_rank: Ignored.
            group_world_size: Ignored.
            global_ranks: Ignored.
        """
        self._sums.fail(AllreduceAborted("the process group is configured anew"), "")  # its seat is left, too
        address, _, prefix = store_addr.partition("/")
        host, _, port = address.rpartition(":")
        store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=self._timeout)
        self._rank, self._size = rank, world_size
        self._settings = replace(self._settings, restart=0)  # replicas are restarted one by one, and meet all the same
        self._set_up(dist.PrefixStore(prefix, store), self._timeout)

    # --- sums ---

    @counts_refusals
    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Sum one tensor through the fabric; pass other types, devices and operations on to Gloo.

        Args:
            tensors: The tensor, which gets the result, or a list of it.
            opts: PyTorch's `AllreduceOptions`, or its reduce operation.
            timeout: Time limit; None: that of `opts`, else the group's.

        Returns:
            The work, whose `wait` returns when the tensor has the result.
        """
        parts, op, limit = _read(tensors, opts, timeout)
        if len(parts) == 1 and self._goes_through(parts, op):
            cuts = inner_ends(sizes_of_shards(parts[0].numel()))
            return self._start("all_reduce", parts, op, limit, cuts, lambda flat: _put(flat, parts), parts)
        return self._pass_on("allreduce", *((tensors, opts) if opts is not None else (tensors,)))

    @counts_refusals
    def sum_bucket(self, bucket: torch.Tensor, cuts: Sequence[int], opts: Any = None) -> Any:
        """Sum a bucket of DistributedDataParallel, whose numbers are divided by the number of ranks.

        It goes through the switches whatever its size, so that the bits of a layer do not depend on its bucket.

        Args:
            bucket: the bucket's flat buffer, which takes the sum.
            cuts: the elements at which its layers begin, except the first.
            opts: `AllreduceOptions`, as PyTorch passes them.
        """
        parts, op, limit = _read([bucket], opts, None)
        if self._can_go_through(parts, op):
            return self._start("all_reduce", parts, op, limit, cuts, lambda flat: _put(flat, parts), parts, True)
        return self.allreduce(parts, opts)

    @counts_refusals
    def combine(self, tensor: torch.Tensor, op: str, cuts: Sequence[int], *, key: str = "") -> FabricWork:
        """Combine a tensor in place by an operation of Weir that PyTorch has no `ReduceOp` for.

        Args:
            tensor: floating, of two or more ranks.
            op: "adasum" or "adacons", or a user's operation by its path.
            cuts: the elements at which its layers begin, except the first.
            key: name of the tensor from call to call, for operations that keep something between calls.

        Raises:
            InvalidTensor: the fabric cannot take the tensor.
        """
        if not self._can_go_through([tensor], _SUM):
            raise InvalidTensor(
                f"{op} is for floating tensors of two or more ranks, not {tensor.dtype} of {self._size}",
                place=f"group of {self._size} ranks",
                value=str(tensor.dtype),
                allowed=tuple(map(str, TYPES)),
            )
        parts = [tensor]
        return self._start("combine", parts, op, self._timeout, cuts, lambda flat: _put(flat, parts), parts, key=key)

    @counts_refusals
    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Sum tensors of one type as one message with a cut before each. Arguments are those of `allreduce`."""
        parts, op, limit = _read(tensors, opts, None)
        if self._goes_through(parts, op):
            cuts = _ends(parts)
            return self._start("all_reduce", parts, op, limit, cuts, lambda flat: _put(flat, parts), parts)
        return self._pass_on("allreduce_coalesced", *((tensors, opts) if opts is not None else (tensors,)))

    @counts_refusals
    def reduce(self, tensors: Any, opts: Any = None, *rest: Any) -> Any:
        """Reduce to the rank `opts.rootRank`; the tensors of other ranks keep their values."""
        parts = _listed(tensors)
        if hasattr(opts, "rootRank") and self._goes_through(parts, op := _op_of(opts)):
            root = opts.rootRank == self._rank
            return self._start(
                "reduce",
                parts,
                op,
                opts.timeout,
                _ends(parts),
                lambda flat: _put(flat, parts if root else ()),
                parts,
                wanted=None if root else (),
            )
        return self._pass_on("reduce", *((tensors, opts, *rest) if opts is not None else (tensors,)))

    @counts_refusals
    def reduce_scatter_single(self, output: Any, source: Any, opts: Any = None) -> Any:
        """Reduce `source`, (n · k, …), and put this rank's part into `output`, (k, …)."""
        output, source = plain(output), plain(source)
        if opts is not None and self._goes_through([source], op := _op_of(opts)):
            return self._scattered([output], [source], op, opts.timeout, sizes_of_shards(output.numel()))
        return self._pass_on("reduce_scatter_single", output, source, opts)

    _reduce_scatter_base = reduce_scatter_single

    @counts_refusals
    def reduce_scatter_single_coalesced(self, outputs: Any, sources: Any, opts: Any = None) -> Any:
        """Reduce several sources in one message. Arguments are lists of those of `reduce_scatter_single`."""
        outputs, sources = _listed(outputs), _listed(sources)
        if opts is not None and self._goes_through(sources, op := _op_of(opts)):
            return self._scattered(outputs, sources, op, opts.timeout)
        return self._pass_on("reduce_scatter_single_coalesced", outputs, sources, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    @counts_refusals
    def reduce_scatter(self, outputs: Any, sources: Any, opts: Any = None, *rest: Any) -> Any:
        """Reduce a list of n tensors of any sizes, by rank, and put this rank's into the output.

        Raises:
            ValueError: The list has not one tensor per rank, or this rank's has another size than the output.
        """
        if (
            hasattr(opts, "reduceOp")
            and isinstance(outputs, list)
            and len(outputs) == 1
            and self._goes_through(parts := _listed(sources[0]), op := _op_of(opts))
        ):
            output = plain(outputs[0])
            if len(parts) != self._size:
                raise ValueError(f"reduce_scatter: {len(parts)} tensors for {self._size} ranks; give one for each")
            if parts[self._rank].numel() != output.numel():
                raise ValueError(
                    f"reduce_scatter: rank {self._rank} has {parts[self._rank].numel()} elements, and an output of "
                    f"{output.numel()}; give one as large"
                )
            before = sum(part.numel() for part in parts[: self._rank])
            end = before + output.numel()
            return self._start(
                "reduce_scatter",
                parts,
                op,
                opts.timeout,
                _ends(parts),
                lambda flat: _put(flat[before:end], [output]),
                outputs,
                wanted=[(before, end)],
            )
        return self._pass_on(
            "reduce_scatter", *((outputs, sources, opts, *rest) if opts is not None else (outputs, sources))
        )

    def _scattered(
        self,
        outputs: Sequence[Any],
        sources: Sequence[Any],
        op: Any,
        limit: timedelta,
        layers: Sequence[int] = (),
    ) -> Any:
        """Sum each source's parts by rank, of which this rank's goes into the output; with cuts between all parts.

        `layers`: elements of each layer in a part of the only source. Then all ranks' shards of a layer are summed
        together, with cuts between layers.
        """
        for output, source in zip(outputs, sources, strict=True):
            if output.numel() * self._size != source.numel():
                raise ValueError(
                    f"reduce_scatter: {source.numel()} elements are no {self._size} parts of {output.numel()}; the "
                    "input must be as large as all ranks' outputs together"
                )
        parts, sizes = list(sources), [output.numel() for output in outputs for _ in range(self._size)]
        shards = [output.numel() for output in outputs]
        if layers:
            shards = list(layers)
            parts = list(sources[0].view(self._size, -1).split(shards, dim=1))
            sizes = [part.numel() for part in parts]

        starts = accumulate((self._size * shard for shard in shards[:-1]), initial=0)
        places = [(start + self._rank * shard, shard) for start, shard in zip(starts, shards, strict=True)]
        runs = [(first, first + shard) for first, shard in places]

        def deliver(flat: torch.Tensor) -> None:
            own = [flat[first:end] for first, end in runs]
            if layers:
                own = [torch.cat(own)]
            for output, part in zip(outputs, own, strict=True):
                _put(part, [output])

        return self._start("reduce_scatter", parts, op, limit, inner_ends(sizes), deliver, list(outputs), wanted=runs)

    def _goes_through(self, parts: Sequence[torch.Tensor], op: Any) -> bool:
        """Return whether the switches sum these tensors; the same at all ranks, whose calls have the same sizes and
        types.

        Means go through the switches at every size: Gloo divides a sum, so a float16 mean would be an infinity if its
        sum is one.
        """
        if not self._can_go_through(parts, op):
            return False
        size: int = sum(part.numel() * part.element_size() for part in parts)
        return size >= (1 if op == _AVG else max(self._settings.min_bytes, 1))

    def _can_go_through(self, parts: Sequence[torch.Tensor], op: Any) -> bool:
        """Return whether the switches could sum these tensors, apart from their size."""
        if self._size == 1 or op not in (_SUM, _AVG) or not parts:
            return False
        kind, device = parts[0].dtype, parts[0].device
        return (
            kind in TYPES
            and (op == _SUM or kind.is_floating_point)
            and device.type in DEVICES
            and all(part.dtype == kind and part.layout == torch.strided and part.device == device for part in parts)
        )

    def _start(
        self,
        name: str,
        parts: Sequence[torch.Tensor],
        op: Any,
        limit: timedelta,
        cuts: Sequence[int],
        deliver: Callable[[torch.Tensor], None],
        results: Sequence[torch.Tensor],
        of_mean: bool = False,
        key: str = "",
        wanted: Sequence[tuple[int, int]] | None = None,
    ) -> FabricWork:
        """Queue a sum. `deliver` reads the wanted runs of elements of the flat sum, each as first and end; None:
        all.
        """
        count = sum(part.numel() for part in parts)
        with record_function(f"weir:{name}"):
            self.carried[f"fabric {name}"] += 1
            named = op if isinstance(op, str) else "mean" if op == _AVG else "sum"
            what = f"{name} {_WORDS.get(named, named)} of {count} {parts[0].dtype}"
            work = FabricWork(list(results), what, raises=self._raises)
            self._calls.note(f"switches {name}", f"{work.description} through the switches", work)
            seconds = (limit if limit > timedelta(0) else self._timeout).total_seconds()
            staged = Staged.of(parts)
            refused = self._calls.refused
            self._sums.start(
                Sum(work, list(parts), named, cuts, of_mean, deliver, seconds, staged, wanted, key, refused)
            )
        return work

    # --- copies ---

    @counts_refusals
    def broadcast(self, tensors: Any, opts: Any = None, *rest: Any) -> Any:
        """Send the tensor of the rank `opts.rootRank` to all, bit by bit."""
        parts = _listed(tensors)
        if hasattr(opts, "rootRank") and len(parts) == 1 and self._copies_through(parts[0]):
            tensor, root = parts[0], int(opts.rootRank)
            with record_function("weir:broadcast"):
                self.carried["fabric broadcast"] += 1
                what = f"broadcast from rank {root} of {tensor.numel()} {tensor.dtype}"
                work = FabricWork(parts, what, raises=self._raises)
                self._calls.note("switches broadcast", f"{what} through the switches", work)
                limit = (opts.timeout if opts.timeout > timedelta(0) else self._timeout).total_seconds()
                staged, refused = Staged.of(parts), self._calls.refused
                self._sums.start(Broadcast(work, tensor, root, root == self._rank, limit, staged, refused))
            return work
        return self._pass_on("broadcast", *((tensors, opts, *rest) if opts is not None else (tensors,)))

    def _copies_through(self, tensor: torch.Tensor) -> bool:
        """Return whether the switches copy this tensor; the same at all ranks, whose tensors have the same sizes."""
        return (
            self._size >= COPY_RANKS
            and tensor.layout == torch.strided
            and tensor.device.type in DEVICES
            and tensor.numel() * tensor.element_size() >= COPY_BYTES
        )

    @counts_refusals
    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, *rest: Any) -> Any:
        """Copy each rank's tensor to all, bit by bit. Arguments are lists of one: a list of n tensors, and a tensor."""
        if isinstance(outputs, list) and len(outputs) == 1:
            sources, results = _listed(inputs), [_listed(outputs[0])]
            if len(results[0]) == self._size and self._gathers_through(sources, results):
                return self._gather(sources, results, opts)
        return self._pass_on("allgather", *((outputs, inputs, opts, *rest) if opts is not None else (outputs, inputs)))

    @counts_refusals
    def all_gather_single(self, output: Any, source: Any, opts: Any = None) -> Any:
        """Copy each rank's tensor into one, (n · k, …), of all ranks, bit by bit."""
        output, source = plain(output), plain(source)
        if self._gathers_through([source], [[output]]):
            return self._gather([source], [[output]], opts)
        return self._pass_on("all_gather_single", output, source, *(() if opts is None else (opts,)))

    _allgather_base = all_gather_single

    @counts_refusals
    def all_gather_single_coalesced(self, outputs: Any, sources: Any, opts: Any = None) -> Any:
        """Gather several tensors in one message. Arguments are lists of those of `all_gather_single`."""
        outputs, sources = _listed(outputs), _listed(sources)
        if self._gathers_through(sources, results := [[output] for output in outputs]):
            return self._gather(sources, results, opts)
        return self._pass_on("all_gather_single_coalesced", outputs, sources, *(() if opts is None else (opts,)))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gathers_through(self, sources: Sequence[torch.Tensor], results: Sequence[Sequence[torch.Tensor]]) -> bool:
        """Return whether the switches may copy these tensors; the same at all ranks, whose tensors have the same sizes
        and types.
        """
        if self._size < COPY_RANKS or len(sources) != len(results):
            return False
        pairs = [(source, result) for source, each in zip(sources, results, strict=True) for result in each]
        return sum(result.nbytes for _, result in pairs) >= COPY_BYTES and all(
            tensor.layout == torch.strided
            and tensor.device.type in DEVICES
            and tensor.device == sources[0].device
            and tensor.dtype == source.dtype
            and result.numel() * len(each) == source.numel() * self._size
            for source, each in zip(sources, results, strict=True)
            for result in each
            for tensor in (source, result)
        )

    def _gather(
        self, sources: Sequence[torch.Tensor], results: Sequence[Sequence[torch.Tensor]], opts: Any
    ) -> FabricWork:
        """Queue a gather. Its path, which the job's plan decides, is found in the order of the sums."""
        with record_function("weir:all_gather"):
            what = f"all_gather of {sum(source.numel() for source in sources)} {sources[0].dtype}"
            work = FabricWork([result for each in results for result in each], what, raises=self._raises)
            self._calls.note("queued all_gather", f"{what} through the switches if they copy", work)
            limit = getattr(opts, "timeout", timedelta(0))
            seconds = (limit if limit > timedelta(0) else self._timeout).total_seconds()

            def count(path: str) -> None:
                self.carried[f"{path} all_gather"] += 1

            staged, refused = Staged.of(sources), self._calls.refused
            self._sums.start(Gather(work, sources, results, count, seconds, staged, refused))
        return work

    # --- batch sizes ---

    @counts_refusals
    def batch_sizes(self, report: Sequence[float], samples: int, rule: str) -> FabricWork:
        """Ask for every rank's part of the next step's samples, which the controller decides from all ranks' reports.

        The result is one tensor, int32 (ranks,): their parts, or zeros where they stay. All ranks call it alike;
        `report` is as `wire.control_messages.balance_request` has it.

        Raises what the group has failed with; waiting raises ControlRefused where there are no sizes.
        """
        sizes = torch.zeros(self._size, dtype=torch.int32)
        work = FabricWork([sizes], f"batch sizes of {samples} samples by the {rule} rule", raises=self._raises)
        self.carried["fabric batch_sizes"] += 1
        self._calls.note("switches batch_sizes", f"{work.description} through the switches", work)
        limit = self._timeout.total_seconds()
        self._sums.start(Sizes(work, report, samples, rule, sizes, limit, self._calls.refused))
        return work

    # --- progress ---

    def report(self, **progress: Unpack[ProgressReport]) -> None:
        """Report the job's progress, as `Communicator.report` does. Before the group's first sum nothing is sent.

        Times that are not given are those of turns (`hosts.torch.turns`), or estimates (`hosts.torch.phases`). Bytes
        are counted.
        """
        told = report_of(progress)
        self._sums.report({name: getattr(told, name) for name in progress})  # plain numbers, whatever was handed in

    # --- turns ---

    def take_turn(self, told: Callable[[HostError | None], None], device: str = "") -> bool:
        """Ask for this rank's turn on a device that jobs share (hosts/torch/turns.py).

        Args:
            told: Called once, on another thread: with None as the turn begins, or with the error for which there is
                none.
            device: Name of the device in this rank's host; empty: it has one.

        Returns:
            False before the group's first sum and after its end, when there are no turns and nobody is called.
        """
        return self._sums.take_turn(told, device)

    def release_turn(self) -> None:
        """End the turn, or withdraw the request for one."""
        self._sums.release_turn()

    # --- all else ---

    def _pass_on(self, name: str, *words: Any, **named: Any) -> Any:
        self.carried[f"gloo {name}"] += 1
        if not self._said:
            self._said = True
            _log.info(
                "rank %d: %s goes over Gloo, as does all but sums of %d bytes or more and copies of %d or more",
                self._rank,
                name,
                self._settings.min_bytes,
                COPY_BYTES,
            )
        dense, copies = contiguous_words(words)
        inner = getattr(self._inner, name)(*dense, **named)
        if copies and self._writes(name, words):
            inner = CopiedWork(inner, copies)
        if name in _OF_TWO or not isinstance(inner, dist._Work):
            return inner
        work = GlooWork(inner, self._failure, self._reason, self._calls.refuse, raises=self._raises)
        self._calls.note(f"gloo {name}", f"{described(name, *words)} over Gloo", work)
        return work

    def _writes(self, name: str, words: Sequence[Any]) -> bool:
        """Return True if Gloo writes into the tensors of the first argument at this rank."""
        if name == "reduce" and len(words) > 1 and hasattr(words[1], "rootRank"):
            return bool(words[1].rootRank == self._rank)
        return name != "send"


def _passing(name: str) -> Callable[..., Any]:
    def call(self: WeirProcessGroup, *words: Any, **named: Any) -> Any:
        return self._pass_on(name, *words, **named)

    call.__name__ = name
    call.__doc__ = "Over Gloo."
    return call if name in _UNCOUNTED else counts_refusals(call)


for _name, _same in {
    "all_to_all_single": "alltoall_base",
    "allgather_coalesced": None,
    "alltoall": None,
    "barrier": None,
    "gather": None,
    "monitored_barrier": None,
    "recv": None,
    "recv_anysource": None,
    "scatter": None,
    "send": None,
}.items():
    setattr(WeirProcessGroup, _name, _passing(_name))
    if _same is not None:
        setattr(WeirProcessGroup, _same, _passing(_name))


def _listed(tensors: Any) -> list[torch.Tensor]:
    """A call's tensors. Raises InvalidTensor for one that is composed of others."""
    return [plain(tensor) for tensor in ([tensors] if isinstance(tensors, torch.Tensor) else tensors)]


def _op_of(opts: Any) -> Any:
    """The operation, without what goes with it."""
    return getattr(opts.reduceOp, "op", opts.reduceOp)


def _read(tensors: Any, opts: Any, timeout: timedelta | None) -> tuple[list[torch.Tensor], Any, timedelta]:
    """Tensors, operation and limit of a call in any of PyTorch's forms."""
    if opts is None:
        op: Any = _SUM
    elif hasattr(opts, "reduceOp"):
        op, timeout = _op_of(opts), opts.timeout
    else:
        op = getattr(opts, "op", opts)
    return _listed(tensors), op, timeout if timeout is not None else timedelta(milliseconds=-1)


def _ends(parts: Sequence[torch.Tensor]) -> list[int]:
    """Elements at which the parts begin, except the first; empty parts have none."""
    return inner_ends([part.numel() for part in parts])


def _put(flat: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
    """The numbers, one part after the other, into tensors of any layout."""
    place = 0
    for part in parts:
        part.copy_(flat[place : place + part.numel()].view(part.shape), non_blocking=True)
        place += part.numel()


def _at_exit() -> None:
    """A script that has not destroyed its groups: seats are left in good order, or by the error that ended it."""
    error = getattr(sys, "last_value", None)
    for group in list(_groups):
        if error is None:
            group.shutdown()
        else:
            group._sums.fail(HostError("the process has ended"), f"{type(error).__name__}: {error}")
            group._sums.join()
    end_relay()
    completers.close()


atexit.register(_at_exit)
