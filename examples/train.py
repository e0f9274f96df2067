"""One worker of a job, on a host of its own: what examples/on_a_fabric.py starts at each host.

Where the controller serves, the job's number and this worker's token come in the environment; `weir jobs register`
prints them.
"""

import os

import numpy as np

import weir

control, job, token = (os.environ[name] for name in ("WEIR_CONTROL", "WEIR_JOB", "WEIR_TOKEN"))
true_weights = np.array([3.0, -1.5], np.float32)

with weir.join(control, int(job), token) as communicator:
    rng = np.random.default_rng(communicator.rank)
    inputs = rng.uniform(-1, 1, (50 + 10 * communicator.rank, 2)).astype(np.float32)  # this worker's share of the data
    outputs = inputs @ true_weights
    weights = np.zeros(2, np.float32)
    for step in range(60):
        gradient = 2 * (inputs @ weights - outputs) @ inputs / len(inputs)
        weights -= 0.5 * communicator.allreduce(gradient, op="mean", weight=len(inputs), name=f"step {step}")
    print(f"rank {communicator.rank} of {communicator.size}: weights {weights.tobytes().hex()} are {weights}")
