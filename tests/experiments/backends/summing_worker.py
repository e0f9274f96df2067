"""A worker that sums the same tensor again and again, and prints a JSON line with the result of each step.

Run as a module with CONTROL JOB STOP TIMEOUT_S, the token on standard input. All stop after the step in which one of
them found the file STOP, which that step's weights signal to the others.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np

from weir.hosts import HostError, Membership

SIZE = 20_000
STOP = 1_000
"""The weight that says so."""
STEP_S = 0.02
"""Seconds of work in each step, which leave time for faults."""


def value(rank: int, step: int) -> float:
    """Value of every element of a rank's tensor: sums identify the contributors."""
    return float(16**rank * (1 + step % 3))


def main() -> int:
    control, job, stop, timeout_s = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
    try:
        with Membership(control, job, sys.stdin.readline().strip(), timeout_s=timeout_s) as membership:
            rank = membership.worker.core.plan.rank
            for step in itertools.count():
                weight = STOP if stop.exists() else 1
                tensor = np.full(SIZE, value(rank, step), np.float32)
                total = membership.communicator.allreduce_many({"tensor": tensor}, weight=weight)["tensor"]
                say(
                    step=step,
                    digest=hashlib.sha256(total.array.tobytes()).hexdigest(),
                    sums=np.unique(total.array).tolist(),
                    weights=np.unique(total.weights).tolist(),
                    generation=membership.generation,
                )
                if total.weights.max() >= STOP:
                    break
                time.sleep(STEP_S)
    except HostError as error:
        say(error=type(error).__name__, text=str(error))
        return 3
    return 0


def say(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
