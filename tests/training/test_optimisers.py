"""Optimisers against torch.optim, and LARS and LAMB against their papers' formulas, written out for one layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from weir.training import TrainingError
from weir.training.optimisers import OPTIMISERS, make_optimiser

LAYERS = (12, 1, 30, 7)
STEPS = 25


def gradients() -> Iterator[np.ndarray]:
    rng = np.random.default_rng(6)
    for _ in range(STEPS):
        yield rng.normal(0, 1, sum(LAYERS)).astype(np.float32)


def start() -> np.ndarray:
    """Weights of which the last layer is zero, as biases are at the start."""
    weights = np.random.default_rng(7).normal(0, 2, sum(LAYERS)).astype(np.float32)
    weights[-LAYERS[-1] :] = 0
    return weights


def trained(name: str, rate: float, **options: Any) -> np.ndarray:
    weights, optimiser = start(), make_optimiser(name, LAYERS, rate, **options)
    for gradient in gradients():
        weights = optimiser.step(weights, gradient)
    assert weights.dtype == np.float32
    return weights


@pytest.mark.parametrize(
    ("name", "options", "torch_name", "torch_options"),
    [
        ("sgd", {}, "SGD", {}),
        ("sgd", {"momentum": 0.9}, "SGD", {"momentum": 0.9}),
        ("adam", {}, "Adam", {}),
        ("adam", {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-4}, "Adam", {"betas": (0.8, 0.95), "eps": 1e-4}),
    ],
)
def test_weights_are_those_of_torch_optim(
    name: str, options: dict[str, Any], torch_name: str, torch_options: dict[str, Any]
) -> None:
    torch = pytest.importorskip("torch")
    weights = torch.from_numpy(start()).requires_grad_()
    theirs = getattr(torch.optim, torch_name)([weights], lr=0.05, **torch_options)
    for gradient in gradients():
        weights.grad = torch.from_numpy(gradient)
        theirs.step()
    np.testing.assert_allclose(trained(name, 0.05, **options), weights.detach().numpy(), rtol=1e-5, atol=1e-6)


def norm(values: list[float]) -> float:
    return math.sqrt(sum(value * value for value in values))


def lars(rate: float, momentum: float, trust: float, decay: float) -> Callable[[list[float], list[float]], list[float]]:
    velocity: list[float] = []

    def step(weights: list[float], gradient: list[float]) -> list[float]:
        w, g = norm(weights), norm(gradient)
        local = trust * w / (g + decay * w) if w and g else 1.0
        before = velocity or [0.0] * len(weights)
        velocity[:] = [
            momentum * v + rate * local * (dw + decay * weight)
            for v, dw, weight in zip(before, gradient, weights, strict=True)
        ]
        return [weight - v for weight, v in zip(weights, velocity, strict=True)]

    return step


def lamb(rate: float, beta1: float, beta2: float, epsilon: float, decay: float) -> Callable[..., list[float]]:
    state: dict[str, Any] = {"t": 0}

    def step(weights: list[float], gradient: list[float]) -> list[float]:
        state["t"] += 1
        zeros = [0.0] * len(weights)
        state["m"] = [beta1 * m + (1 - beta1) * g for m, g in zip(state.get("m", zeros), gradient, strict=True)]
        state["v"] = [beta2 * v + (1 - beta2) * g * g for v, g in zip(state.get("v", zeros), gradient, strict=True)]
        means = [m / (1 - beta1 ** state["t"]) for m in state["m"]]
        squares = [v / (1 - beta2 ** state["t"]) for v in state["v"]]
        update = [
            m / (math.sqrt(v) + epsilon) + decay * weight for m, v, weight in zip(means, squares, weights, strict=True)
        ]
        ratio = norm(weights) / norm(update) if norm(weights) and norm(update) else 1.0
        return [weight - rate * ratio * u for weight, u in zip(weights, update, strict=True)]

    return step


@pytest.mark.parametrize(
    ("name", "rate", "options", "oracle"),
    [
        ("lars", 0.5, {"momentum": 0.8, "trust": 0.02, "weight_decay": 0.01}, lambda: lars(0.5, 0.8, 0.02, 0.01)),
        ("lamb", 0.02, {}, lambda: lamb(0.02, 0.9, 0.999, 1e-6, 0.01)),
        ("lamb", 0.1, {"beta1": 0.7, "weight_decay": 0.0}, lambda: lamb(0.1, 0.7, 0.999, 1e-6, 0.0)),
    ],
)
def test_layers_move_by_the_papers_formulas(
    name: str, rate: float, options: dict[str, Any], oracle: Callable[[], Callable[..., list[float]]]
) -> None:
    ends = np.cumsum(LAYERS)[:-1]
    layers = [part.tolist() for part in np.split(start(), ends)]
    steps = [oracle() for _ in LAYERS]
    for gradient in gradients():
        parts = [part.tolist() for part in np.split(gradient, ends)]
        layers = [step(layer, part) for step, layer, part in zip(steps, layers, parts, strict=True)]
    np.testing.assert_allclose(trained(name, rate, **options), np.concatenate(layers), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_share_of_a_step_moves_the_weights_by_that_share(name: str) -> None:
    weights, gradient = start(), next(gradients())
    whole, part = (make_optimiser(name, LAYERS, 0.1).step(weights, gradient, share) - weights for share in (1.0, 0.25))
    np.testing.assert_allclose(part, whole / 4, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_quadratic_is_minimised(name: str) -> None:
    target = np.random.default_rng(3).normal(1, 1, sum(LAYERS)).astype(np.float32)
    options = {"trust": 0.1} if name == "lars" else {}
    weights, optimiser = start(), make_optimiser(name, LAYERS, 0.05, **options)
    for _ in range(300):
        weights = optimiser.step(weights, weights - target)
    assert np.linalg.norm(weights - target) < 0.2 * np.linalg.norm(start() - target)


@pytest.mark.parametrize(
    ("name", "rate", "options"),
    [
        ("sdg", 0.1, {}),
        ("sgd", 0.0, {}),
        ("sgd", float("nan"), {}),
        ("sgd", 0.1, {"momentum": 1.0}),
        ("sgd", 0.1, {"beta1": 0.9}),
        ("adam", 0.1, {"beta2": -0.1}),
        ("lars", 0.1, {"trust": -1.0}),
        ("lamb", 0.1, {"weight_decay": float("nan")}),
    ],
)
def test_unknown_optimisers_and_options_out_of_range_are_refused(
    name: str, rate: float, options: dict[str, float]
) -> None:
    with pytest.raises(TrainingError):
        make_optimiser(name, LAYERS, rate, **options)
    with pytest.raises(TrainingError):
        make_optimiser("lars", [], 0.1)
