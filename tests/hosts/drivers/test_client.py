"""Joining a job: a worker with the controller's messages, and without a controller."""

from __future__ import annotations

import io
import logging
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address
from typing import Any, Final

import grpc
import numpy as np
import pytest

from weir.hosts import (
    AllreduceAborted,
    AllreduceTimeout,
    CallMismatch,
    ControlClient,
    ControlRefused,
    EndpointClosed,
    HostError,
    InvalidPlan,
    JoinRefused,
    JoinTimeout,
    Membership,
    ParameterServerCore,
    UdpEndpoint,
    UdpHost,
    WorkerCore,
    WorkerLeft,
    WorkerOptions,
    join,
    serve,
)
from weir.hosts.collectives.call_log import CallLog
from weir.hosts.drivers import agent, call_reports, client, membership_stream, udp_transport
from weir.hosts.drivers.call_reports import CallReports
from weir.hosts.drivers.control_groups import ControlGroups
from weir.hosts.drivers.membership_stream import MembershipStream
from weir.tests.support.errors import raises
from weir.wire import control_pb2 as pb
from weir.wire.control import Abort, Child, Departure, Held, Pause, Resume, ServerPlan, TrafficClass, WorkerPlan
from weir.wire.control_messages import SERVICE, departures_message, from_host, read_held, to_host
from weir.wire.frames import BULK_PRIORITY, JOB_DSCPS
from weir.wire.heartbeat import HEARTBEAT_PORT, Heartbeat, is_from

WORKER, SERVER = int(IPv4Address("127.0.11.1")), int(IPv4Address("127.0.11.2"))
PORT: Final = 30_000 + os.getpid() % 2_000
PLAN: Final = WorkerPlan(job=7, generation=1, rank=0, workers=1, aggregator=SERVER, child_bit=1, slots=16, window=8)
SERVER_PLAN: Final = ServerPlan(job=7, generation=1, slots=16, children=(Child(1, WORKER),), workers=1)
PATIENT: Final = WorkerOptions(initial_timeout_ns=50_000_000, min_timeout_ns=5_000_000)
JOINED: Final = pb.ToHost(joined=pb.Joined(host="h1", address=WORKER, heartbeat_ns=20_000_000))
SPARE_JOINED: Final = pb.ToHost(joined=pb.Joined(host="h5", address=SERVER, heartbeat_ns=10_000_000, spare=True))
ANSWER_S: Final = 20.0
HERE: Final[dict[str, Any]] = {"port": PORT, "options": PATIENT}


class Stand:
    """Controller's end of one stream, driven step by step: receive the host's messages, send it commands."""

    def __init__(self, requests: Iterator[pb.FromHost], context: grpc.ServicerContext) -> None:
        self._said: queue.SimpleQueue[pb.FromHost] = queue.SimpleQueue()
        self.kinds: list[str | None] = []
        """Kinds of all messages from the host so far."""
        self.hung_up, self.over = threading.Event(), threading.Event()
        """The host has ended what it says, and did not break off; and: the stream has ended in both directions."""
        self.hangs = False
        """The stream is never ended from here."""
        self.to_tell: queue.SimpleQueue[pb.ToHost | grpc.StatusCode | None] = queue.SimpleQueue()
        context.add_callback(self.over.set)
        threading.Thread(target=self._read, args=[requests], daemon=True).start()

    def _read(self, requests: Iterator[pb.FromHost]) -> None:
        with suppress(grpc.RpcError):
            for message in requests:
                self.kinds.append(message.WhichOneof("content"))
                self._said.put(message)
            self.hung_up.set()
        if not self.hangs:
            self.tell(None)  # as the service does: a stream that its host has ended, or broken, ends

    def tell(self, *messages: pb.ToHost | grpc.StatusCode | None) -> None:
        """A status code breaks the stream by it, None ends it."""
        for message in messages:
            self.to_tell.put(message)

    def hear(self, content: str) -> Any:
        """The next message of this kind; others are passed over."""
        while (message := self._said.get(timeout=ANSWER_S)).WhichOneof("content") != content:
            pass
        return getattr(message, content)


class StandIn:
    """A control service whose every stream is handed to the test."""

    def __init__(self) -> None:
        self.stands: queue.SimpleQueue[Stand] = queue.SimpleQueue()
        self._opened: list[Stand] = []
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8), options=[("grpc.so_reuseport", 0)])
        handler = grpc.stream_stream_rpc_method_handler(
            self._attend, pb.FromHost.FromString, pb.ToHost.SerializeToString
        )
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"Attend": handler})])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _attend(self, requests: Iterator[pb.FromHost], context: grpc.ServicerContext) -> Iterator[pb.ToHost]:
        stand = Stand(requests, context)
        self._opened.append(stand)
        self.stands.put(stand)
        while (message := stand.to_tell.get()) is not None:
            if isinstance(message, grpc.StatusCode):
                context.abort(message, "so the test wants it")
            yield message

    def stand(self) -> Stand:
        """The next stream that a host opens."""
        return self.stands.get(timeout=ANSWER_S)

    def stop(self) -> None:
        stopped = self._server.stop(None)
        for stand in self._opened:
            stand.tell(None)
        stopped.wait()


@pytest.fixture
def service() -> Iterator[StandIn]:
    stand_in = StandIn()
    yield stand_in
    stand_in.stop()


