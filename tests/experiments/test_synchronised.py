"""Synchronisation modes over the aggregation protocol in the virtual fabric."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from rich.console import Console

from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.records import report
from weir.experiments.records.record import RunRecord
from weir.experiments.run import execute
from weir.experiments.synchronised import train_in_mode
from weir.tests.paths import ROOT
from weir.tests.training.ideal_run import train
from weir.training import LossCurve, Machine, Processes, Training, TrainingPlan, make_mode
from weir.training.replicated import digest
from weir.training.workloads.digits import DigitsNetwork
from weir.training.workloads.synthetic import LeastSquares

if TYPE_CHECKING:
    from weir.controller.live.server import LiveServer

MS = 1_000_000


MODES = [
    "bsp",
    {"name": "lb-bsp", "predictor": "memoryless"},
    {"name": "ssp", "staleness": 1},
    "d-psgd",
    {"name": "gossip", "policy": "uniform"},
]


@pytest.fixture(scope="module")
def config(demo: RunConfig) -> RunConfig:
    """Three workers of other speeds, whose free shares jump; a step of the slowest takes 4 ms and more."""
    small = {"kind": "leaf-spine", "leaves": 2, "spines": 1, "hosts_per_leaf": 2}
    return demo.replaced(
        "test",
        fabric={**demo.fabric, "generate": {**demo.fabric["generate"], **small}},
        job={"workers": ["h1", "h2", "h3"], "server": "h4", "window": 16, "slots": 32},
        training={"hidden": 4, "batch": 8, "steps": 2, "momentum": 0.5},
        background=[],
        control={"interval": 10 * MS, "warm_up": 20 * MS},
        strategies=["hierarchy"],
        synchronisation={
            "modes": MODES,
            "machines": {"speeds": [8000, 4000, 2000], "changes": "stepping", "span": 30 * MS},
            "target": 1e-6,
            "limit": 40 * MS,
        },
    )


@pytest.fixture(scope="module")
def executed(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunRecord, Path]:
    """The run with its record, and the record's folder."""
    return execute(config, tmp_path_factory.mktemp("runs"), Console(quiet=True))


def test_steps_over_the_fabric_are_those_without_one(config: RunConfig, executed: tuple[RunRecord, Path]) -> None:
    """Bit for bit, for the updates that there was time for."""
    plain = executed[0].modes[0]
    assert plain.updates >= 3
    _, training = train(
        make_mode("bsp"),
        [Machine(1000.0)] * 3,
        lambda curve: curve.updates >= plain.updates,
        workload=DigitsNetwork(4, config.seed),
        batch=24,
        learning_rate=config.training.learning_rate,
        momentum=0.5,
        seed=config.seed,
    )
    assert plain.weights == digest(training.weights[0])


def test_balanced_batches_make_more_steps_in_the_same_time(executed: tuple[RunRecord, Path]) -> None:
    plain, balanced, *_ = executed[0].modes
    assert [result.broken for result in executed[0].modes[:3]] == [[]] * 3, "no queue held more than was promised of it"
    assert balanced.updates > 1.3 * plain.updates
    assert balanced.idle < plain.idle


def test_a_record_has_the_modes_and_a_replay_reproduces_them(
    config: RunConfig, executed: tuple[RunRecord, Path]
) -> None:
    record, folder = executed
    names = ["bsp", "lb-bsp", "ssp", "d-psgd", "gossip"]
    assert [(result.mode, result.index) for result in record.modes] == [(names[i], i) for i in range(5)]
    again = record.model_copy(
        update={"modes": [*record.modes[:2], asyncio.run(train_in_mode(config, 2)), *record.modes[3:]]}
    )
    assert record.differences(again) == []
    loaded = RunRecord.load(folder)
    assert (loaded.modes, loaded.config) == (record.modes, config)
    assert [row[0] for row in report.mode_rows(record)[:3]] == ["BSP", "LB-BSP analytic", "SSP s = 1"]
    assert "Synchronisation modes: virtual time to a held-out loss of 1e-06" in (folder / "index.html").read_text()
    other = record.model_copy(update={"modes": [record.modes[0].model_copy(update={"loss": 0.0}), *record.modes[1:]]})
    assert record.differences(other) == ["mode bsp: loss differs"]
    broken_off = record.model_copy(update={"modes": record.modes[:1]}).only_complete()
    assert broken_off.config.synchronisation is not None
    assert [mode.name for mode in broken_off.config.synchronisation.modes] == ["bsp"]
    assert record.model_copy(update={"modes": []}).only_complete().config.synchronisation is None


