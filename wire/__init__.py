"""The formats that cross a link, and the messages that controller and hosts exchange.

`fields` is the table of the aggregation header's fields, `aggregation` the header and messages of in-network summation,
`frames` the Ethernet/IPv4/UDP around them. `int_md` is in-band telemetry (INT-MD 2.1), `int_shim` the marks of packets
that carry it, `int_report` telemetry reports 2.0. `control` holds the messages between controller and hosts, and
`message_batch` the system calls by which sockets send and receive datagrams by the hundred. Bulk codecs work on whole
batches with NumPy. `scapy_layers` describes the same formats for debugging; it is not imported here, since scapy is
slow to import.

This package imports none of the project's others.
"""

import os

# before grpc is imported, here or by a program that uses this package: it would report every closed stream
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from .errors import WireError

__all__ = ["WireError"]
