"""The program in a pipeline config: BMv2 JSON as it is, or in the message around it that PI's clients still send."""

from __future__ import annotations

from functools import cache
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

_DEVICE_DATA: Final = "device_data"


def program_of(config: bytes) -> bytes:
    """Return the BMv2 JSON of a `p4_device_config`; content in neither known form is returned unchanged."""
    if config.lstrip()[:1] == b"{":
        return config
    message = _message_type()()
    try:
        message.ParseFromString(config)
    except DecodeError:
        return config
    inside: bytes = getattr(message, _DEVICE_DATA)
    return inside or config


@cache
def _message_type() -> type[Message]:
    """`p4.tmp.P4DeviceConfig` of PI's `p4/tmp/p4config.proto`, without its extras, which say nothing to a switch."""
    file = descriptor_pb2.FileDescriptorProto(name="weir/p4config.proto", package="p4.tmp", syntax="proto3")
    kind = file.message_type.add(name="P4DeviceConfig")
    field = descriptor_pb2.FieldDescriptorProto
    kind.field.add(name="reassign", number=1, type=field.TYPE_BOOL, label=field.LABEL_OPTIONAL)
    kind.field.add(name=_DEVICE_DATA, number=3, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p4.tmp.P4DeviceConfig"))