class Kept:
    """Live page without a server, which keeps its states."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.states: list[Mapping[str, Any]] = []

    def show_fabric(self, fabric: Mapping[str, Any]) -> None:
        self.titles.append(fabric["title"])

    def show_state(self, state: Mapping[str, Any]) -> None:
        self.states.append(state)


def test_the_live_page_has_the_policy_of_gossip(config: RunConfig) -> None:
    for module in ("aiohttp", "plotly"):
        pytest.importorskip(module)
    from weir.controller.live.watch import Watch

    page = Kept()
    watch = Watch(cast("LiveServer", page), clock=count().__next__)
    asyncio.run(train_in_mode(config, 4, watch=watch))
    assert page.titles == ["digits, mode gossip uniform"]
    last = page.states[-1]["gossip"]
    assert (last["policy"], last["workers"]) == ("uniform", ["h1", "h2", "h3"])
    assert last["version"] >= 1
    assert np.array(last["probabilities"]) == pytest.approx((1 - np.eye(3)) / 2, abs=1e-4)


def test_workers_of_a_run_can_hold_different_labels(config: RunConfig) -> None:
    assert config.synchronisation is not None
    section = config.synchronisation.model_dump()
    weights = set()
    for mix in (None, 0.0):
        run = config.replaced("test", synchronisation={**section, "modes": ["bsp"], "label_mix": mix})
        result = asyncio.run(train_in_mode(run, 0))
        assert result.updates >= 3
        weights.add(result.weights)
    assert len(weights) == 2
    run = config.replaced("test", synchronisation={**section, "workload": "synthetic", "label_mix": 0.5})
    with pytest.raises(ExperimentError) as refused:
        asyncio.run(train_in_mode(run, 0))
    assert (refused.value.place, refused.value.value) == ("synchronisation.label_mix", 0.5)


def test_a_stale_synchronous_job_keeps_its_bound_over_the_fabric(config: RunConfig) -> None:
    bound = 1
    workload = LeastSquares(300, 500)
    curve = LossCurve(workload.loss, every=10)
    machines = [Machine(8000.0), Machine(4000.0), Machine(1000.0)]
    training = Training(TrainingPlan(make_mode("ssp", staleness=bound), 3, 24, 0.3), workload, curve, machines)

    async def played() -> None:
        async with Cluster(config, "hierarchy", served=True) as cluster:
            processes = Processes(training.served(cluster.job.pairs), training.cost_ns)
            await cluster.play(processes, lambda: curve.updates >= 24)
            assert not cluster.figures.broken_promises

    asyncio.run(played())
    given = [iteration for iteration in curve.iterations if iteration.given_ns >= 0]
    for each in given:
        taken = [
            sum(0 <= other.taken_ns <= each.given_ns for other in curve.iterations if other.worker == worker)
            for worker in range(3)
        ]
        assert each.clock + 1 <= min(taken) + bound
    slowest = [each for each in given if each.worker == 2]
    assert [each.given_ns - each.taken_ns for each in slowest] == [0] * len(slowest), "the slowest does not wait"
    assert any(each.given_ns > each.taken_ns for each in given if each.worker == 0), "the fastest does"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modes": ["bsb"]}, r'unknown mode "bsb", did you mean "bsp"'),
        ({"modes": [{"name": "ssp", "stale": 2}]}, r'mode ssp: unknown option "stale"; supported: staleness'),
        ({"modes": [{"name": "gossip", "policy": "exat"}]}, 'unknown gossip policy "exat", did you mean "exact"'),
        ({"modes": ["asp", "asp"]}, "one is there twice"),
        (
            {"modes": [3]},
            r"modes\.0: 3 is no mode; write one of bsp, .*, gossip, .*, or a mapping with one as its name",
        ),
        ({"modes": [None]}, r"modes\.0: there is no mode; write one of bsp, "),
        ({"modes": [["bsp"]]}, r"modes\.0: \['bsp'\] is no mode; write one of bsp, "),
        ({"modes": [{"name": 3}]}, r"modes\.0: name: 3 is no name of a mode; write one of bsp, "),
        ({"modes": [{"policy": "exact"}]}, r"modes\.0: .* has no name of a mode; write one of bsp, "),
        ({"modes": [{"name": "gossip", 3: 4}]}, r"modes\.0: mode gossip: option 3 is no option's name"),
        (
            {"modes": [{"name": "local", "period": 10**9}]},
            r"period 1000000000 is out of range; allowed: 1 to 1000000 ",
        ),
        (
            {"modes": [{"name": "local", "period": 1000}], "limit": "1s"},
            r"local: period 1000 leaves no exchange within the limit of 1s, in which a worker of 2000 samples per "
            r"second makes at most \d+ steps",
        ),
        ({"modes": [{"name": "diloco", "step": 1e300}]}, r"0 < step <= 1e\+30"),
        ({"machines": {"speeds": [1e-300, 1, 1]}}, r"machines\.speeds\.0: 1e-300 is not right; write 0\.001 or more"),
        (
            {"machines": {"speeds": [1e300, 1, 1]}},
            r"machines\.speeds\.0: 1e\+300 is not right; write 1000000000 or less",
        ),
        ({"machines": {"speeds": [1, 1, 1], "launch": 10**21}}, r"machines\.launch: .* is not right"),
        ({"target": 1e300}, r"target: 1e\+300 is not right"),
        ({"modes": [{"name": "backup", "quorum": 4}]}, "quorum: 4 of 3 workers; a step needs between 1 and 3"),
        ({"machines": {"speeds": [1000, 1000]}}, r"synchronisation\.machines\.speeds: 2 for 3 workers"),
    ],
)
def test_impossible_modes_are_refused(config: RunConfig, changes: dict[str, object], message: str) -> None:
    assert config.synchronisation is not None
    with pytest.raises(ExperimentError, match=message):
        config.replaced("test", synchronisation={**config.synchronisation.model_dump(), **changes})


def test_modes_train_no_workload_of_one_s_own(config: RunConfig) -> None:
    assert config.synchronisation is not None
    own = RunConfig.load(ROOT / "examples" / "user_workload.yaml")
    one_each = {**config.synchronisation.model_dump(), "machines": {"speeds": [1000.0] * len(own.job.workers)}}
    with pytest.raises(ExperimentError, match=r"synchronisation: modes train .*digits' network .*convolutional"):
        own.replaced("test", synchronisation=one_each)


def test_a_mode_with_a_server_needs_one(config: RunConfig) -> None:
    job = {**config.job.model_dump(), "server": None}
    with pytest.raises(ExperimentError, match=r"synchronisation\.modes: ssp needs a parameter server"):
        config.replaced("test", job=job)


def test_workers_without_a_server_train_over_the_transport(executed: tuple[RunRecord, Path]) -> None:
    for result in executed[0].modes[3:]:
        assert result.updates > 3
        assert result.losses[-1][1] < result.losses[0][1]
