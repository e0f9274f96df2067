"""Folders that are gone with whoever made them, however many begin at once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from weir.topologies.mininet import scratch
from weir.topologies.mininet.scratch import scratch_folder


def test_a_dead_ones_folder_is_removed_and_a_living_ones_is_not(tmp_path: Path) -> None:
    dead = tmp_path / "weir-dead"
    dead.mkdir()
    (dead / ".alive").touch()
    (tmp_path / "weir-of-another-kind").mkdir()
    with scratch_folder("weir-", tmp_path) as first, scratch_folder("weir-", tmp_path) as second:
        assert not dead.exists()
        assert {first, second, tmp_path / "weir-of-another-kind"} == {*tmp_path.iterdir()}
    assert [*tmp_path.iterdir()] == [tmp_path / "weir-of-another-kind"]


@pytest.mark.parametrize("taken", ["before its lock is there", "before it is locked"])
def test_a_folder_that_another_start_takes_for_a_dead_ones_is_made_anew(
    taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one looks at the one moment at which it is there and nobody holds it."""
    made: list[Path] = []
    open_file = os.open

    def opened(path: Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        lock = open_file(path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_CREAT and not made:
            made.append(Path(path).parent)
            scratch._remove_dead(tmp_path, "weir-")
        return lock

    with monkeypatch.context() as patched:
        if taken == "before it is locked":
            patched.setattr(os, "open", opened)
        else:
            make = tempfile.mkdtemp

            def gone(prefix: str, dir: Path) -> str:
                folder = make(prefix=prefix, dir=dir)
                if not made:
                    made.append(Path(folder))
                    made[0].rmdir()
                return folder

            patched.setattr(tempfile, "mkdtemp", gone)
        with scratch_folder("weir-", tmp_path) as folder:
            assert folder.is_dir()
            assert folder != made[0]
            assert [*tmp_path.iterdir()] == [folder]
