"""The entry of `weir-switch`: its packages are its own environment's, whatever PYTHONPATH a harness has set.

Mininet harnesses run as root under the system's Python and put their own packages, and often others' NumPy or protobuf,
into PYTHONPATH. What it names is taken off the module path before anything is imported from there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """As `weir.emulator.command.main`."""
    shed_foreign_paths()
    from ..emulator.command import main as run

    run()


def shed_foreign_paths() -> None:
    """Take PYTHONPATH's folders off the module path, but for one that Weir itself comes from."""
    named = {os.path.abspath(path) for path in os.environ.pop("PYTHONPATH", "").split(os.pathsep) if path}
    home = str(Path(__file__).resolve().parents[2])
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) not in named or os.path.realpath(path) == home]
