"""An operator's client of the control service: register, list and end jobs, load models."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ...errors.texts import printable
from ...errors.values import Checks, shown
from ...wire import control_pb2 as pb
from ...wire.control_channel import Tls, check_address, default_address
from ...wire.control_messages import CONTROL_CLASS, END_JOB, LIST_JOBS, LIST_MODELS, LOAD_MODEL, QUEUED, REGISTER
from ...wire.errors import WireError
from ..errors import ControlAbsent, ControlRefused

CHANNEL_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # how long an attempt to connect may take, whatever its name says
    ("grpc.max_reconnect_backoff_ms", 500),
    CONTROL_CLASS,
)
POLICIES: Final = {"continue": pb.CONTINUE, "wait": pb.WAIT, "abort": pb.ABORT}
"""Policies for the loss of a worker, by name."""

_ANSWER_S: Final = 30.0
_AGAIN_S: Final = 0.5
"""Time between two attempts to take up a place in the queue of a controller that was restarted."""
_TICKET_BYTES: Final = 18
_PASSING: Final = {
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""gRPC status codes after which another controller, or the same one later, may answer otherwise."""

_Answer = TypeVar("_Answer", bound=Message)

_CHECKED: Final[dict[tuple[bool, int], Callable[[Checks, str, object], Any]]] = {
    (False, FieldDescriptor.CPPTYPE_UINT32): lambda checks, name, value: checks.integer(name, value, 0, (1 << 32) - 1),
    (False, FieldDescriptor.CPPTYPE_UINT64): lambda checks, name, value: checks.integer(name, value, 0, (1 << 64) - 1),
    (False, FieldDescriptor.CPPTYPE_ENUM): lambda checks, name, value: checks.integer(name, value),
    (False, FieldDescriptor.CPPTYPE_DOUBLE): Checks.number,
    (False, FieldDescriptor.CPPTYPE_STRING): Checks.text,
    (True, FieldDescriptor.CPPTYPE_STRING): Checks.texts,
}
"""Check of a message's field by (repeated, type)."""


def open_channel(address: str, tls: Tls | None = None) -> grpc.Channel:
    """Return a channel to the control service; it connects when it is used.

    Raises ControlRefused for an address or TLS files that cannot be.
    """
    checks = Checks(ControlRefused, "control service")
    checks.text("address", address)
    try:
        target = check_address(address)
        if tls is not None:
            checks.instance("tls", tls, Tls)
        if tls is None:
            return grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        return grpc.secure_channel(target, tls.channel_credentials(), options=CHANNEL_OPTIONS)
    except WireError as error:
        raise ControlRefused.of(error.within("control service")) from None


def checked_message(kind: type[_Answer], place: str, **values: object) -> _Answer:
    """Return a message with these fields.

    Raises:
        ControlRefused: A value is not of its field's type, or beyond its range.
    """
    checks = Checks(ControlRefused, place)
    checked = {name: _CHECKED[_type_of(kind, name)](checks, name, value) for name, value in values.items()}
    return kind(**checked)


def _type_of(kind: type[Message], name: str) -> tuple[bool, int]:
    return hasattr(getattr(kind(), name), "append"), kind.DESCRIPTOR.fields_by_name[name].cpp_type


def unreachable(error: grpc.RpcError) -> str:
    """Return the cause of a failed connection: the end of gRPC's chain of messages."""
    return printable(str(error.details()).rpartition("Failed to connect to remote host: ")[2])


def refusal_of_policy(policy: str, given_as: str = "policy") -> str | None:
    """Return why `policy`, which the user gave under the name `given_as`, is not valid; None if it is."""
    if isinstance(policy, str) and policy in POLICIES:
        return None
    text = policy if isinstance(policy, str) else shown(policy)
    return f'{given_as} "{text}" is unknown; supported: {", ".join(POLICIES)}'


