"""`weir launch`: one's own training loop, a process for each rank, on an emulated fabric."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..experiments.errors import ExperimentError
from ..topologies.mininet.processes import End, orderly_end
from .console import NOTES
from .fabric_options import (
    LossOption,
    MeshOption,
    StrategyOption,
    TimeoutOption,
    log_what_matters,
    lossy,
    timeout_of,
)
from .help import POLICY_NAMES, complete_policy
from .live import HistoryOption, LiveOptions, WebOption, watched
from .start_up import StartUp

if TYPE_CHECKING:
    from .ranks import LaunchOptions


def launch(
    context: typer.Context,
    program: Annotated[
        str | None, typer.Argument(metavar="PROGRAM", help="What each rank runs: FILE.py, or a command.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("-n", "--workers", min=1, help="Number of workers, on the fabric's first hosts.")
    ] = None,
    hosts: Annotated[
        str | None, typer.Option(metavar="h1,h4,…", help="Hosts of the workers, by rank, in place of -n.")
    ] = None,
    mesh: MeshOption = None,
    module: Annotated[bool, typer.Option("-m", help="PROGRAM is a module, as with python -m.")] = False,
    topology: Annotated[
        str, typer.Option(metavar="TOPOLOGY", help="The fabric: a file, or one that ships with Weir.")
    ] = "live.yaml",
    strategy: StrategyOption = "widest",
    policy: Annotated[
        str, typer.Option(help=f"When a rank is lost: {POLICY_NAMES}.", autocompletion=complete_policy)
    ] = "abort",
    stripes: Annotated[int, typer.Option(min=1, help="Max. number of trees that share each sum's chunks.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the fabric's random draws.")] = 1,
    timeout: TimeoutOption = None,
    loss: LossOption = 0.0,
    web: WebOption = None,
    history: HistoryOption = None,
) -> None:
    """Run your program, once for each rank, on an emulated fabric.

    No root, no switch: the fabric runs in this process, in real time, with a controller and a job. PROGRAM takes its
    seat by weir.join(); the words after it are its arguments. Its time is the emulator's; the last lines say how long
    the links of a network with these rates would take.
    """
    if program is None:
        raise ExperimentError("weir launch runs a program of yours: weir launch -n 4 train.py")
    if (workers is None) == (hosts is None) and (hosts is not None or mesh is None):
        raise ExperimentError("say how many workers (-n 4) or on which hosts (--hosts h1,h4), and not both")
    if not module and not _is_there(program):
        what = "file" if program.endswith(".py") else "command; the name of a Python file ends with .py"
        raise ExperimentError(f"{program}: there is no such {what}")
    words = [program, *context.args]
    if module or program.endswith(".py"):
        words = [sys.executable, *(["-m"] if module else []), *words]
    try:
        with StartUp() as start:
            from ..hosts.collectives.mesh import read_mesh
            from ..topologies import load_topology
            from .ranks import LaunchOptions, hosts_for

            fabric = lossy(load_topology(topology), loss)
            named = [name.strip() for name in hosts.split(",")] if hosts is not None else []
            shape = () if mesh is None else read_mesh(mesh, workers or len(named), "--mesh")
            names = named or hosts_for(fabric, workers or prod(shape))
            log_what_matters()
            told = timeout_of(timeout)
            with orderly_end() as end:
                options = LaunchOptions(fabric, names, strategy, policy, seed, stripes, shape)
                status = end.run(_launch(options, words, told, start, end, LiveOptions(web, history)))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    raise typer.Exit(status)


def _is_there(program: str) -> bool:
    """Before a fabric is made for it, and each rank says the same."""
    return Path(program).is_file() if program.endswith(".py") else shutil.which(program) is not None


async def _launch(
    options: LaunchOptions, words: Sequence[str], told: Mapping[str, str], start: StartUp, end: End, shown: LiveOptions
) -> int:
    from ..experiments.backends.carried import CarriedTraffic
    from .ranks import launched_job, run_ranks

    doing = f"job of {', '.join(options.workers)}, placed by {options.strategy}"
    async with launched_job(options) as job, watched(job.live, options.topology, shown, doing):
        start.end()
        where = ", ".join(job.switches) or "the server"
        _print(f"job {job.number} of {', '.join(options.workers)} on {options.topology.name}, summed at {where}")
        together = options.policy == "abort"
        ended = await run_ranks(job.ranks, lambda _: words, environment=lambda _: told, ends_together=together, end=end)
        if job.behind_s > 1:
            _print(f"the machine did not keep up: the fabric's time stood still for {job.behind_s:.1f} s")
        if carried := CarriedTraffic.of(job.live):
            _print(str(carried))
        if ended.failure:  # the last line, where users look for the reason
            _print(job.first_failure() or ended.failure)
        return ended.status


def _print(text: str) -> None:
    NOTES.print(f"weir: {text}", markup=False, soft_wrap=True)
