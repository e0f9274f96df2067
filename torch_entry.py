"""Registration of the back end "weir" in PyTorch (the target of two entry points), and import for users of torchft.

It runs at the end of every `import torch` of the machine, so it imports nothing of Weir's that is not there already,
costs no time, and never raises: an error here would be everybody's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .hosts import Communicator
    from .hosts.torch.elastic_restart import Progress
    from .hosts.torch.turns import TurnHooks

T = TypeVar("T")


def __getattr__(name: str) -> Any:
    """Load `hooks`, the communication hooks of DistributedDataParallel, when it is first asked for (PEP 562)."""
    if name == "hooks":
        from .hosts.torch import hooks

        return hooks
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register() -> None:
    """Register the back end "weir" with PyTorch, unless it is registered."""
    try:
        import torch.distributed as dist
        from torch.backends import cuda

        if dist.is_available() and "weir" not in dist.Backend.backend_list:
            devices = ["cpu", "cuda"] if cuda.is_built() else ["cpu"]
            dist.Backend.register_backend("weir", _create, extended_api=True, devices=devices)
    except Exception:
        logging.getLogger(__name__).debug("the back end weir could not be registered", exc_info=True)


def unconfigured(timeout: timedelta) -> Any:
    """Return a process group of this process alone until it is configured, for torchft's Manager.

    Raises InvalidPlan for invalid settings in the environment.
    """
    from .hosts.torch.process_group import unconfigured as group

    return group(timeout)


def rejoining(train: Callable[[Progress], T], state: Mapping[str, Any], **options: Any) -> T:
    """Call `train` with all ranks of the job, and again whenever a rank was lost and its process restarted.

    Args:
        train: Function of a `Progress`, which has the step to continue from.
        state: Objects with `state_dict` and `load_state_dict`, by name, which every rank gets as the rank with the most
            steps has them.
        **options: Options of `hosts.torch.elastic_restart.rejoining`, whose errors apply too.

    Returns:
        The value of `train`.
    """
    from .hosts.torch.elastic_restart import rejoining as train_together

    register()
    return train_together(train, state, **options)


def init_device_mesh(device_type: str, mesh_shape: Sequence[int], **options: Any) -> Any:
    """Make a DeviceMesh whose groups are registered and placed together now, as by `weir torchrun --mesh`.

    All ranks call it after `init_process_group("weir")` and before a sum of all ranks. If the default group has a job
    by then, or another back end, it does what PyTorch's function of this name does.

    Args:
        device_type: Type of the devices.
        mesh_shape: Sizes of the mesh's dimensions, whose product is the number of ranks.
        **options: Further options of PyTorch's function, such as `mesh_dim_names`.

    Returns:
        The DeviceMesh.

    Raises:
        InvalidPlan: The mesh is not of this number of ranks.
        ControlRefused: A switch has no room for one of the jobs; raised at every rank, and none is registered.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh as initialise

    if dist.is_initialized() and hasattr(dist.group.WORLD, "meet_as_mesh"):
        dist.group.WORLD.meet_as_mesh(mesh_shape)
    return initialise(device_type, tuple(mesh_shape), **options)


def report(**progress: Any) -> None:
    """Report the progress of the default process group's job to the controller, once in a step.

    Over another back end nothing happens. Keys and errors are those of `weir.Communicator.report`.
    """
    import torch.distributed as dist

    if hasattr(dist.group.WORLD, "report"):
        dist.group.WORLD.report(**progress)


def turn(**options: Any) -> AbstractContextManager[None]:
    """Return a context in which this rank computes while it has the turn on a device that jobs share.

    Args:
        **options: Options of `hosts.torch.turns.turn`, whose errors apply too.
    """
    from .hosts.torch.turns import turn as own_turn

    return own_turn(**options)


def take_turns(model: Any, **options: Any) -> TurnHooks:
    """Take this rank's turn before each forward pass of a model, and release it after its last gradient.

    Args:
        model: Module whose hooks are set.
        **options: Options of `hosts.torch.turns.take_turns`, whose errors apply too.

    Returns:
        The hooks, which can be removed.
    """
    from .hosts.torch.turns import take_turns as hooked

    return hooked(model, **options)


def gossip(optimizer: Any, policy: str = "exact", *, communicator: Communicator | None = None, **options: Any) -> Any:
    """Wrap an optimiser so that ranks average with one other rank at a time, in place of an all-reduce of gradients.

    Use it in a script that `weir launch` starts, with a plain model (no DistributedDataParallel), which all ranks
    initialise alike.

    Args:
        optimizer: Any optimiser of PyTorch.
        policy: Gossip policy by name (exact, steady, netmax, uniform), or the path of a Python file (docs/gossip.md).
            It is computed from iteration times that ranks measure.
        communicator: The job; None: that of `weir.join()`.
        **options: `period`, `policy_period` and `seed` of `GossipAverager`.

    Returns:
        A `torch.distributed.optim.PostLocalSGDOptimizer`, whose `averager` is the `GossipAverager`.

    Raises:
        GossipError: The policy is unknown.
        HostError: The optimiser is none of PyTorch's or is wrapped already, the job has one worker, or an option is out
            of range; also errors of `weir.join`.
    """
    from .controller.gossip.policies import POLICIES
    from .hosts import join
    from .hosts.torch.gossip import GossipAverager, GossipOptimizer, check_wrappable

    check_wrappable(optimizer)
    compute = POLICIES.describe(policy).compute

    def parts(seconds: Any) -> tuple[Any, Any]:
        found = compute(seconds)
        return found.probabilities, found.pull_weights

    transport = (join() if communicator is None else communicator).transport
    return GossipOptimizer(optimizer, GossipAverager(transport, parts, **options))


def _create(options: Any, _: Any) -> Any:
    """Called for each group, with PyTorch's options of it and the user's own, of which there are none."""
    from .hosts.torch.process_group import create

    return create(options)
