"""Course of a search: its configurations are trained stage by stage. Values do not depend on traffic."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from ...topologies import Routes
from ...training.optuna_source import OptunaSource
from ...training.search import RandomSource, Source, StagedSearch, Trial
from ...training.search_models import SearchModels, batch_of
from ..scheduling.searches import Cojob, SearchJob
from .search_file import SearchConfig


@dataclass(frozen=True, slots=True)
class Course:
    """A search that is over, and its jobs."""

    config: SearchConfig
    search: StagedSearch
    jobs: Cojob
    """The jobs of each stage, for the flow simulator."""


def trained(
    config: SearchConfig, routes: Routes, seed: int, trained_one: Callable[[str], object] = lambda _: None
) -> Course:
    """Train a search to its end.

    Args:
        config: The search.
        routes: The fabric, from whose hosts each job's are drawn.
        seed: Seed of everything that is drawn.
        trained_one: Called with a line after each configuration's stage.

    Raises:
        TrainingError: A parameter has a value that is not allowed.
        MissingExtra: A package is not installed.
    """
    models = SearchModels(config.workload, seed)
    search = StagedSearch(source_of(config, seed), config.schedule)
    stages: list[tuple[SearchJob, ...]] = []
    while not search.over:
        stage, steps, waiting = search.stage, search.steps, search.ask()
        hosts = {trial.number: hosts_of(config, routes, trial.number, seed) for trial in waiting}
        stages.append(tuple(_job(config, models, trial, stage, steps, *hosts[trial.number]) for trial in waiting))
        for trial in waiting:
            value = models.train(trial, steps)
            search.tell(trial.number, value)
            trained_one(f"{config.name}: stage {stage + 1}, configuration {trial.number}: {value:.3f}")
        for trial in waiting:
            if trial.stopped:
                models.forget(trial)
    return Course(config, search, Cojob(config.name, config.start / 1e9, tuple(stages)))


def source_of(config: SearchConfig, seed: int) -> Source:
    """Return where a search's configurations come from. Raises MissingExtra if Optuna is not installed."""
    if config.source == "optuna":
        return OptunaSource(config.ranges, seed=seed)
    return RandomSource(config.ranges, seed)


def hosts_of(config: SearchConfig, routes: Routes, number: int, seed: int) -> tuple[list[str], int]:
    """Draw the hosts of a configuration, the same in all of its stages, and the seed of its flows.

    Args:
        config: The search.
        routes: Routes of the fabric.
        number: Number of the configuration.
        seed: Seed of the run.

    Returns:
        Hosts of the workers and, last, of the server; and the seed.
    """
    rng = random.Random(f"hosts {seed} {config.name} {number}")
    return rng.sample([host.name for host in routes.topology.hosts], config.workers + 1), rng.randrange(1 << 30)


def _job(
    config: SearchConfig, models: SearchModels, trial: Trial, stage: int, steps: int, hosts: list[str], seed: int
) -> SearchJob:
    *workers, server = hosts
    share = -(-batch_of(trial.parameters) // config.workers)  # samples of the worker with most
    return SearchJob(
        name=f"{config.name}-s{stage + 1}-c{trial.number}",
        workers=tuple(workers),
        server=server,
        gradient_bytes=models.gradient_bytes(trial.parameters),
        compute_seconds=share * config.sample_time / 1e9,
        steps=steps,
        seed=seed,
    )
