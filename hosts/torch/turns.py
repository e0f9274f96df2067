"""Turns of a rank on a device that several jobs share: one computes while another one communicates.

::

    with turn(): …                 block begins ─▶ take      last gradient, or the block's end ─▶ release
    take_turns(model)              next forward ─▶ take      last gradient ─▶ release

The turn ends behind the last gradient of a backward pass, before DistributedDataParallel waits for its sums: both are
callbacks at the end of the pass, and run in the order in which they were queued. Turns are an agreement about time
alone. A rank without one (no controller, another back end, no sum yet) computes at once, with the same numbers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch import nn

from ...errors.values import Checks
from ..errors import HostError
from .layers import distributed_modules

_log = logging.getLogger(__name__)

PATIENCE_S: Final = 60.0
"""Default time after which a rank computes without a turn."""


class _RankTurn:
    """Turn of this process, on the default group's job."""

    def __init__(self) -> None:
        self._group: Any = None
        """Group by whose job the turn is held; None: no turn is held."""
        self._queued = False
        self._warned = False

    @property
    def held(self) -> bool:
        return self._group is not None

    def take(self, device: str, patience_s: float) -> None:
        """Wait for the turn; return without one if there are none."""
        group = dist.group.WORLD
        if self.held or not hasattr(group, "take_turn"):
            return
        answered, errors = threading.Event(), list[HostError]()

        def told(error: HostError | None) -> None:
            errors.extend([] if error is None else [error])
            answered.set()

        if not group.take_turn(told, device):
            return
        if not answered.wait(patience_s):
            group.release_turn()
            self._warn(f"no turn in {patience_s:g} s")
        elif errors:
            self._warn(str(errors[0]))
        else:
            self._group = group

    def release(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.release_turn()

    def release_after_backward(self) -> None:
        """Release behind the backward pass that runs now."""
        if self.held and not self._queued:
            self._queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ended)

    def _backward_ended(self) -> None:
        self._queued = False
        self.release()

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("rank %d computes without a turn: %s", dist.get_rank(), why)


_turn: Final = _RankTurn()
_watched: Final[WeakSet[nn.Module]] = WeakSet()
"""Modules whose gradients end a turn."""


@contextmanager
def turn(*, device: str = "", patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Compute inside the block when it is this rank's turn on its device.

    All ranks of the job enter such blocks equally often. The turn ends with the block, and for a
    DistributedDataParallel behind the last gradient, so that it is not held while the rank waits for sums. Other
    collectives belong behind the block. The first block of a process group, before its first sum, has no turn.

    Args:
        device: Name of the device in this rank's host; empty: the host has one.
        patience_s: Time in s after which the rank computes without a turn, and logs that once.

    Raises:
        HostError: An argument is out of range.
    """
    _checked(device, patience_s)
    for module in list(distributed_modules):
        _watch(module)
    _turn.take(device, patience_s)
    try:
        yield
    finally:
        _turn.release()


class TurnHooks:
    """Hooks of a model that take turns; `remove` takes them off."""

    def __init__(self, model: nn.Module, handles: list[Any]) -> None:
        self._model, self._handles = model, handles

    def remove(self) -> None:
        """Remove the hooks and release a held turn. May be called again."""
        for handle in self._handles:
            handle.remove()
        if len(self._handles) > 1:  # those of the gradients, too
            _watched.discard(self._model)
        self._handles.clear()
        _turn.release()


def take_turns(model: nn.Module, *, device: str = "", patience_s: float = PATIENCE_S) -> TurnHooks:
    """Have a model take its rank's turn before each forward pass, and release it behind the last gradient.

    The training loop stays as it is. Forward passes in evaluation, or without gradients, take no turn.

    Args:
        model: The model, or its DistributedDataParallel.
        device: As for `turn`.
        patience_s: As for `turn`.

    Returns:
        The hooks.

    Raises:
        HostError: An argument is out of range, or no parameter of the model has gradients.
    """
    _checked(device, patience_s)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise HostError("take_turns: no parameter of the model has gradients, behind which a turn ends", place="model")

    def before(module: nn.Module, inputs: Any) -> None:
        if module.training and torch.is_grad_enabled():
            _turn.take(device, patience_s)

    first = model.register_forward_pre_hook(torch.compiler.disable(before), prepend=True)
    return TurnHooks(model, [first, *_watch(model)])


def _watch(module: nn.Module) -> list[Any]:
    """Release the turn behind the module's gradients from now on; return new hooks."""
    if module in _watched:
        return []
    _watched.add(module)
    return [
        parameter.register_post_accumulate_grad_hook(lambda _: _turn.release_after_backward())
        for parameter in module.parameters()
        if parameter.requires_grad
    ]


def _checked(device: str, patience_s: float) -> None:
    checks = Checks(HostError, "turn")
    checks.text("device", device)
    checks.seconds("patience_s", patience_s)
