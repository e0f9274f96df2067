"""An optimizer whose steps are those of all ranks: the wrapper that scripts for Horovod have.

With Adasum, what is combined are the weights' changes of each rank's own step, so that a rank's momentum and moments
stay as its own step left them: w ← w + Adasum(Δw). With sums and means it is the gradients, before the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from ..collectives.operations import Adasum, Average, Sum
from ..errors import InvalidPlan
from .hooks.adasum import start_adasum
from .layers import inner_ends

_OPERATIONS = {Sum: dist.ReduceOp.SUM, Average: dist.ReduceOp.AVG}


class _Distributed:
    """Methods put before those of an optimizer's own class."""

    _weir_op: str
    _weir_among: Any
    _weir_passes: int
    _weir_made: dict[torch.nn.Parameter, int]
    param_groups: list[dict[str, Any]]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one step of all ranks together."""
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        else:
            loss = None
        self._weir_made.clear()
        own_step: Callable[[], Any] = super().step  # type: ignore[misc]
        with torch.no_grad():
            parameters = [
                parameter for group in self.param_groups for parameter in group["params"] if parameter.grad is not None
            ]
            if self._weir_op == Adasum:
                _step_with_adasum(parameters, own_step, self._weir_among)
            else:
                _reduce([parameter.grad for parameter in parameters], self._weir_op, self._weir_among)
                own_step()
        return loss

    def _weir_count(self, parameter: torch.nn.Parameter) -> None:
        """Count a backward pass, of which the script has said how many come before a step."""
        self._weir_made[parameter] = made = self._weir_made.get(parameter, 0) + 1
        if made > self._weir_passes:
            raise InvalidPlan(
                f"{made} backward passes before a step; call step, or say so by backward_passes_per_step",
                place="DistributedOptimizer",
                value=made,
                allowed=(f"up to {self._weir_passes}",),
            )


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    backward_passes_per_step: int = 1,
    op: str = Average,
    process_set: Any = None,
) -> torch.optim.Optimizer:
    """Return an optimizer that combines with all ranks in `step`, with the arguments' names of Horovod.

    All ranks begin with the same weights and call `step` alike.

    Args:
        optimizer: The rank's own. The returned one shares its parameters and state.
        named_parameters: `model.named_parameters()`: checked to be all that the optimizer has.
        backward_passes_per_step: Backward passes whose gradients are accumulated before a step.
        op: `weir.Average` or `weir.Sum` of gradients, or `weir.Adasum` of the changes that the own step makes.
        process_set: A process group, or `weir.torch_entry.hooks.Racks`; None for the world.

    Raises:
        InvalidPlan: An argument cannot be. `step` raises what its calls raise.
    """
    if op not in (Sum, Average, Adasum):
        raise InvalidPlan(f"op {op!r}", place="DistributedOptimizer", value=op, allowed=(Average, Sum, Adasum))
    if backward_passes_per_step < 1:
        raise InvalidPlan(
            f"backward_passes_per_step must be ≥ 1, got {backward_passes_per_step}",
            place="DistributedOptimizer",
            value=backward_passes_per_step,
        )
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if named_parameters is not None:
        names = {parameter: name for name, parameter in named_parameters}
        if unnamed := sum(parameter not in names for parameter in parameters):
            raise InvalidPlan(
                f"named_parameters lacks {unnamed} of the optimizer's {len(parameters)} parameters",
                place="DistributedOptimizer",
                value=unnamed,
            )
    own = type(optimizer)
    kind: Any = type(own.__name__, (_Distributed, own), {})
    made = kind.__new__(kind)
    made.__dict__ = optimizer.__dict__
    made._weir_op, made._weir_among = op, process_set
    made._weir_passes, made._weir_made = backward_passes_per_step, {}
    for parameter in parameters:
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(made._weir_count)
    distributed: torch.optim.Optimizer = made
    return distributed


def _step_with_adasum(parameters: list[torch.nn.Parameter], own_step: Callable[[], Any], among: Any) -> None:
    """Make the own step, and put start + Adasum(change) in its place."""
    starts = [parameter.detach().clone() for parameter in parameters]
    own_step()
    by_type: dict[torch.dtype, list[int]] = defaultdict(list)
    for place, parameter in enumerate(parameters):
        by_type[parameter.dtype].append(place)
    for places in by_type.values():
        changes = torch.cat([(parameters[place] - starts[place]).reshape(-1) for place in places])
        sizes = [parameters[place].numel() for place in places]
        start_adasum(changes, inner_ends(sizes), among).wait()
        for place, change in zip(places, changes.split(sizes), strict=True):
            parameters[place].copy_(starts[place] + change.view_as(starts[place]))


def _reduce(gradients: list[torch.Tensor], op: str, group: Any) -> None:
    by_type: dict[torch.dtype, list[torch.Tensor]] = defaultdict(list)
    for gradient in gradients:
        by_type[gradient.dtype].append(gradient)
    for same in by_type.values():
        dist.all_reduce_coalesced(same, _OPERATIONS[op], group)
