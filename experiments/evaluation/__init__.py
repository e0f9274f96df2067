"""The evaluation: a grid of conditions, each drawn for many seeds, every strategy under each.

`suite` is the grid as a file; `scenario` draws one point of it; `flow_simulator` and `packet_emulator` run a strategy
there; `records` are what is kept of a point; `points` runs one, `grid` all of them on Dask; `statistics` has means with
their intervals, `comparison` what they come to, `page` and `plots` show it.
"""
