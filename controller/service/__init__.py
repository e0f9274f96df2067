"""The controller towards hosts and people: the gRPC control service, who may sit where, and Prometheus metrics.

`seats` and `requests` are pure; `service` is gRPC, `runner` the one task that touches the controller under the wall
clock, `metrics` what Prometheus scrapes.
"""
