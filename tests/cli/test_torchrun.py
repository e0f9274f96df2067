"""`weir torchrun` ends with all that it has started, for any cause; a program that sleeps stands for torchrun here."""

from __future__ import annotations

import signal
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from weir.tests.paths import ROOT
from weir.tests.processes import left_with
from weir.tests.support.commands import weir

COMMAND: Final = """
import asyncio, sys
from weir.cli import torchrun
from weir.cli.live import LiveOptions
from weir.topologies import load_topology
from weir.topologies.mininet.processes import orderly_end

up = "import os, time; os.write(1, os.linesep.join(['up', '']).encode()); time.sleep(1000)"
torchrun._RUN = (sys.executable, "-c", up)
fabric = load_topology("leaf_spine.yaml")
with orderly_end() as end:
    options = torchrun._Options("widest", 1, 10**10, LiveOptions(None, None))
    end.run(torchrun._run(fabric, None, ["h1", "h2"], [sys.argv[1]], int(sys.argv[2]), {}, options))
"""


@pytest.mark.parametrize(
    ("number", "restarts"),
    [
        (signal.SIGKILL, 1),
        *(
            pytest.param(number, restarts, marks=pytest.mark.long)
            for number, restarts in product((signal.SIGTERM, signal.SIGHUP, signal.SIGKILL), (0, 1))
            if (number, restarts) != (signal.SIGKILL, 1)
        ),
    ],
)
def test_no_signal_leaves_a_torchrun_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, restarts: int
) -> None:
    """One for all ranks, or with restarts one for each."""
    monkeypatch.setenv("WEIR_TEST_MARK", str(tmp_path))
    words = [sys.executable, "-c", COMMAND, str(tmp_path), str(restarts)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        started = [run.stdout.readline() for _ in range(1 + restarts)]
        run.send_signal(number)
        run.communicate(timeout=300)
    assert started == ["up\n"] * (1 + restarts)
    assert left_with(f"WEIR_TEST_MARK={tmp_path}") == []


@pytest.mark.parametrize(
    ("words", "variable", "complaint"),
    [
        (["--mesh", "2x0"], "", 'weir: --mesh: "2x0" is not a mesh; write 1 to 8 sizes of at least 1, like 2x2x2'),
        (["--mesh", "a"], "2x2", 'weir: --mesh: "a" is not a mesh'),
        (["-n", "8", "--mesh", "3x3"], "", "weir: --mesh: 3x3 has 9 ranks, and the job 8; the sizes multiply to"),
        (["--mesh", "4x4x4"], "", "64 workers on leaf-spine, which has 12 hosts; a host runs one worker"),
        (["-n", "3"], "2x2", "weir: WEIR_MESH: 2x2 has 4 ranks, and the job 3"),
    ],
)
def test_an_impossible_mesh_is_one_line(
    words: list[str], variable: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said before a fabric is made."""
    pytest.importorskip("torch")
    monkeypatch.setattr("weir.experiments.backends.live.live_fabric", None)
    monkeypatch.setenv("WEIR_MESH", variable)
    status, out, err = weir("torchrun", *words, "train.py")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert complaint in err
