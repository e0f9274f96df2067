"""What is watched: which flows get INT or are reported on, what counts as an event, and where reports go.

`settings` says it in values, which are sound by themselves; `items` turns them into what each switch of a fabric holds
for it: watchlist, sinks, marks, steps, the reports' destination and clone session. `cost` says what all that and the
probes bring onto links.
"""
