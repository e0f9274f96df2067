"""From a placement to what switches and hosts are given: table entries, slots, groups and generations.

`slots` and `memory` divide a switch's numbered memory among jobs, `generations` keeps old tags from ever matching,
`forwarding` has the routes and which way messages take by them, `plan` turns a placed job into table entries and host
plans, `planner` finds a job its place in the fabric as it is, `completion` says how long a step takes there.
"""
