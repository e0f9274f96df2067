"""Configuration of telemetry reports: the flows with INT or reports, the events, and the destination of reports.

`settings` holds it as values, which are checked by themselves; `table_entries` turns them into each switch's entries:
watchlist, sinks, marks, steps, the reports' destination and clone session. `cost` computes the load of reports and
probes on links.
"""
