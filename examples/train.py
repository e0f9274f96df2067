"""One worker of a job, as a separate process: `weir launch -n 4 examples/train.py`.

`weir.join()` finds its seat in the environment: the controller's address, the job's number and this worker's token.
They are set by `weir launch`, or by the program that registered the job (examples/on_a_fabric.py).
"""

import numpy as np

import weir

true_weights = np.array([3.0, -1.5], np.float32)

with weir.join() as communicator:
    rng = np.random.default_rng(communicator.rank)
    inputs = rng.uniform(-1, 1, (50 + 10 * communicator.rank, 2)).astype(np.float32)  # this worker's share of the data
    outputs = inputs @ true_weights
    weights = np.zeros(2, np.float32)
    for step in range(60):
        gradient = 2 * (inputs @ weights - outputs) @ inputs / len(inputs)
        weights -= 0.5 * communicator.allreduce(gradient, op="mean", weight=len(inputs), name=f"step {step}")
    print(f"rank {communicator.rank} of {communicator.size}: weights {weights.tobytes().hex()} are {weights}")
