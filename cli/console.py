"""Console of the commands for progress, apart from their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console

NOTES: Final = Console(stderr=True, highlight=False, markup=False)
"""Standard error; `weir -q` silences it, and errors do not go this way."""


@contextmanager
def counted(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar of so many parts; yield a function that counts one and shows its line."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    with Progress(text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=NOTES) as progress:
        task = progress.add_task(title, total=total)
        yield lambda line: progress.update(task, advance=1, description=line)
