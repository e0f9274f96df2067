"""Communication hooks of DistributedDataParallel: `model.register_comm_hook(state, hook)`.

Each hook takes DDP's bucket of gradients and returns the future of its combined numbers. The state is a process group,
None for the world, or a hook's own class.
"""

from .adacons import adacons_hook
from .adasum import Racks, adasum_hook

__all__ = ["Racks", "adacons_hook", "adasum_hook"]
