"""A run trains what a script of the user's makes, as a worker of a framework would, and says what a script lacks."""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rich.console import Console

from weir.controller.planning.plan import lanes_of
from weir.experiments.backends.round_count import Rounds
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.records import report
from weir.experiments.records.record import RunRecord
from weir.experiments.run import execute
from weir.tests.support.errors import raises

SCRIPT = """
import numpy as np

class Worker:
    def __init__(self, rank, size):
        self.rank, self.samples = rank, 1 + rank
        self.weights = np.zeros(size, np.float32)
    def gradient(self, step):
        return np.full(self.weights.shape, (step + 1) * (1 + self.rank) * self.rank, np.float32)
    def apply(self, mean):
        self.weights = self.weights + mean

def worker(rank, workers, seed, size=700):
    return Worker(rank, size)
"""
RUN: dict[str, Any] = {
    "name": "own",
    "seed": 3,
    "fabric": "leaf_spine.yaml",
    "job": {"workers": ["h1", "h2", "h4"], "server": "h12"},
    "training": {"steps": 3},
    "workload": {"script": "own.py", "options": {"size": 900}},
    "strategies": ["widest"],
}
OF_NINE = {"script": "own.py", "options": {"size": 9}}


def write(folder: Path, script: str = SCRIPT, **changes: Any) -> Path:
    (folder / "own.py").write_text(script)
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({**RUN, **changes}))
    return path


def test_a_run_trains_what_the_script_makes_with_its_weights(tmp_path: Path) -> None:
    """Worker r hands over (step + 1) · r for each of its 1 + r samples, so the mean is (step + 1) · (0 + 2 + 6) / 6."""
    config = RunConfig.load(write(tmp_path))
    record, folder = execute(config, tmp_path / "runs", Console(quiet=True))
    (result,) = record.results
    job = config.new_job()
    for step in range(3):
        np.testing.assert_array_equal(job.gradients(step)[2], np.full(900, 6.0 * (step + 1), np.float32))
        job.apply([np.full(900, 8 * (step + 1), np.float32) / np.float32(6)] * 3)
    assert result.weights == record.reference_weights == job.digests()[0]
    assert (result.accuracy, record.reference_accuracy) == (None, None)
    assert (folder / "own.py").read_text() == SCRIPT
    assert "accuracy on the held-out digits" not in (folder / "index.html").read_text()
    assert RunRecord.load(folder, trust=True).config == config


def test_a_mean_over_samples_beyond_float32_is_the_workers_own(tmp_path: Path) -> None:
    """Three times 5,592,407 is odd and above 2²⁴."""
    script = SCRIPT.replace("self.samples = rank, 1 + rank", "self.samples = rank, 5_592_407")
    record, _ = execute(RunConfig.load(write(tmp_path, script)), tmp_path / "runs", Console(quiet=True))
    assert report.claims(record)[0][0]


def test_the_traffic_is_that_of_the_scripts_gradients(tmp_path: Path) -> None:
    sizes = {}
    for size in (900, 9000):
        config = RunConfig.load(write(tmp_path, workload={"script": "own.py", "options": {"size": size}}))
        lanes = lanes_of(config.topology)
        assert Rounds.of(config.gradient_values, lanes, config.job.window).chunks == -(-size // lanes)
        sizes[size] = config.gradient_values
    assert sizes == {900: 900, 9000: 9000}
    assert RunConfig.load(write(tmp_path, workload={"script": "own.py"})).gradient_values == 700


def test_a_script_that_was_changed_is_not_taken_for_the_records(tmp_path: Path) -> None:
    """Like a replay: the configuration has the digest of the script that it was run with."""
    config = RunConfig.load(write(tmp_path))
    recorded = config.model_dump()
    recorded["workload"]["digest"] = hashlib.sha256(SCRIPT.replace("1 + rank", "2 + rank").encode()).hexdigest()
    with raises(ExperimentError, value=hashlib.sha256(SCRIPT.encode()).hexdigest()):
        RunConfig.model_validate(recorded)


@pytest.mark.parametrize(
    ("script", "changes", "complaint"),
    [
        (SCRIPT.replace("def worker", "def workers"), {}, "has no function worker(rank, workers, seed)"),
        (SCRIPT.replace("zeros(size, np.float32)", "zeros(size)"), {}, "float64 of shape (900,); make it a flat array"),
        (SCRIPT.replace("zeros(size,", "zeros(0 * size,"), {}, "worker 0 has no weights, so there is nothing to sum"),
        (SCRIPT, {"workload": {"script": "absent.py"}}, "absent.py: cannot be read as a workload's script (No such"),
        (SCRIPT, {"workload": {"script": "run.yaml"}}, "run.yaml: is no Python file; a workload's script ends in .py"),
        (
            SCRIPT,
            {"workload": {"scrip": "own.py"}},
            'workload: unknown key "scrip", did you mean "script"? There are script',
        ),
        (
            SCRIPT,
            {"workload": {"script": "own.py", "options": {"sise": 9}}},
            "own.py: worker(rank, workers, seed, size=700) does not take a rank, the workers, a seed and the options "
            "that the run's file has (sise): got an unexpected keyword argument 'sise'",
        ),
        (
            SCRIPT,
            {"workload": {"script": "own.py", "options": {"size": 9, "since": date(2026, 1, 1)}}},
            "workload.options: since: 2026-01-01 is no text, number, true, false, null, list or mapping of these",
        ),
        (SCRIPT, {"training": {"batch": 4}}, "training.batch: is the digits' network's"),
        (
            SCRIPT,
            {"job": {"workers": ["h1"], "servers": ["h2", "h3"]}, "workload": OF_NINE},
            "2 servers share the chunks of a gradient, which has 1",
        ),
    ],
)
def test_a_script_that_lacks_a_part_is_one_line(script: str, changes: Any, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ExperimentError) as caught:
        RunConfig.load(write(tmp_path, script, **changes)).new_job()
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            ("np.full(self.weights.shape,", "np.full(7,"),
            "worker 1 is float32 of shape (7,); return float32 of shape (900,)",
        ),
        (("* self.rank, np.float32)", "* self.rank, np.int32)"), "gradient(0) of worker 1 is int32 of shape (900,)"),
        (("return np.full(", "return [1.0] or np.full("), "gradient(0) of worker 1 is of type list"),
        (("1 + rank", "0.5"), "samples of worker 1 is 0.5; make it 1 or more"),
    ],
)
def test_a_workers_results_are_checked(change: tuple[str, str], complaint: str, tmp_path: Path) -> None:
    script = SCRIPT.replace(*change)
    job = RunConfig.load(write(tmp_path, script)).new_job()
    with pytest.raises(ExperimentError) as caught:
        _ = job.samples(1), job.gradient(1, 0)
    assert complaint in str(caught.value)


def test_an_error_of_the_script_keeps_its_traceback(tmp_path: Path) -> None:
    """It is the user's own program: where it failed is worth more than one line."""
    with pytest.raises(ZeroDivisionError):
        RunConfig.load(write(tmp_path, SCRIPT.replace("return Worker", "return 1 / 0, Worker"))).new_job().gradient(
            0, 0
        )
    with pytest.raises(RuntimeError, match=r"raised ValueError .*first worker was made") as caught:
        RunConfig.load(write(tmp_path, SCRIPT.replace("return Worker", "return int('no data'), Worker"))).new_job()
    assert "'no data'" in str(caught.value.__cause__)
