"""Run by exercise_exchange.py with p4runtime-shell's Python and the words `UTILS SCAPY CONTROLLER.py`.

Runs a controller of p4lang/tutorials, and adds a line for each clone session or group that it has written. The
controller imports the tutorials' p4runtime_lib, scapy, and `p4.tmp.p4config_pb2`, which PI has and the package
p4runtime lacks.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from types import ModuleType
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, reflection


def p4config() -> ModuleType:
    """Module of the message that wraps bmv2's JSON: `reassign` (1) and `device_data` (3)."""
    file = descriptor_pb2.FileDescriptorProto(name="p4/tmp/p4config.proto", package="p4.tmp", syntax="proto3")
    message = file.message_type.add(name="P4DeviceConfig")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="reassign", number=1, type=field.TYPE_BOOL, label=field.LABEL_OPTIONAL)
    message.field.add(name="device_data", number=3, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.Default()
    pool.Add(file)
    module = ModuleType("p4.tmp.p4config_pb2")
    descriptor = pool.FindMessageTypeByName("p4.tmp.P4DeviceConfig")
    vars(module)["P4DeviceConfig"] = reflection.MakeClass(descriptor)  # type: ignore[attr-defined]  # in protobuf 3
    return module


def announce_replication() -> None:
    """Print a line after each write of a clone session or multicast group: controllers print none."""
    connection = importlib.import_module("p4runtime_lib.switch").SwitchConnection
    write = connection.WritePREEntry

    def announced(self: Any, *arguments: Any, **options: Any) -> None:
        write(self, *arguments, **options)
        sys.stdout.write(f"Replication written on {self.name}\n")

    connection.WritePREEntry = announced


if __name__ == "__main__":
    utils, scapy, controller = sys.argv[1:4]
    sys.path[:0] = [utils, scapy]
    package = ModuleType("p4.tmp")
    vars(package)["p4config_pb2"] = p4config()
    sys.modules |= {"p4.tmp": package, "p4.tmp.p4config_pb2": vars(package)["p4config_pb2"]}
    sys.argv[:] = [controller]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    announce_replication()
    runpy.run_path(controller, run_name="__main__")
