"""The control plane: what is known of the links, where jobs are summed, what switches hold, and what becomes of a job
when hosts, switches, links or the controller itself fail.

`p4runtime` speaks to the switches, `telemetry` keeps the state of every link, `placement` chooses who sums, `planning`
turns that into table entries and host plans, `jobs` has every running job and its moves; each imports only what stands
before it. `controller` ties them together under a clock that its caller gives, and `service` serves hosts and people
under the wall clock. No module of the first five reads a clock, but where a search has a limit of time;
`p4runtime.session` alone speaks to the network, `jobs.journal_file` alone to the disk.
"""
