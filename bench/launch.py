"""Sums of processes that `weir launch` starts on an emulated fabric, paired with Gloo between the same processes.

::

    two or four ranks ══ shared memory ══ emulated fabric, links of 1 Gbit/s        Gloo: TCP on loopback

Both are in the same processes and take turns. On few cores a sum's time is processor time: ranks, fabric and controller
share the cores, so the ranks' own processor time is a row of its own. A launch of an empty script shows the start.
"""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from weir.bench.measure import Aim, Figure
from weir.bench.obstacles import pytorch_missing as obstacle

__all__ = ["figures", "obstacle"]

SIZES: Final = (1 << 10, 16 << 10, 10_000_000)
"""Bytes of float32 in a sum."""
AIMS: Final = {(2, 10_000_000): 0.125, (4, 10_000_000): 0.25, (4, 1 << 10): 2e-3}
"""Maximum seconds of a sum, by ranks and bytes: 80 and 40 MB/s per rank, and two milliseconds."""
START_AIM: Final = 2.0
_STARTS: Final = 3
_RANK: Final = Path(__file__).with_name("launch_rank.py")
_LAUNCH: Final = (str(Path(sys.executable).with_name("weir")), "-q", "launch")


def _sums(ranks: int) -> dict[str, Any]:
    """Return rank 0's figures. Raises RuntimeError if a rank fails."""
    with socket.socket() as free_socket:
        free_socket.bind(("127.0.0.1", 0))
        port = free_socket.getsockname()[1]
    command = [*_LAUNCH, "-n", str(ranks), str(_RANK), str(port), json.dumps(SIZES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}: {done.stderr[-500:]}")
    measured: dict[str, Any] = json.loads(done.stdout.removeprefix("[0] "))
    return measured


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    for ranks in (2, 4):
        measured = _sums(ranks)
        for size in SIZES:
            text = f"{size // 1_000_000} MB" if size >= 1_000_000 else f"{size >> 10} KB"
            for kind, what in (("wall", ""), ("processor", ", a rank's processor time")):
                weir, gloo = (tuple(measured[name][kind][str(size)]) for name in ("weir", "gloo"))
                bound = AIMS.get((ranks, size)) if kind == "wall" else None
                aim = None if bound is None else Aim(bound)
                yield Figure(
                    f"all-reduce of {text}, {ranks} ranks{what}", "s", weir, "Gloo", gloo, less_is_better=True, aim=aim
                )
    yield from _starts()


def _starts() -> Iterator[Figure]:
    """A launch of an empty script, beside as many interpreters that run it."""
    walls, processor = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "empty.py"
        script.touch()
        for _ in range(_STARTS + 1):
            used_s, began_s = _children_s(), time.perf_counter()
            subprocess.run([*_LAUNCH, "-n", "4", script], capture_output=True, check=True)
            walls.append(time.perf_counter() - began_s)
            processor.append(_children_s() - used_s)
    for what, values, aim in (("", walls, Aim(START_AIM)), (", processor time", processor, None)):
        yield Figure(  # the first one may compile
            f"launch of an empty script, 4 ranks{what}", "s", tuple(values[1:]), less_is_better=True, aim=aim
        )


def _children_s() -> float:
    """Processor time of all ended child processes so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
