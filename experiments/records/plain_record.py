"""Record of a run without a page: its figures as JSON, and its file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from ..errors import ExperimentError
from .record import keep_folder, run_folder, versions


def keep_figures(figures: Mapping[str, object], file: Path, out: Path, name: str, *, kind: str, copy: str) -> Path:
    """Write a record with the versions of packages.

    Args:
        figures: JSON data.
        file: File of the run, which the record has a copy of.
        out: Folder that records are made in.
        name: Name of the run.
        kind: Name of the figures, without ending.
        copy: Name of the file's copy.

    Returns:
        The record's folder.

    Raises:
        ExperimentError: The record cannot be written.
    """
    with run_folder(out) as folder:
        try:
            text = json.dumps({**figures, "versions": versions()}, indent=1)
            (folder / f"{kind}.json").write_text(text + "\n")
            shutil.copy(file, folder / copy)
            return keep_folder(folder, out, name)
        except OSError as error:
            raise ExperimentError(f"{out}: the record cannot be written ({error.strerror})") from None
