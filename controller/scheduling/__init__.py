"""Scheduling of jobs' traffic: the order in which jobs that share links are served, and turns on shared devices.

::

    trees, free rates, steps left ─▶ demand ─▶ orders ─▶ classes ─▶ a traffic class per job
    progress reports ─▶ progress ──────────────┘
    compute and exposed communication ─▶ pairs ─▶ turns ─▶ a turn per job and device

A *stage* is a fixed number of steps after which a hyper-parameter search stops its worst configurations. The jobs that
one search trains at the same time form a *cojob*: its stage ends when the last of them has done its steps. `bound` is
a lower bound on the mean stage completion time, for judging orders.
"""
