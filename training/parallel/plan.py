"""Parallel forms of a model made of PyTorch's own layers, and its weights as DTensors for checkpoints.

`parallelize` is for 2-D and 2.5-D. For Megatron-LM's 1-D division, PyTorch has `parallelize_module`; `megatron_plan` is
the plan to call it with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from torch import nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from ..errors import TrainingError
from .layers import Embedding2p5D, LayerNorm2p5D, Linear2p5D
from .mesh import Mesh

_FORMS: Final = {nn.Linear: Linear2p5D, nn.LayerNorm: LayerNorm2p5D, nn.Embedding: Embedding2p5D}


def parallelize(model: nn.Module, mesh: Mesh) -> nn.Module:
    """Replace every linear, norm and embedding layer by its form on blocks, which takes its block of the weights.

    All other modules stay. They see blocks, so they must compute each number from numbers of its own block: activation
    functions, dropout, and attention over heads that a block holds whole.

    Args:
        model: Whole model, the same at every rank.
        mesh: The ranks.

    Returns:
        The model, changed in place.

    Raises:
        TrainingError: A layer cannot be divided, or has parameters and no form on blocks.
    """
    for name, child in model.named_children():
        form = _FORMS.get(type(child))
        if form is not None:
            setattr(model, name, form(child, mesh))
        elif next(child.parameters(recurse=False), None) is not None:
            known = ", ".join(kind.__name__ for kind in _FORMS)
            raise TrainingError(
                f"{name}: {type(child).__name__} has parameters and no form on blocks; {known} have one"
            )
        else:
            parallelize(child, mesh)
    return model


def parts(model: nn.Module) -> Iterator[tuple[str, Any, nn.Module]]:
    """Yield name, parameter and layer of every block of weights of a model from `parallelize`."""
    for path, module in model.named_modules():
        if hasattr(module, "placements"):
            for name, parameter in module.named_parameters(recurse=False):
                yield f"{path}.{name}", parameter, module


def distributed_state(model: nn.Module) -> dict[str, Any]:
    """Return the weights as DTensors under the names and shapes of the whole model, for torch.distributed.checkpoint.

    A checkpoint of them can be loaded into any other division of the same model. The DTensors share the parameters'
    memory, so loading into them in place changes the model.
    """
    return {
        name: DTensor.from_local(
            parameter.detach(),
            layer.mesh.device_mesh,
            layer.placements[name.rpartition(".")[2]],
            run_check=False,
        )
        for name, parameter, layer in parts(model)
    }


def megatron_plan(blocks: int) -> dict[str, Any]:
    """Return the plan of Megatron-LM's 1-D division for `CharacterModel`, to be passed to `parallelize_module`."""
    plan: dict[str, Any] = {}
    for number in range(blocks):
        for name in ("query", "key", "value", "first"):
            plan[f"blocks.{number}.{name}"] = ColwiseParallel()
        for name in ("out", "second"):
            plan[f"blocks.{number}.{name}"] = RowwiseParallel()
    return plan
