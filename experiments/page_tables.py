"""Tables that commands write into pages, each between two comments that mark its place:

::

    <!-- NAME -->
    <!-- end NAME -->
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from .errors import ExperimentError


def check_places(page: Path, names: Iterable[str]) -> None:
    """Check that a page has the place of each of these tables.

    Raises:
        ExperimentError: The page cannot be read, or lacks one.
    """
    text = _text(page)
    for name in names:
        if _place(name).search(text) is None:
            begin, end = _marks(name)
            raise ExperimentError(
                f"no place for the table of {name}: write {begin} and {end}, a line each", place=str(page), value=name
            )


def write_table(page: Path, name: str, table: str) -> None:
    """Replace the table between its marks. Raises ExperimentError as `check_places` does."""
    check_places(page, [name])
    begin, end = _marks(name)
    page.write_text(_place(name).sub(lambda _: f"{begin}\n\n{table}\n\n{end}", _text(page)), encoding="utf-8")


def _text(page: Path) -> str:
    try:
        return page.read_text(encoding="utf-8")
    except OSError as error:
        raise ExperimentError(f"{page}: cannot be read ({error.strerror})") from None


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name} -->", f"<!-- end {name} -->"


def _place(name: str) -> re.Pattern[str]:
    begin, end = map(re.escape, _marks(name))
    return re.compile(f"{begin}\n.*?{end}", re.DOTALL)
