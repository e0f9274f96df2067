"""Random run files under guarded memory: `python -m weir.tests.experiments.guarded_runs COUNT SEED`.

Sizes are drawn from 0 to ten times the usual ones, on small fabrics and for little virtual time. A file is run, or
refused with a message; native code that leaves its arrays ends the process by SIGSEGV. Even seeds have inaccessible
pages before the arrays, odd ones behind them. Each run's number seeds its own file, so that `COUNT SEED FIRST` repeats
from that number on. Prints how many were run to the end, cut short after some seconds, ended by an error (no progress,
say), and refused.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

_PROCESSOR_SECONDS: Final = 3
"""A run takes little more: it would spend them on RPCs, and small buffers make long runs."""
_STRATEGIES = ("ps", "rack", "hierarchy", "blind", "widest")


def drawn(rng: Random) -> dict[str, Any]:
    """Return a run file's content."""
    zeros = rng.random() < 0.1  # most files with a size of 0 are refused

    def size(usual: int) -> int:
        return rng.choice([0 if zeros else 1, 1, usual, rng.randrange(not zeros, 10 * usual + 1)])

    leaves, spines, per_leaf = rng.choice([(1, 0, 4), (1, 0, 4), (2, 1, 3), (2, 2, 2), (1, 0, 1 + size(4))])
    hosts = [f"h{number + 1}" for number in range(leaves * per_leaf)]
    rate = f"{rng.choice([100, 1000])}Mbit"
    fabric = {
        "name": "drawn",
        "generate": {
            "kind": "leaf-spine",
            "leaves": leaves,
            "spines": spines,
            "hosts_per_leaf": per_leaf,
            "rate": rate,
            "delay": f"{size(2)}us",
            "queue": rng.choice([1, 20, 100, size(100)]),
        },
    }
    drawn_hosts = rng.sample(hosts, len(hosts))
    server, *workers = drawn_hosts[: 1 + rng.randrange(1, 1 + min(8, len(hosts)))]
    window = size(8)
    content: dict[str, Any] = {
        "name": "random",
        "seed": rng.randrange(1 << 32),
        "fabric": fabric,
        "job": {"workers": workers, "server": server, "window": window, "slots": 2 << window.bit_length()},
        "training": {"steps": size(1), "hidden": size(16), "batch": 1, "compute": f"{size(100)}us"},
        "background": [_flow(rng, hosts, number) for number in range(rng.choice([0, 3, size(6), size(15)]))],
        "loss": rng.choice([0, 0, 0, 0.01, 0.1]),
        "host_poll": f"{rng.choice([0, size(30)])}us",
        "congestion": {
            "bound": size(64),
            "lease": f"{200 + size(2000)}us",
            "law": rng.choice(["explicit", "explicit", "dctcp", "hpcc", "delay", "loss", "fixed"]),
            "marks": rng.choice(["depth", "sojourn", "virtual"]),
        },
        "control": {
            "interval": f"{rng.choice([500, 2000, 500 + size(2000)])}us",  # with less a run takes minutes
            "warm_up": f"{size(2)}ms",
            "solve_interval": f"{size(2) + 1}ms",
            "latency": f"{size(10)}us",
        },
        "strategies": [rng.choice(_STRATEGIES)],
    }
    free = sorted(set(hosts) - {server, *workers})
    if free and rng.random() < 0.3:
        content["heartbeats"] = {"to": free[0], "interval": f"{size(1000)}us", "lease": f"{size(5000)}us"}
    if len(free) > 2 and rng.random() < 0.5:
        other = {"workers": free[1:-1], "server": free[-1], "window": window, "slots": 2 << window.bit_length()}
        content["other_jobs"] = [{**other, "values": size(500), "stop": f"{size(2)}ms"}]
    if content["congestion"]["law"] != "hpcc" and rng.random() < 0.3:
        queues = {"depth": size(10), "depth_step": size(4)}
        watch = [{"mode": rng.choice(["md", "mx", "xd"]), "every": size(3)} for _ in range(size(1))]
        content["telemetry"] = {"watch": watch, "queues": queues, "drops": rng.choice(["telling", "all"])}
    for key in rng.sample(["loss", "host_poll", "congestion", "background"], rng.randrange(3)):
        del content[key]
    return content


def _flow(rng: Random, hosts: list[str], number: int) -> dict[str, Any]:
    source, destination = rng.sample(hosts, 2) if len(hosts) > 1 else hosts * 2
    start = rng.randrange(10)
    flow = {
        "source": source,
        "destination": destination,
        "start": f"{start}ms",
        "stop": f"{start + rng.randrange(1, 10)}ms",
    }
    match rng.choice(["steady", "steady", "yielding", "transfer"]):
        case "steady":
            return {**flow, "rate": f"{rng.choice([1, 10])}{rng.choice(['kbit', 'Mbit'])}", "port": number + 1}
        case "yielding":
            return {**flow, "kind": "yielding", "window": rng.choice([1, 64, 640]), "port": number + 1}
        case _:
            return {**flow, "kind": "transfer", "bytes": rng.choice([1, 1000, 100_000]), "window": rng.choice([1, 64])}


async def _limited(run: Coroutine[Any, Any, object]) -> str:
    end_s = time.process_time() + _PROCESSOR_SECONDS
    task = asyncio.create_task(run)
    while not task.done() and time.process_time() < end_s:
        await asyncio.wait({task}, timeout=0.1)
    if task.done():
        await task
        return "complete"
    task.cancel()
    await asyncio.wait({task})
    return "cut short"


def main(count: int, seed: int, first: int = 0) -> None:
    """Run them all."""
    from weir.controller.errors import ControllerError
    from weir.experiments.config import RunConfig
    from weir.experiments.errors import ExperimentError
    from weir.experiments.run import run_strategy
    from weir.tests.support.guarded_memory import install

    faulthandler.enable()
    logging.disable(logging.WARNING)
    install(before=seed % 2 == 0)
    outcomes: Counter[str] = Counter()
    for number in range(first, first + count):
        with TemporaryDirectory() as folder:
            file = Path(folder, "run.yaml")
            file.write_text(json.dumps(drawn(Random(f"{seed} {number}"))))
            try:
                config = RunConfig.load(file)
            except (ExperimentError, ControllerError):
                outcome = "refused"
            else:
                try:
                    outcome = asyncio.run(_limited(run_strategy(config, config.strategies[0])))
                except (ExperimentError, ControllerError):
                    outcome = "error"
        outcomes[outcome] += 1
        sys.stderr.write(f"run {number} {outcome}\n")
    sys.stdout.write(f"{json.dumps(outcomes)}\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
