"""From a placement to what switches and hosts are given: table entries, slots, groups and generations.

`slots` and `memory` divide a switch's numbered memory among jobs, `generations` keeps old tags from ever matching,
`plan` turns a placed job into table entries and host plans, `planner` finds a job its place in the fabric as it is.
"""
