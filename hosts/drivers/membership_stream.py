"""A host's seat in a job: one stream to the controller, kept open from a thread of its own.

::

    controller ◀──Join, Heartbeat, Held, Resumed, Leave, Calls, Report── MembershipStream ──▶ UdpEndpoint (its core)
               ──Joined, plan, Pause, Resume, Abort, Ended, Departures──▶
               ◀──heartbeats through the fabric── HeartbeatSender, where Joined says to which address

The sums need no controller: when it goes away they go on, and the stream is opened again until somebody answers.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc

from ...errors.texts import printable
from ...wire import control_pb2 as pb
from ...wire.aggregation import generation_distance
from ...wire.control import Abort, Departure, JobReport, Pause, Resume, Resumed, ServerPlan, TrafficClass, WorkerPlan
from ...wire.control_channel import Tls
from ...wire.control_messages import ATTEND, ToHostMessage, from_host, read_departures, read_to_host, report_message
from ..errors import AllreduceAborted, CallMismatch, ControlRefused, HostError, JoinRefused, JoinTimeout, WorkerLeft
from ..protocol.departures import describe_departures
from ..protocol.plans import JOBS
from ..protocol.worker import WorkerCore
from .call_reports import CallReports
from .control_client import open_channel, unreachable
from .heartbeat_sender import HeartbeatSender
from .report_pacer import ReportPacer
from .udp import UdpEndpoint

_log = logging.getLogger(__name__)

Plan = WorkerPlan | ServerPlan

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
"""The longest wait between two attempts to reach the controller."""
_CLOSE_S: Final = 2.0
_FINAL: Final = frozenset(
    {
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""Codes after which asking again gives the same answer."""


