"""The flow-level simulator: traffic as rates instead of packets, for fabrics and durations beyond packet simulation.

`fair_shares` divides links among flows, max-min fairly, and `events` lets time pass from one change of the rates to the
next (both native). `background` draws others' traffic. `coflows` are jobs' streams as flows that progress together, and
`simulator` has the jobs: they arrive, compute, send, merge, receive, move and leave.
"""
