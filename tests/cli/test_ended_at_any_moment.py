"""SIGTERM at a drawn moment of each command's life: it ends soon, with one line at most, and leaves nothing.

A moment is an amount of processor time, so that it replays from its seed on a busy machine. A cold command has no
compiled code on disk: most of its moments are within compilation.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from weir.p4src import FABRIC_JSON
from weir.tests.processes import handles, left_with
from weir.tests.support.commands import WEIR
from weir.topologies.mininet.fabric import SwitchKind, obstacle

ENDED: Final = {128 + signal.SIGTERM, 130}
"""Exit statuses: of the signal, or of an interrupted command that says what it has kept."""
LONGEST_S: Final = 10.0
"""Processor time from the signal to the end, at most; the usual is below 2 s."""
PATIENCE_S: Final = 120.0
"""Time after which a process counts as hanging."""

_RUN = """
name: short
seed: 1
fabric: leaf_spine.yaml
job: {workers: [h1, h4], server: h12}
training: {steps: 3}
strategies: [ps, widest]
"""
_LOOP = """
import numpy as np
import weir

with weir.join() as communicator:
    while True:
        communicator.allreduce(np.ones(1000, np.float32))
"""
_TORCH_LOOP = """
import torch
import torch.distributed as dist

dist.init_process_group("weir")
while True:
    dist.all_reduce(torch.ones(1000))
"""
_SEARCH = """
name: one-user
fabric: leaf_spine.yaml
orders: [fair]
searches:
  - {name: ann, workload: digits, workers: 2, configurations: 4, stages: 2, steps: 200, space: {momentum: [0.0, 0.9]}}
"""
_SUITE = """
name: small
seeds: 4
engine: packets
gradient_bytes: 100000
strategies: [ps, widest]
grids: [{name: one, workers: [3], fabrics: [{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 3}]}]
"""
_PAPER = """
from weir.experiments.repetition import measures
from weir.tests.experiments.test_papers import ENTRY

def endless(entry):
    while True:
        sum(range(100_000))
        yield from ()

