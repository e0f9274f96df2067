"""Training that a restarted process can rejoin: all ranks meet again and continue from the one with the most progress.

::

    ranks that run    ── a sum fails, or somebody waits at the store ──▶ Meeting ─▶ new group ─▶ state ─▶ train
    a restarted rank ──────────────────────────────────────────────────▶    ▲

They meet at torchrun's store, which outlives them all. A waiting rank repeats its presence, since a process that died
after its arrival must not be counted. Rank 0 announces when all are present, and the number of their group.
"""

from __future__ import annotations

import gc
import io
import json
import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, Final, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist

from ..errors import AllreduceAborted, CallMismatch, ControlRefused, HostError, InvalidPlan, JoinTimeout
from .call_log import LOOK_S
from .process_group import end_all, expect_fresh_stores, failures

_log = logging.getLogger(__name__)

_BEAT_S: Final = 0.1
"""Between two times that a rank that waits says so."""
_SILENT_S: Final = 2.0
"""Seconds of silence after which a rank no longer counts as waiting."""
_TRIES: Final = 3
"""Attempts to make a group: a rank may be lost before all are connected."""
_FINAL: Final = (CallMismatch, ControlRefused, InvalidPlan)
"""Errors of a call that would fail in the same way if it were made again."""

T = TypeVar("T")


@dataclass(slots=True)
class Progress:
    """Progress of this rank's training."""

    step: int = 0
    """Completed steps; the training code increments it after a step's last change."""


def rejoining(
    train: Callable[[Progress], T],
    state: Mapping[str, Any],
    *,
    timeout: timedelta = timedelta(minutes=30),
    store: Any = None,
    rank: int = -1,
    size: int = -1,
) -> T:
    """Call `train` with all ranks present, and again whenever a rank was lost and has returned.

    `train` finds the default process group, and everything in `state` as it is at the rank with the most steps. It
    makes its own DistributedDataParallel and further groups, and continues at `progress.step`.

    Args:
        train: the training function.
        state: objects with `state_dict` and `load_state_dict`: modules, optimizers …
        timeout: the group's time-out, and the longest wait for a lost rank.
        store: meeting point; torchrun's by default.
        rank: this rank; torchrun's by default.
        size: number of ranks; torchrun's by default.

    Returns:
        The result of `train`. The group still exists then.

    Raises:
        JoinTimeout: ranks are missing; the error names them.
        Exception: errors of `train` itself.
    """
    if store is None:
        store, rank, size = next(dist.rendezvous("env://", timeout=timeout))
    expect_fresh_stores()
    meeting = Meeting(dist.PrefixStore("weir/meeting", store), rank, size)
    progress = Progress()
    reason = f"rank {rank} has been started anew"
    unmade = 0
    while True:
        number = meeting.gather(timeout.total_seconds(), reason)
        try:
            with meeting.watched(number):
                dist.init_process_group(
                    "weir",
                    store=dist.PrefixStore(f"weir/group/{number}", store),
                    rank=rank,
                    world_size=size,
                    timeout=timeout,
                )
                unmade = -1
                _spread(state, progress)
                result = train(progress)
                try:
                    dist.barrier()  # nobody leaves whose state another one may need
                except (HostError, RuntimeError):
                    if not meeting.finished(number, _SILENT_S):  # another rank may be through
                        raise
                meeting.finish(number)
                return result
        except (HostError, RuntimeError) as error:
            failed = failures()
            unmade += 1  # 0: it was made
            if any(isinstance(failure, _FINAL) for failure in (error, *failed)) or not (failed or 0 < unmade < _TRIES):
                raise
            reason = f"rank {rank} has lost its group: {failed[0] if failed else error}"
            _log.warning("%s; in step %d; all ranks are to meet again", reason, progress.step)
            for failure in failed:
                failure.__traceback__ = None  # its frames have the DistributedDataParallel of `train`
            del failed
        if dist.is_initialized():
            dist.destroy_process_group()
        gc.collect()  # hooks of the DistributedDataParallel that failed are gone with it


