"""Starting: `weir --help`, and a switch with `fabric.p4`, from the command line until its P4Runtime server answers.

The native code of programs, and of the packet loop that all programs share, is kept on disk. "Cached" finds both there,
"program not cached" the packet loop alone, and "nothing cached" is the first start ever on a machine. The peer is bmv2,
which interprets the program and has nothing to compile.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import grpc
from finsy.proto import p4r, p4r_grpc

from weir.bench.devices import BMV2, DEVICE_ID, WEIR
from weir.bench.measure import Aim, Figure
from weir.p4src import FABRIC_JSON
from weir.topologies.mininet.processes import stop

HELP_RUNS: Final = 9
HELP_AIM_S: Final = 0.5
RUNS: Final = 5
COMPILING_RUNS: Final = 3
CACHED_AIM_S: Final = 1.0
COMPILED_AIM_S: Final = 20.0
_PATIENCE_S: Final = 120.0


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module; the peer has turns where it is installed."""
    bare = "import typer"
    weir = str(Path(sys.executable).with_name("weir"))
    helps = [(_seconds(weir, "--help"), _seconds(sys.executable, "-c", bare)) for _ in range(HELP_RUNS)]
    times, imports = zip(*helps, strict=True)
    yield Figure("weir --help", "s", times, f"python -c '{bare}'", imports, less_is_better=True, aim=Aim(HELP_AIM_S))
    with tempfile.TemporaryDirectory(prefix="weir-bench-") as name:
        folder = Path(name)
        loop, full = folder / "loop", folder / "full"
        start_switch(WEIR, folder, loop, ("--no-p4",))
        shutil.copytree(loop, full)
        start_switch(WEIR, folder, full)
        turns: list[tuple[float, ...]] = []
        has_peer = shutil.which(BMV2) is not None
        for _ in range(RUNS):
            mine = start_switch(WEIR, folder, full)
            turns.append((mine, start_switch((BMV2, "-L", "off"), folder, full)) if has_peer else (mine,))
        cached, *peer = zip(*turns, strict=True)
        yield Figure(
            "cached",
            "s",
            cached,
            BMV2 if has_peer else None,
            peer[0] if has_peer else (),
            less_is_better=True,
            aim=Aim(CACHED_AIM_S),
        )
        compiled = tuple(start_switch(WEIR, folder, _copy(loop, folder)) for _ in range(COMPILING_RUNS))
        yield Figure("program not cached", "s", compiled, less_is_better=True, aim=Aim(COMPILED_AIM_S))
        first = start_switch(WEIR, folder, Path(tempfile.mkdtemp(dir=folder)))
        yield Figure("nothing cached", "s", (first,), less_is_better=True)


def _seconds(*command: str) -> float:
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def _copy(cache: Path, folder: Path) -> Path:
    return Path(shutil.copytree(cache, Path(tempfile.mkdtemp(dir=folder)) / "cache"))


def start_switch(
    command: Sequence[str], folder: Path, cache: Path, program: Sequence[str] = (str(FABRIC_JSON),)
) -> float:
    """Seconds until the server of a switch that keeps native code in `cache` has answered; then the switch ends."""
    address = folder / "start.sock"
    address.unlink(missing_ok=True)
    started = time.monotonic()
    process = subprocess.Popen(
        [*command, *program, "--device-id", str(DEVICE_ID), "--", "--grpc-server-addr", f"unix:{address}"],
        env=os.environ | {"WEIR_CACHE": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not address.exists():
            if process.poll() is not None or time.monotonic() - started > _PATIENCE_S:
                raise RuntimeError(f"{command[0]} did not start; its status is {process.poll()}")
            time.sleep(0.002)
        with grpc.insecure_channel(f"unix:{address}") as channel:
            ask = p4r_grpc.P4RuntimeStub(channel).Capabilities
            ask(p4r.CapabilitiesRequest(), wait_for_ready=True, timeout=_PATIENCE_S)
            return time.monotonic() - started
    finally:
        stop([process])
