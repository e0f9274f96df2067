"""One worker of a configuration as a process: `python -m weir.training.search_rank CONFIGURATION`.

It takes its seat in the job by the environment, as any worker does. Each line of standard input is a stage::

    ▶ {"search": "ann", "stage": 1, "steps": 40}        one line a stage, until the input ends
    ◀ {"accuracy": 0.91, "seconds": 1.3}                from rank 0, when the stage's steps are complete

CONFIGURATION is JSON: workload, seed, and parameters. The mean gradient of all workers is summed in the network.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import Any, TextIO

from ..hosts import Communicator, join
from .search import Trial
from .search_models import SearchModels, batch_of


def train_stages(communicator: Communicator, configuration: dict[str, Any], stages: Iterable[str], out: TextIO) -> None:
    """Train stage by stage, and have rank 0 write each stage's accuracy.

    Args:
        communicator: The job.
        configuration: Workload, seed and parameters.
        stages: A line for each stage.
        out: Takes rank 0's lines.

    Raises:
        TrainingError: A parameter has a value that is not allowed; also what collectives raise.
    """
    parameters = configuration["parameters"]
    trial = Trial(0, parameters, 0)
    models = SearchModels(configuration["workload"], configuration["seed"])
    size, rank, batch = communicator.size, communicator.rank, batch_of(parameters)
    share = [batch // size + (index < batch % size) for index in range(size)]
    done = 0
    for line in stages:
        stage = json.loads(line)
        began = time.monotonic()

        def mean(gradient: Any, step: int, stage: Any = stage, done: int = done) -> Any:
            found = communicator.allreduce(gradient, op="mean", weight=share[rank], name="gradient")
            communicator.report(
                step=done + step,
                stage=f"{stage['search']}/stage {stage['stage']}",
                steps_left=stage["steps"] - step - 1,
            )
            return found

        accuracy = models.train_share(trial, stage["steps"], share, rank, mean)
        done += stage["steps"]
        if rank == 0:
            out.write(json.dumps({"accuracy": accuracy, "seconds": time.monotonic() - began}) + "\n")
            out.flush()


def main() -> None:
    """Take the seat that the environment names, and train until the input ends."""
    with join() as communicator:
        train_stages(communicator, json.loads(sys.argv[1]), sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
