"""Other traffic in a fabric of real hosts, as a process: run with ADDRESS RATE_BPS SOURCE_PORT.

It sends UDP datagrams to the discard port (RFC 863) at a mean rate, in small bursts, until it is ended.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from typing import Final

from ...wire.frames import FRAME_HEADER_BYTES
from ..config.background import BACKGROUND_PAYLOAD_BYTES, DISCARD_PORT

_TICK_S: Final = 0.005


def send(address: str, rate_bps: float, source_port: int) -> None:
    """Send until the process is killed. The rate counts whole frames, as a link's does."""
    frame_bits = 8 * (BACKGROUND_PAYLOAD_BYTES + FRAME_HEADER_BYTES)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("", source_port))
        payload = bytes(BACKGROUND_PAYLOAD_BYTES)
        begun, sent = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - begun) * rate_bps / frame_bits)
            for _ in range(due - sent):
                with contextlib.suppress(OSError):  # a full queue: as good as lost on the way
                    sender.sendto(payload, (address, DISCARD_PORT))
            sent = due
            time.sleep(_TICK_S)


if __name__ == "__main__":
    send(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
