"""The controller's services for hosts and people: the gRPC control service, seats, and Prometheus metrics.

`service` is gRPC, `runner` the one task that touches the controller under the wall clock, and `metrics` the page for
Prometheus. `seating` has the `seats` of all jobs and passes the controller's messages to hosts, each by its `streams`;
`requests` converts operators' requests and answers.
"""
