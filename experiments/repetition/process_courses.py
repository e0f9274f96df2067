"""Time to an accuracy of processes that train with PyTorch in Mininet, with gradients summed by a switch or by Gloo.

::

    eight host namespaces, a rank and its relay in each ══ one weir-switch, whose ports have a rate

All contenders are in the same processes, one after the other. Learning rates are those that are best by arithmetic
(`compressed_courses`), for each contender and seed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from typing import Final, Literal

from ...imports.extras import install_command
from ...topologies.mininet.fabric import MininetFabric, SwitchKind, obstacle
from ...topologies.mininet.processes import run_until_ended
from ..backends.all_reduce import RATE_BPS, fabric, torch_environment
from ..backends.live import live_fabric
from ..errors import ExperimentError
from .compressed_courses import LIMIT, MODELS, RATIO, STEPS, TIME, WAYS, CourseModel, best_course
from .paper import Paper, Sample
from .process_course import COURSES, OUTCOME, Course, Outcome

BACK_ENDS: Final[dict[str, tuple[Literal["weir", "gloo"], str, str]]] = {
    "packed8": ("weir", "packed8", "packed8"),
    "packed15": ("weir", "packed15", "packed15"),
    "float32": ("weir", "float32", "float32"),
    "powersgd-weir": ("weir", "powersgd", "powersgd"),
    "gloo": ("gloo", "float32", "float32"),
    "bf16": ("gloo", "bf16", "bf16"),
    "powersgd": ("gloo", "powersgd", "powersgd"),
    "topk": ("gloo", "topk", "topk"),
    "dgc": ("gloo", "dgc", "dgc"),
}
"""Back end, hook, and the name in `compressed_courses.WAYS` of the same arithmetic, by contender."""
_STORE_PORT: Final = 29_502
_LEASE_NS: Final = 60_000_000_000


def course(model: CourseModel, contender: str, seed: int) -> Course:
    """Return a contender's course at its best learning rate."""
    back_end, hook, arithmetic = BACK_ENDS[contender]
    way = WAYS[arithmetic]
    _, rate = best_course(model, way, seed)
    return Course(model.workload, model.hidden, model.accuracy, seed, back_end, hook, rate, way.momentum, LIMIT, RATIO)


async def run(courses: Sequence[Course]) -> list[Outcome]:
    """Run courses in Mininet, and return their outcomes.

    Raises:
        TopologyError: Mininet cannot run here.
        ExperimentError: A rank failed.
    """
    topology = fabric()
    async with live_fabric(topology, SwitchKind.WEIR, lease_ns=_LEASE_NS) as live:
        assert isinstance(live.fabric, MininetFabric)
        processes = []
        for rank, host in enumerate(topology.hosts):
            environment = torch_environment(topology, rank, live.service.address, _STORE_PORT)
            module = f"{__name__.rpartition('.')[0]}.process_course_rank"
            command = [sys.executable, "-m", module, COURSES.dump_json(list(courses)).decode()]
            root = Path(__file__).parents[2]
            processes.append(live.fabric.popen(host.name, command, cwd=root, env=environment, stdout=PIPE, text=True))
        said = await asyncio.gather(*(asyncio.to_thread(process.communicate) for process in processes))
    if failed := {rank: process.returncode for rank, process in enumerate(processes) if process.returncode}:
        raise ExperimentError(f"ranks ended with an error, status by rank: {failed}")
    return [OUTCOME.validate_json(line) for line in said[0][0].splitlines()]


def process_courses(paper: Paper) -> Iterator[Sample]:
    """Measure `TIME` and `STEPS` of the contenders, which are names of `BACK_ENDS`.

    Raises:
        ExperimentError: Mininet, PyTorch or a data set is not here, or a rank failed.
    """
    if (reason := obstacle()) is not None:
        raise ExperimentError(f"{paper.name}: needs Mininet: {reason} (weir doctor tells what this machine has)")
    if find_spec("torch") is None:
        raise ExperimentError(f"{paper.name}: needs PyTorch: {install_command('torch')}")
    names = [contender.name for contender in paper.contenders]
    asked = [(model, name, seed) for model in MODELS for seed in range(1, 1 + paper.seeds) for name in names]
    outcomes = run_until_ended(run([course(*each) for each in asked]))
    for (model, name, seed), outcome in zip(asked, outcomes, strict=True):
        condition = f"{model.workload}, accuracy {model.accuracy:g}, links of {RATE_BPS // 1_000_000} Mbit/s"
        steps, limited = (LIMIT, True) if outcome.steps is None else (outcome.steps, False)
        yield Sample(TIME.name, condition, name, seed, 1e3 * outcome.seconds, limited)
        yield Sample(STEPS.name, condition, name, seed, steps, limited)
