"""The errors of this package: one root, and one kind for each thing that a caller can do about it."""

from __future__ import annotations

from ..errors import PlacedError


class HostError(PlacedError):
    """Root of this package's errors."""


class InvalidTensor(HostError):
    """The tensor cannot be summed: wrong dtype, or it holds a NaN or an infinity. Names the tensor and the element."""


class CallMismatch(HostError):
    """The job's workers do not make the same calls in the same order: no sum after this one can be trusted."""


class WorkerMissing(HostError):
    """A worker was lost whose own array was needed, not its part of a sum. Names it; the same at all survivors."""


class InvalidPlan(HostError):
    """A plan or a resume does not fit the host that was given it. Names the field and what would be right."""


class AllreduceTimeout(HostError):
    """A sum did not arrive in time. Says what the worker waits for, from whom, and since when."""


class AllreduceAborted(HostError):
    """The job is over for this worker, and the sum will not come. Says why."""


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
