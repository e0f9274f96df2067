"""What modes train: gradients against differences of the loss, and that they learn."""

from __future__ import annotations

import numpy as np
import pytest

from weir.experiments.workloads.convolution import ConvolutionalNetwork
from weir.experiments.workloads.digits import DigitsNetwork, load_digits
from weir.tests.training.ideal_run import train
from weir.training import Machine, Workload, make_mode
from weir.training.workloads.synthetic import LeastSquares


@pytest.mark.parametrize("workload", [DigitsNetwork(16, 2), ConvolutionalNetwork(2), LeastSquares(12, 400, seed=2)])
def test_a_step_along_the_gradient_lowers_the_loss_as_far_as_it_says(workload: Workload) -> None:
    """And a batch's gradient is the mean of its parts'."""
    rng = np.random.default_rng(5)
    rows = np.arange(60)
    weights = workload.initial() + rng.normal(0, 0.05, workload.parameters).astype(np.float32)
    gradient = workload.gradient(weights, rows)
    assert (gradient.shape, gradient.dtype) == ((workload.parameters,), np.dtype(np.float32))
    same = np.mean([workload.gradient(weights, rows[part : part + 20]) for part in (0, 20, 40)], axis=0)
    np.testing.assert_allclose(gradient, same, atol=1e-5)
    everything = np.arange(workload.rows)
    full = workload.gradient(weights, everything)
    lower = weights - np.float32(0.02) * full
    assert workload.loss(lower) < workload.loss(weights)


def test_the_convolution_s_gradient_is_that_of_its_loss() -> None:
    """The held-out images in the place of the others, so that loss and gradient are of the same data."""
    network = ConvolutionalNetwork(3)
    data = load_digits(3)
    network._data = type(data)(data.test_images, data.test_labels, data.test_images, data.test_labels)
    rng = np.random.default_rng(1)
    weights = network.initial() + rng.normal(0, 0.1, network.parameters).astype(np.float32)  # away from ReLU's kink
    gradient = network.gradient(weights, np.arange(network.rows))
    for _ in range(8):
        direction = rng.normal(0, 1, network.parameters).astype(np.float32)
        step = np.float32(2e-3)
        slope = (network.loss(weights + step * direction) - network.loss(weights - step * direction)) / (2 * step)
        assert slope == pytest.approx(float(gradient @ direction), rel=0.02, abs=0.02)


def test_the_convolution_learns_the_digits() -> None:
    workload = ConvolutionalNetwork(1)
    machines = [Machine(1000.0), Machine(300.0)]
    _, training = train(
        make_mode("lb-bsp", predictor="memoryless"),
        machines,
        lambda course: course.updates >= 250,
        workload=workload,
        batch=64,
        learning_rate=0.2,
        momentum=0.9,
    )
    assert workload.accuracy(training.weights[0]) > 0.93
