"""Random run files under guarded memory: `python -m weir.tests.experiments.guarded_runs COUNT SEED`.

Sizes are drawn from 0 to ten times the usual ones. A file is run, or refused with a message; native code that leaves
its arrays ends the process by SIGSEGV. Prints how many were run and refused. Each run's number seeds its own file, so
that `COUNT SEED FIRST` repeats from that number on.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

_STRATEGIES = ("ps", "rack", "hierarchy", "blind", "widest")


def drawn(rng: Random) -> dict[str, Any]:
    """Return a run file's content."""

    def size(usual: int) -> int:
        return rng.choice([0, 1, usual, rng.randrange(10 * usual + 1)])

    hosts = [f"h{number}" for number in range(1, 13)]
    rng.shuffle(hosts)
    server, *workers = hosts[: 1 + rng.randrange(1, 9)]
    flows = [
        {
            "source": (pair := rng.sample(range(1, 13), 2)) and f"h{pair[0]}",
            "destination": f"h{pair[1]}",
            "rate": f"{rng.choice([1, 10, 100, 700, 1000])}{rng.choice(['kbit', 'Mbit'])}",
            "start": f"{rng.randrange(20)}ms",
            "stop": f"{20 + rng.randrange(20)}ms",
            "port": number + 1,
        }
        for number in range(rng.choice([0, 3, size(6), size(150)]))
    ]
    interval_us = rng.choice([0, 100, 500, rng.randrange(100, 5001)])  # with less a run takes many minutes
    content: dict[str, Any] = {
        "name": "random",
        "seed": rng.randrange(1 << 32),
        "fabric": "leaf_spine.yaml",
        "job": {"workers": workers, "server": server, "window": size(8), "slots": 1 << rng.randrange(10)},
        "training": {"steps": rng.choice([0, 1, 2, 2, 3]), "hidden": size(16), "compute": f"{size(100)}us"},
        "background": flows,
        "loss": rng.choice([0, 0, 0, 0.01, 0.2]),
        "host_poll": f"{size(30)}us",
        "control": {"interval": f"{interval_us}us", "warm_up": f"{size(2)}ms", "solve_interval": f"{size(2)}ms"},
        "strategies": rng.sample(_STRATEGIES, rng.randrange(1, 3)),
    }
    for key in rng.sample(["loss", "host_poll", "control", "background"], rng.randrange(4)):
        del content[key]
    return content


def main(count: int, seed: int, first: int = 0) -> None:
    """Run them all."""
    from weir.controller.errors import ControllerError
    from weir.experiments.config import RunConfig
    from weir.experiments.errors import ExperimentError
    from weir.experiments.run import run_strategy
    from weir.tests.support.guarded_memory import install

    faulthandler.enable()
    install()
    done, refused = 0, 0
    for number in range(first, first + count):
        with TemporaryDirectory() as folder:
            file = Path(folder, "run.yaml")
            file.write_text(json.dumps(drawn(Random(f"{seed} {number}"))))
            sys.stderr.write(f"run {number}\n")
            try:
                config = RunConfig.load(file)
                for strategy in config.strategies:
                    asyncio.run(run_strategy(config, strategy))
                done += 1
            except (ExperimentError, ControllerError):
                refused += 1
    sys.stdout.write(f"{done} run, {refused} refused\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
