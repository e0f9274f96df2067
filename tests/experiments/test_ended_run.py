"""A run that a signal ends wherever it is: within gRPC's poller, and while the page of its record is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from weir.experiments.records.record import RunRecord

_RUN = """
name: short
seed: 1
fabric: leaf_spine.yaml
job: {workers: [h1, h4], server: h12}
training: {steps: 6}
strategies: [ps, widest]
"""

_POLLER = """
import asyncio.base_events, signal, sys
call_soon, seen = asyncio.base_events.BaseEventLoop.call_soon, 0

def hooked(loop, callback, *args, context=None):
    global seen
    caller = sys._getframe(1)
    handle = caller.f_locals.get("self") if caller.f_code.co_name == "_run" else None
    if "_handle_events" in repr(getattr(handle, "_callback", "")):
        seen += 1
        if seen == 20:
            signal.raise_signal(signal.SIGTERM)
    return call_soon(loop, callback, *args, context=context)

asyncio.base_events.BaseEventLoop.call_soon = hooked
"""
"""While gRPC's poller completes its 20th call, which is when an exception would be lost, or hang the process."""

_PAGE = """
import signal
from weir.experiments.records import page
write = page.write

def hooked(*arguments):
    signal.raise_signal(signal.SIGTERM)
    return write(*arguments)

page.write = hooked
"""
_CTRL_C = _PAGE.replace("SIGTERM", "SIGINT")

_MAIN = """
import sys
from weir.cli.main import main
sys.argv = ["weir", "run", sys.argv[1], "--out", sys.argv[2]]
main()
"""


@pytest.mark.parametrize(
    ("hook", "complete", "pages"),
    [
        (_POLLER, 0, 0),
        pytest.param(_PAGE, 2, 0, marks=pytest.mark.long),
        pytest.param(_CTRL_C, 2, 1, marks=pytest.mark.long),
    ],
    ids=["poller", "page", "ctrl-c"],
)
def test_a_signal_ends_a_run_and_keeps_what_is_complete(tmp_path: Path, hook: str, complete: int, pages: int) -> None:
    """SIGTERM leaves no time to draw the page, which takes seconds; after Ctrl-C it is drawn."""
    file, out = tmp_path / "run.yaml", tmp_path / "runs"
    file.write_text(_RUN)
    words = ["env", "--default-signal=INT", sys.executable, "-c", hook + _MAIN, str(file), str(out)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    kept = [len(RunRecord.load(folder).results) for folder in out.iterdir()]
    assert kept == ([complete] if complete else [])
    assert len(list(out.glob("*/index.html"))) == pages
    assert done.stderr.splitlines()[-1].startswith("weir: interrupted; ")
