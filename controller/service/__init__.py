"""The controller towards hosts and people: the gRPC control service, who may sit where, and Prometheus metrics.

`service` is gRPC, `runner` the one task that touches the controller under the wall clock, and `metrics` what Prometheus
scrapes. `seating` has the `seats` of all jobs and hands hosts, each by its `streams`, what the controller has for them;
`requests` is what operators ask and are answered.
"""
