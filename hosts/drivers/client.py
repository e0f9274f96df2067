"""Membership in a job that a controller manages: as a worker, or as its parameter server.

    communicator = join("127.0.0.1:9561", job=7, token=token)
    total = communicator.allreduce(gradient)

Plans, pauses, new generations and heartbeats are handled in the background. An abort raises `AllreduceAborted` in every
thread that waits for a sum.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from ...errors.values import Checks
from ...wire import control_pb2 as pb
from ...wire.aggregation import AGGREGATION_PORT
from ...wire.control import ServerPlan, WorkerPlan
from ...wire.control_channel import Tls
from ..collectives.call_log import CallLog
from ..collectives.communicator import Communicator, described
from ..collectives.sharding import ShardedDriver
from ..errors import HostError, JoinRefused
from ..protocol.counters import Counters
from ..protocol.server import ParameterServerCore
from ..protocol.worker import WorkerCore, WorkerOptions
from ..transport.options import TransportOptions
from ..transport.transport import Transport
from .call_reports import CallReports
from .membership_stream import MembershipStream, Plan
from .tracebacks import shorten_tracebacks
from .udp import UdpEndpoint, UdpHost, UdpWorker
from .udp_transport import connect

_LINGER_S: Final = 10.0
_DELIVERY_CHECK_S: Final = 0.02
"""Between two looks whether messages of a rank that leaves have arrived."""
_TIMEOUT_S: Final = 60.0
PATIENT: Final = WorkerOptions(initial_timeout_ns=100_000_000, min_timeout_ns=20_000_000)
"""Options for many processes that share few cores: a late packet is rarely a lost one there."""


class Membership:
    """One worker's part in a job, from joining until leaving; a context manager. `join` is the short way.

    Of a job whose chunks several trees share, which are a job each, the worker joins all, one after the other as all
    workers do.
    """

    def __init__(
        self,
        control: str,
        job: int,
        token: str,
        *,
        timeout_s: float | None = None,
        linger_s: float = _LINGER_S,
        port: int = AGGREGATION_PORT,
        host: UdpHost | Callable[[int], UdpHost] | None = None,
        nic: str | None = None,
        options: WorkerOptions | None = None,
        transport: TransportOptions | None = None,
        tls: Tls | None = None,
        groups: Sequence[tuple[int, str]] = (),
    ) -> None:
        """Prepare the membership; nothing is sent before the context is entered.

        Args:
            control: address of the control service, HOST:PORT or unix:PATH.
            job: the job's number.
            token: the seat's token, which stands for a rank.
            timeout_s: limit for the start, which waits for all of the job, and for each later call, in seconds; by
                default the environment's WEIR_TIMEOUT, else 60.
            linger_s: longest time in seconds that a finished worker stays for the others, which may need its results.
            port: UDP port of aggregation.
            host: the socket to use, or a function from the host's address to it. By default the worker binds the host's
                address in the fabric, or shares the socket of another job of this host.
            nic: path at which a process that emulates the fabric listens for this host; by default the environment's
                WEIR_NIC.
            options: time-outs and pacing of the worker.
            transport: options of `Communicator.transport`.
            tls: certificates of the connection to the control service.
            groups: job and token of this worker's seat in the group along each dimension of a mesh, for
                `Communicator.mesh`.

        Raises:
            JoinRefused: An argument is not of its type, or out of range.
        """
        checks = Checks(JoinRefused, "join")
        checks.text("control", control)
        checks.integer("job", job, 1, 65_535)
        checks.text("token", token)
        if timeout_s is not None:
            timeout_s = checks.seconds("timeout_s", timeout_s)
        if nic is not None:
            checks.text("nic", nic)
        for name, value, kind in (
            ("options", options, WorkerOptions),
            ("transport", transport, TransportOptions),
            ("tls", tls, Tls),
        ):
            if value is not None:
                checks.instance(name, value, kind)
        linger_s = checks.seconds("linger_s", linger_s)
        self._port = checks.integer("port", port, 1, 65_535)
        self._transport_options = transport
        self._transport: Transport | None = None
        self._members: tuple[int, ...] = ()  # the workers' addresses by rank, if all took part at the beginning
        self.nic = os.environ.get("WEIR_NIC", "") if nic is None else nic
        """The host's path in an emulated fabric; empty: it is in another one."""
        self._host = host
        self._options = options or (PATIENT if self.nic else WorkerOptions())
        self._timeout_s = _timeout_of_environment() if timeout_s is None else timeout_s
        self._linger_s = linger_s
        self._control = control
        self.job = job
        """The job's number; of a job whose chunks several trees share, that of the first one."""
        self._token = token
        self._tls = tls
        self._groups = groups
        self._joined_groups: list[Membership] = []
        self._workers: list[UdpWorker] = []
        self._streams: list[MembershipStream] = []
        self._given_up: HostError | None = None
        self._process = os.getpid()
        self._calls = CallLog()

    def __enter__(self) -> Self:
        """Raises ControlRefused, JoinTimeout, and AllreduceAborted where the job ends before it begins."""
        try:
            self._sit(self.job)
            shares = self._streams[0].stripes
            for job in [*shares][1:]:
                self._sit(job)
            driver = ShardedDriver(self._workers, [*shares.values()]) if shares else self.worker
        except BaseException as error:
            for stream in self._streams:
                if stream.endpoint is not None:  # it takes part, and would be missed
                    stream.leave(described(error))
            self._close()
            raise
        self.communicator = Communicator(
            driver,
            timeout_s=self._timeout_s,
            connect=self._open_transport,
            left=self._streams[0].went_on_without,
            leave=self._leave,
            calls=self._calls,
            report=self._streams[0].report,
            join_groups=self._join_groups if self._groups else None,
        )
        return self

    def _join_groups(self) -> list[Communicator]:
        """Take the seats in the groups, dimension by dimension as all workers do."""
        for job, token in self._groups[len(self._joined_groups) :]:
            group = Membership(
                self._control,
                job,
                token,
                timeout_s=self._timeout_s,
                linger_s=self._linger_s,
                port=self._port,
                host=self.worker.endpoint.host,
                nic=self.nic,
                options=self._options,
                tls=self._tls,
            )
            self._joined_groups.append(group.__enter__())
        return [group.communicator for group in self._joined_groups]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the communicator, which may be closed already."""
        self.communicator.close("" if error is None else described(error))

    def _leave(self, reason: str) -> None:
        """Leave the job: with a reason the rank is lost at once. Without one it waits until the others have its sums
        and messages; or, if it has published values, until they leave.
        """
        for group in self._joined_groups:
            group.communicator.close(reason)
        try:
            publishes, delivered = False, True
            if self._transport is not None:
                self._transport.begin_close()
                publishes, delivered = self._transport.publishes, self._transport.is_delivered
            for stream in self._streams:
                stream.leave(reason, stays=publishes or not delivered)
            if not reason:
                until = time.monotonic() + self._linger_s
                if not (publishes or delivered) and self._wait_delivered(until):
                    for stream in self._streams:
                        stream.leave()
                for stream, worker in zip(self._streams, self._workers, strict=True):
                    over = stream.wait_over(max(0.0, until - time.monotonic()))
                    if not over and not worker.core.idle:
                        stream.leave("left the job before all of its calls were complete")
        finally:
            self._close()

    def _wait_delivered(self, until_s: float) -> bool:
        """Wait until the transport's messages have arrived, or the job is over; return False if that is too late."""
        assert self._transport is not None
        while not self._transport.is_delivered:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            if self._streams[0].wait_over(min(_DELIVERY_CHECK_S, left_s)):
                break
        return True

    def leave_at_exit(self) -> None:
        """Close the communicator as the interpreter exits: as a failed rank if an uncaught exception has ended it."""
        if os.getpid() == self._process:  # a forked child has neither the seat nor its threads
            failure = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
            self.communicator.close("" if failure is None else described(failure))

    def _sit(self, job: int) -> None:
        """Join this job, and wait until it begins."""
        reports = CallReports(self._calls, lambda: self.worker.rank, self._timeout_s)
        stream = MembershipStream(
            self._control, job, self._token, self._begin, _worker_beat, self._tls, self.nic, reports
        )
        self._streams.append(stream)
        if self._given_up is not None:
            raise self._given_up
        stream.wait_begun(self._timeout_s)
        self._workers[-1].explain = stream.explain

    def _open_transport(self) -> Transport:
        plan = self.worker.core.plan
        if len(self._members) != plan.workers:
            raise HostError(
                f"transport of job {plan.job}: workers were lost before this one joined, and nobody says where the "
                "others are; it needs a plan with all of them"
            )
        self._transport = connect(
            plan.job,
            self._members,
            plan.rank,
            key=plan.key,
            options=self._transport_options,
            timeout_s=self._timeout_s,
            nic=self.nic,
        )
        return self._transport

    def _close(self) -> None:
        atexit.unregister(self.leave_at_exit)
        if self._transport is not None:
            self._transport.close()
        for stream in reversed(self._streams):  # the first one's endpoint has the socket
            stream.close()

    def abort(self, reason: str) -> None:
        """End the membership from another thread: all waits for the start or for a sum raise HostError with this
        reason.
        """
        self._given_up = HostError(reason)
        for stream in list(self._streams):
            stream.fail(self._given_up)

    @property
    def worker(self) -> UdpWorker:
        """Worker endpoint of the named job."""
        return self._workers[0]

    @property
    def counters(self) -> Counters:
        """Packet counters of the named job."""
        return self.worker.core.counters

    @property
    def generation(self) -> int:
        """The job's, as far as this worker knows."""
        return self.worker.core.plan.generation

    def _begin(self, plan: Plan, address: int) -> UdpEndpoint:
        if not isinstance(plan, WorkerPlan):
            raise JoinRefused(
                "the token is the parameter server's, not a worker's",
                place=f"job {self.job}",
                value="parameter server",
            )
        host = self._host(address) if callable(self._host) else self._host
        if host is None and self._workers:
            host = self.worker.endpoint.host
        worker = UdpWorker(WorkerCore(plan, self._options), host or address, self._port, nic=self.nic)
        self._workers.append(worker)
        self._members = self._members or plan.members
        return worker.endpoint


