"""Compilation that is given up between its steps, once the process was asked to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.emulator.program import Program
from weir.machine_code import interruption
from weir.tests.paths import PROGRAMS


def asked_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the process to end at the question after so many."""
    questions = iter(range(count))
    monkeypatch.setattr(interruption, "is_asked_to_end", lambda: next(questions, None) is None)


@pytest.mark.parametrize("count", range(4))
def test_a_program_is_not_compiled_once_the_process_was_asked_to_end(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path / "cache"))
    text = (PROGRAMS / "pairs.json").read_bytes() + b"\n" * (1 + count)  # that no other test has loaded
    asked_after(count, monkeypatch)
    with pytest.raises(interruption.CompilationGivenUp):
        Program.load(text)
    assert not list(tmp_path.rglob("*.o"))
    monkeypatch.undo()
    assert Program.load(text).new_state()


def test_numba_gives_up_between_its_passes_and_compiles_later(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba")

    def increased(number: int) -> int:
        return number + 1

    function = numba.njit(increased)
    asked_after(3, monkeypatch)
    with pytest.raises(interruption.CompilationGivenUp), interruption.checked_in_numba():
        function(1)
    monkeypatch.undo()
    with interruption.checked_in_numba():
        assert function(1) == 2
