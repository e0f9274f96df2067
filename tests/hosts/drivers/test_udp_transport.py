"""The transport over real sockets on loopback."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from weir.hosts.errors import EndpointClosed, NotPublished, PeerLost, PeerRestarted, TransportTimeout, Withdrawn
from weir.hosts.transport.options import TransportOptions
from weir.hosts.transport.transport import Transport
from weir.tests.hosts.drivers.transport_ends import echo, opened

PORTS = itertools.count(31_000 + os.getpid() % 10_000)


@pytest.fixture
def port() -> int:
    return next(PORTS)


@pytest.fixture
def pair(port: int) -> Iterator[tuple[Transport, Transport]]:
    with opened(0, port) as one, opened(1, port) as other:
        yield one, other


def test_processes_exchange_arrays_that_keep_type_and_shape(port: int) -> None:
    process = multiprocessing.get_context("spawn").Process(target=echo, args=(port,))
    process.start()
    try:
        with opened(0, port) as transport:
            rng = np.random.default_rng(5)
            for value in (rng.standard_normal((70, 3, 501)), np.float32(3.5), np.array(["a", "bcd"]), np.zeros((0, 4))):
                transport.send(1, value)
                got = transport.recv(1)
                assert isinstance(got, np.ndarray)
                assert (got.dtype, got.shape) == (np.asarray(value).dtype, np.shape(value))
                assert np.array_equal(got, value)
    finally:
        process.join(100)
    assert process.exitcode == 0


def test_a_request_is_answered_by_the_peers_program(pair: tuple[Transport, Transport]) -> None:
    one, other = pair

    def serve() -> None:
        for _ in range(2):
            request = other.receive_request()
            assert (request.peer, request.name) == (0, "double")
            other.reply(request, 2 * np.asarray(request.value))

    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve)
        assert [one.request(1, "double", np.arange(number)).tolist() for number in (1, 3)] == [[0], [0, 2, 4]]
        serving.result()


def test_a_pull_is_of_one_version_while_the_owner_publishes_on(pair: tuple[Transport, Transport]) -> None:
    one, other = pair
    array = np.zeros(50_000, np.int64)
    other.publish("state", array)
    stopping = threading.Event()

    def write() -> None:
        while not stopping.is_set():
            array[:] += 1
            other.publish("state", array)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        for _ in range(10):
            found = one.pull(1, "state")
            assert np.unique(found.value).tolist() == [found.version - 1]
        stopping.set()
        writing.result()
    with pytest.raises(NotPublished) as caught:
        one.pull(1, "other")
    assert caught.value.peer == 1


def test_a_peer_that_is_not_there_is_an_error_in_bounded_time(port: int) -> None:
    with opened(0, port, options=TransportOptions(patience_ns=300_000_000)) as transport:
        for call in (lambda: transport.send(1, b"x"), lambda: transport.recv(1), lambda: transport.pull(2, "x")):
            with pytest.raises(PeerLost):
                call()


def test_a_peer_that_closes_ends_what_waits_for_it(pair: tuple[Transport, Transport]) -> None:
    one, other = pair
    other.send(0, b"last")
    waiting = [one.recv_async(1), one.recv_async(1)]
    other.close()
    assert waiting[0].wait() == b"last"
    with pytest.raises(PeerLost):
        waiting[1].wait()
    with pytest.raises(EndpointClosed):
        other.send(0, b"x")


def test_a_peer_without_a_connection_learns_of_the_end_at_once(pair: tuple[Transport, Transport]) -> None:
    one, other = pair
    other.close()
    with pytest.raises(PeerLost) as caught:
        one.pull(1, "state")
    assert "closed" in str(caught.value)
    assert one.connection(1) == 0


def test_pulls_of_a_withdrawn_value_fail_until_it_is_published_again(pair: tuple[Transport, Transport]) -> None:
    one, other = pair
    assert not other.publishes
    other.publish("state", b"1")
    assert other.publishes
    assert one.pull(1, "state").value == b"1"
    other.withdraw("state")
    assert not other.publishes
    with pytest.raises(Withdrawn) as caught:
        one.pull(1, "state")
    assert (caught.value.peer, caught.value.connection) == (1, one.connection(1))
    other.publish("state", b"2")
    assert one.pull(1, "state").value == b"2"


def test_a_connection_after_the_end_of_the_last_one_has_a_higher_number(port: int) -> None:
    with opened(0, port) as one:
        with opened(1, port) as first:
            first.publish("state", b"1")
            assert one.pull(1, "state").value == b"1"
            number = one.connection(1)
            assert number > 0
        with pytest.raises(PeerLost) as caught:
            one.pull(1, "state")
        assert number <= caught.value.connection
        with opened(1, port) as second:
            second.publish("state", b"2")
            assert one.pull(1, "state").value == b"2"
            assert one.connection(1) > caught.value.connection


def test_functions_run_once_before_the_end(pair: tuple[Transport, Transport]) -> None:
    one, other = pair
    other.publish("state", b"1")
    other.before_close(lambda: other.withdraw("state"))
    other.begin_close()
    with pytest.raises(Withdrawn):
        one.pull(1, "state")
    other.publish("state", b"2")
    other.close()
    other.begin_close()


def test_a_peer_that_begins_anew_is_told_of_and_can_be_sent_to(port: int) -> None:
    with opened(0, port) as one:
        first = opened(1, port)
        one.send(1, b"to the first")
        first.send(0, b"from the first")  # so that both ends know each other's epochs
        assert one.recv(1) == b"from the first"
        first.send(0, b"not yet read")
        first.endpoint._host.close()  # type: ignore[attr-defined] # as if its process were killed
        with opened(1, port) as second:
            second.send(0, b"from the second")  # it has come before anything is asked for
            assert one.recv(1) == b"not yet read"
            with pytest.raises(PeerRestarted):
                one.recv(1)
            assert one.recv(1) == b"from the second"
            one.send(1, b"to the second")
            assert second.recv(0) == b"to the second"


def test_a_value_after_a_time_out_goes_to_the_next_call(pair: tuple[Transport, Transport]) -> None:
    one, other = pair
    one.timeout_s = 0.05
    with pytest.raises(TransportTimeout):
        one.recv(1)
    one.timeout_s = 100
    other.send(0, b"late")
    assert one.recv(1) == b"late"