@pytest.fixture
def server() -> Iterator[UdpEndpoint]:
    with UdpEndpoint(ParameterServerCore(SERVER_PLAN), SERVER, PORT) as endpoint:
        yield endpoint


@contextmanager
def slow_link(address: str, delay_s: float) -> Iterator[str]:
    """Another address of a TCP server, with this delay in both directions."""
    host, port = address.split(":")
    listener = socket.create_server(("127.0.0.1", 0))
    sockets = [listener]

    def carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(delay_s)
                target.sendall(data)

    def serve_all() -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((host, int(port)))
                sockets.extend([near, far])
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    threading.Thread(target=serve_all, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for each in sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def in_background(work: Callable[[], Any]) -> Future[Any]:
    """Start `work` on a thread; a failed test does not wait for it."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 (raised where the result is asked for)
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def test_a_worker_joins_sums_and_leaves(service: StandIn, server: UdpEndpoint) -> None:
    def work() -> Any:
        with join(service.address, 7, "secret", **HERE) as communicator:
            return communicator.allreduce(np.arange(1000, dtype=np.float32))

    total = in_background(work)
    stand = service.stand()
    assert stand.hear("join") == pb.Join(job=7, token="secret", generation=0)
    stand.tell(JOINED, to_host(PLAN))
    assert stand.hear("resumed").generation == 1
    assert stand.hear("leave").reason == ""
    assert stand.hear("heartbeat") == pb.Heartbeat(rounds=8, waiting=False)  # it stays for the others
    stand.tell(pb.ToHost(ended=pb.Ended(job=7, reason="all have left")))
    assert np.array_equal(total.result(ANSWER_S), np.arange(1000, dtype=np.float32))


def test_a_worker_needs_no_with_and_leaves_once_when_it_closes(service: StandIn, server: UdpEndpoint) -> None:
    def work() -> Any:
        communicator = join(service.address, 7, "secret", **HERE)
        total = communicator.allreduce(np.ones(3, np.float32)).tolist()
        communicator.close()
        communicator.close()
        with pytest.raises(EndpointClosed):
            communicator.allreduce(np.ones(3, np.float32))
        return total

    total = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(PLAN))
    assert stand.hear("leave").reason == ""
    stand.tell(pb.ToHost(ended=pb.Ended(job=7)))
    assert total.result(ANSWER_S) == [1.0, 1.0, 1.0]
    assert stand.kinds.count("leave") == 1


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [("", 0, ""), ("communicator.close()", 0, ""), ("raise KeyError('no data')", 1, "KeyError: 'no data'")],
)
def test_the_end_of_the_interpreter_closes_a_communicator(
    end: str, status: int, reason: str, service: StandIn, server: UdpEndpoint
) -> None:
    script = (
        "import os, sys, weir\n"
        f"communicator = weir.join({service.address!r}, 7, 'secret', port={PORT})\n"
        "if not os.fork(): sys.exit()  # a child has no part in the job\n"
        f"os.wait()\n{end}\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as process:
        stand = service.stand()
        stand.tell(JOINED, to_host(PLAN))
        assert stand.hear("leave").reason == reason
        stand.tell(pb.ToHost(ended=pb.Ended(job=7)))
        assert stand.over.wait(ANSWER_S)
        assert process.wait(ANSWER_S) == status
    assert stand.kinds.count("leave") == 1


def test_a_time_out_names_the_awaited_rank_of_the_comparison(
    service: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody sums here: the worker asks for a comparison after half of its time-out, and is asked for its calls."""

    def work() -> None:
        with join(service.address, 7, "secret", timeout_s=0.5, linger_s=0, **HERE) as communicator:
            communicator.allreduce(np.ones(3), name="s2")

    done = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(PLAN))
    asked = stand.hear("calls")
    assert (asked.asks, asked.awaited) == (True, 0)
    assert [(call.collective, call.name) for call in asked.calls] == [("allreduce", "s2")]
    stand.tell(pb.ToHost(ask_calls=pb.AskCalls()))
    while (answer := stand.hear("calls")).asks:
        pass
    assert answer.calls == asked.calls
    stand.tell(pb.ToHost(call_report=pb.CallReport(text="waiting for rank 1 (h2)", speaker=0)))
    with raises(AllreduceTimeout, place="no sum after 0.5 s") as late:
        done.result(ANSWER_S)
    assert str(late.value) == "no sum after 0.5 s: waiting for rank 1 (h2)"
    assert caplog.messages.count("waiting for rank 1 (h2)") == 1


def test_a_comparison_outlives_a_look_at_whether_the_worker_waits() -> None:
    """The stream's thread looks between the comparison's arrival and its reader."""
    with UdpEndpoint(WorkerCore(PLAN), WORKER, PORT) as endpoint:
        reports = CallReports(CallLog(), lambda: 0, 60.0)

        def answer() -> None:
            reports.on_report(pb.CallReport(text="the workers' calls differ in call 1", speaker=2))
            assert reports.stalled(endpoint) is None

        assert reports.compare(answer) == "the workers' calls differ in call 1"
        assert reports.text == "", "it does not wait"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ("the workers' calls differ in call 1 of the job: …", "the workers' calls differ in call 1 of the job: …"),
        ("all workers have called barrier 'b', but no result comes through the fabric", ""),
    ],
    ids=["different", "the other one has left"],
)
def test_workers_with_different_calls_wait_for_the_comparison(
    told: str, text: str, service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_reports, "_ANSWER_S", ANSWER_S)
    membership = Membership(service.address, 7, "secret", linger_s=0, **HERE)

    def explained() -> str:
        with membership:
            return membership._streams[0].explain(CallMismatch("the calls differ"))

    answer = in_background(explained)
    stand = service.stand()
    stand.tell(JOINED, to_host(PLAN))
    assert stand.hear("calls").asks
    stand.tell(pb.ToHost(call_report=pb.CallReport(text=told, speaker=2)))
    assert answer.result(ANSWER_S) == text


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf"])
def test_an_invalid_time_out_in_the_environment_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_TIMEOUT", text)
    with raises(JoinRefused, place="WEIR_TIMEOUT", value=text):
        join("127.0.0.1:1", 7, "secret")


