"""The parameter server of a job as a process: `python -m weir.hosts.drivers.agent CONTROL JOB`.

The token is on standard input. It ends with the job, or by Ctrl-C; exit status 1 and one line where something goes
wrong.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...wire.control_channel import Tls
from ..errors import HostError
from .client import serve

_INTERRUPTED: Final = 130
"""Exit status after Ctrl-C."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the agent and return the exit status of the process."""
    parser = argparse.ArgumentParser(
        prog="weir.hosts.drivers.agent", description="Be the parameter server of a job until it ends."
    )
    parser.add_argument("control", help="where the controller serves: HOST:PORT or unix:PATH")
    parser.add_argument("job", type=int, help="the job's number; the server's token is read from standard input")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="how long the job's beginning may take; %(default)g s"
    )
    parser.add_argument("--tls", type=Path, nargs=3, metavar=("CERTIFICATE", "KEY", "AUTHORITY"), help="PEM files")
    options = parser.parse_args(words)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    token = sys.stdin.readline().strip()
    if not token:
        parser.error("standard input has no token; registering the job gave one for its server")
    try:
        serve(
            options.control,
            options.job,
            token,
            timeout_s=options.timeout,
            tls=Tls(*options.tls) if options.tls is not None else None,
        )
    except KeyboardInterrupt:
        return _INTERRUPTED
    except HostError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
