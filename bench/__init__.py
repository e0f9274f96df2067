"""Benchmarks: each figure stands beside a peer's, measured in the same run, since machines differ and are noisy.

`python -m bench` runs them all; `--json` prints the figures for a script.
"""