def join(control: str | None = None, job: int | None = None, token: str | None = None, **options: Any) -> Communicator:
    """Take the token's rank in a job, and wait until all of the job are there.

    Arguments that are left out are read from the environment, where `weir launch` puts them.

    Floating sums are of fixed-point numbers in units of their chunk: for n workers and r = ⌈log₂ n⌉ a float32 below
    2^(r − 31) of the largest of its 256 neighbours becomes 0. That is about 4e-9 of it with 8 workers, 3e-8 with 64,
    5e-7 with 1,024. If all |x| of a chunk are below 2^e, a sum is at most n · 2^(e + r − 31) and half an ulp off, and a
    mean that over the summed weight. Arrays are cut only at their `cuts`, which keep layers of several scales apart.
    `Communicator.allreduce` has the bounds of the other types.

    Args:
        control: Address of the controller; default: WEIR_CONTROL.
        job: Number of the job; default: WEIR_JOB.
        token: Token of the rank's seat; default: WEIR_TOKEN.
        **options: Keyword arguments of `Membership`.

    Returns:
        The rank's communicator, also a context manager. Its `close` leaves the job; the exit of the interpreter closes
        it, as a failed rank after an uncaught exception.

    Raises:
        JoinRefused: An argument is neither given nor in the environment, or the controller refuses the rank; other
            errors are those of `Membership`.
    """
    seat = seat_of_environment(control, job, token)
    if job is None:
        options.setdefault("groups", _groups_of_environment())
    membership = Membership(*seat, **options).__enter__()
    atexit.register(membership.leave_at_exit)
    shorten_tracebacks()
    return membership.communicator


