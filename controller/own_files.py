"""Files and sockets in folders that other users can write to: they are not replaced by another user's, or by links."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_STICKY_RULES: Final = (Path("/proc/sys/fs/protected_symlinks"), Path("/proc/sys/fs/protected_regular"))
"""Settings of Linux that keep programs from following other users' links and opening their files in sticky folders."""


def distrusted(folder: Path, *, trusts_sticky: bool = True) -> str | None:
    """Return why other users can replace this user's files in a folder; None if they cannot.

    Args:
        folder: Folder.
        trusts_sticky: True trusts a sticky folder, such as /tmp: each user can replace only files of their own there.
            For files that are opened by a library, which follows links, `links_are_refused`.

    Raises:
        OSError: The folder cannot be read.
    """
    status = folder.stat()
    is_sticky = trusts_sticky and status.st_mode & stat.S_ISVTX
    is_shared = status.st_mode & _BY_OTHERS and not is_sticky
    if status.st_uid in (os.geteuid(), 0) and not is_shared:
        return None
    return f"other users can write to {folder} (owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o})"


def links_are_refused() -> bool:
    """Return whether the kernel refuses other users' links and files in sticky folders, as Debian's does by default."""
    try:
        return all(int(rule.read_text()) for rule in _STICKY_RULES)
    except (OSError, ValueError):
        return False


def open_own(path: Path, flags: int) -> int:
    """Open a file, or create it for this user alone, and return its descriptor.

    A link is followed if it is this user's. Raises OSError, PermissionError for another user's file or link.
    """
    if (reason := refusal_of_file(path)) is not None:
        raise PermissionError(errno.EPERM, reason, str(path))
    followed = 0 if path.is_symlink() else os.O_NOFOLLOW  # one that comes between these lines is another user's
    file = os.open(path, flags | followed, 0o600)
    if (owner := os.fstat(file).st_uid) != os.geteuid():
        os.close(file)
        raise PermissionError(errno.EPERM, f"a file of another user (owner {owner}) is there", str(path))
    return file


def refusal_of_file(path: Path, *, trusts_sticky: bool = True) -> str | None:
    """Return why a file is not to be written to: its folder is distrusted, or it is another user's; None for a new one.

    A link counts as its owner's. The arguments are those of `distrusted`. Raises OSError.
    """
    if (reason := distrusted(path.parent, trusts_sticky=trusts_sticky)) is not None:
        return f"{reason} and replace it"
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if status.st_uid != os.geteuid():
        what = "a link" if stat.S_ISLNK(status.st_mode) else "a file"
        return f"{what} of another user (owner {status.st_uid}) is there"
    return None
