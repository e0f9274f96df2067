"""The formats that cross a link, and the messages that controller and hosts exchange.

`fields` is the table of the aggregation header's fields, `aggregation` the header and messages of in-network summation,
`frames` the Ethernet/IPv4/UDP around them, `int_md` in-band telemetry (INT-MD 2.1), `int_shim` how a packet is marked
to have it, `int_report` telemetry reports 2.0, `control` what controller and hosts tell each other, and
`message_batch` the system calls by which either's sockets take and give datagrams by the hundred. Bulk codecs work on
whole batches with NumPy. `scapy_layers` describes the same formats for debugging; it is not imported here, for scapy is
slow to import.

This package imports none of the project's others.
"""

from .errors import WireError

__all__ = ["WireError"]
