"""The errors of this package: one root, and one kind for each thing that a caller can do about it."""

from __future__ import annotations

from typing import Any

from ..errors import PlacedError


class HostError(PlacedError):
    """Base class of this package's errors. Attributes: `place`, `value` and `allowed`."""


class InvalidTensor(HostError):
    """The tensor cannot be summed: wrong dtype, or it holds a NaN or an infinity. Names the tensor and the element."""


class NoMean(InvalidTensor, ZeroDivisionError):
    """A chunk's weights sum to 0, so that it has no mean. Names the tensor."""


class CallMismatch(HostError):
    """The job's workers do not make the same calls in the same order: no sum after this one can be trusted."""


class WorkerMissing(HostError):
    """A worker was lost whose own array was needed, not its part of a sum. Names it; the same at all survivors."""


class InvalidCodec(HostError):
    """The text of a codec does not fit the language, or its types do not. `place` is its file, line and column."""


class InvalidLaw(HostError):
    """A window law is unknown, or its answer is not allowed. `place` is the file of a user's law."""


class InvalidPlan(HostError):
    """A plan or a resume does not fit the host that received it. Names the field and the allowed values."""


class AllreduceTimeout(HostError):
    """A sum did not arrive in time. Says what the worker waits for, from whom, and since when."""


class AllreduceAborted(HostError):
    """The job is over for this worker, and the sum will not come. Says why."""


class WorkerLeft(AllreduceAborted):
    """A worker left the job in good order, and the job's policy allows no sum without it. Names the worker."""


class NoClass(HostError):
    """A switch gives no class for a sample: it has no such model, does not answer, or the sample cannot be sent."""


class ControlRefused(HostError):
    """The control service refuses what it was asked, cannot be reached, or its address cannot be one. Says why."""


class ControlAbsent(ControlRefused):
    """No controller answers now that could: it is away, late, or knows nothing of the job. Asking again may help."""


class JoinRefused(ControlRefused):
    """The controller does not want this host in the job. Says why."""


class JoinTimeout(HostError):
    """There is no plan in time: the controller is away, or others of the job are awaited. Says which."""


class EndpointClosed(HostError):
    """The endpoint was closed, or its thread ended with the error that is this one's cause."""


class TransportError(HostError):
    """Root of errors of messages between two hosts. `peer` is the other one's rank or address, and `connection` the
    number of the last connection to it that the error is about (`Transport.connection`).
    """

    def __init__(self, message: str, peer: int = -1, connection: int = 0, **parts: Any) -> None:
        super().__init__(message, **parts)
        self.peer = peer
        self.connection = connection


class InvalidMessage(TransportError):
    """An impossible value, name or peer of a message. Names it and the allowed ones."""


class TransportTimeout(TransportError):
    """A call has waited for as long as its caller allowed. Says what for."""


class PeerLost(TransportError):
    """The other host has not answered for the transport's patience, or has closed its end."""


class PeerRestarted(PeerLost):
    """The other host has restarted: messages under way to it may or may not have been delivered."""


class NotPublished(TransportError):
    """The other host has published nothing under that name."""


class Withdrawn(NotPublished):
    """The other host has withdrawn the value of that name, because it has ended or has no use for it any more."""
