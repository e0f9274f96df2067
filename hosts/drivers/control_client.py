"""What an operator asks of the control service: register jobs, list them, end them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc
from google.protobuf.message import Message

from ...wire import control_pb2 as pb
from ...wire.control_channel import DEFAULT_ADDRESS, Tls, check_address
from ...wire.control_messages import CONTROL_CLASS, END_JOB, LIST_JOBS, REGISTER
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
"""What can be done when a worker is lost."""

_ANSWER_S: Final = 30.0
_PASSING: Final = {
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
"""What another controller, or the same one later, may answer otherwise."""

_Answer = TypeVar("_Answer", bound=Message)


def open_channel(address: str, tls: Tls | None = None) -> grpc.Channel:
    """A channel to the control service; it connects when it is used.

    Raises ControlRefused for an address or TLS files that cannot be.
    """
    try:
        target = check_address(address)
        if tls is None:
            return grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        return grpc.secure_channel(target, tls.channel_credentials(), options=CHANNEL_OPTIONS)
    except WireError as error:
        raise ControlRefused.of(error.within("control service")) from None


def unreachable(error: grpc.RpcError) -> str:
    """Why a call found nobody: of a chain of gRPC's, the end that says it."""
    return str(error.details()).rpartition("Failed to connect to remote host: ")[2]


def refusal_of_policy(policy: str, given_as: str = "policy") -> str | None:
    """Why `policy`, which the user gave by the name `given_as`, cannot be one; None where it is."""
    if policy in POLICIES:
        return None
    return f'{given_as} "{policy}" is none; there are {", ".join(POLICIES)}'


class ControlClient:
    """A connection to the control service; a context manager. Every call raises ControlRefused where it is refused,
    or nobody answers.
    """

    def __init__(self, address: str = DEFAULT_ADDRESS, tls: Tls | None = None) -> None:
        self.address = address
        self._channel = open_channel(address, tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def register(
        self,
        workers: Sequence[str],
        server: str | None = None,
        *,
        spares: Sequence[str] = (),
        job: int = 0,
        slots: int = 0,
        window: int = 0,
        gradient_bytes: int = 0,
        policy: str = "continue",
        least_workers: int = 0,
        weight: float = 0.0,
        priority: int = 0,
        stripes: int = 0,
    ) -> pb.Registration:
        """Have a job placed: its number, and a token for each seat. 0 leaves a number to the controller.

        `spares` are hosts that can be the server in its stead. `policy` is what is done when a worker is lost:
        `continue`, `wait` or `abort`. `weight` is how much more the job's time counts than another's that it shares
        links with; it counts before that of all jobs with a lower `priority`, 0 to 7. Without a server at most
        `stripes` trees, a job each, share its chunks; who joins the one that is named joins them all.
        """
        if refusal := refusal_of_policy(policy):
            raise ControlRefused(refusal)
        request = pb.RegisterRequest(
            job=job,
            workers=workers,
            server=server or "",
            spares=spares,
            slots=slots,
            window=window,
            gradient_bytes=gradient_bytes,
            policy=POLICIES[policy],
            least_workers=least_workers,
            weight=weight,
            priority=priority,
            stripes=stripes,
        )
        return self._call(REGISTER, request, pb.Registration.FromString)

    def jobs(self) -> list[pb.JobState]:
        """All jobs, in the order of their registration."""
        return list(self._call(LIST_JOBS, pb.ListJobsRequest(), pb.JobList.FromString).jobs)

    def end(self, job: int, reason: str = "") -> None:
        """Take a job from the switches; its hosts are told why."""
        self._call(END_JOB, pb.EndJobRequest(job=job, reason=reason), pb.EndJobReply.FromString)

    def _call(self, method: str, request: Message, read: Callable[[bytes], _Answer]) -> _Answer:
        call: grpc.UnaryUnaryMultiCallable[Message, _Answer] = self._channel.unary_unary(
            method, request_serializer=_bytes_of, response_deserializer=read
        )
        try:
            return call(request, timeout=_ANSWER_S)
        except grpc.RpcError as error:
            raise refusal_of(self.address, error) from None


def refusal_of(address: str, error: Any) -> ControlRefused:
    """What a call has failed with."""
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return ControlAbsent(
            f"no controller answers: {unreachable(error)}; start one with weir controller", place=address
        )
    kind = ControlAbsent if error.code() in _PASSING else ControlRefused
    return kind(error.details(), place=address)


def _bytes_of(message: Message) -> bytes:
    return message.SerializeToString()
