"""One rank of a job that is going to be broken: `python -m weir.bench.recovery_rank CONTROL JOB`.

The token is on standard input. It sums a small tensor without end, and after each sum writes a line: when that was
(monotonic clock, ns) and in which generation.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from weir.hosts import HostError, Membership

_VALUES = 4_096
_TIMEOUT_S = 60.0


def main() -> int:
    control, job = sys.argv[1], int(sys.argv[2])
    tensor = np.ones(_VALUES, np.float32)
    try:
        with Membership(control, job, sys.stdin.readline().strip(), timeout_s=_TIMEOUT_S) as membership:
            while True:
                membership.communicator.allreduce(tensor)
                print(time.monotonic_ns(), membership.generation, flush=True)
    except HostError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