def seat_of_environment(
    control: str | None = None, job: int | None = None, token: str | None = None
) -> tuple[str, int, str]:
    """Complete a seat's data from the environment.

    Args:
        control: address of the control service, or None for WEIR_CONTROL.
        job: the job's number, or None for WEIR_JOB.
        token: the seat's token, or None for WEIR_TOKEN.

    Returns:
        Address of the control service, job number and token.

    Raises:
        JoinRefused: a value is in neither place, or malformed; the message says how to supply it.
    """
    given = {"WEIR_CONTROL": control, "WEIR_JOB": job, "WEIR_TOKEN": token}
    checks = Checks(JoinRefused, "join")
    if job is not None and not isinstance(job, str):
        given["WEIR_JOB"] = str(checks.integer("job", job, 1, 65_535))
    variables = {
        name: os.environ.get(name, "") if value is None else checks.text(name, value) for name, value in given.items()
    }
    if missing := [name for name, value in variables.items() if not value]:
        raise JoinRefused(
            f"{', '.join(missing)} not in the environment; run this program in a job: weir launch -n 2 script.py (or "
            "pass the address, job and token that weir jobs register printed: weir.join(address, job, token))",
            place="no seat in a job",
            value=tuple(missing),
        )
    if not variables["WEIR_JOB"].isdecimal():
        raise JoinRefused(
            f'WEIR_JOB is "{variables["WEIR_JOB"]}", which is no number of a job',
            place="WEIR_JOB",
            value=variables["WEIR_JOB"],
        )
    return variables["WEIR_CONTROL"], int(variables["WEIR_JOB"]), variables["WEIR_TOKEN"]


