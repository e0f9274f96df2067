"""Messages from bytes and to bytes, as gRPC asks for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from .refusal import Code, Refusal, abort

_Answer = TypeVar("_Answer")
_Message = TypeVar("_Message", bound=Message)


def parser(kind: type[_Message], code: Code = Code.INTERNAL) -> Callable[[bytes], _Message | Refusal]:
    """Bytes to a message, or to a refusal with this code; gRPC's own for such bytes is INTERNAL."""

    def parse(data: bytes) -> _Message | Refusal:
        try:
            return kind.FromString(data)
        except DecodeError:
            return Refusal(code, f"the message of {len(data)} bytes is no {kind.DESCRIPTOR.name}")

    return parse


def unless_refused(
    method: Callable[[Any, grpc.ServicerContext], _Answer],
) -> Callable[[Any, grpc.ServicerContext], _Answer]:
    """Return the method, for which requests that are refusals end the RPC."""

    def run(request: object, context: grpc.ServicerContext) -> _Answer:
        if isinstance(request, Refusal):
            abort(context, request)
        return method(request, context)

    return run


def serialized(message: Message) -> bytes:
    """Return the bytes of a message."""
    return message.SerializeToString()
