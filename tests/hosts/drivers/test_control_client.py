"""Calls of the control service: how long a client waits for answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from weir.hosts import ControlAbsent
from weir.hosts.drivers.control_client import ControlClient
from weir.tests.support.errors import raises
from weir.wire import control_pb2 as pb
from weir.wire.control_messages import REGISTER


@contextmanager
def registering(answers: threading.Event) -> Iterator[tuple[ControlClient, list[float]]]:
    """A client of a service that answers registrations after an event, and the time that each call gave it, in s."""
    limits_s: list[float] = []

    def register(request: pb.RegisterRequest, context: Any) -> pb.Registration:
        limits_s.append(context.time_remaining())
        answers.wait()
        return pb.Registration(job=request.job)

    service, _, method = REGISTER.strip("/").partition("/")
    handler = grpc.unary_unary_rpc_method_handler(
        register,
        request_deserializer=pb.RegisterRequest.FromString,
        response_serializer=pb.Registration.SerializeToString,
    )
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with ControlClient(f"127.0.0.1:{port}") as client:
            yield client, limits_s
    finally:
        answers.set()
        server.stop(None).wait()


def test_a_registration_is_waited_for_as_long_as_the_caller_says() -> None:
    """A choice of trees may take long; with hosts named and by a count the limit is the same."""
    answers = threading.Event()
    answers.set()
    with registering(answers) as (client, limits_s):
        assert client.register(["h1"], job=7, wait_s=3600).job == 7
        assert client.register(worker_count=1, job=8, wait_s=3600).job == 8
    assert all(limit_s > 3000 for limit_s in limits_s), limits_s


def test_a_service_that_does_not_answer_is_named() -> None:
    with registering(threading.Event()) as (client, _), raises(ControlAbsent, place=client.address):
        client.register(["h1"], wait_s=0.01)
