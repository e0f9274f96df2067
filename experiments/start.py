"""Runs from Python programs and notebooks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from .config import RunConfig
from .records.record import RunRecord
from .run import execute


def run(
    file: str | Path,
    *,
    seed: int | None = None,
    strategies: Sequence[str] | None = None,
    out: str | Path = "runs",
    progress: bool = True,
) -> RunRecord:
    """Run a run file once per strategy in virtual time, and keep a record, as the command `weir run` does.

    It also works inside a running event loop, as notebooks have one.

    Args:
        file: Path of the run file.
        seed: Replaces the file's seed.
        strategies: Replace the file's strategies: names, or paths of Python files.
        out: Folder in which the record's folder is made.
        progress: Show progress on standard error.

    Returns:
        The record; `to_frame` and `save_csv` have its figures.

    Raises:
        ExperimentError: The file is invalid, or the run fails; other packages' errors for their parts.
    """
    config = RunConfig.load(Path(file))
    if strategies is not None:
        config = config.replaced("strategies", strategies=list(strategies))
    if seed is not None:
        config = config.replaced("seed", seed=seed)
    console = Console(file=sys.stderr, quiet=not progress)

    def work() -> RunRecord:
        return execute(config, Path(out), console)[0]

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="weir run") as pool:
        return pool.submit(work).result()
