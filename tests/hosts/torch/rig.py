"""Ranks of `torch.distributed` over an emulated fabric: PyTorch is imported once, and ranks are forked.

`python -m weir.tests.hosts.torch.rig` takes one JSON line for each scenario (its name, the number of ranks, additions
to their environment) and answers with each rank's result or error.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_context
from typing import Any, Final

from weir.experiments.backends.live import live_fabric
from weir.experiments.backends.real_time import RealTimeFabric
from weir.topologies.generators import leaf_spine
from weir.topologies.targets import BMV2, Target

HOSTS: Final = ("h1", "h2", "h3", "h4")
SCENARIOS: Final = "weir.tests.hosts.torch.scenarios"
LEASE_NS: Final = 5_000_000_000
DIES_AT: Final = 3
"""The step at which a replica's process is killed."""
TOGETHER: Final = 3
"""Steps that all replicas make together after one has come again."""
EVERYONE: Final = 111.0
"""The sum of the three ranks' 10 to the power of the rank."""


class Ranks:
    """The process that forks ranks, over a fabric that runs in this one."""

    def __init__(self, told: dict[str, str], scenarios: str = SCENARIOS) -> None:
        """`scenarios` is the module with the ranks' parts."""
        self.told = {**told, "WEIR_HOST": ",".join(HOSTS), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, scenarios],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.told},
        )

    def play(self, scenario: str, ranks: int = 3, **environment: str) -> list[Any]:
        """Result of each rank; {"error": type, "text": …} of one that raised, {"exit": status} of one that died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([scenario, ranks, environment]) + "\n")
        self._process.stdin.flush()
        answer: list[Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def running_fabric() -> Iterator[dict[str, str]]:
    """Fabric of four hosts in this process; yields the environment of its ranks."""
    with running_fabric_of(BMV2) as (told, _):
        yield told


@contextmanager
def running_fabric_of(target: Target) -> Iterator[tuple[dict[str, str], RealTimeFabric]]:
    """Fabric of four hosts and such switches in this process; yields the environment of its ranks, and the fabric."""
    told: dict[str, str] = {}
    fabrics: list[RealTimeFabric] = []
    up, done = threading.Event(), threading.Event()

    async def run() -> None:
        async with live_fabric(leaf_spine(2, 1, 2, target=target), lease_ns=LEASE_NS) as live:
            fabric = live.fabric
            assert isinstance(fabric, RealTimeFabric)
            fabrics.append(fabric)
            told.update(WEIR_CONTROL=live.service.address, WEIR_NIC=",".join(fabric.nic(host) for host in HOSTS))
            up.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert up.wait(120)
        yield told, fabrics[0]
    finally:
        done.set()
        thread.join()


def _rank(scenario: str, rank: int, ranks: int, environment: dict[str, str], store: str, answers: Any) -> None:
    import torch
    import torch.distributed as dist

    scenarios: Any = import_module(sys.argv[1])
    os.environ.update(environment, LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    try:
        answer: Any = getattr(scenarios, scenario)(rank, ranks, dist.FileStore(store, ranks))
    except Exception as error:  # noqa: BLE001 (it is the answer)
        traceback.print_exc()
        answer = {"error": type(error).__name__, "text": str(error)}
    answers.send_bytes(json.dumps(answer).encode())
    if dist.is_initialized():
        dist.destroy_process_group()
    scenarios.end()


def main() -> None:
    import_module(sys.argv[1])  # PyTorch, once

    context = get_context("fork")
    for line in sys.stdin:
        scenario, ranks, environment = json.loads(line)
        with tempfile.NamedTemporaryFile() as store:
            pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
            processes = [
                context.Process(target=_rank, args=(scenario, rank, ranks, environment, store.name, pipes[rank][1]))
                for rank in range(ranks)
            ]
            for process, (_, theirs) in zip(processes, pipes, strict=True):
                process.start()
                theirs.close()
            answers: list[Any] = []
            for process, (ours, _) in zip(processes, pipes, strict=True):
                try:
                    answers.append(json.loads(ours.recv_bytes()))
                except EOFError:
                    process.join()
                    answers.append({"exit": process.exitcode})
            for process in processes:
                process.join()
        sys.stdout.write(json.dumps(answers) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
