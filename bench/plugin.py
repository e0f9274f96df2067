"""Under pytest: two switches with a P4 program between two hosts, by Weir's fixtures.

Three times: from the call that makes the fabric until a packet has crossed both switches, in a fresh process with the
program's native code cached; of one more such fabric in the same process; and of the whole process, imports included.
The peer starts two bmv2 switches, one after the other, until both answer: without links, hosts or a packet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from weir.bench.devices import BMV2
from weir.bench.measure import Aim, Figure
from weir.bench.start import start_switch

RUNS: Final = 5
FIRST_AIM_S: Final = 1.0
EXAMPLES: Final = Path(__file__).parents[1] / "examples" / "p4_program"

_TEST: Final = """
from pathlib import Path
from time import perf_counter

EXAMPLES = Path({examples!r})
FRAME = bytes.fromhex("020000000002 020000000001 0806") + bytes(50)

def test_two_switches(fabric, send, received):
    seconds = []
    for _ in range(2):
        began = perf_counter()
        fabric(EXAMPLES / "two_firewalls.yaml", EXAMPLES / "firewall.json")
        send("h1", FRAME)
        assert received("h2") == [FRAME]
        seconds.append(perf_counter() - began)
    Path("seconds").write_text(" ".join(map(str, seconds)))
"""


def figures() -> Iterator[Figure]:
    """Run the benchmark of this module; the peer has turns where it is installed."""
    has_peer = shutil.which(BMV2) is not None
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as name:
        folder = Path(name)
        (folder / "test_two_switches.py").write_text(_TEST.format(examples=str(EXAMPLES)))
        _run(folder)  # compiles
        turns, peer = [], []
        for _ in range(RUNS):
            turns.append(_run(folder))
            if has_peer:
                peer.append(sum(start_switch((BMV2, "-L", "off"), folder, folder) for _ in range(2)))
    first, another, whole = zip(*turns, strict=True)
    beside = f"2 × {BMV2}" if has_peer else None
    aim = Aim(FIRST_AIM_S)
    yield Figure("first fabric of a process", "s", first, beside, tuple(peer), less_is_better=True, aim=aim)
    yield Figure("another in the same process", "s", another, less_is_better=True)
    yield Figure("the whole process, pytest and both", "s", whole, less_is_better=True)


def _run(folder: Path) -> tuple[float, float, float]:
    """Seconds of the first fabric, of another, and of the run of pytest."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "weir.testing.plugin", "test_two_switches.py"]
    environment = os.environ | {"WEIR_CACHE": str(folder / "cache")}
    started = time.monotonic()
    quiet = subprocess.DEVNULL
    subprocess.run(words, cwd=folder, env=environment, check=True, stdout=quiet, stderr=quiet)
    whole = time.monotonic() - started
    first, another = map(float, (folder / "seconds").read_text().split())
    return first, another, whole
