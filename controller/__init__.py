"""The control plane: sessions with switches, plans for jobs, moves between generations, and what telemetry says of
the links.

`plan` says what every switch should hold, `session` speaks P4Runtime, `reconcile` replaces what is there by what
should be, `moves` takes a running job to its next generation, `telemetry` sends probes and keeps the state of every
link, and `controller` ties them together under a clock that its caller gives. Pure but for `session`: no other module
does I/O or reads a clock.
"""
