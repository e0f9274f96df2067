"""The evaluation: a grid of conditions, each drawn for many seeds, every strategy under each.

`suite` is the grid as a file, `scenario` draws one point of it, and `flow_simulator` and `packet_emulator` run a
strategy there. `records` stores a point's results; `points` runs one, `grid` all of them, in processes or on Dask;
`statistics` has means with their intervals, `comparison` derives the conclusions, `page` and `plots` show them.
"""