class Meeting:
    """Meeting point of the ranks, usable any number of times."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self._size = size

    def gather(self, timeout_s: float, reason: str) -> int:
        """Wait until all ranks are present, and end a group that still runs, with the reason.

        Returns:
            The number of the new group.

        Raises:
            JoinTimeout: ranks are missing; the error names them.
        """
        member = uuid4().hex
        deadline = time.monotonic() + timeout_s
        heard: dict[int, tuple[str, float]] = {}
        told = 0
        for beat in count():
            self._store.set(f"here/{self._rank}", f"{member} {beat}")
            number, members = self._formed()
            if member in members:
                return number
            if told < number:
                told = number
                if self.finished(number):
                    raise AllreduceAborted("the other ranks have finished their training; there is nothing to rejoin")
                self._store.set(f"over/{number}", reason)
            if self._rank == 0:
                self._form(number, members, heard)
            if time.monotonic() > deadline:
                missing = self._read("missing") or "rank 0 does not say who is missing"
                raise JoinTimeout(f"rank {self._rank}: not all ranks came together in {timeout_s:g} s: {missing}")
            time.sleep(_BEAT_S)
        raise AssertionError

    @contextmanager
    def watched(self, number: int) -> Iterator[None]:
        """While it lasts, all groups of this process are ended as soon as somebody waits for a newer one."""
        ended = threading.Event()
        store = self._store.clone() if hasattr(self._store, "clone") else self._store

        def watch() -> None:
            while not ended.wait(LOOK_S):
                try:
                    over = store.check([f"over/{number}"])
                except RuntimeError:  # the store is gone, with torchrun
                    return
                if over:
                    end_all(store.get(f"over/{number}").decode())
                    return

        thread = threading.Thread(target=watch, name=f"weir group {number}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def finish(self, number: int) -> None:
        """Announce that this group's ranks have finished."""
        self._store.set(f"done/{number}", "")

    def finished(self, number: int, within_s: float = 0.0) -> bool:
        """Return whether the group's ranks have finished, or do so within this time in seconds."""
        deadline = time.monotonic() + within_s
        while not self._store.check([f"done/{number}"]):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_BEAT_S)
        return True

    def _form(self, number: int, members: list[str], heard: dict[int, tuple[str, float]]) -> None:
        """Rank 0's part: a group of those who wait, if that is all."""
        now_s = time.monotonic()
        for rank in range(self._size):
            said = self._read(f"here/{rank}")
            if rank not in heard:
                heard[rank] = said, 0.0  # perhaps of a process that is gone
            elif said != heard[rank][0]:
                heard[rank] = said, now_s
        names = {rank: said.partition(" ")[0] for rank, (said, _) in heard.items()}
        missing = [
            rank for rank, (_, at_s) in heard.items() if names[rank] in members or not at_s or now_s - at_s > _SILENT_S
        ]
        if missing:
            self._store.set("missing", f"rank {', '.join(map(str, missing))} of {self._size} has not come")
        else:
            self._store.set("formed", json.dumps([number + 1, list(names.values())]))

    def _formed(self) -> tuple[int, list[str]]:
        """Number of the newest group, and its members."""
        number, members = json.loads(self._read("formed") or "[0, []]")
        return number, members

    def _read(self, key: str) -> str:
        """Return the key's value in the store, or an empty string."""
        return self._store.get(key).decode() if self._store.check([key]) else ""


def _spread(state: Mapping[str, Any], progress: Progress) -> None:
    """Give all ranks the state of the first of those that have made the most steps."""
    steps: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(steps, progress.step)
    progress.step = max(steps)
    source = steps.index(progress.step)
    sends = source == dist.get_rank()
    told: list[Any] = [None]
    tensors: list[torch.Tensor] = []
    if sends:
        told, tensors = [_taken_apart({name: part.state_dict() for name, part in state.items()}, tensors)], tensors
    dist.broadcast_object_list(told, source)
    states = None if sends else _put_together(told[0], tensors)
    for tensor in tensors:
        if tensor.numel():
            dist.broadcast(tensor, source)
    if states is not None:
        for name, part in state.items():
            part.load_state_dict(states[name])


def _taken_apart(value: Any, tensors: list[torch.Tensor]) -> bytes:
    """Everything but the tensors, which are added to the list: those need no copy to be sent."""

    class Taking(pickle.Pickler):
        def persistent_id(self, part: Any) -> Any:
            if not isinstance(part, torch.Tensor):
                return None
            tensors.append(part.detach().cpu().contiguous())
            return part.shape, part.dtype

    file = io.BytesIO()
    Taking(file).dump(value)
    return file.getvalue()


def _put_together(data: bytes, tensors: list[torch.Tensor]) -> Any:
    """The value, with tensors, added to the list, whose numbers are to come."""

    class Putting(pickle.Unpickler):
        def persistent_load(self, told: Any) -> torch.Tensor:
            shape, kind = told
            tensors.append(torch.empty(shape, dtype=kind))
            return tensors[-1]

    return Putting(io.BytesIO(data)).load()