def test_a_worker_sends_in_the_class_that_it_is_given(service: StandIn, server: UdpEndpoint) -> None:
    told, looked, seen = threading.Event(), threading.Event(), []

    def work() -> float:
        with Membership(service.address, 7, "secret", linger_s=0, **HERE) as membership:
            core = membership._streams[0].endpoint.core  # type: ignore[union-attr]
            for _ in range(3):
                assert told.wait(ANSWER_S)
                told.clear()
                seen.append((core.plan.traffic_class, core.dscp))
                looked.set()
            return float(membership.communicator.allreduce(np.ones(300, np.float32))[0])

    total = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(replace(PLAN, traffic_class=2)))
    stand.hear("resumed")
    for priority in (2, 5, BULK_PRIORITY):
        stand.tell(to_host(TrafficClass(7, priority)), to_host(PLAN))
        stand.hear("resumed")  # the answer to the plan, which it follows already
        told.set()
        assert looked.wait(ANSWER_S)
        looked.clear()
    assert total.result(ANSWER_S) == 1.0
    assert seen == [(priority, JOB_DSCPS[priority]) for priority in (2, 5, BULK_PRIORITY)]


def test_a_worker_moves_to_a_new_generation(service: StandIn, server: UdpEndpoint) -> None:
    summed, paused, confirmed = threading.Event(), threading.Event(), threading.Event()

    def work() -> Any:
        with Membership(service.address, 7, "secret", **HERE) as membership:
            first = membership.communicator.allreduce(np.ones(300, np.float32))
            summed.set()
            paused.wait(ANSWER_S)
            second = membership.communicator.allreduce(np.full(300, 2, np.float32))
            confirmed.wait(ANSWER_S)  # or it may leave between its two answers
            return first[0], second[0], membership.generation

    sums = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(PLAN))
    assert summed.wait(ANSWER_S)
    stand.tell(to_host(Pause(7, 3)))  # of another generation: nobody's
    stand.tell(to_host(Pause(7, 1)))
    held = read_held(stand.hear("held"))
    assert held.generation == 1
    paused.set()
    while not stand.hear("heartbeat").waiting:
        pass
    server.pause()
    again = replace(SERVER_PLAN, generation=2)
    server.resume(Resume(again))
    resume = Resume(replace(PLAN, generation=2))
    stand.tell(to_host(resume), to_host(resume))
    assert [stand.hear("resumed").generation for _ in range(2)] == [2, 2]
    stand.tell(to_host(Pause(7, 1)), to_host(Resume(PLAN)), to_host(PLAN))  # of the first one, late
    stand.hear("resumed")
    assert stand.hear("resumed").generation == 2, "which it follows"
    assert stand.kinds.count("held") == 1
    stand.tell(grpc.StatusCode.UNAVAILABLE)
    stand = service.stand()
    assert stand.hear("join").generation == 2
    stand.tell(JOINED)
    confirmed.set()
    stand.hear("leave")
    stand.tell(pb.ToHost(ended=pb.Ended(job=7)))
    assert sums.result(ANSWER_S) == (1.0, 2.0, 2)


