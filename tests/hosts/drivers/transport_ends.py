"""Ends of the transport on loopback, possibly in other processes: their imports are here, not in a test."""

from __future__ import annotations

import numpy as np

from weir.hosts.drivers.udp_transport import connect
from weir.hosts.transport.options import TransportOptions
from weir.hosts.transport.transport import Transport

ADDRESSES = (0x7F00_0C01, 0x7F00_0C02, 0x7F00_0C03)
JOB = 11
KEY = "0f" * 32
PATIENT = TransportOptions(patience_ns=100_000_000_000)


def opened(rank: int, port: int, *, options: TransportOptions = PATIENT, timeout_s: float = 100) -> Transport:
    return connect(JOB, ADDRESSES, rank, key=KEY, options=options, port=port, timeout_s=timeout_s)


def echo(port: int) -> None:
    """Send back what comes from rank 0, up to an empty array."""
    with opened(1, port) as transport:
        while True:
            value = transport.recv(0)
            transport.send(0, value)
            if not np.size(value):
                return
