"""Errors of a switch or its program: every refused update by itself, with the switch's own reason."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..errors import ControllerError
from .entries import Item


class UpdateKind(Enum):
    """Kind of an update, as P4Runtime's `Update.Type`."""

    INSERT = "insert"
    MODIFY = "modify"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class RefusedUpdate:
    """One update that a switch refused. Source: P4Runtime Specification 1.5, section 11 (p4.v1.Error)."""

    kind: UpdateKind
    item: Item
    """The entry, multicast group or clone session that was to be written, with its fields and their values."""
    code: str
    """The canonical code's name, such as NOT_FOUND."""
    message: str = ""
    """The switch's own words, which may be missing."""
    space: str = ""
    """The vendor whose `vendor_code` it is."""
    vendor_code: int = 0

    @property
    def is_not_found(self) -> bool:
        """True if the object to be changed or deleted does not exist."""
        return self.code == "NOT_FOUND"

    @property
    def is_already_exists(self) -> bool:
        """True if the object to be inserted exists already."""
        return self.code == "ALREADY_EXISTS"

    @property
    def is_resource_exhausted(self) -> bool:
        """A table, or another memory, is full."""
        return self.code == "RESOURCE_EXHAUSTED"

    @property
    def is_invalid_argument(self) -> bool:
        """True if the switch's program has no such table, action, field or value."""
        return self.code == "INVALID_ARGUMENT"

    def __str__(self) -> str:
        return f"{self.kind.value} {self.item}: {self.message or self.code}"


class WriteRefused(ControllerError):
    """A switch refused updates of a batch; the others have been written.

    A predicate is True if it is True for every refused update, so that a caller may ignore such refusals.
    """

    def __init__(self, switch: str, refused: tuple[RefusedUpdate, ...], updates: int) -> None:
        super().__init__(switch, refused, updates)
        self.switch = switch
        self.refused = refused
        self.updates = updates
        """Number of updates in the batch."""

    @property
    def is_not_found(self) -> bool:
        """True if every refused update named an entry that does not exist."""
        return all(update.is_not_found for update in self.refused)

    @property
    def is_already_exists(self) -> bool:
        """True if every refused update would insert an entry that exists."""
        return all(update.is_already_exists for update in self.refused)

    @property
    def is_resource_exhausted(self) -> bool:
        """True if every refused update found its table, profile or group full."""
        return all(update.is_resource_exhausted for update in self.refused)

    @property
    def is_invalid_argument(self) -> bool:
        """True if every refused update was malformed for the program."""
        return all(update.is_invalid_argument for update in self.refused)

    def __str__(self) -> str:
        reasons = "; ".join(map(str, self.refused))
        return f"{self.switch}: {len(self.refused)} of {self.updates} updates refused: {reasons}"


class ProgramMisfit(ControllerError):
    """An item that cannot be written to a switch, for its program has no such table, action, field or value."""

    def __init__(self, switch: str, item: Item, reason: str) -> None:
        super().__init__(switch, item, reason)
        self.switch = switch
        self.item = item
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.switch}: {self.item}: does not fit the switch program: {self.reason}"