def test_a_new_plan_is_confirmed_once_it_is_followed(
    service: StandIn, server: UdpEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that follows the plan already confirms again, since the first confirmation may be lost."""
    go_on, followed, apply = threading.Event(), threading.Event(), UdpEndpoint.resume
    applied = []

    def resume(endpoint: UdpEndpoint, new: Resume) -> None:
        assert go_on.wait(ANSWER_S)
        applied.append(new.plan.generation)
        apply(endpoint, new)

    monkeypatch.setattr(UdpEndpoint, "resume", resume)

    def work() -> int:
        with Membership(service.address, 7, "secret", **HERE) as membership:
            assert followed.wait(ANSWER_S)
            return membership.generation

    done = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(PLAN))
    assert stand.hear("resumed").generation == 1
    stand.tell(to_host(Pause(7, 1)), to_host(Resume(replace(PLAN, generation=2))))
    stand.hear("held")
    for _ in range(3):
        stand.hear("heartbeat")
    assert stand.kinds.count("resumed") == 1
    go_on.set()
    stand.tell(to_host(Resume(replace(PLAN, generation=2))))
    assert [stand.hear("resumed").generation for _ in range(2)] == [2, 2]
    assert applied == [2]
    followed.set()
    stand.hear("leave")
    stand.tell(pb.ToHost(ended=pb.Ended(job=7)))
    assert done.result(ANSWER_S) == 2


def test_a_host_that_left_repeats_it_on_a_new_stream(service: StandIn, server: UdpEndpoint) -> None:
    def work() -> None:
        with join(service.address, 7, "secret", **HERE):
            pass

    done = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(PLAN))
    assert stand.hear("leave").reason == ""
    stand.tell(grpc.StatusCode.UNAVAILABLE)  # perhaps nobody has heard it
    again = service.stand()
    again.hear("join")
    assert again.hear("leave").reason == ""
    again.tell(pb.ToHost(ended=pb.Ended(job=7)))
    done.result(ANSWER_S)


def test_sums_go_on_without_a_controller_and_it_is_found_again(service: StandIn, server: UdpEndpoint) -> None:
    go_on = threading.Event()

    def work() -> Any:
        with join(service.address, 7, "secret", **HERE) as communicator:
            first = communicator.allreduce(np.ones(300, np.float32))[0]
            broken.wait(ANSWER_S)
            second = communicator.allreduce(np.ones(300, np.float32))[0]
            go_on.set()
            return first, second

    broken = threading.Event()
    sums = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(PLAN), grpc.StatusCode.UNAVAILABLE)
    again = service.stand()  # the host returns with its state
    assert again.hear("join").generation == 1
    again.tell(None)
    once_more = service.stand()
    broken.set()
    assert go_on.wait(ANSWER_S)
    once_more.tell(JOINED)
    once_more.hear("leave")
    once_more.tell(pb.ToHost(ended=pb.Ended(job=7)))
    assert sums.result(ANSWER_S) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (to_host(Abort(7, "h4 was silent for 2 s")), "h4 was silent for 2 s"),
        (pb.ToHost(ended=pb.Ended(job=7, reason="out of time")), "out of time"),
    ],
)
def test_the_end_of_the_job_reaches_waits_for_a_sum(service: StandIn, last: pb.ToHost, words: str) -> None:
    def work() -> None:
        with join(service.address, 7, "secret", **HERE) as communicator:
            communicator.allreduce(np.ones(300, np.float32))  # nobody answers

    outcome = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(PLAN))
    while not stand.hear("heartbeat").waiting:
        pass
    stand.tell(last)
    with raises(AllreduceAborted, place="job 7", value=words):
        outcome.result(ANSWER_S)
    assert "leave" not in stand.kinds, "it is the controller's own word"


def test_a_worker_that_fails_says_so(service: StandIn) -> None:
    def work() -> None:
        with join(service.address, 7, "secret", **HERE):
            raise ZeroDivisionError("a bad learning rate")

    outcome = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(PLAN))
    assert stand.hear("leave").reason == "ZeroDivisionError: a bad learning rate"
    stand.tell(None)
    with pytest.raises(ZeroDivisionError):
        outcome.result(ANSWER_S)


def departures(*, final: bool, calls: int = 1) -> pb.ToHost:
    return departures_message([Departure(1, "h2", SERVER, calls)], final=final)


@pytest.mark.parametrize("order", ["departure", "abort"])
def test_a_sum_that_lacks_a_worker_that_left_raises_and_names_it(
    service: StandIn, server: UdpEndpoint, order: str
) -> None:
    """The cases are with and without the abort that another worker, notified first, has caused."""
    summed, asked = threading.Event(), threading.Event()

    def work() -> None:
        with join(service.address, 7, "secret", **HERE) as communicator:
            communicator.allreduce(np.ones(300, np.float32))
            summed.set()
            server.pause()
            handle = communicator.allreduce_async(np.ones(300, np.float32))
            asked.set()
            handle.wait()

    outcome = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(PLAN))
    assert summed.wait(ANSWER_S)
    assert asked.wait(ANSWER_S)  # told before, the departure would be after the one call that was made
    if order == "abort":
        stand.tell(departures(final=True), to_host(Abort(7, "rank 2 (h3) failed: WorkerLeft")))
    else:
        stand.tell(departures(final=True))
    with pytest.raises(WorkerLeft, match=re.escape("rank 1 (h2) left the job after 1 of your 2 calls")):
        outcome.result(ANSWER_S)


def test_a_regular_end_raises_nothing_after_a_departure(service: StandIn, server: UdpEndpoint) -> None:
    def work() -> float:
        with join(service.address, 7, "secret", **HERE) as communicator:
            return float(communicator.allreduce(np.ones(300, np.float32))[0])

    outcome = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(PLAN), departures(final=True))
    assert stand.hear("leave") == pb.Leave(calls=1, rounds=4)
    stand.tell(pb.ToHost(ended=pb.Ended(job=7)))
    assert outcome.result(ANSWER_S) == 1.0


def test_sums_that_go_on_without_a_worker_that_left_say_so_once(
    service: StandIn, server: UdpEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    summed, resumed = threading.Event(), threading.Event()
    two = replace(PLAN, members=(WORKER, SERVER))

    def work() -> tuple[dict[int, int], dict[int, int]]:
        with join(service.address, 7, "secret", **HERE) as communicator:
            communicator.allreduce(np.ones(300, np.float32))
            before = dict(communicator.left)
            summed.set()
            assert resumed.wait(ANSWER_S)
            return before, dict(communicator.left)

    outcome = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(two))
    assert summed.wait(ANSWER_S)
    stand.tell(departures(final=False))
    for generation in (2, 3):
        stand.tell(to_host(Pause(7, generation - 1)))
        stand.hear("held")
        stand.tell(to_host(Resume(replace(two, generation=generation, members=(WORKER,)))))
        while stand.hear("resumed").generation != generation:
            pass
    resumed.set()
    stand.hear("leave")
    stand.tell(pb.ToHost(ended=pb.Ended(job=7)))
    assert outcome.result(ANSWER_S) == ({}, {1: 1})
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == ["job 7: rank 1 (h2) left the job after 1 calls; the sums go on without it"]


def test_a_worker_that_leaves_with_pending_calls_has_failed(service: StandIn) -> None:
    def work() -> None:
        with join(service.address, 7, "secret", linger_s=0.05, **HERE) as communicator:
            communicator.allreduce_async(np.ones(300, np.float32))  # nobody answers

    outcome = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(PLAN))
    assert stand.hear("leave") == pb.Leave(calls=1, rounds=4)
    assert stand.hear("leave").reason
    stand.tell(None)
    outcome.result(ANSWER_S)


def test_a_worker_leaves_for_good_once_its_messages_have_arrived(
    service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the controller does not end the job for it, and with it its transport."""
    peer = int(IPv4Address("127.0.11.3"))
    monkeypatch.setattr(client, "connect", partial(udp_transport.connect, port=PORT + 2_000))

    def work() -> None:
        with join(service.address, 7, "secret", linger_s=10 * ANSWER_S, **HERE) as communicator:
            communicator.transport.send_async(1, np.ones(100_000))

    outcome = in_background(work)
    stand = service.stand()
    stand.tell(JOINED, to_host(replace(PLAN, workers=2, members=(WORKER, peer))))
    assert stand.hear("leave") == pb.Leave(calls=0), "the peer is not there yet"
    with udp_transport.connect(7, [WORKER, peer], 1, port=PORT + 2_000) as other:
        assert stand.hear("leave") == pb.Leave(calls=0, rounds=0)
        stand.tell(pb.ToHost(ended=pb.Ended(job=7)))
        assert np.array_equal(other.recv(0), np.ones(100_000))
        outcome.result(ANSWER_S)


def test_a_host_in_some_stripes_only_leaves_them_with_the_reason(service: StandIn, server: UdpEndpoint) -> None:
    """The others need not wait for its lease, or under a policy that waits for ever."""
    worker = in_background(lambda: Membership(service.address, 7, "secret", timeout_s=4, **HERE).__enter__())
    first = service.stand()
    stripes = [pb.Stripe(job=job, share=1) for job in (7, 8)]
    first.tell(pb.ToHost(joined=pb.Joined(host="h1", address=WORKER, heartbeat_ns=20_000_000, stripes=stripes)))
    first.tell(to_host(PLAN))
    second = service.stand()
    assert second.hear("join").job == 8
    second.tell(pb.ToHost(joined=pb.Joined(host="h1", address=WORKER, heartbeat_ns=20_000_000)))
    assert first.hear("leave").reason.startswith("JoinTimeout: job 8: no plan after 4 s")
    with raises(JoinTimeout, place="job 8", value=4):
        worker.result(ANSWER_S)
    assert "leave" not in second.kinds, "it has no part there that anybody would miss"


def test_a_sum_that_does_not_come_says_what_it_waits_for(service: StandIn) -> None:
    def work() -> None:
        with Membership(service.address, 7, "secret", **HERE) as membership:
            handle = membership.communicator.allreduce_async(np.ones(300, np.float32))
            changed = membership.worker.endpoint.changed
            with changed:
                assert changed.wait_for(lambda: membership.counters.sent, ANSWER_S)
            handle.wait(0.0)

    outcome = in_background(work)
    service.stand().tell(JOINED, to_host(PLAN))
    with pytest.raises(AllreduceTimeout, match=f"no sum after 0 s: .* waits for round 0 from {IPv4Address(SERVER)}"):
        outcome.result(ANSWER_S)


def seat(address: str, job: int = 7) -> MembershipStream:
    """Stream of a server without a plan."""
    return MembershipStream(
        address,
        job,
        "secret",
        lambda plan, address: UdpEndpoint(ParameterServerCore(SERVER_PLAN), address, PORT),
        lambda endpoint: pb.Heartbeat(),
    )


def until(stream: MembershipStream, words: str) -> None:
    with stream.changed:
        assert stream.changed.wait_for(lambda: words in stream.state(), ANSWER_S)


def once_more(stream: MembershipStream) -> bool:
    """Wait until the controller was looked for once more, in vain."""
    with stream.changed:
        return stream.changed.wait(ANSWER_S)


def test_joining_says_what_it_waits_for(service: StandIn) -> None:
    with closing(seat(service.address)) as joining:
        service.stand().tell(JOINED, pb.ToHost(waiting=pb.Waiting(reason="waits for rank 1 (h2) to join")))
        until(joining, "waits for rank 1")
        with raises(JoinTimeout, place="job 7", value=0.0):
            joining.wait_begun(0.0)
        service.stop()
        until(joining, "no controller")
        with raises(JoinTimeout, place="job 7", value=0.0):
            joining.wait_begun(0.0)


def test_a_change_wakes_its_waiting_thread(service: StandIn) -> None:
    stripes = [pb.Stripe(job=7, share=3), pb.Stripe(job=9, share=1)]
    with closing(seat(service.address)) as joining:
        stand = service.stand()
        for change in (
            pb.ToHost(joined=pb.Joined(host="h1", address=WORKER, heartbeat_ns=10_000_000, stripes=stripes)),
            pb.ToHost(waiting=pb.Waiting(reason="waits for rank 1 (h2) to join")),
            pb.ToHost(ended=pb.Ended(job=7, reason="out of time")),
        ):
            with joining.changed:
                stand.tell(change)
                assert joining.changed.wait(ANSWER_S)
        assert (joining.stripes, joining.state(), joining.ended) == ({7: 3, 9: 1}, "out of time", True)
        with raises(AllreduceAborted, place="job 7"):
            joining.wait_begun(0.0)


@pytest.mark.parametrize("code", [grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND])
def test_a_refused_host_does_not_ask_again(service: StandIn, code: grpc.StatusCode) -> None:
    refused = in_background(lambda: serve(service.address, 7, "wrong", port=PORT))
    service.stand().tell(code)
    with raises(JoinRefused, place=service.address, args=("so the test wants it",)):
        refused.result(ANSWER_S)


def test_a_seat_of_the_other_kind(service: StandIn) -> None:
    worker = in_background(lambda: Membership(service.address, 7, "secret", **HERE).__enter__())
    service.stand().tell(JOINED, to_host(SERVER_PLAN))
    with raises(JoinRefused, place="job 7"):
        worker.result(ANSWER_S)
    server = in_background(lambda: serve(service.address, 7, "secret", port=PORT))
    service.stand().tell(JOINED, to_host(PLAN))
    with raises(JoinRefused, place="job 7", value="worker"):
        server.result(ANSWER_S)


def test_a_spare_server_lives_and_waits_for_its_turn(service: StandIn) -> None:
    spare = in_background(lambda: serve(service.address, 7, "secret", port=PORT))
    stand = service.stand()
    stand.tell(SPARE_JOINED)
    joined_s = time.monotonic()
    for _ in range(30):
        assert stand.hear("heartbeat") == pb.Heartbeat()
    assert time.monotonic() - joined_s < ANSWER_S, "of 10 ms each, and not of a second"
    stand.tell(to_host(replace(SERVER_PLAN, generation=2, first_round=40)))
    assert stand.hear("resumed").generation == 2
    stand.tell(to_host(Pause(7, 2)))
    assert stand.hear("held") == from_host(Held(2, 40)).held
    stand.tell(pb.ToHost(ended=pb.Ended(job=7)))
    spare.result(ANSWER_S)


def test_a_spare_server_has_all_the_time_to_begin(service: StandIn) -> None:
    with closing(seat(service.address)) as spare:
        stand = service.stand()
        stand.tell(SPARE_JOINED)
        stand.hear("heartbeat")  # it knows that it is one
        begun = in_background(lambda: spare.wait_begun(0.0))
        stand.tell(to_host(SERVER_PLAN))
        assert begun.result(ANSWER_S) is spare.endpoint


def test_that_the_controller_is_gone_is_said_once(service: StandIn, caplog: pytest.LogCaptureFixture) -> None:
    """However often it is looked for; before there is a plan, there are no sums to go on with."""
    with closing(seat(service.address, 8)) as before:
        service.stand().tell(JOINED)
        with closing(seat(service.address)) as serving:
            service.stand().tell(JOINED, to_host(SERVER_PLAN))
            endpoint = serving.wait_begun(ANSWER_S)
            service.stop()
            for stream in (before, serving):
                until(stream, "no controller")
            assert all(once_more(stream) for stream in (before, serving, before, serving))
            endpoint.check()
    said = f"job 7: no controller at {service.address}; the sums go on without it"
    assert [record.getMessage() for record in caplog.records] == [said]


def test_an_unresponsive_controller_is_asked_less_and_less_often(
    service: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses_s: list[float] = []
    with closing(seat(service.address)) as joining:
        stand = service.stand()
        monkeypatch.setattr(joining._closing, "wait", pauses_s.append)
        for _ in range(5):
            stand.tell(grpc.StatusCode.UNAVAILABLE)
            stand = service.stand()
        assert pauses_s == [0.05, 0.1, 0.2, 0.4, 0.8]
        stand.tell(None)  # it did answer
        service.stand()
        assert pauses_s[5:] == [0.05]


def test_a_server_whose_socket_is_gone_says_so_and_ends(service: StandIn) -> None:
    with UdpHost(SERVER, PORT) as host:
        serving = in_background(lambda: serve(service.address, 7, "secret", host=host))
        stand = service.stand()
        stand.tell(pb.ToHost(joined=pb.Joined(host="h2", address=SERVER, heartbeat_ns=10_000_000)))
        stand.tell(to_host(SERVER_PLAN))
        assert stand.hear("resumed").generation == 1
    place = f"udp {IPv4Address(SERVER)}"
    assert stand.hear("leave").reason == f"{place}: is closed"
    with raises(EndpointClosed, place=place):
        serving.result(ANSWER_S)


@contextmanager
def heartbeats() -> Iterator[tuple[int, Callable[[], tuple[Heartbeat, str, int]]]]:
    """Receiver's address of heartbeats, and a function that returns the next one with its sender and TOS."""
    address = 0x7F0B_0000 | os.getpid() % (1 << 16)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as bound:
        bound.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        bound.settimeout(ANSWER_S)
        bound.bind((str(IPv4Address(address)), HEARTBEAT_PORT))

        def hear() -> tuple[Heartbeat, str, int]:
            payload, controls, _, (source, _) = bound.recvmsg(100, 100)
            assert is_from(payload, "secret")
            ((_, _, tos),) = controls
            return Heartbeat.parse(payload), source, tos[0]

        yield address, hear


def test_heartbeats_cross_the_fabric_while_the_stream_is_broken(service: StandIn) -> None:
    with heartbeats() as (to, hear), closing(seat(service.address)) as joining:
        stand = service.stand()
        joined = pb.Joined(host="h2", address=SERVER, heartbeat_ns=10_000_000, heartbeats_to=to)
        stand.tell(pb.ToHost(joined=joined))
        time.sleep(0.1)  # without a plan it has nothing to say
        planned_ns = time.monotonic_ns()
        stand.tell(to_host(SERVER_PLAN))
        stand.hear("resumed")
        seen = [hear() for _ in range(5)]
        assert seen[0][0].sent_ns > planned_ns
        stand.tell(grpc.StatusCode.UNAVAILABLE)
        until(joining, "no controller")
        before = seen[-1][0].sequence
        while seen[-1][0].sequence < before + 30:
            seen.append(hear())
        assert [beat.sequence for beat, _, _ in seen] == list(range(len(seen)))
        assert {(beat.job, beat.rounds, source, tos) for beat, source, tos in seen} == {
            (7, 0, str(IPv4Address(SERVER)), 48 << 2)
        }
        assert "heartbeat" not in stand.kinds
        again = service.stand()
        again.hear("join")
        again.tell(pb.ToHost(joined=pb.Joined(host="h2", address=SERVER, heartbeat_ns=10_000_000)))
        again.hear("heartbeat")  # of a controller that takes none through the fabric
        assert "no controller" not in joining.state()


def test_heartbeats_are_as_far_apart_as_the_controller_says(service: StandIn) -> None:
    with closing(seat(service.address)):
        stand = service.stand()
        begun_s = time.monotonic()
        stand.tell(pb.ToHost(joined=pb.Joined(host="h2", address=SERVER, heartbeat_ns=900_000_000)))
        for _ in range(20):
            stand.tell(to_host(SERVER_PLAN))
            stand.hear("resumed")
        assert stand.kinds.count("heartbeat") <= 1 + (time.monotonic() - begun_s) / 0.9


def test_a_first_plan_is_answered_by_a_heartbeat_at_once(service: StandIn) -> None:
    hour_ns = 3_600_000_000_000
    with heartbeats() as (to, hear), closing(seat(service.address)) as joining:
        stand = service.stand()
        stand.tell(pb.ToHost(joined=pb.Joined(host="h2", address=SERVER, heartbeat_ns=hour_ns, heartbeats_to=to)))
        stand.tell(pb.ToHost(waiting=pb.Waiting(reason="waits for rank 0 (h1) to join")))
        until(joining, "waits for rank 0")
        stand.tell(to_host(SERVER_PLAN))
        assert hear()[0].sequence == 0
    with closing(seat(service.address)):
        stand = service.stand()
        stand.tell(pb.ToHost(joined=pb.Joined(host="h2", address=SERVER, heartbeat_ns=hour_ns)), to_host(SERVER_PLAN))
        assert stand.hear("heartbeat") == pb.Heartbeat()


def test_heartbeats_of_another_pace_count_on(service: StandIn) -> None:
    """A controller that has heard the first ones would take numbers from the beginning for repeated ones."""
    with heartbeats() as (to, hear), closing(seat(service.address)):
        stand = service.stand()
        for apart_ns in (10_000_000, 20_000_000):
            joined = pb.Joined(host="h2", address=SERVER, heartbeat_ns=apart_ns, heartbeats_to=to)
            stand.tell(pb.ToHost(joined=joined), to_host(SERVER_PLAN))
            stand.hear("resumed")
        seen = [hear()[0].sequence for _ in range(30)]
        assert seen == list(range(30))
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeats of job 7"]


def test_a_repeated_plan_keeps_the_heartbeats(service: StandIn) -> None:
    """Source, destination and period stay; the sender is not restarted, since that might fail."""

    def senders() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "heartbeats of job 7"]

    with heartbeats() as (to, _), closing(seat(service.address)):
        stand = service.stand()
        joined = pb.Joined(host="h2", address=SERVER, heartbeat_ns=10_000_000, heartbeats_to=to)
        seen = []
        for stripes in ([], [pb.Stripe(job=7, share=1)]):
            joined.stripes.extend(stripes)
            stand.tell(pb.ToHost(joined=joined), to_host(SERVER_PLAN))
            stand.hear("resumed")
            seen.append(senders())
        assert seen[0] == seen[1]
        assert len(seen[0]) == 1


def test_a_host_that_ended_is_not_taken_for_alive(service: StandIn) -> None:
    """The socket of its sums is gone: it says so, and no heartbeat comes after that."""
    with heartbeats() as (to, hear), UdpHost(SERVER, PORT) as host:
        serving = in_background(lambda: serve(service.address, 7, "secret", host=host))
        stand = service.stand()
        joined = pb.Joined(host="h2", address=SERVER, heartbeat_ns=10_000_000, heartbeats_to=to)
        stand.tell(pb.ToHost(joined=joined), to_host(SERVER_PLAN))
        hear()
        host.close()
        assert stand.hear("leave").reason == f"udp {IPv4Address(SERVER)}: is closed"
        with pytest.raises(EndpointClosed):
            serving.result(ANSWER_S)
        assert not [thread for thread in threading.enumerate() if thread.name == "heartbeats of job 7"]


def test_heartbeats_that_cannot_be_sent_are_said(service: StandIn) -> None:
    elsewhere = pb.Joined(host="h2", address=int(IPv4Address("192.0.2.7")), heartbeat_ns=10**7, heartbeats_to=SERVER)
    serving = in_background(lambda: serve(service.address, 7, "secret", port=PORT))
    service.stand().tell(pb.ToHost(joined=elsewhere))
    with raises(HostError, place="job 7"):
        serving.result(ANSWER_S)


@pytest.mark.parametrize(
    ("words", "token", "says"),
    [
        (["nowhere", "7"], "x", 'control service: "nowhere" is no address; write it like 127.0.0.1:9561'),
        (["127.0.0.1:1", "-3"], "x", "job: -3 is not in 1…65535"),
        (["127.0.0.1:1", "7"], "", "standard input has no token; registering the job gave one for its server"),
        (["127.0.0.1:1", "7", "--timeout", "0"], "x", "job 7: no plan after 0 s: "),
    ],
)
def test_a_server_process_says_what_is_wrong(
    words: list[str], token: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(token))
    with pytest.raises(SystemExit) as ended:
        sys.exit(agent.main(words))
    assert ended.value.code in (1, 2)
    assert says in capsys.readouterr().err


def test_addresses_and_policies_that_are_none() -> None:
    with raises(ControlRefused, place="control service"):
        ControlClient("nowhere")
    with raises(ControlRefused, place="control service"):
        join("nowhere", 7, "secret")
    with (
        ControlClient("127.0.0.1:1") as client,
        pytest.raises(ControlRefused, match='policy "hope" is unknown; supported: continue, wait, abort'),
    ):
        client.register(["h1"], policy="hope")
    with (
        ControlClient("127.0.0.1:1") as client,
        raises(ControlRefused, place="127.0.0.1:1"),
    ):
        client.jobs()


def test_a_bug_in_a_stream_ends_the_host_with_a_reason(
    service: StandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a thread that waits for the job's end would wait for ever, without contact to the controller."""

    def fails(_: ParameterServerCore) -> Held:
        raise MemoryError("no room for what is held")

    monkeypatch.setattr(ParameterServerCore, "pause", fails)
    serving = in_background(lambda: serve(service.address, 7, "secret", port=PORT))
    stand = service.stand()
    stand.tell(pb.ToHost(joined=pb.Joined(host="h2", address=SERVER, heartbeat_ns=10_000_000)))
    stand.tell(to_host(SERVER_PLAN), to_host(Pause(7, 1)))
    with raises(HostError, place="job 7", value="MemoryError"):
        serving.result(ANSWER_S)
    assert "job 7: its stream ends" in caplog.text
    assert "Traceback" in caplog.text


def test_a_host_whose_job_is_over_ends_the_stream_itself(service: StandIn) -> None:
    with closing(seat(service.address)) as joining:
        stand = service.stand()
        stand.hangs = True
        stand.tell(JOINED, pb.ToHost(ended=pb.Ended(job=7)))
        joining._thread.join(ANSWER_S)
        assert not joining._thread.is_alive()
        assert stand.over.wait(ANSWER_S)


def test_a_closing_host_hangs_up_after_its_last_message(service: StandIn) -> None:
    joining = seat(service.address)
    stand = service.stand()
    stand.tell(JOINED)
    stand.hear("join")
    joining.leave()
    joining.close()
    assert stand.hear("leave").reason == ""
    assert stand.hung_up.wait(ANSWER_S)


def test_a_controller_that_ends_no_stream_keeps_nobody(service: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership_stream, "_CLOSE_S", 0.1)
    joining = seat(service.address)
    stand = service.stand()
    stand.hangs = True
    stand.tell(JOINED)
    stand.hear("join")
    in_background(joining.close).result(ANSWER_S)
    assert not joining._thread.is_alive()


def test_numbers_of_jobs() -> None:
    for job in (-1, 0, 65_536):
        with raises(ControlRefused, place="job", value=job):
            seat("127.0.0.1:1", job)
    for job in (1, 65_535):
        seat("127.0.0.1:1", job).close()


def test_a_server_that_nobody_starts_is_refused() -> None:
    world = Membership("127.0.0.1:1", 7, "secret")
    with raises(InvalidPlan, place="groups", value="h4"):
        ControlGroups("127.0.0.1:1", world, ["h1"], server="h4")


def test_a_controller_behind_a_slow_link_is_reached(service: StandIn) -> None:
    """Setting up a connection takes several of its round trips; the stand-in's answer is that it lists no jobs."""
    with (
        slow_link(service.address, 0.15) as address,
        ControlClient(address) as client,
        raises(ControlRefused, place=address, args=("Method not found!",)),
    ):
        client.jobs()


@pytest.mark.parametrize("hangs", [False, True])
def test_a_worker_that_cannot_listen_says_so_at_once(
    service: StandIn, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    """And waits only for a while until the controller has heard it."""
    if hangs:
        monkeypatch.setattr(membership_stream, "_CLOSE_S", 0.1)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as taken:
        taken.bind((str(IPv4Address(WORKER)), PORT))
        worker = in_background(lambda: Membership(service.address, 7, "secret", **HERE).__enter__())
        stand = service.stand()
        stand.hangs = hangs
        stand.hear("join")
        stand.tell(JOINED, to_host(PLAN))
        assert stand.hear("leave").reason == f"cannot bind 127.0.11.1:{PORT}: Address already in use"
        with raises(HostError, place="job 7"):
            worker.result(ANSWER_S)
        assert all(thread.finished.is_set() for thread in threading.enumerate() if isinstance(thread, threading.Timer))
