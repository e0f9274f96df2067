"""Adasum beside the mean at one learning rate: `weir launch -n 4 examples/adasum.py`.

Each worker has a quarter of the digits and takes steps of softmax regression. Gradients that agree are averaged by
both; gradients that point different ways are averaged by the mean, and summed by Adasum, which so takes longer steps.
"""

import hashlib

import numpy as np
from sklearn.datasets import load_digits

import weir

RATE, STEPS = 0.2, 40
images, labels = load_digits(return_X_y=True)
inputs = (images / 16).astype(np.float32)


def gradient_of(weights: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """The gradient and the mean cross entropy of these rows."""
    logits = inputs[rows] @ weights
    logits -= logits.max(axis=1, keepdims=True)
    shares = np.exp(logits)
    shares /= shares.sum(axis=1, keepdims=True)
    right = shares[np.arange(len(rows)), labels[rows]]
    shares[np.arange(len(rows)), labels[rows]] -= 1
    return inputs[rows].T @ shares / len(rows), float(-np.log(right).mean())


with weir.join() as communicator:
    held_out = np.arange(0, len(labels), 5)
    own = np.setdiff1d(np.arange(len(labels)), held_out)[communicator.rank :: communicator.size]
    for op in (weir.Average, weir.Adasum):
        rng = np.random.default_rng(communicator.rank)
        weights = np.zeros((64, 10), np.float32)
        for step in range(STEPS):
            gradient, _ = gradient_of(weights, rng.choice(own, 16, replace=False))
            weights -= RATE * communicator.allreduce(gradient.astype(np.float32), op=op, name=f"{op}, step {step}")
        loss = gradient_of(weights, held_out)[1]
        digest = hashlib.sha256(weights.tobytes()).hexdigest()
        print(f"rank {communicator.rank}: {op:6} loss {loss:.3f}, weights {digest[:16]}", flush=True)
