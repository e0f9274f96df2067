"""Refusals of the server: one exception with a canonical code, and its forms on the wire.

P4Runtime has two: an RPC fails with a code and a message alone, or, when parts of a batch fail, with UNKNOWN and one
`p4.Error` per part in `google.rpc.Status.details` (specification, "Error Reporting Messages").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

import grpc
from finsy.proto import p4r, rpc_status
from google.protobuf import any_pb2

from ..entries import EmulatorError, EntryExists, EntryNotFound, InvalidEntry, TableFull

Code = grpc.StatusCode

DETAILS_KEY: Final = "grpc-status-details-bin"
"""Trailing metadata in which gRPC carries a serialised `google.rpc.Status`."""

DETAILS_BYTES: Final = 5600
"""gRPC's clients take 8 KB of metadata, in which these bytes stand as text (base64), unless told otherwise."""
_MIN_BYTES: Final = 16
"""Minimum size of one part's details."""
_SUMMARY_CHARACTERS: Final = 300

_CODE_OF_ERROR: Final[tuple[tuple[type[EmulatorError], Code], ...]] = (
    (EntryExists, Code.ALREADY_EXISTS),
    (EntryNotFound, Code.NOT_FOUND),
    (TableFull, Code.RESOURCE_EXHAUSTED),
    (InvalidEntry, Code.INVALID_ARGUMENT),
)


class Refusal(EmulatorError):
    """A request, or one part of it, that the server turns down."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def number(self) -> int:
        """The canonical code as `google.rpc.Code` numbers it."""
        return code_number(self.code)


class BatchRefusal(EmulatorError):
    """A batch of which at least one part failed: one element per part, None where it succeeded."""

    def __init__(self, message: str, refusals: Sequence[Refusal | None]) -> None:
        super().__init__(message)
        self.message = message
        self.refusals = refusals

    def status(self) -> rpc_status.Status:
        """Return the answer to the client: a message, and details of no more than `DETAILS_BYTES`.

        If the parts' messages are too long for that they are cut. If their codes alone are too many, there are no
        details: then the message counts the failures and describes the first.
        """
        lengths = (None, 160, 80, 40, 20, 0) if len(self.refusals) * _MIN_BYTES <= DETAILS_BYTES else ()
        for longest in lengths:
            status = self._status(longest)
            if status.ByteSize() <= DETAILS_BYTES:
                return status
        return rpc_status.Status(code=code_number(Code.UNKNOWN), message=self._summary())

    def _summary(self) -> str:
        """One line for all parts."""
        failed = sum(refusal is not None for refusal in self.refusals)
        number, first = next((number, refusal) for number, refusal in enumerate(self.refusals) if refusal is not None)
        return (
            f"{self.message} {failed} of {len(self.refusals)} failed; the first is number {number}, "
            f"{first.code.name}: {_cut(first.message, _SUMMARY_CHARACTERS)}"
        )

    def _status(self, longest: int | None) -> rpc_status.Status:
        """Build the status with messages of at most `longest` characters; cut ones get the shortest form of a type's
        name.
        """
        prefix = "type.googleapis.com/" if longest is None else "/"
        status = rpc_status.Status(code=code_number(Code.UNKNOWN), message=self.message)
        success = _packed(p4r.Error(), prefix)
        status.details.extend(
            success if refusal is None else _packed(_error(refusal, longest), prefix) for refusal in self.refusals
        )
        return status


def invalid(message: str) -> Refusal:
    """Make a refusal with code INVALID_ARGUMENT."""
    return Refusal(Code.INVALID_ARGUMENT, message)


def unimplemented(message: str) -> Refusal:
    """Return a refusal with the code UNIMPLEMENTED."""
    return Refusal(Code.UNIMPLEMENTED, message)


def refusal_of(error: EmulatorError) -> Refusal:
    """Return an error of the switch as a refusal with its canonical code."""
    if isinstance(error, Refusal):
        return error
    for kind, code in _CODE_OF_ERROR:
        if isinstance(error, kind):
            return Refusal(code, str(error))
    return invalid(str(error))


def code_number(code: Code) -> int:
    """Return the `google.rpc.Code` of a gRPC status code."""
    number: int = code.value[0]
    return number


def abort(context: grpc.ServicerContext, error: EmulatorError) -> NoReturn:
    """End the RPC with this error."""
    if isinstance(error, BatchRefusal):
        status = error.status()
        context.set_trailing_metadata(((DETAILS_KEY, status.SerializeToString()),))
        context.abort(Code.UNKNOWN, status.message)
    refusal = refusal_of(error)
    context.abort(refusal.code, refusal.message)
    raise AssertionError("gRPC's abort returned")


def _error(refusal: Refusal, longest: int | None) -> p4r.Error:
    message = refusal.message if longest is None else _cut(refusal.message, longest)
    return p4r.Error(canonical_code=refusal.number, message=message)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…" if longest else ""


def _packed(error: p4r.Error, prefix: str) -> any_pb2.Any:
    return any_pb2.Any(type_url=prefix + p4r.Error.DESCRIPTOR.full_name, value=error.SerializeToString())
