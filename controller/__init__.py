"""The control plane: link telemetry, placement of jobs, contents of switches, and recovery when hosts, switches, links
or the controller itself fail.

`p4runtime` speaks to the switches, `telemetry` keeps the state of every link, `placement` chooses the switches that
aggregate, `planning` turns that into table entries and host plans, `jobs` has every running job and its moves; each
imports only the packages before it. `controller` ties them together under its caller's clock, and `service` serves
hosts and people under the wall clock. No module of the first five reads a clock, except for time limits of searches;
only `p4runtime.session` uses the network, and only `jobs.journal_file` the disk.
"""
