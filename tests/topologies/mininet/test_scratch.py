"""Temporary folders that disappear with their process, for any number of concurrent starts."""

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
def test_a_folder_removed_by_another_start_is_made_again(
    taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other start looks just when the folder exists and is not held yet."""
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


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything opened in a folder of another user's."""
    parent, elsewhere = tmp_path / "parent", tmp_path / "elsewhere"
    (parent / "weir-linked").mkdir(parents=True)
    elsewhere.touch()
    (parent / "weir-linked" / ".alive").symlink_to(elsewhere)
    (parent / "weir-foreign").mkdir()
    (parent / "weir-foreign" / ".alive").touch()
    opened: list[str] = []
    open_file = os.open

    def watched(path: Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        opened.append(str(path))
        return open_file(path, flags, mode, dir_fd=dir_fd)

    lstat = Path.lstat

    def of_another(path: Path) -> os.stat_result:
        found = list(lstat(path))
        if path.name == "weir-foreign":
            found[4] = os.geteuid() + 1  # st_uid
        return os.stat_result(found)

    monkeypatch.setattr(os, "open", watched)
    monkeypatch.setattr(Path, "lstat", of_another)
    scratch._remove_dead(parent, "weir-")
    assert {path.name for path in parent.iterdir()} == {"weir-linked", "weir-foreign"}
    assert not [path for path in opened if "weir-foreign" in path]
    assert (parent / "weir-linked" / ".alive").is_symlink()
