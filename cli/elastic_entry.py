"""PyTorch's torchrun, without the traceback that it prints if a signal ends it."""

from __future__ import annotations

import sys

_BY_SIGNAL = 128


def main() -> None:
    """Run torchrun with the command line; the exit status after a signal is a shell's."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.run import main as run

    sys.argv[0] = "torchrun"
    try:
        run()
    except SignalException as error:
        sys.exit(_BY_SIGNAL + error.sigval)


if __name__ == "__main__":
    main()
