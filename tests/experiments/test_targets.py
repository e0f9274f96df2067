"""A job over switches of a narrow kind, and over several kinds: exact, and the same whatever carries it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from weir.controller.planning.plan import lanes_of
from weir.experiments.backends.emulated import EmulatedFabric
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.run import run_strategy
from weir.hosts import reference_sum
from weir.tests.support.errors import raises
from weir.tests.support.seeds import few_of
from weir.topologies import dump_topology
from weir.topologies.targets import BMV2, BMV2_32, LIKE_TOFINO, TOFINO, Target
from weir.training.replicated import train_without_network
from weir.training.workloads.digits import TrainingJob

KINDS = {
    "like Tofino": {"leaf": LIKE_TOFINO, "spine": LIKE_TOFINO},
    "mixed": {"leaf": BMV2, "spine": BMV2_32},
}


@pytest.mark.parametrize("strategy", few_of(["widest", "ps", "hierarchy"], 1))
@pytest.mark.parametrize(
    "kinds",
    [pytest.param(kinds, id=name, marks=() if name == "mixed" else pytest.mark.long) for name, kinds in KINDS.items()],
)
def test_weights_are_those_of_training_without_a_network(
    demo: RunConfig, kinds: dict[str, Target], strategy: str, tmp_path: Path
) -> None:
    switches = tuple(replace(switch, target=kinds[switch.tier or ""]) for switch in demo.topology.switches)
    topology = replace(demo.topology, switches=switches)
    dump_topology(topology, tmp_path / "fabric.yaml")
    config = demo.model_copy(
        update={
            "fabric": yaml.safe_load((tmp_path / "fabric.yaml").read_text()),
            "training": demo.training.model_copy(update={"steps": 2}),
            "background": [],
            "loss": 0.01,
        }
    )
    lanes = lanes_of(config.topology)
    assert lanes == 32
    job = TrainingJob(config.training.options, len(config.job.workers), config.seed)
    train_without_network(job, lambda gradients: reference_sum(gradients, lanes=lanes))
    assert asyncio.run(run_strategy(config, strategy)).weights == job.digests()[0]


def test_a_chip_is_not_emulated(demo: RunConfig, tmp_path: Path) -> None:
    switches = tuple(
        replace(switch, target=TOFINO if switch.tier == "spine" else BMV2) for switch in demo.topology.switches
    )
    topology = replace(demo.topology, switches=switches)
    with raises(ExperimentError, place=f"{topology.name}: s5, s6", value="tofino"):
        EmulatedFabric(topology)
    dump_topology(topology, tmp_path / "fabric.yaml")
    config = demo.model_copy(update={"fabric": yaml.safe_load((tmp_path / "fabric.yaml").read_text())})
    with raises(ExperimentError, place="demo.yaml: fabric: s5, s6", value="tofino"):
        config.check_names("demo.yaml")
