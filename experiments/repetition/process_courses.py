"""Time to an accuracy of processes that train with PyTorch in Mininet, with gradients summed by a switch or by Gloo.

All contenders are in the same processes (`backends.torch_ranks`), one after the other. Learning rates are those that
are best by arithmetic (`compressed_courses`), for each contender and seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from ...topologies.mininet.processes import run_until_ended
from ..backends.all_reduce import RATE_BPS
from ..backends.torch_ranks import run_torch_ranks
from .compressed_courses import LIMIT, MODELS, RATIO, WAYS, CourseModel, best_course, samples
from .measures import check_mininet_and_gloo
from .paper import Paper, Sample
from .process_course import COURSES, OUTCOME, Course, Outcome

BACK_ENDS: Final[Mapping[str, tuple[Literal["weir", "gloo"], str]]] = {
    "packed8": ("weir", "packed8"),
    "packed15": ("weir", "packed15"),
    "float32": ("weir", "float32"),
    "powersgd-weir": ("weir", "powersgd"),
    "gloo": ("gloo", "float32"),
    "bf16": ("gloo", "bf16"),
    "powersgd": ("gloo", "powersgd"),
    "topk": ("gloo", "topk"),
    "dgc": ("gloo", "dgc"),
}
"""Back end and hook by contender. A hook has the name of its arithmetic in `compressed_courses.WAYS`."""


def course(model: CourseModel, contender: str, seed: int) -> Course:
    """Return a contender's course at its best learning rate."""
    back_end, hook = BACK_ENDS[contender]
    _, rate = best_course(model, hook, seed)
    momentum = WAYS[hook].momentum
    return Course(model.workload, model.hidden, model.accuracy, seed, back_end, hook, rate, momentum, LIMIT, RATIO)


def run(courses: Sequence[Course]) -> list[Outcome]:
    """Run courses in Mininet, and return their outcomes.

    Raises:
        TopologyError: Mininet cannot run here.
        ExperimentError: A rank failed.
    """
    module = f"{__name__.rpartition('.')[0]}.process_course_rank"
    printed = run_until_ended(run_torch_ranks(module, [COURSES.dump_json(list(courses)).decode()]))
    return [OUTCOME.validate_json(line) for line in printed.splitlines()]


def process_courses(paper: Paper) -> Iterator[Sample]:
    """Measure `TIME` and `STEPS` of the contenders, which are names of `BACK_ENDS`.

    Raises:
        ExperimentError: Mininet, PyTorch or a data set is not here, or a rank failed.
    """
    check_mininet_and_gloo(paper)
    names = [contender.name for contender in paper.contenders]
    asked = [(model, name, seed) for model in MODELS for seed in range(1, 1 + paper.seeds) for name in names]
    outcomes = run([course(*each) for each in asked])
    for (model, name, seed), outcome in zip(asked, outcomes, strict=True):
        condition = f"{model.workload}, accuracy {model.accuracy:g}, links of {RATE_BPS // 1_000_000} Mbit/s"
        yield from samples(condition, name, seed, outcome.steps, outcome.seconds)
