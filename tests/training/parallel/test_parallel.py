"""Tensor parallelism on blocks beside one process, over Gloo and over an emulated fabric."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from weir.tests.hosts.torch.rig import Ranks, running_fabric
from weir.tests.paths import ROOT

pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="PyTorch is not installed (pip install 'weir-fabric[torch]')"
)

SCENARIOS = "weir.tests.training.parallel.scenarios"
EXAMPLE = ROOT / "examples" / "tensor_parallel.py"
EXACT = 1e-12
"""Bound in float64 over Gloo, whose sums are rounded in another order."""
FIXED_POINT = 1e-5
"""Bound in float32 if sums are in fixed point."""


def told(backend: str, q: int, d: int, kind: str) -> dict[str, str]:
    return {"WEIR_TEST_BACKEND": backend, "WEIR_TEST_MESH": f"{q},{d}", "WEIR_TEST_TYPE": kind}


@pytest.fixture(scope="module")
def gloo() -> Iterator[Ranks]:
    forker = Ranks({}, SCENARIOS)
    try:
        yield forker
    finally:
        forker.close()


@pytest.fixture(scope="module")
def fabric() -> Iterator[Ranks]:
    with running_fabric() as environment:
        forker = Ranks(environment, SCENARIOS)
        try:
            yield forker
        finally:
            forker.close()


LARGE = [pytest.param(4, 1, marks=pytest.mark.long(1)), pytest.param(3, 2, marks=pytest.mark.long(1))]


@pytest.mark.parametrize(("q", "d"), [(2, 1), (2, 2), *LARGE])
def test_products_and_numbers_moved_are_those_of_the_formulas(gloo: Ranks, q: int, d: int) -> None:
    for found in gloo.play("products", q * q * d, **told("gloo", q, d, "float64")):
        assert max(found["errors"]) < EXACT
        assert found["counted"]
        assert found["called"] == [True] * 3


@pytest.mark.parametrize(("q", "d"), [(2, 2), *LARGE])
def test_training_and_checkpoint_match_those_of_one_process(gloo: Ranks, q: int, d: int) -> None:
    for found in gloo.play("training", q * q * d, **told("gloo", q, d, "float64")):
        assert found["fell"]
        assert max(*found["losses"], found["weights"]) < EXACT
        assert found["loaded"] == [True] * len(found["loaded"])
        assert found["again"] == 0
        assert found["files"]
        assert found["bytes"] < 1.2 / q  # tables and vectors are divided by columns only


def test_training_of_the_1d_division_is_that_of_one_process(gloo: Ranks) -> None:
    for losses in gloo.play("megatron", 4, **told("gloo", 1, 1, "float64")):
        assert max(losses) < EXACT


def test_wrong_meshes_sizes_and_layers_are_refused(gloo: Ranks) -> None:
    assert gloo.play("refused", 4, **told("gloo", 2, 1, "float64")) == [["TrainingError"] * 6] * 4


class RecordingMesh:
    """A mesh of one rank's view, whose broadcasts arrive at once and are noted when they begin and are waited for."""

    q, d, row, column = 3, 1, 0, 0

    def __init__(self) -> None:
        self.events: list[tuple[str, str, int]] = []

    def place(self, along: str) -> int:
        return 0

    def broadcast(self, tensor: Any, source: int, along: str) -> Any:
        self.events.append(("begin", along, source))
        return SimpleNamespace(wait=lambda: self.events.append(("wait", along, source)))


def test_the_next_blocks_travel_while_these_are_multiplied() -> None:
    import torch

    from weir.training.parallel.products import multiply

    mesh = RecordingMesh()
    multiply(mesh, torch.zeros(2, 4), torch.zeros(3, 4))  # type: ignore[arg-type]
    for step in range(1, mesh.q):
        for along in ("row", "column"):
            assert mesh.events.index(("begin", along, step)) < mesh.events.index(("wait", along, step - 1))
            if step > 1:
                assert mesh.events.index(("begin", along, step)) > mesh.events.index(("wait", along, step - 2))


THROUGH_SWITCHES = told("weir", 2, 1, "float32") | {"WEIR_MIN_BYTES": "0"}
"""Sums of any size."""


def test_products_with_sums_in_switches_are_within_their_bound(fabric: Ranks) -> None:
    for found in fabric.play("products", 4, **THROUGH_SWITCHES):
        assert max(found["errors"]) < FIXED_POINT


@pytest.mark.long(1)
def test_training_with_sums_in_switches_is_within_its_bound(fabric: Ranks) -> None:
    for found in fabric.play("training", 4, **THROUGH_SWITCHES):
        assert max(*found["losses"], found["weights"]) < FIXED_POINT


@pytest.mark.long(1)
def test_the_run_file_has_the_losses_of_one_process(tmp_path: Path) -> None:
    run = yaml.safe_load(EXAMPLE.with_suffix(".yaml").read_text())
    run["torchrun"] |= {"script": str(EXAMPLE), "arguments": [2, 2, 2]}  # two steps
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    words = [str(Path(sys.executable).with_name("weir")), "run", str(tmp_path / "run.yaml")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    ((loss, alone),) = re.findall(r"step 2: loss (\S+), in one process (\S+)", done.stdout)
    assert float(loss) == pytest.approx(float(alone), abs=2e-4)
    moved = [int(numbers) for numbers in re.findall(r"(\d+) numbers a step", done.stdout)]
    (by_formula,) = re.findall(r"by the formulas.*: (\d+) by hosts", done.stdout)
    assert len(moved) == 8
    assert 1 < sum(moved) / 8 / int(by_formula) < 1.05  # norms, biases, embeddings and the loss are not in the formulas
    assert "MB in" in done.stderr


@pytest.mark.long(10)
def test_the_example_has_the_same_losses_in_every_division() -> None:
    losses = set()
    for ranks, *division in (("-n 4", "2", "1"), ("-n 8 --mesh 2x2x2", "2", "2"), ("-n 4", "1d")):
        words = [str(Path(sys.executable).with_name("weir")), "torchrun", *ranks.split(), str(EXAMPLE), *division]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        losses.add(tuple(re.findall(r"step \d+: loss (\d\.\d\d)", done.stdout)))
    ((first, second, third),) = losses
    assert first > second > third
