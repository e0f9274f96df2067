"""Communication hooks of DistributedDataParallel: `model.register_comm_hook(state, hook)`.

Each hook takes DDP's bucket of gradients and returns the future of its combined numbers. `weir.torch_entry.hooks` is
this package.
"""

from .adacons import adacons_hook
from .adasum import RackGroups, adasum_hook
from .compressed import (
    CodecState,
    DgcState,
    PackedState,
    TopKState,
    codec_hook,
    compll_hook,
    dgc_hook,
    packed_hook,
    topk_hook,
)
from .hierarchical import HiTopKState, hitopk_hook
from .planned import PlannedState, planned_hook

__all__ = [
    "CodecState",
    "DgcState",
    "HiTopKState",
    "PackedState",
    "PlannedState",
    "RackGroups",
    "TopKState",
    "adacons_hook",
    "adasum_hook",
    "codec_hook",
    "compll_hook",
    "dgc_hook",
    "hitopk_hook",
    "packed_hook",
    "planned_hook",
    "topk_hook",
]
