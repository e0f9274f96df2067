"""Runs: a fabric, a job and strategies turned into figures, tables and a record; and the `weir` command.

`config` is what a run file says, `run` plays it once per strategy on one of the `backends`, `records` keeps what
happened, `workloads` has what is trained, `commands` what people type.
"""
