"""Measurements that entries of papers share: placement suites, synchronisation modes, congestion laws, all-reduce."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from ...imports.extras import install_command
from ...topologies.mininet.processes import run_until_ended
from ..errors import ExperimentError
from .paper import Paper, Quantity, Sample

if TYPE_CHECKING:
    from ..evaluation.suite import Point

STEP_TIME: Final = Quantity("completion time of a step's aggregation", "ms")
TIME_TO_LOSS: Final = Quantity("time to the target loss", "ms")
LONGEST_QUEUE: Final = Quantity("longest queue", "packets")
SUMMED: Final = Quantity("gradients summed", "Mbit/s", less_is_better=False)
RESENDS: Final = Quantity("packets sent again", "packets")
GOODPUT: Final = Quantity("goodput of a worker", "MB/s", less_is_better=False)


def placement_times(paper: Paper) -> Iterator[Sample]:
    """Measure `STEP_TIME` of all contenders, which are strategies, at every point of the suites.

    Raises:
        ExperimentError: A contender cannot place the job at a point.
    """
    from ..evaluation.points import run_point
    from ..evaluation.suite import Suite

    names = [contender.name for contender in paper.contenders]
    for file in paper.files:
        suite = Suite.load(file).model_copy(update={"strategies": names, "seeds": paper.seeds})
        for point in suite.points():
            for figures in run_point(point).figures:
                if figures.mean_s is None:
                    raise ExperimentError(f"{_condition(point)}, seed {point.seed}: {figures.failed}")
                yield Sample(STEP_TIME.name, _condition(point), figures.strategy, point.seed, 1e3 * figures.mean_s)


def _condition(point: Point) -> str:
    told = point.conditions
    return f"{told['fabric']}, {point.workers} workers, {f'load {point.load}' if point.load else 'idle'}"


def times_to_loss(paper: Paper) -> Iterator[Sample]:
    """Measure `TIME_TO_LOSS` of the modes of the run files that are contenders, in virtual time.

    A mode that has not reached the target at the run's limit counts with the time at which it ended.
    """
    from ..config import RunConfig
    from ..synchronised import train_in_mode

    names = {contender.name for contender in paper.contenders}
    for file in paper.files:
        config = RunConfig.load(file)
        if config.synchronisation is None:
            raise ExperimentError(f"{file}: section synchronisation is missing; it names the modes")
        for seed in range(1, paper.seeds + 1):
            run = config.replaced("seed", seed=seed)
            for index, mode in enumerate(config.synchronisation.modes):
                if mode.name in names:
                    result = run_until_ended(train_in_mode(run, index))
                    taken_ns = result.ended_ns if result.reached_ns is None else result.reached_ns
                    limited = result.reached_ns is None
                    yield Sample(TIME_TO_LOSS.name, config.name, mode.name, seed, taken_ns / 1e6, limited)


def congestion(paper: Paper) -> Iterator[Sample]:
    """Measure queues, sums and resends of each run file under all contenders, which are schemes of `weir baselines`."""
    from ..baselines import compare
    from ..config import RunConfig

    for file in paper.files:
        config = RunConfig.load(file)
        for seed in range(1, paper.seeds + 1):
            run = config.replaced("seed", seed=seed)
            for contender in paper.contenders:
                (figures,) = compare([run], [contender.name])
                for figure, value in (
                    (LONGEST_QUEUE, figures.longest_queue),
                    (SUMMED, figures.summed_bps / 1e6),
                    (RESENDS, figures.resends),
                ):
                    yield Sample(figure.name, config.name, contender.name, seed, value)


def check_mininet_and_gloo(paper: Paper) -> None:
    """Check that an entry's processes can run here. Raises ExperimentError if Mininet or PyTorch is not here."""
    from ...topologies.mininet.fabric import obstacle

    if (reason := obstacle()) is not None:
        raise ExperimentError(f"{paper.name}: needs Mininet: {reason} (weir doctor tells what this machine has)")
    if find_spec("torch") is None:
        raise ExperimentError(f"{paper.name}: needs PyTorch, whose Gloo is the baseline: {install_command('torch')}")


def all_reduce(paper: Paper) -> Iterator[Sample]:
    """Measure `GOODPUT` of the contenders weir and gloo among processes in Mininet, which take turns.

    Raises:
        ExperimentError: Mininet or PyTorch is not here.
    """
    from ..backends.all_reduce import VALUES, turns

    check_mininet_and_gloo(paper)
    for turn, (mine, gloo) in enumerate(turns(paper.seeds), 1):
        assert gloo is not None
        for name, taken_s in (("weir", mine), ("gloo", gloo)):
            yield Sample(GOODPUT.name, "64 MB, 8 processes, links of 40 Mbit/s", name, turn, 4 * VALUES / taken_s / 1e6)