class ControlClient:
    """Connection to the control service; a context manager.

    Every call raises ControlRefused if the service refuses it or does not answer.
    """

    def __init__(self, address: str | None = None, tls: Tls | None = None) -> None:
        """Connect at the first call.

        Args:
            address: HOST:PORT or unix:PATH; None: this user's socket, where `weir controller` serves by default.
            tls: Certificates.

        Raises:
            ControlRefused: The address or the TLS files are invalid.
        """
        try:
            self.address = default_address() if address is None else address
        except WireError as error:
            raise ControlRefused.of(error.within("control service")) from None
        self._channel = open_channel(self.address, tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def register(
        self,
        workers: Sequence[str] = (),
        server: str | None = None,
        *,
        spares: Sequence[str] = (),
        job: int = 0,
        slots: int = 0,
        window: int = 0,
        gradient_bytes: int = 0,
        policy: str | None = None,
        min_workers: int = 0,
        weight: float = 0.0,
        priority: int | None = None,
        stripes: int = 0,
        worker_count: int = 0,
        accelerators: int = 0,
        memory_bytes: int = 0,
        parent: int = 0,
        traffic_class: int = 0,
        groups: Sequence[Sequence[int]] = (),
        wait_s: float = 60.0,
    ) -> pb.Registration:
        """Have a job placed.

        Args:
            workers: names of the workers' hosts, by rank.
            server: the parameter server's host; None for a job without one.
            spares: hosts that can replace the server.
            job: the job's number; 0 leaves it to the controller, as in the other numbers below.
            slots: aggregation slots per switch.
            window: rounds in flight at most.
            gradient_bytes: size of a gradient, in bytes.
            policy: reaction to the loss of a worker: `continue`, `wait` or `abort`; None: that of the parent, or
                `continue`.
            min_workers: number of workers below which the job ends.
            weight: weight of the job's time relative to jobs that share links with it.
            priority: 0 to 7; a job's weight counts before that of all jobs with a lower priority. None: that of the
                parent, or 0.
            stripes: number of trees at most, a job each, that share the chunks of a job without a server. A host
                that joins the named job joins them all.
            worker_count: number of workers, in place of `workers`: the controller chooses hosts with room. The job
                waits in the queue, which `listing` has, until there are enough.
            accelerators: accelerators that each worker takes of its host's; 0: 1. A job that names hosts and this or
                memory waits until these hosts have room; one that names hosts alone shares them.
            memory_bytes: memory that each worker takes of its host's.
            parent: job with whose end this one ends, whose policy and priority it has, and whose workers it runs on.
            traffic_class: class of the job's packets in switches as long as it runs, 1 (bulk) to 5, which goes before
                all other jobs; 0: bulk, or by the controller's order.
            groups: ranks of each group of the workers that gets a job with this one as parent. All are placed together,
                or none. For a job without a server that is not queued.
            wait_s: longest time until the answer, in the queue or until a tree is chosen, in seconds. If the controller
                is restarted meanwhile, a queued job keeps its place.

        Returns:
            The job's number, and a token for each seat; the same for each of its `groups`.

        Raises:
            ControlRefused: the service refuses the job or does not answer.
        """
        if policy is not None and (refusal := refusal_of_policy(policy)):
            raise ControlRefused(refusal, value=policy)
        given = {"policy": None if policy is None else POLICIES[policy], "priority": priority}
        wait_s = Checks(ControlRefused, "register").seconds("wait_s", wait_s)
        request = checked_message(
            pb.RegisterRequest,
            "register",
            job=job,
            workers=workers,
            server="" if server is None else server,
            spares=spares,
            slots=slots,
            window=window,
            gradient_bytes=gradient_bytes,
            **{name: value for name, value in given.items() if value is not None},
            min_workers=min_workers,
            weight=weight,
            stripes=stripes,
            worker_count=worker_count,
            accelerators=accelerators,
            memory_bytes=memory_bytes,
            parent=parent,
            traffic_class=traffic_class,
        )
        checks = Checks(ControlRefused, "register")
        for ranks in groups:
            request.groups.add(ranks=[checks.integer("groups", rank, 0, (1 << 32) - 1) for rank in ranks])
        if worker_count or accelerators or memory_bytes:
            return self._queue(request, wait_s)
        return self._call(REGISTER, request, pb.Registration.FromString, wait_s)

    def listing(self) -> pb.JobList:
        """Return running jobs in the order of their registration, and queued ones, the next to start first."""
        return self._call(LIST_JOBS, pb.ListJobsRequest(), pb.JobList.FromString)

    def jobs(self) -> list[pb.JobState]:
        """Return the running jobs, in the order of their registration."""
        return list(self.listing().jobs)

    def end(self, job: int, reason: str = "") -> None:
        """Remove a job from the switches.

        Args:
            job: Number of the job.
            reason: Text that its hosts receive.
        """
        request = checked_message(pb.EndJobRequest, "end", job=job, reason=reason)
        self._call(END_JOB, request, pb.EndJobReply.FromString)

    def load_model(self, switches: Sequence[str], model: str) -> list[pb.ModelState]:
        """Load a classification model onto switches, in place of theirs.

        Args:
            switches: Names of the switches.
            model: Text of a model file; "": the switches have no model any more.

        Returns:
            The models of all switches after the change.
        """
        request = checked_message(pb.LoadModelRequest, "load_model", switches=switches, model=model)
        return list(self._call(LOAD_MODEL, request, pb.ModelList.FromString).models)

    def models(self) -> list[pb.ModelState]:
        """Return the model of each switch that has one, in the order of names."""
        return list(self._call(LIST_MODELS, pb.ListModelsRequest(), pb.ModelList.FromString).models)

    def _queue(self, request: pb.RegisterRequest, wait_s: float) -> pb.Registration:
        """Have a job placed when there is room; ask again if a controller ends that had queued it."""
        request.ticket = secrets.token_urlsafe(_TICKET_BYTES)
        deadline_s, queued = time.monotonic() + wait_s, False
        call = self._method(REGISTER, pb.Registration.FromString)
        while True:
            try:
                return call(request, timeout=max(0.0, deadline_s - time.monotonic()))
            except grpc.RpcError as error:
                queued = queued or _was_queued(error)
                late = time.monotonic() + _AGAIN_S >= deadline_s
                if _code(error) is grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise ControlRefused(
                        f"no room for {request.worker_count or len(request.workers)} workers after {wait_s:g} s",
                        place=self.address,
                    ) from None
                if late or not queued or _code(error) is not grpc.StatusCode.UNAVAILABLE:
                    raise refusal_of(self.address, error) from None
            time.sleep(_AGAIN_S)

    def _method(self, method: str, read: Callable[[bytes], _Answer]) -> grpc.UnaryUnaryMultiCallable[Message, _Answer]:
        return self._channel.unary_unary(method, request_serializer=_bytes_of, response_deserializer=read)

    def _call(
        self, method: str, request: Message, read: Callable[[bytes], _Answer], limit_s: float = _ANSWER_S
    ) -> _Answer:
        try:
            return self._method(method, read)(request, timeout=limit_s)
        except grpc.RpcError as error:
            if _code(error) is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise ControlAbsent(f"no answer in {limit_s:g} s", place=self.address) from None
            raise refusal_of(self.address, error) from None


def refusal_of(address: str, error: Any) -> ControlRefused:
    """Return the error that stands for a failed call to the control service at `address`."""
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return ControlAbsent(
            f"no controller answers: {unreachable(error)}; start one with weir controller", place=address
        )
    kind = ControlAbsent if error.code() in _PASSING else ControlRefused
    return kind(printable(error.details() or ""), place=address)


def _code(error: Any) -> grpc.StatusCode:
    code: grpc.StatusCode = error.code()
    return code


def _was_queued(error: Any) -> bool:
    """True if the controller had queued the job of a failed call."""
    return any(key == QUEUED for key, _ in error.initial_metadata() or ())


def _bytes_of(message: Message) -> bytes:
    return message.SerializeToString()