class MembershipStream:
    """Sits in one seat of a job until `close`, or until the job is over for it."""

    def __init__(
        self,
        address: str,
        job: int,
        token: str,
        begin: Callable[[Plan, int], UdpEndpoint],
        beat: Callable[[UdpEndpoint], pb.Heartbeat],
        tls: Tls | None = None,
        nic: str = "",
        reports: CallReports | None = None,
    ) -> None:
        """Create the stream of one seat; nothing is sent yet.

        Args:
            address: Address of the control service.
            job: Number of the job, 1…65535.
            token: Token of the seat.
            begin: Makes the endpoint of the first plan, at the host's address in the fabric.
            beat: Returns the progress of an endpoint as a heartbeat.
            tls: Certificates, if the service has TLS.
            nic: Path of the host's socket in an emulated fabric; "": the host has its own address.
            reports: Reports of this host's calls, which the controller compares; None: none.

        Raises:
            ControlRefused: The number, the address or a TLS file is invalid.
        """
        if not 0 < job < JOBS:
            raise ControlRefused(f"{job} is not in 1…{JOBS - 1}", place="job", value=job)
        self.job = job
        self.endpoint: UdpEndpoint | None = None
        self.failure: HostError | None = None
        """Error that has ended the job for this host; None while it runs."""
        self.ended = False
        """The job has been ended in an orderly way."""
        self.waiting_for = ""
        """Event that the job waits for, as last received from the controller."""
        self.stripes: dict[int, int] = {}
        """The jobs that share this one's chunks, this one first, each with its share in proportion to the others';
        empty where it has all of them.
        """
        self.changed = threading.Condition()
        """Notified when one of these changes, or `state`."""
        self.went_on_without: dict[int, int] = {}
        """Ranks that left in good order and that the sums go on without, each with the number of its calls."""
        self._departed: dict[int, Departure] = {}
        """Workers that have left in good order, by rank."""
        self._departures_are_final = False
        """The job's policy allows no sum without them."""
        self._address = address
        self._token = token
        self._begin = begin
        self._beat = beat
        self._plan: Plan | None = None
        self._joined = pb.Joined()
        """The controller's last description of this host's seat."""
        self._nic = nic
        self._reports = reports
        self._sender: HeartbeatSender | None = None
        self._progress = ReportPacer()
        self._leave: pb.FromHost | None = None
        self._closing = threading.Event()
        self._outbox: queue.SimpleQueue[pb.FromHost | None] = queue.SimpleQueue()
        self._last_error = ""
        self._channel = open_channel(address, tls)
        self._attend = self._channel.stream_stream(
            ATTEND, request_serializer=pb.FromHost.SerializeToString, response_deserializer=pb.ToHost.FromString
        )
        self._thread = threading.Thread(target=self._run, name=f"job {job}", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """True if the job has ended or this rank has failed."""
        return self.ended or self.failure is not None

    def wait_begun(self, timeout_s: float) -> UdpEndpoint:
        """Return the endpoint, once there is a plan. Raises JoinRefused, AllreduceAborted, or JoinTimeout, which
        says what it waits for.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.endpoint is not None or self.over or self._joined.spare, timeout_s)
            if self._joined.spare:
                self.changed.wait_for(lambda: self.endpoint is not None or self.over)
            if self.failure is not None:
                raise self.failure
            if self.endpoint is None and self.ended:
                raise AllreduceAborted("was ended before it began", place=f"job {self.job}")
            if self.endpoint is None:
                raise JoinTimeout(
                    f"no plan after {timeout_s:g} s: {self.state()}", place=f"job {self.job}", value=timeout_s
                )
            return self.endpoint

    def wait_over(self, timeout_s: float | None = None) -> bool:
        """Wait for at most this long; return whether the job is over for this host."""
        with self.changed:
            return self.changed.wait_for(lambda: self.over, timeout_s)

    def state(self) -> str:
        """Return the last state received from the controller, in words."""
        return self._last_error or self.waiting_for or "the controller has named nothing that the job waits for"

    def explain(self, error: HostError) -> str:
        """Return the controller's word on who is waited for, or whose call differs; empty if there is none."""
        reports, endpoint = self._reports, self.endpoint
        if reports is None or endpoint is None or self.over:
            return ""
        if isinstance(error, CallMismatch):
            return reports.compare(lambda: self._outbox.put(reports.own(endpoint, asks=True)))
        return reports.text

    def leave(self, reason: str = "", *, stays: bool = False) -> None:
        """Leave the job in good order; or, with a reason, as a rank that has failed. The stream stays open.

        Args:
            reason: Failure of this rank; "": it leaves in good order.
            stays: The host has more than sums for the others, so the job does not end for it as soon as they have them.
        """
        leave = pb.Leave(reason=reason)
        if self.endpoint is not None and isinstance(self.endpoint.core, WorkerCore):
            leave.calls = self.endpoint.core.submitted
            if not reason and not stays:
                leave.rounds = self.endpoint.core.rounds_submitted
        with self.changed:
            self._send_report(self._progress.rest())
        self._leave = pb.FromHost(leave=leave)
        self._outbox.put(self._leave)

    def report(self, report: JobReport) -> None:
        """Send a report of progress, if this host is the one that reports for the job.

        Reports that come faster than `ReportPacer` allows are merged. One that is lost with the stream is not repeated.
        """
        plan = self._plan
        if isinstance(plan, WorkerPlan) and plan.members[:1] in ((), (self._joined.address,)):
            with self.changed:
                due = self._progress.add(report, time.monotonic())
            self._send_report(due)

    def _send_report(self, due: JobReport | None) -> None:
        if due is not None:
            self._outbox.put(pb.FromHost(report=report_message(due)))

    def fail(self, error: HostError) -> None:
        """End the job for this host by this error."""
        with self.changed:
            self.failure = error
            if self.endpoint is not None:
                self.endpoint.fail(error)
            self.changed.notify_all()

    def close(self) -> None:
        """End stream, thread and endpoint. May be repeated."""
        self._closing.set()
        self._outbox.put(None)
        self._thread.join(_CLOSE_S)
        self._channel.close()
        self._thread.join()
        if self._sender is not None:
            self._sender.close()
        if self.endpoint is not None:
            self.endpoint.close()

    # --- the thread ---

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._closing.is_set() and not self.over:
            try:
                if self.endpoint is not None:
                    self.endpoint.check()  # a host that has ended has nothing to attend with
                self._attend_once()
                pause_s = _FIRST_PAUSE_S
            except grpc.RpcError as error:
                self._lost(error)
            except HostError as error:
                self.fail(error)
            except OSError as error:  # the endpoint's socket
                self.fail(HostError(f"{error}", place=f"job {self.job}", value=error.errno))
            except Exception as error:  # noqa: BLE001 (whoever waits is to have it)
                _log.exception("job %d: its stream ends", self.job)
                self.fail(
                    HostError(
                        f"its stream has ended by {type(error).__name__}: {error}",
                        place=f"job {self.job}",
                        value=type(error).__name__,
                    )
                )
            if not self.over:
                self._closing.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _attend_once(self) -> None:
        """Open the stream and do what is said, until it ends."""
        outbox: queue.SimpleQueue[pb.FromHost | None] = queue.SimpleQueue()
        self._outbox = outbox
        generation = 0 if self._plan is None else self._plan.generation
        outbox.put(pb.FromHost(join=pb.Join(job=self.job, token=self._token, generation=generation)))
        if self._leave is not None:  # perhaps it was never heard
            outbox.put(self._leave)
        if self._closing.is_set():
            return
        call = self._attend(self._requests(outbox))
        try:
            for message in call:
                self._last_error = ""
                try:
                    self._on_message(message, outbox)
                except (HostError, OSError) as error:
                    if self._plan is not None and self.endpoint is None:  # the others would wait for its lease
                        self._abort(call, outbox, (isinstance(error, OSError) and error.strerror) or str(error))
                    raise
                if self.over:
                    break
        finally:
            outbox.put(None)
            call.cancel()

    def _abort(self, call: Any, outbox: queue.SimpleQueue[pb.FromHost | None], reason: str) -> None:
        """Report to the controller that the plan cannot be followed; it ends the stream after that."""
        outbox.put(pb.FromHost(leave=pb.Leave(reason=reason)))
        outbox.put(None)
        limit = threading.Timer(_CLOSE_S, call.cancel)
        limit.start()
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            pass  # cancelled, or gone: the lease tells it then
        finally:
            limit.cancel()

    def _requests(self, outbox: queue.SimpleQueue[pb.FromHost | None]) -> Iterator[pb.FromHost]:
        """Yield the outbox's messages until None, with heartbeats in between unless they go through the fabric."""
        beaten = -math.inf  # a host that has just been given its plan says at once that it lives
        while True:
            lives = self.endpoint is not None or self._joined.spare
            pause_s = max(0.0, beaten + self._heartbeat_s - time.monotonic()) if lives else None
            try:
                message = outbox.get(timeout=pause_s)
            except queue.Empty:
                beaten = time.monotonic()
                try:
                    beat = self._heartbeat()
                except HostError as error:
                    yield pb.FromHost(leave=pb.Leave(reason=str(error)))
                    return
                if not self._joined.heartbeats_to:
                    yield pb.FromHost(heartbeat=beat)
                if self._reports is not None and self.endpoint is not None:
                    stalled = self._reports.stalled(self.endpoint)
                    if stalled is not None:
                        yield stalled
                continue
            if message is None:
                return
            yield message

    def _heartbeat(self) -> pb.Heartbeat:
        """Raises what the endpoint has ended by."""
        if self.endpoint is None:
            return pb.Heartbeat()
        self.endpoint.check()
        return self._beat(self.endpoint)

    def _state(self) -> pb.Heartbeat | None:
        """Content of a heartbeat through the fabric; None before there is a plan, except for a spare."""
        return self._heartbeat() if (self.endpoint is not None or self._joined.spare) and not self.over else None

    @property
    def _heartbeat_s(self) -> float:
        """Between two heartbeats."""
        return self._joined.heartbeat_ns / 1e9

    def _beat_anew(self) -> None:
        """Heartbeats go from now on where, and as often as, the controller said last. Raises OSError."""
        first = 0
        if self._sender is not None:
            self._sender.close()
            first, self._sender = self._sender.sequence, None
        if self._joined.heartbeats_to:
            self._sender = HeartbeatSender(
                self.job,
                self._token,
                self._state,
                address=self._joined.address,
                to=self._joined.heartbeats_to,
                period_s=self._heartbeat_s,
                nic=self._nic,
                first=first,
            )

    def _on_message(self, message: pb.ToHost, outbox: queue.SimpleQueue[pb.FromHost | None]) -> None:
        match message.WhichOneof("content"):
            case "joined":
                before = self._joined
                with self.changed:
                    self._joined = message.joined
                    self.stripes = {stripe.job: stripe.share for stripe in message.joined.stripes}
                    self.changed.notify_all()
                if _beats(before) != _beats(self._joined):
                    self._beat_anew()
                if message.joined.spare:
                    outbox.put(pb.FromHost(heartbeat=pb.Heartbeat()))  # it has no plan to answer, but lives from now on
            case "waiting":
                with self.changed:
                    self.waiting_for = message.waiting.reason
                    self.changed.notify_all()
            case "ended":
                self._end(message.ended)
            case "ask_calls" if self._reports is not None and self.endpoint is not None:
                outbox.put(self._reports.own(self.endpoint, asks=False))
            case "call_report" if self._reports is not None:
                self._reports.on_report(message.call_report)
            case "departures":
                self._depart(read_departures(message.departures), final=message.departures.final)
            case _:
                if (content := read_to_host(message)) is not None and (
                    answer := self._apply_command(content)
                ) is not None:
                    outbox.put(answer)

    def _apply_command(self, content: ToHostMessage) -> pb.FromHost | None:
        """Apply a command of the controller and return the answer, if there is one."""
        match content:
            case WorkerPlan() | ServerPlan():
                if self.endpoint is None:
                    self._plan = content
                    endpoint = self._begin(content, self._joined.address)
                    with self.changed:
                        self.endpoint = endpoint
                        self.changed.notify_all()
                    if self._sender is not None:
                        self._sender.send_now()
                return from_host(Resumed(self.job, self.endpoint.core.plan.generation))
            case TrafficClass():
                if self.endpoint is not None:
                    self.endpoint.classify(content)
            case Pause(_, generation):
                if self.endpoint is not None and generation == self.endpoint.core.plan.generation:
                    return from_host(self.endpoint.pause())
            case Resume(plan, _):
                if self.endpoint is None:
                    return None
                if generation_distance(plan.generation, self.endpoint.core.plan.generation) > 0:
                    self.endpoint.resume(content)
                    self._plan = plan
                    self._note_missing()
                return from_host(Resumed(self.job, plan.generation))
            case Abort(_, reason):
                if self._departures_are_final and self.endpoint is not None:
                    assert isinstance(self.endpoint.core, WorkerCore)
                    raise WorkerLeft(describe_departures(self._departed.values(), self.endpoint.core.submitted))
                raise AllreduceAborted(f"was aborted: {reason}", place=f"job {self.job}", value=reason)
        return None

    def _depart(self, departures: tuple[Departure, ...], *, final: bool) -> None:
        """Workers have left in good order."""
        if self.endpoint is None or not isinstance(self.endpoint.core, WorkerCore):
            return
        self._departed.update({departure.rank: departure for departure in departures})
        self._departures_are_final = final
        if final:
            with self.endpoint.changed:
                self.endpoint.core.end_after(departures)
                self.endpoint.host.notify_all()

    def _note_missing(self) -> None:
        """Log workers that have left and that the new generation goes on without."""
        assert self._plan is not None
        for departure in self._departed.values():
            if departure.rank not in self.went_on_without and departure.address not in self._plan.members:
                self.went_on_without[departure.rank] = departure.calls
                _log.warning(
                    "job %d: %s left the job after %d calls; the sums go on without it",
                    self.job,
                    departure,
                    departure.calls,
                )

    def _end(self, ended: pb.Ended) -> None:
        with self.changed:
            self.ended = True
            self.waiting_for = ended.reason
            if self.endpoint is not None:
                self.endpoint.fail(
                    AllreduceAborted(f"was ended: {ended.reason}", place=f"job {self.job}", value=ended.reason)
                )
            self.changed.notify_all()

    def _lost(self, error: grpc.RpcError) -> None:
        """The stream broke: for good, or until the controller answers again."""
        code = error.code()
        if self._closing.is_set():
            return
        if code in _FINAL:
            self.fail(JoinRefused(printable(error.details() or ""), place=self._address))
            return
        if not self._last_error and self.endpoint is not None:
            _log.warning("job %d: no controller at %s; the sums go on without it", self.job, self._address)
        with self.changed:
            self._last_error = f"no controller at {self._address}: {unreachable(error)}"
            self.changed.notify_all()


def _beats(joined: pb.Joined) -> tuple[int, int, int]:
    """Return source address, destination address and period of heartbeats."""
    return joined.address, joined.heartbeats_to, joined.heartbeat_ns
