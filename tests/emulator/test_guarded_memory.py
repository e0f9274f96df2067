"""Native code under guarded memory: leaving an array, or using a freed one, ends the process; what is right goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from weir.tests.paths import ROOT

_ACCESSES = """
import ctypes, json, os, sys
import numpy as np
from weir.tests.support.guarded_memory import install

install(before=sys.argv[1] == "before")
array = np.arange(1000)
at = ctypes.c_int64.from_address


def last():
    at(array.ctypes.data + 7992).value = 1


def behind():
    at(array.ctypes.data + 8000).value = 1


def before():
    at(array.ctypes.data - 8).value = 1


def freed():
    global array
    address = array.ctypes.data
    del array
    at(address).value


def moved():
    address = array.ctypes.data
    array.resize(9999, refcheck=False)
    assert array.sum() == 499500
    at(address).value


def many():
    assert not any(np.zeros(size % 9).any() for size in range(9999))


statuses = {}
for access in (last, behind, before, freed, moved, many):
    if (child := os.fork()) == 0:
        access()
        os._exit(0)
    statuses[access.__name__] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(statuses))
"""


@pytest.mark.parametrize("side", ["behind", pytest.param("before", marks=pytest.mark.long)])
def test_an_access_outside_of_arrays_ends_the_process(side: str) -> None:
    words = [sys.executable, "-c", _ACCESSES, side]
    statuses = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, timeout=100).stdout)
    fatal = -signal.SIGSEGV
    assert statuses[side] == fatal
    assert {name: statuses[name] for name in ("last", "freed", "moved", "many")} == {
        "last": 0,
        "freed": fatal,
        "moved": fatal,
        "many": 0,
    }


@pytest.mark.long
def test_the_controllers_native_code_is_loaded_within_arrays() -> None:
    words = [sys.executable, "-c"]
    words += ["from weir.tests.support.guarded_memory import install; install(); import weir.controller.controller"]
    assert subprocess.run(words, check=False, timeout=100).returncode == 0


_AT_THE_END = """
import sys
import numpy as np
from weir.tests.support.guarded_memory import install

install()
sys.kept = [np.zeros(1 + number % 99) for number in range(9000)]  # freed after all modules
"""


@pytest.mark.long
def test_arrays_that_outlive_all_modules_are_freed_well() -> None:
    assert subprocess.run([sys.executable, "-c", _AT_THE_END], check=False, timeout=100).returncode == 0


_IN_A_THREAD = """
import ctypes
from threading import Thread
import numpy as np


def behind():
    ctypes.c_int64.from_address(np.arange(1000).ctypes.data + 8000).value = 1


thread = Thread(target=behind)
thread.start()
thread.join()
"""
_STARTING = "import subprocess, sys; print(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode)"
_GUARDED = ROOT / "tests" / "support" / "guarded_processes"


def test_threads_of_processes_that_a_command_starts_are_guarded(tmp_path: Path) -> None:
    guarded = {**os.environ, "PYTHONPATH": str(_GUARDED), "WEIR_GUARD": "behind", "WEIR_GUARDED": str(tmp_path)}
    words = [sys.executable, "-c", _STARTING, _IN_A_THREAD]
    done = subprocess.run(words, env=guarded, capture_output=True, text=True, check=True, timeout=100)
    assert int(done.stdout) == -signal.SIGSEGV
    assert len(list(tmp_path.iterdir())) == 2


_HEAP = """
import sys
from weir.emulator.runtime.engine import Engine
from weir.tests.support.guarded_memory import install

install()
engine = Engine()
if sys.argv[1] == "unchecked":  # as if the capacity of the heap of events were not looked at
    refresh = engine._refresh

    def refreshed():
        refresh()
        engine.world.heap_capacity = 1 << 30

    engine._refresh = refreshed
for number in range(3000):
    engine.set_timer(engine.add_host(), 1 + number % 7)
"""


@pytest.mark.long
@pytest.mark.parametrize(("capacity", "status"), [("checked", 0), ("unchecked", -signal.SIGSEGV)])
def test_events_beyond_an_unchecked_heap_are_found(capacity: str, status: int) -> None:
    words = [sys.executable, "-c", _HEAP, capacity]
    assert subprocess.run(words, capture_output=True, check=False, timeout=100).returncode == status


@pytest.mark.long
@pytest.mark.parametrize("side", ["behind", "before"])
@pytest.mark.parametrize("folder", ["runtime", "tables", "compiler", "v1model", "p4runtime", "stf", "bmv2", "ports"])
def test_the_emulators_tests_stay_within_arrays(folder: str, side: str) -> None:
    words = ["-X", "faulthandler", "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    words += ["-p", "weir.tests.support.guarded_memory", str(ROOT / "tests" / "emulator" / folder)]
    guarded = {**os.environ, "WEIR_GUARD": side}
    with TemporaryDirectory() as short:  # a folder in tmp_path would be too long for paths of sockets
        words.append(f"--basetemp={short}/t")
        done = subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=guarded, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.long
@pytest.mark.parametrize("side", ["behind", "before"])
def test_the_examples_stay_within_arrays(side: str, tmp_path: Path) -> None:
    """The guard is in every Python process that they start: ranks, switches and controllers included."""
    started = tmp_path / "started"
    started.mkdir()
    guarded = {**os.environ, "PYTHONPATH": str(_GUARDED), "WEIR_GUARD": side, "WEIR_GUARDED": str(started)}
    words = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-m", "long or not long"]
    words += ["--timeout", "3600", f"--basetemp={tmp_path / 't'}", str(ROOT / "tests" / "test_examples.py")]
    done = subprocess.run(words, cwd=ROOT, env=guarded, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    commands = [path.read_text() for path in started.iterdir()]
    assert all(any(word in command for command in commands) for word in ("weir run", "training_loop.py"))


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 100, 25))  # a part takes minutes, and an hour at most on a busy machine
@pytest.mark.parametrize("seed", range(1, 11))
def test_random_run_files_stay_within_arrays(seed: int, first: int, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "weir.tests.experiments.guarded_runs", "25", str(seed), str(first)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
