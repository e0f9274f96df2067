"""The flow-level simulator: traffic as rates instead of packets, for fabrics and hours that packets are too many for.

`fair_shares` divides links among flows, max-min fairly; `events` lets time pass from one change of the rates to the
next (both native); `background` draws others' traffic; `coflows` are jobs' streams as flows that go in step, and
`simulator` has jobs compute, send, merge and receive, come, move and go.
"""
