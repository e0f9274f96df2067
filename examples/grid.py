"""Sums along the dimensions of a mesh of ranks: `weir launch --mesh 2x3 examples/grid.py`."""

import numpy as np

import weir

with weir.join() as communicator:
    down, across = communicator.mesh  # all ranks use it: it joins the groups
    total = across.allreduce(np.full(1000, communicator.rank, np.float32))
    print(f"rank {communicator.rank} at {down.rank, across.rank}: {total[0]}")
