"""Signals end every command by the same mechanism: handlers raise nothing within event loops, and cleanup is done."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from weir.cli import main as command
from weir.tests.processes import handles
from weir.topologies.mininet.processes import is_ending, run_until_ended

_TOP = "import sys; sys.argv = ['weir', 'top', sys.argv[1]]; from weir.cli.main import main; main()"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_command_runs_within_one_handler_of_signals(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event loop within it is cancelled; nothing is raised where the signal comes."""
    done: list[str] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            done.append("the handler has raised nothing")
            while True:
                await asyncio.sleep(0.01)
        finally:
            done.append("cleaned up")

    def group(words: object, *, prog_name: str, standalone_mode: bool) -> None:
        assert not is_ending()
        run_until_ended(work())

    monkeypatch.setattr("typer.main.get_command", lambda _: group)
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit) as ended:
            command._run([])
    finally:
        signal.signal(number, before)
    assert done == ["the handler has raised nothing", "cleaned up"]
    if isinstance(ended.value, SystemExit):
        assert ended.value.code == 128 + number


def test_top_ends_by_a_signal_while_it_waits_for_a_page() -> None:
    words = ["env", "--default-signal=HUP,INT,TERM", sys.executable, "-c", _TOP, "http://127.0.0.1:9"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not handles(process.pid, signal.SIGTERM):
            assert process.poll() is None, "it has ended by itself"
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        complaint = process.communicate(timeout=300)[1]
    assert (process.returncode, complaint) == (128 + signal.SIGTERM, "")
