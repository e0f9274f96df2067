"""The one root of this package's errors, and those that several of its parts know.

An error keeps its parts (which switch, what was asked of it, which job) as attributes; its text is made when a person
is to read it.
"""

from __future__ import annotations

from ..errors import PlacedError
from ..errors.texts import printable


class ControllerError(PlacedError):
    """A switch refused or cannot be reached, or a plan cannot be made. The message names the place, the value and
    the allowed values.
    """


def described(error: BaseException) -> str:
    """Return an unexpected exception's type and text, as one printable line."""
    return printable(f"{type(error).__name__}: {error}")


class SwitchError(ControllerError):
    """A switch did not do what was asked of it."""

    def __init__(self, switch: str, address: str, asked: str, reason: str, code: str = "") -> None:
        """Create the error of one operation on one switch.

        Args:
            switch: Name of the switch.
            address: Address of its P4Runtime server.
            asked: Requested operation, such as "connect" or "write".
            reason: Message of the switch, or of the connection.
            code: Name of the gRPC code of its answer, such as INVALID_ARGUMENT; empty without an answer.
        """
        super().__init__(switch, address, asked, reason, code)
        self.switch = switch
        self.address = address
        self.asked = asked
        """Requested operation: "connect", "write"."""
        self.reason = reason
        self.code = code
        """The name of the gRPC code that it answered with, such as INVALID_ARGUMENT; empty where it did not answer."""

    def __str__(self) -> str:
        answer = f"{self.code}: {self.reason}" if self.code else self.reason
        return f"{self.switch} at {self.address}: cannot {self.asked}: {answer}"


class SwitchUnreachable(SwitchError):
    """No P4Runtime session with a switch: wrong address, no listener, no answer in time, or the stream broke."""


class SwitchLost(ControllerError):
    """A switch whose session has been broken for longer than its lease."""

    def __init__(self, switch: str) -> None:
        super().__init__(switch)
        self.switch = switch

    def __str__(self) -> str:
        return f"{self.switch} is lost"


class NotPrimary(ControllerError):
    """Another controller, with a higher election id, is the primary of switches: only that one may write to them."""

    def __init__(self, switches: tuple[str, ...]) -> None:
        super().__init__(switches)
        self.switches = switches

    def __str__(self) -> str:
        return (
            f"another controller has taken over {', '.join(self.switches)} with a higher election id; "
            "this one leaves the fabric alone. Start it anew, from the journal, to have it take over again"
        )


class ElectionLost(NotPrimary):
    """A switch has another primary, and so does not do what was asked of it."""

    def __init__(self, switch: str, address: str, asked: str, primary_id: int | None, election_id: int | None) -> None:
        """Create the error of one operation on one switch.

        Args:
            switch: Name of the switch.
            address: Address of its P4Runtime server.
            asked: Requested operation, such as "connect" or "write".
            primary_id: Election id of the switch's primary; None: not known.
            election_id: Election id of this controller; None: not known.
        """
        super().__init__((switch,))
        self.address = address
        self.asked = asked
        """Requested operation: "connect", "write"."""
        self.primary_id = primary_id
        """The election id of the switch's primary."""
        self.election_id = election_id
        """The election id of this controller."""

    def __str__(self) -> str:
        where = f"{self.switches[0]} at {self.address}: cannot {self.asked}"
        if self.asked == "connect":
            return (
                f"{where}: another controller is primary, with election id {self.primary_id}; this one has "
                f"{self.election_id}. Stop the other one, or take a higher election id"
            )
        return (
            f"{where}: the controller with election id {self.primary_id} has taken over from this one, which has "
            f"{self.election_id}"
        )


class ControllerEnded(ControllerError):
    """The controller does nothing any more."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause
        """Exception that ended it; without a message if it was stopped."""

    def __str__(self) -> str:
        return f"the controller has ended: {str(self.cause) or 'it was stopped'}"


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
    """A switch's memory has no room for a job."""
