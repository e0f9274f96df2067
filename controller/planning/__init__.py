"""Translation of a placement into the data of switches and hosts: table entries, slots, groups and generations.

`slots` and `memory` divide a switch's numbered memory among jobs, `generations` keeps old tags from ever matching.
`forwarding` has the routes and messages' paths, `plan` turns a placed job into table entries and host plans, `planner`
finds a job its placement in the present fabric, `completion` predicts the time of a step there.
"""