def _groups_of_environment() -> list[tuple[int, str]]:
    """Return job and token of the seats in WEIR_GROUPS, by dimension. Raises JoinRefused for a malformed one."""
    seats = []
    for text in filter(None, os.environ.get("WEIR_GROUPS", "").split(",")):
        job, _, token = text.partition(":")
        if not job.isdecimal() or not token:
            raise JoinRefused("a seat is no JOB:TOKEN", place="WEIR_GROUPS", value=job)
        seats.append((int(job), token))
    return seats


def _timeout_of_environment() -> float:
    """Raises JoinRefused for a malformed WEIR_TIMEOUT."""
    text = os.environ.get("WEIR_TIMEOUT", "")
    try:
        seconds = float(text or _TIMEOUT_S)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise JoinRefused(f'"{text}" is not a positive number of seconds', place="WEIR_TIMEOUT", value=text)
    return seconds


def serve(
    control: str,
    job: int,
    token: str,
    *,
    timeout_s: float = 60.0,
    port: int = AGGREGATION_PORT,
    host: UdpHost | None = None,
    nic: str | None = None,
    tls: Tls | None = None,
) -> None:
    """Be a job's parameter server until the job ends.

    Args:
        control: Address of the controller, such as 10.0.0.1:9560.
        job: Number of the job.
        token: Token of the server's seat.
        timeout_s: Time in seconds in which the controller must answer.
        port: UDP port of the server.
        host: UDP host to share with other jobs' servers of this process; None: one of its own.
        nic: This host's path in an emulated fabric; None: WEIR_NIC of the environment.
        tls: Certificates, if the controller requires TLS.

    Raises:
        JoinRefused: The controller refuses the seat; other errors are those of `Membership`.
    """
    path = os.environ.get("WEIR_NIC", "") if nic is None else nic

    def begin(plan: Plan, address: int) -> UdpEndpoint:
        if not isinstance(plan, ServerPlan):
            raise JoinRefused("the token is a worker's, not the parameter server's", place=f"job {job}", value="worker")
        return UdpEndpoint(ParameterServerCore(plan), host or address, port, nic=path)

    stream = MembershipStream(control, job, token, begin, _server_beat, tls, path)
    try:
        stream.wait_begun(timeout_s)
        stream.wait_over()
        if stream.failure is not None:
            raise stream.failure
    finally:
        stream.close()


def _worker_beat(endpoint: UdpEndpoint) -> pb.Heartbeat:
    core = endpoint.core
    assert isinstance(core, WorkerCore)
    with endpoint.changed:
        return pb.Heartbeat(rounds=core.rounds_complete, waiting=not core.idle)


def _server_beat(_: UdpEndpoint) -> pb.Heartbeat:
    return pb.Heartbeat()
