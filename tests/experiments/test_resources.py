"""Starved of threads or descriptors a run says so and ends; it never stands still."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from weir.experiments import resources
from weir.experiments.errors import ExperimentError

_MAIN = """
import sys, threading
most = int(sys.argv.pop(1))
start = threading._start_new_thread

def limited(*arguments):
    if threading.active_count() >= most:
        raise RuntimeError("can't start new thread")
    return start(*arguments)

threading._start_new_thread = limited
from weir.cli.main import main
main()
"""
_RUN = """name: few-threads
fabric: leaf_spine.yaml
job: {workers: [h1, h4], server: h12}
training: {steps: 1}
strategies: [ps]
"""


def ran(tmp_path: Path, threads: int) -> subprocess.CompletedProcess[str]:
    (tmp_path / "run.yaml").write_text(_RUN)
    words = [sys.executable, "-c", _MAIN, str(threads), "run", "run.yaml"]
    return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)


def test_too_few_threads_are_told_with_their_number(tmp_path: Path) -> None:
    done = ran(tmp_path, 8)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_threads_that_run_out_later_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process of the same user takes them after the check."""
    import weir.cli.main as command

    said: list[int] = []
    monkeypatch.setattr(os, "_exit", said.append)
    monkeypatch.setattr(threading, "excepthook", command._end_with_a_thread)

    def starved() -> None:
        raise RuntimeError("can't start new thread")

    thread = threading.Thread(target=starved)
    thread.start()
    thread.join()
    assert said == [2]


def test_too_few_descriptors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    with pytest.raises(ExperimentError):
        resources.check_resources(12)
