"""Loading of graphs for neural networks: sampling, caches of features, and a pipeline that hides both.

::

    seeds ─▶ sampler ─nodes─▶ cache ─misses─▶ features here, or at other hosts by the transport
             └──── first thread ────┘└───────────── second thread ─────────────┘─▶ training

The parts follow GLoader and PaGraph (Lin et al., SoCC 2020). `loader` and `models` need PyTorch, the rest NumPy.
"""
