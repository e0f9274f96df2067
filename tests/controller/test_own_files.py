"""Files of the controller in a folder for temporary files, where another user got there first."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from weir.controller.errors import ControllerError
from weir.controller.jobs.journal_file import JournalError, JournalFile
from weir.controller.jobs.journal_lock import JournalLock
from weir.controller.own_files import open_own

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_nobody(action: Callable[[], object]) -> None:
    """Do something in a process of user nobody. AssertionError if it fails."""
    if (child := os.fork()) == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            action()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder as /tmp is; its parents can be passed by all."""
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o011)
    tmp_path.chmod(0o711)
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@needs_root
def test_a_journal_of_another_user_gets_no_tokens(shared: Path) -> None:
    """It could read them by a descriptor that it keeps."""
    as_nobody((shared / "journal").touch)
    with pytest.raises(JournalError):
        JournalFile(shared / "journal")


@needs_root
@pytest.mark.parametrize("name", ["journal", "journal.lock"])
def test_another_users_link_to_a_file_is_not_followed(name: str, shared: Path, tmp_path: Path) -> None:
    """The journal cuts an incomplete line, and closes the file to others."""
    target = tmp_path / "target"
    target.write_text("7 ")
    target.chmod(0o644)
    as_nobody(lambda: (shared / name).symlink_to(target))
    with pytest.raises(JournalError), JournalLock(shared / "journal"):
        JournalFile(shared / "journal")
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("7 ", 0o644)


@needs_root
def test_a_journal_is_rewritten_into_no_file_of_another_user(shared: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    as_nobody(lambda: (shared / "journal.new").symlink_to(target))
    with JournalFile(shared / "journal") as journal:
        for number in range(1_000):
            journal.put("fabric", "name", number)
    assert target.read_text() == "kept"
    status = (shared / "journal").lstat()
    assert (status.st_uid, stat.S_ISREG(status.st_mode), status.st_mode & 0o077) == (os.geteuid(), True, 0)
    with JournalFile(shared / "journal") as journal:
        assert journal.all("fabric") == {"name": 999}


@needs_root
@pytest.mark.parametrize("name", ["history", "history.wal"])
@pytest.mark.parametrize("moment", ["first", "before DuckDB opens it"])
def test_a_history_is_not_kept_behind_another_users_link(
    moment: str, name: str, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    duckdb = pytest.importorskip("duckdb")
    from weir.controller.live.history import HistoryFile

    target, connect = tmp_path / "target", duckdb.connect

    def plant() -> None:
        as_nobody(lambda: (shared / name).symlink_to(target))

    def raced(*arguments: Any, **options: Any) -> Any:
        plant()
        return connect(*arguments, **options)

    if moment == "first":
        plant()
    else:
        monkeypatch.setattr(duckdb, "connect", raced)
    with pytest.raises(ControllerError), HistoryFile(shared / "history") as history:
        history.begin({"links": [], "title": "", "name": ""})
    assert not target.exists()


@needs_root
@pytest.mark.parametrize("links_are_refused", [False, True])
def test_a_history_in_a_sticky_folder_needs_a_kernel_that_refuses_links(
    links_are_refused: bool, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("duckdb")
    from weir.controller.live import history

    monkeypatch.setattr(history, "links_are_refused", lambda: links_are_refused)
    for theirs in ("theirs", "other.wal"):  # files, which old kernels open in sticky folders
        as_nobody((shared / theirs).touch)
    for path in (shared / "theirs", shared / "other"):
        with pytest.raises(ControllerError):
            history.HistoryFile(path)
    (tmp_path / "link").symlink_to(shared / "history")
    for path in (shared / "history", tmp_path / "link"):
        with nullcontext() if links_are_refused else pytest.raises(ControllerError), history.HistoryFile(path):
            pass


def test_a_folder_that_others_can_write_to_holds_no_journal(shared: Path) -> None:
    shared.chmod(0o777)
    with pytest.raises(JournalError):
        JournalFile(shared / "journal")


def test_a_link_of_ones_own_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.close(open_own(tmp_path / "link", os.O_RDWR | os.O_CREAT))
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


@needs_root
def test_a_link_that_comes_between_look_and_opening_is_not_followed(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, is_symlink = tmp_path / "target", Path.is_symlink

    def raced(path: Path) -> bool:
        found = is_symlink(path)
        as_nobody(lambda: path.symlink_to(target))
        return found

    monkeypatch.setattr(Path, "is_symlink", raced)
    with pytest.raises(OSError):  # noqa: PT011 (which one is the kernel's choice)
        open_own(shared / "journal", os.O_RDWR | os.O_CREAT)
    assert not target.exists()
