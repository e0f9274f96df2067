"""Bytes that are no message: INVALID_ARGUMENT and a line, where gRPC by itself answers UNKNOWN and logs a traceback."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

Context = grpc.aio.ServicerContext[Any, Any]
_Request = TypeVar("_Request", bound=Message)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Malformed:
    """Bytes that are no message of the kind that was due."""

    kind: str
    size: int

    def __str__(self) -> str:
        return f"{self.size} bytes are no {self.kind}"


def reader_of(kind: type[_Request]) -> Callable[[bytes], _Request | Malformed]:
    """Deserialiser of a kind of message for gRPC."""

    def read(data: bytes) -> _Request | Malformed:
        try:
            return kind.FromString(data)
        except DecodeError:
            return Malformed(kind.DESCRIPTOR.name, len(data))

    return read


def checked(
    answer: Callable[[_Request, Context], Awaitable[_Answer]],
) -> Callable[[_Request | Malformed, Context], Awaitable[_Answer]]:
    """Return a call's handler that refuses what could not be read."""

    async def answer_checked(request: _Request | Malformed, context: Context) -> _Answer:
        if isinstance(request, Malformed):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(request))
        return await answer(request, context)

    return answer_checked
