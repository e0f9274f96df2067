"""Reliable, ordered messages between two hosts of a job, as a state machine without I/O (docs/transport.md).

::

    Transport (calls of a program) ─▶ TransportCore ─▶ Connection, one a peer ─▶ Outgoing ──DATA──▶ the peer
                                                                             ◀─ Incoming ◀──DATA── ──ACK──▶

`core` takes packets and the time, and returns packets and the next deadline. Nothing here opens a socket, reads a clock
or draws a random number: a driver runs the core, on a UDP socket (`hosts/drivers/udp_transport.py`) or in virtual time
(`experiments/backends/virtual_transport.py`).
"""
