"""INT bytes of a frame: the telemetry that a link carries inside other packets (native code, by Numba).

::

    UDP_PORT      shim, header, stack; with NPT 2 the UDP header in front of them, too
    DSCP          shim, header, stack
    PROBE_MARKER  marker, shim, header, stack

A packet that the sink discards (D) is a probe: it is telemetry as a whole, and nothing of it counts here.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import carray, types
from numpy.typing import NDArray

from .int_md import DISCARD, INT_PORT, INT_VERSION, MD_BYTES, MD_WORDS, SHIM_BYTES
from .int_native import number_at, plain_at
from .int_shim import DSCP_BIT, MARKER_BYTES, PROBE_MARKER, NextProtocol, Presence, ShimType
from .native_code import entry, native

_PLACES: Final = tuple(Presence)
_UDP_PORT, _DSCP, _MARKER = (_PLACES.index(each) for each in (Presence.UDP_PORT, Presence.DSCP, Presence.PROBE_MARKER))
_TYPES: Final = (int(ShimType.MD), int(ShimType.MX))
_WRAPPED: Final = int(NextProtocol.PROTOCOL)
_PROBE_MARKER: Final = np.int64(PROBE_MARKER)
_IP: Final = 14
_L4: Final = 34
_L4_BYTES: Final = {17: 8, 6: 20}
_UDP, _TCP = _L4_BYTES
_UDP_BYTES, _TCP_BYTES = _L4_BYTES.values()


@native
def _int_bytes(data: NDArray[np.uint8], mark: int) -> int:
    size = len(data)
    if size < _L4 + _UDP_BYTES or plain_at(data, 12) != 0x0800 or data[_IP] != 0x45 or plain_at(data, 20) & 0x3FFF:
        return 0
    protocol = data[_IP + 9]
    if protocol == _UDP:
        shim = _L4 + _UDP_BYTES
    elif protocol == _TCP:
        shim = _L4 + _TCP_BYTES
    else:
        return 0
    extra = 0
    if mark == _MARKER:
        if size < shim + MARKER_BYTES or number_at(data, shim, MARKER_BYTES) != _PROBE_MARKER:
            return 0
        shim += MARKER_BYTES
        extra = MARKER_BYTES
    elif mark == _DSCP:
        if not data[_IP + 1] >> 2 & DSCP_BIT:
            return 0
    elif protocol != _UDP or plain_at(data, _L4 + 2) != INT_PORT:
        return 0
    header = shim + SHIM_BYTES
    if size < header + MD_BYTES or (data[shim] >> 4 != _TYPES[0] and data[shim] >> 4 != _TYPES[1]):
        return 0
    if (
        data[shim + 1] < MD_WORDS
        or size < header + 4 * np.int64(data[shim + 1])
        or data[header] >> 4 != INT_VERSION
        or data[header] & DISCARD
    ):
        return 0
    if mark == _UDP_PORT and data[shim] >> 2 & 3 == _WRAPPED:
        extra = _UDP_BYTES
    return int(extra + SHIM_BYTES + 4 * np.int64(data[shim + 1]))


@entry(types.int64(types.voidptr, types.int64, types.int64))
def _meter(frame, size, mark):  # type: ignore[no-untyped-def]
    return _int_bytes(carray(frame, (size,), np.uint8), mark)


INT_METER: Final[int] = _meter.address
"""Address of the native `int64 meter(const void *frame, int64 bytes, int64 mark)`: the INT bytes of an Ethernet frame,
0 without INT; `mark` is `mark_number` of the fabric's only way to mark INT.
"""


def mark_number(presence: Presence) -> int:
    """Return the meter's argument for a mark."""
    return _PLACES.index(presence)
