"""Ranks of PyTorch in Mininet: one process in each host of `all_reduce.fabric`, with the back ends weir and Gloo.

::

    host namespaces, a rank and its relay in each ══ one weir-switch; links have a rate both ways
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Final

from ...topologies import Endpoint
from ...topologies.mininet.fabric import MininetFabric, SwitchKind, interface
from ..errors import ExperimentError
from .all_reduce import WORKERS, fabric
from .live import live_fabric

_ROOT: Final = Path(__file__).parents[2]
_STORE_PORT: Final = 29_501
_LEASE_NS: Final = 60_000_000_000


async def run_torch_ranks(
    module: str, words: Sequence[str], variables: Mapping[str, str] | None = None, ranks: int = WORKERS
) -> str:
    """Run a module at all ranks until they end, and return what rank 0 has printed.

    Args:
        module: Full name of the module.
        words: Its command line.
        variables: Variables of its environment besides torchrun's, Gloo's and Weir's.
        ranks: Number of ranks.

    Raises:
        TopologyError: Mininet cannot run here, or links cannot have a rate.
        ExperimentError: A rank failed.
    """
    topology = fabric(ranks)
    async with live_fabric(topology, SwitchKind.WEIR, lease_ns=_LEASE_NS) as live:
        assert isinstance(live.fabric, MininetFabric)
        live.fabric.limit_hosts()
        processes = []
        for rank, host in enumerate(topology.hosts):
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": interface(Endpoint(host.name, 0)),
                "MASTER_ADDR": str(topology.hosts[0].address),
                "MASTER_PORT": str(_STORE_PORT),
                "RANK": str(rank),
                "WORLD_SIZE": str(len(topology.hosts)),
                "WEIR_CONTROL": live.service.address,
                "WEIR_HOST": host.name,
                **(variables or {}),
            }
            command = [sys.executable, "-m", module, *words]
            processes.append(live.fabric.popen(host.name, command, cwd=_ROOT, env=environment, stdout=PIPE, text=True))
        said = await asyncio.gather(*(asyncio.to_thread(process.communicate) for process in processes))
    if failed := {rank: process.returncode for rank, process in enumerate(processes) if process.returncode}:
        raise ExperimentError(f"ranks ended with an error, status by rank: {failed}")
    printed: str = said[0][0]
    return printed
