"""The one root of this room's errors."""

from __future__ import annotations


class ControllerError(Exception):
    """A switch refused or cannot be reached, or a plan cannot be made. The message names what, where and what is
    right.
    """


class SwitchUnreachable(ControllerError):
    """No P4Runtime session with a switch: wrong address, nobody listening, no answer in time, or the stream broke."""


class NotPrimary(ControllerError):
    """Another controller, with a higher election id, is the switch's primary: only that one may write."""


class ControllerEnded(ControllerError):
    """The controller does nothing any more; why is in the message."""


class WriteRefused(ControllerError):
    """A switch refused updates: each is named with its table and entry."""


class NoSuchJob(ControllerError, KeyError):
    """No job that runs has this number."""

    def __init__(self, job: int, running: tuple[int, ...]) -> None:
        super().__init__(job, running)
        self.job = job
        self.running = running
        """The numbers of the jobs that run."""

    def __str__(self) -> str:
        return f"no job {self.job}; running are {', '.join(map(str, self.running)) or 'none'}"


class PlanError(ControllerError):
    """A job, placement or fabric that cannot be turned into table entries."""


class OutOfMemory(PlanError):
    """A switch has no room for what a job needs from its memory."""