DESCRIPTION = ENTRY
object.__setattr__(DESCRIPTION, "measure", endless)
"""
_RACK = """
name: rack
generate: {kind: leaf-spine, leaves: 1, spines: 1, hosts_per_leaf: 3, rate: 1Gbit, delay: 2us}
"""
_FILES = {
    "rack.yaml": _RACK,
    "run.yaml": _RUN,
    "loop.py": _LOOP,
    "torch_loop.py": _TORCH_LOOP,
    "search.yaml": _SEARCH,
    "suite.yaml": _SUITE,
    "paper.py": _PAPER,
}


@dataclass(frozen=True, slots=True)
class Command:
    """A command, in a folder with `_FILES` and a run record."""

    name: str
    words: Sequence[str]
    longest_s: float
    """Processor time of its own until the signal, at most."""
    cold: bool = False
    statuses: frozenset[int] = frozenset(ENDED)
    switches: Sequence[str] = ()
    """Switches that serve P4Runtime in the folder meanwhile."""


_PROGRAM = ("--grpc-server-addr", "unix:switch", str(FABRIC_JSON))
COMMANDS: Final = [
    Command("run", ("run", "run.yaml"), 8),
    Command("run", ("run", "run.yaml"), 40, cold=True),
    Command("replay", ("replay", "record"), 8),
    Command("launch", ("launch", "-n", "2", "loop.py"), 8),
    Command("launch", ("launch", "-n", "2", "loop.py"), 30, cold=True),
    Command("torchrun", ("torchrun", "-n", "2", "torch_loop.py"), 8, statuses=frozenset({*ENDED, 1})),
    Command("search", ("search", "search.yaml"), 6),
    Command("search-processes", ("search", "search.yaml", "--processes"), 10),
    Command("evaluate", ("evaluate", "suite.yaml", "--workers", "1"), 4),
    Command("papers", ("papers", "run", "paper.py"), 4),
    Command("controller", ("controller", "rack.yaml", "--sockets", "."), 6, switches=("s1", "s2")),
    Command("jobs", ("jobs", "--control", "unix:absent"), 2),
    Command("mininet", ("mininet", "leaf_spine.yaml", "--exec", "h1 sleep 1000"), 5),
    Command("weir-switch", _PROGRAM, 3, statuses=frozenset({0, *ENDED, -signal.SIGTERM})),
    Command("weir-switch", _PROGRAM, 20, cold=True, statuses=frozenset({0, *ENDED, -signal.SIGTERM})),
]


def _has(command: Command) -> str | None:
    """Return the reason why this machine cannot run a command; None if it can."""
    if command.name == "torchrun" and find_spec("torch") is None:
        return "PyTorch is not installed"
    return obstacle(SwitchKind.WEIR) if command.name == "mininet" else None


def _processor_s(pid: int) -> float:
    """Processor time of a process so far, in user mode and in the kernel; infinite once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("inf")
    return float("inf") if fields[0] in "ZX" else sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _of_all_s(mark: str) -> float:
    """Processor time of the processes with a mark in their environment, and of their children that have ended."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                total += sum(map(int, (folder / "stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:  # it has ended meanwhile
            continue
    return total / os.sysconf("SC_CLK_TCK")


def _of_ended_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _switches(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """Serve P4Runtime of these switches in a folder."""
    running = []
    try:
        for number, name in enumerate(names, 1):
            words = ["--no-p4", "--device-id", str(number), "--grpc-server-addr", f"unix:{folder / name}"]
            words += ["--control", str(folder / f"{name}.control")]
            running.append(subprocess.Popen([WEIR.with_name("weir-switch"), *words], stderr=subprocess.DEVNULL))
        deadline = time.monotonic() + PATIENCE_S
        while not all((folder / name).exists() for name in names):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(PATIENCE_S)


def _until(process: subprocess.Popen[bytes], moment_s: float) -> None:
    """Wait until a process has used so much processor time, or has used none for a while: it waits, then."""
    used_s, since = 0.0, time.monotonic()
    while used_s < moment_s and time.monotonic() - since < max(1.0, moment_s):
        time.sleep(0.01)
        if (now_s := _processor_s(process.pid)) > used_s:
            used_s, since = now_s, time.monotonic()


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the record of `run.yaml`."""
    folder = tmp_path_factory.mktemp("record")
    (folder / "run.yaml").write_text(_RUN)
    subprocess.run([WEIR, "run", "run.yaml"], cwd=folder, check=True, capture_output=True, timeout=10 * PATIENCE_S)
    [made] = (folder / "runs").iterdir()
    return made


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: f"{each.name}{'-cold' * each.cold}")
def test_a_command_ends_soon_and_leaves_nothing(command: Command, seed: int, record: Path) -> None:
    if reason := _has(command):
        pytest.skip(reason)
    moment_s = random.Random(f"{command.name} {command.cold} {seed}").uniform(0, command.longest_s)
    with tempfile.TemporaryDirectory(prefix="end-") as name:  # short, as sockets' paths must be
        folder = Path(name)
        for file, text in _FILES.items():
            (folder / file).write_text(text)
        shutil.copytree(record, folder / "record")
        scratch, cache, runtime = folder / "t", folder / "c", folder / "r"
        for made in (scratch, cache, runtime):
            made.mkdir(mode=0o700)
        mark = f"WEIR_TEST_MARK={folder}"
        environment = {**os.environ, "TMPDIR": str(scratch), "XDG_RUNTIME_DIR": str(runtime), "WEIR_TEST_MARK": name}
        if command.cold:
            environment |= {"WEIR_CACHE": str(cache / "weir"), "NUMBA_CACHE_DIR": str(cache / "numba")}
        program = WEIR if command.name != "weir-switch" else WEIR.with_name("weir-switch")
        words = ["env", "--default-signal=HUP,INT,TERM", str(program), *command.words]
        with _switches(folder, command.switches), (folder / "said").open("w+b") as said:
            process = subprocess.Popen(words, cwd=folder, env=environment, stdout=said, stderr=said)
            try:
                _until(process, moment_s)
                is_handled = handles(process.pid, signal.SIGTERM)
                is_over = _processor_s(process.pid) == float("inf")
                before_s = _of_all_s(mark) + _of_ended_children_s()
                process.send_signal(signal.SIGTERM)
                status = process.wait(PATIENCE_S)
            finally:
                process.kill()
                process.wait()
            took_s = _of_ended_children_s() - before_s
            text = (folder / "said").read_text(errors="replace")
        assert "Traceback" not in text
        if is_over:
            return  # it had ended by itself
        assert status in command.statuses or (status == -signal.SIGTERM and not is_handled), text
        assert took_s < LONGEST_S
        assert left_with(mark) == []
        kept = scratch / f"weir-cache-{os.geteuid()}"
        left = [*(path for path in scratch.glob("*") if path != kept), *runtime.glob("weir/*")]
        assert left == []
