"""Runs: a fabric, a job and strategies turned into figures, tables and a record.

`config` is the run file's schema, `run` plays a run once per strategy on one of the `backends`, `records` keeps the
results, `evaluation` compares strategies over a grid of conditions.
"""
