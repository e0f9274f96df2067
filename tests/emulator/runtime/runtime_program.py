"""Hand-written program for tests of the runtime: the frame contains the actions to apply to it.

A frame begins with HEADER (64 bytes, little-endian), which ingress copies to the PHV and egress writes back, with the
traffic manager's data. The state is an array of int64 counters: packets seen in ingress, in egress, and by `reparse`.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba import cfunc, njit, types

from weir.emulator.abi import DROP_PORT, PACKET
from weir.emulator.runtime.native import copy, load, packet_at, store, view
from weir.emulator.state import Clock
from weir.emulator.switch import Switch

HEADER = np.dtype(
    [
        # the frame's wishes
        ("port", "<u2"),
        ("group", "<u2"),
        ("clone", "<u2"),  # I2E session
        ("egress_clone", "<u2"),  # E2E session, asked for by packets that are not clones
        ("priority", "u1"),
        ("drop_in_egress", "u1"),
        ("truncate", "<u2"),
        ("grow", "<u2"),  # bytes that egress puts in front of the frame
        ("endless", "<u2"),  # clones ask for a clone, too
        # observations of egress
        ("ingress_timestamp", "<u4"),
        ("egress_timestamp", "<u4"),
        ("enq_timestamp", "<u4"),
        ("enq_qdepth", "<u4"),
        ("deq_timedelta", "<u4"),
        ("deq_qdepth", "<u4"),
        ("packet_length", "<u4"),
        ("instance_type", "u1"),
        ("qid", "u1"),
        ("egress_port", "<u2"),
        ("egress_rid", "<u2"),
        ("ingress_port", "<u2"),
        ("mark", "<u4"),  # written by ingress: 1
        ("number", "<u8"),  # for tests
    ]
)
assert HEADER.itemsize == 64
PHV_BYTES = 128
HEADER_BYTES = HEADER.itemsize

_header_at = view(HEADER)
_SIGNATURE = types.void(types.int64, types.int64)
_PHV = PACKET.itemsize
_DATA = PACKET.itemsize + PHV_BYTES


def _parse(address: Any) -> Any:
    packet = packet_at(address, 0)
    if packet.length < HEADER_BYTES:
        return False
    copy(address + _PHV, address + _DATA + int(packet.start), HEADER_BYTES)
    packet.payload = packet.start + HEADER_BYTES
    return True


def _ingress(state: int, address: int) -> None:
    store(state, 0, load(state, 0) + 1)
    packet = packet_at(address, 0)
    if not parse(address):
        packet.egress_spec = DROP_PORT
        return
    header = _header_at(address + _PHV, 0)
    packet.egress_spec = header.port
    packet.mcast_grp = header.group
    packet.priority = header.priority
    header.mark = 1
    header.ingress_timestamp = packet.ingress_global_timestamp
    header.ingress_port = packet.ingress_port
    if header.clone != 0:
        packet.clone_session = int(header.clone) + 1


def _reparse(state: int, address: int) -> None:
    store(state, 2, load(state, 2) + 1)
    parse(address)


def _egress(state: int, address: int) -> None:
    store(state, 1, load(state, 1) + 1)
    packet = packet_at(address, 0)
    header = _header_at(address + _PHV, 0)
    header.egress_timestamp = packet.egress_global_timestamp
    header.enq_timestamp = packet.enq_timestamp
    header.enq_qdepth = packet.enq_qdepth
    header.deq_timedelta = packet.deq_timedelta
    header.deq_qdepth = packet.deq_qdepth
    header.packet_length = packet.packet_length
    header.instance_type = packet.instance_type
    header.qid = packet.qid
    header.egress_port = packet.egress_port
    header.egress_rid = packet.egress_rid
    if header.endless != 0 or (packet.instance_type != 2 and packet.instance_type != 1):
        if header.egress_clone != 0:
            packet.clone_session = int(header.egress_clone) + 1
        if header.drop_in_egress != 0:
            packet.egress_spec = DROP_PORT
            return
    if header.truncate != 0:
        packet.truncate = int(header.truncate) + 1
    end = int(packet.start) + int(packet.length)
    start = int(packet.payload) - HEADER_BYTES - int(header.grow)
    copy(address + _DATA + start + int(header.grow), address + _PHV, HEADER_BYTES)
    packet.start = start
    packet.length = end - start


def _deparse(state: int, address: int) -> None:
    """There is nothing left to do: no checksums, and the headers are in front of the payload."""


def _preserve(source: int, target: int) -> None:
    pass


parse = njit(error_model="numpy", _nrt=False)(_parse)


@cache
def program() -> Any:
    functions = {
        "ingress": _ingress,
        "egress": _egress,
        "deparse": _deparse,
        "reparse": _reparse,
        "preserve": _preserve,
    }
    keep = {name: cfunc(_SIGNATURE, error_model="numpy")(function) for name, function in functions.items()}
    points = SimpleNamespace(**{name: function.address for name, function in keep.items()})
    return SimpleNamespace(entry_points=points, phv_bytes=PHV_BYTES, keep=keep)


class State:
    def __init__(self) -> None:
        self.counts = np.zeros(4, np.int64)
        self.clock = Clock()
        self.steps = None
        self.digests: dict[str, Any] = {}
        self.address = int(self.counts.ctypes.data)

    def set_ports_down(self, ports: Any) -> None:
        """There are no selectors."""


def switch(device_id: int = 1, ports: Any = range(8), **options: Any) -> Switch:
    """A switch that runs the program above."""
    result = Switch(device_id, ports=ports, **options)
    start(result)
    return result


def start(switch: Switch) -> None:
    """Let a switch run the program above."""
    switch.start(program(), State())  # type: ignore[arg-type]


def frame(port: int = 0, size: int = 100, **fields: int) -> bytes:
    """A frame with this header; bytes behind it count up from 0."""
    header = np.zeros(1, HEADER)
    header["port"] = port
    for name, value in fields.items():
        header[name] = value
    return header.tobytes() + bytes(i % 256 for i in range(size - HEADER_BYTES))


def frames(numbers: Any, port: int = 0, size: int = 100, **fields: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Frames (n, size) numbered in their field `number`."""
    result = np.tile(np.frombuffer(frame(port, size, **fields), np.uint8), (len(numbers), 1))
    headers(result)["number"] = numbers
    return result


def headers(data: bytes | np.ndarray[Any, Any]) -> Any:
    """Header(s) at the front of one frame (a record) or of frames (n, size) (an array of records, in place)."""
    if isinstance(data, bytes):
        return np.frombuffer(data[:HEADER_BYTES], HEADER)[0]
    return np.ndarray(len(data), HEADER, data, strides=(data.strides[0],))
