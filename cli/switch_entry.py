"""Entry point of `weir-switch`, which imports packages of its own environment under any PYTHONPATH of a harness.

Mininet harnesses run as root under the system's Python and put their own packages, and often others' NumPy or protobuf,
into PYTHONPATH. Its folders are removed from the module path before anything is imported from there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the switch; see `weir.emulator.command.main`."""
    shed_foreign_paths()
    from ..emulator.command import main as run

    run()


def shed_foreign_paths() -> None:
    """Remove PYTHONPATH's folders from the module path, except the one that holds Weir itself."""
    named = {os.path.abspath(path) for path in os.environ.pop("PYTHONPATH", "").split(os.pathsep) if path}
    home = str(Path(__file__).resolve().parents[2])
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) not in named or os.path.realpath(path) == home]
