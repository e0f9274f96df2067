"""The control plane: sessions with switches, plans for jobs, moves between generations, what telemetry says of links,
and what becomes of a job when hosts, switches, links or the controller itself fail.

`plan` says what every switch should hold, `session` speaks P4Runtime (by `finsy_switch`), `reconcile` replaces what
is there by what should be, and `switches` does that for all of them and knows which are lost. `planner` finds a job
its place, `moves` takes a running job to its next generation, `fleet` has all jobs and their hosts' leases and
decides who goes on without whom, and `ledger` writes to the `journal` what must outlive the controller. `prober`
sends probes; `telemetry` keeps the state of every link and `links` which are down. `controller` ties them together
under a clock that its caller gives; `metrics` shows it to Prometheus. No module reads a clock, but where a search has
a limit of time; `session` alone speaks to the network, `journal` alone to the disk, but for `service`, `runner` and
`metrics`, which serve hosts and people under the wall clock.
"""
