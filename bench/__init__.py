"""Benchmarks: each figure is paired with a peer's from the same run, since machines differ and are noisy.

`python -m weir.bench` runs them all, and `--only NAME` some. `--json` prints the figures for a script. `--write
docs/results.md` puts the tables into a document, so that results are generated and not typed.

**A benchmark is one module of this package**, named in `bench.__main__.BENCHMARKS`, with:

* a docstring, whose first line is the title of its table;
* `figures() -> Iterable[Figure]`, which measures (a generator shows each figure as soon as it is there);
* if it needs anything special of a machine, `obstacle() -> str | None`: the reason that it cannot run here, in a line.

`bench.measure.compare` times work and its peer in turns and makes the Figure. A benchmark that measures in another way
(virtual time, processes) passes the values of its runs to `Figure`::

    yield Figure("recovery from a worker's death", "lease periods", (1.8, 2.1, 1.9), less_is_better=True, aim=Aim(3))
    yield Figure("goodput, 1 % loss", "of the line rate", shares, peer="ring", peer_values=ring, aim=Aim(0.8))
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before grpc is imported: it would report every closed stream
