"""Workers that average with one other at a time, in place of all: `weir launch -n 4 examples/gossip.py`.

`communicator.transport` sends arrays to single workers of the job. Partners change every step as in a hypercube, so
that after log2 n steps all of n = 2^k workers have the mean.
"""

import numpy as np

import weir

with weir.join() as communicator:
    transport = communicator.transport
    values: np.ndarray = np.full(1000, float(communicator.rank), np.float32)
    distance = 1
    while distance < communicator.size:
        partner = communicator.rank ^ distance
        sending = transport.send_async(partner, values)
        values = (values + transport.recv(partner)) / 2
        sending.wait()
        distance *= 2
    transport.publish("mean", values)
    communicator.barrier()
    first = transport.pull(0, "mean").value if communicator.rank else values
    print(f"rank {communicator.rank}: mean {values[0]:g}, that of rank 0 {first[0]:g}")
    communicator.barrier()
