"""Runs a script with the name of one back end in it over another: `local_sums gloo|fixed SCRIPT`, by torchrun.

`fixed`: over Gloo as well, but the sums of gradients are done locally, in fixed point.
"""

from __future__ import annotations

import runpy
import sys
from typing import Any

import torch.distributed as dist
from torch.nn import parallel

from weir.tests.hosts.torch.scenarios import fixed_point_hook


def main() -> None:
    how, script = sys.argv[1:]
    begin: Any = dist.init_process_group
    make: Any = parallel.DistributedDataParallel

    def hooked(*words: Any, **named: Any) -> Any:
        model = make(*words, **named)
        model.register_comm_hook(dist.get_world_size(), lambda state, bucket: fixed_point_hook(state, bucket))
        return model

    dist.init_process_group = lambda *_: begin("gloo")
    if how == "fixed":
        parallel.DistributedDataParallel = hooked
    runpy.run_path(script)


if __name__ == "__main__":
    main()
