"""`weir launch`: one's own training loop, a process for each rank, on an emulated fabric."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ExperimentError
from .console import NOTES

if TYPE_CHECKING:
    from ..launch import LaunchOptions


def launch(
    context: typer.Context,
    program: Annotated[
        str | None, typer.Argument(metavar="PROGRAM", help="What each rank runs: FILE.py, or a command.")
    ] = None,
    workers: Annotated[int | None, typer.Option("-n", "--workers", help="How many; the fabric's first hosts.")] = None,
    hosts: Annotated[str | None, typer.Option(metavar="h1,h4,…", help="The workers' hosts, by rank.")] = None,
    module: Annotated[bool, typer.Option("-m", help="PROGRAM is a module, as with python -m.")] = False,
    topology: Annotated[
        str, typer.Option(metavar="TOPOLOGY.yaml", help="The fabric: a file, or one that ships with Weir.")
    ] = "leaf_spine.yaml",
    strategy: Annotated[str, typer.Option(help="Where gradients are summed: widest, rack, …")] = "widest",
    policy: Annotated[str, typer.Option(help="What is done when a rank is lost: abort, continue or wait.")] = "abort",
    seed: Annotated[int, typer.Option(help="Fixes what is random in the fabric.")] = 1,
) -> None:
    """Run PROGRAM once for each rank, on hosts of an emulated fabric; weir.join() there takes the rank's seat.

    What follows PROGRAM is given to it. No root, no switch: the fabric runs in this process, by the clock.
    """
    from ...topologies import load_topology
    from ..launch import LaunchOptions, hosts_for

    if program is None:
        raise ExperimentError("weir launch runs a program of yours: weir launch -n 4 train.py")
    if (workers is None) == (hosts is None):
        raise ExperimentError("say how many workers (-n 4) or on which hosts (--hosts h1,h4), and not both")
    if not module and not _is_there(program):
        what = "file" if program.endswith(".py") else "command; the name of a Python file ends with .py"
        raise ExperimentError(f"{program}: there is no such {what}")
    found = load_topology(topology)
    names = hosts_for(found, workers) if workers is not None else (hosts or "").split(",")
    logging.basicConfig(level=logging.WARNING, format="weir: %(message)s")
    words = [program, *context.args]
    if module or program.endswith(".py"):
        words = [sys.executable, *(["-m"] if module else []), *words]
    try:
        status = asyncio.run(_launch(LaunchOptions(found, names, strategy, policy, seed), words))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    raise typer.Exit(status)


def _is_there(program: str) -> bool:
    """Before a fabric is made for it, and each rank says the same."""
    return Path(program).is_file() if program.endswith(".py") else shutil.which(program) is not None


async def _launch(options: LaunchOptions, words: Sequence[str]) -> int:
    from ..launch import launched_job, run_ranks

    async with launched_job(options) as job:
        where = ", ".join(job.switches) or "the server"
        _say(f"job {job.number} of {', '.join(options.workers)} on {options.topology.name}, summed at {where}")
        status = await run_ranks(job.ranks, lambda _: words, ends_together=options.policy == "abort", say=_say)
        if job.fabric.behind_s > 1:
            _say(f"the machine did not keep up: the fabric's time stood still for {job.fabric.behind_s:.1f} s")
        return status


def _say(text: str) -> None:
    NOTES.print(f"weir: {text}", markup=False, soft_wrap=True)
