"""What PyTorch loads to know of the back end "weir" (the target of two entry points), and users of torchft import.

It runs at the end of every `import torch` of the machine, so it imports nothing of Weir's that is not there already,
costs no time, and never raises: an error here would be everybody's.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any


def register() -> None:
    """Make the back end known, if it is not. May be repeated."""
    try:
        import torch.distributed as dist

        if dist.is_available() and "weir" not in dist.Backend.backend_list:
            dist.Backend.register_backend("weir", _create, devices=["cpu"])
    except Exception:
        logging.getLogger(__name__).debug("the back end weir could not be registered", exc_info=True)


def unconfigured(timeout: timedelta) -> Any:
    """What torchft's Manager is given: a process group that is this process's alone until it is configured.

    Raises InvalidPlan for settings in the environment that cannot be.
    """
    from .hosts.torch.process_group import unconfigured as group

    return group(timeout)


def _create(*words: Any) -> Any:
    """Called for each group, with its store, rank, size and time-out."""
    from .hosts.torch.process_group import create

    return create(*words)
