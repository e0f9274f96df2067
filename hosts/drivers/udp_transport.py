"""The transport on a UDP socket, with a thread of its own (docs/transport.md)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ...errors.values import Checks
from ...wire.frames import DSCP_LOWER_EFFORT
from ...wire.transport import HEADER_BYTES, PAYLOAD_BYTES, SEQUENCES, TRANSPORT_PORT
from ..errors import EndpointClosed, InvalidPlan
from ..transport.core import TransportCore
from ..transport.options import TransportOptions, TransportPlan
from ..transport.pending import Pending
from ..transport.transport import Transport
from .udp import UdpHost

TRANSPORT_NIC: Final = ".transport"
"""Suffix of a host's path in an emulated fabric for packets of the transport."""
_PACKET_BYTES: Final = HEADER_BYTES + PAYLOAD_BYTES
_QUIET_S: Final = 0.1
"""Silence after which a closed end stops answering, since its last acknowledgement may have been lost."""
_GREETING_S: Final = 0.3
"""Time for peers without a connection to answer a closing end, which tells them by it that it has closed."""
_LONGEST_LINGER_S: Final = 1.0

Returned = TypeVar("Returned")


class UdpTransport:
    """Runs one core on the transport's port of an address: the `Endpoint` of a `Transport`."""

    def __init__(self, core: TransportCore, *, port: int = TRANSPORT_PORT, nic: str = "") -> None:
        """Bind the core's address, or share it with this user's process that has it; or, with `nic`, be that address in
        the emulated fabric that listens for this host at that path. Raises OSError when it cannot be had.
        """
        self.core = core
        path = nic + TRANSPORT_NIC if nic else ""
        self._host = UdpHost(core.plan.address, port, nic=path, longest_bytes=_PACKET_BYTES)
        self._closing = False
        try:
            if core.options.lower_effort:
                self._host.socket.set_dscp(DSCP_LOWER_EFFORT)
            self._host.attach(self)
        except BaseException:
            self._host.close()
            raise

    def call(self, function: Callable[[], Returned]) -> Returned:
        """Same contract as `Endpoint.call`."""
        with self._host.changed:
            self._check()
            result = function()
        self._host.wake()
        return result

    def wait(self, pending: Pending[Any], timeout_s: float) -> None:
        """Same contract as `Endpoint.wait`."""
        until = time.monotonic() + timeout_s
        with self._host.changed:
            while not pending.done and (left := until - time.monotonic()) > 0:
                self._check()
                self._host.settled.wait(left)

    def close(self) -> None:
        """Close as `Endpoint.close` does; answer peers until they are quiet, a second at most."""
        with self._host.changed:
            if self._closing:
                return
            self._closing = True
            self.core.close()
            self._host.notify_all()
        self._host.wake()
        began_s, received = time.monotonic(), -1
        while not self._host.ended and (waited_s := time.monotonic() - began_s) < _LONGEST_LINGER_S:
            greeting = waited_s < _GREETING_S and not self.core.all_notified
            if received == self.core.counters.received and not greeting:
                break
            received = self.core.counters.received
            time.sleep(_QUIET_S)
        self._host.detach(self)
        self._host.close()

    def _check(self) -> None:
        self._host.check()
        if self._closing:
            raise EndpointClosed(f"transport of job {self.core.plan.job} is closed")


def connect(
    job: int,
    addresses: Sequence[int],
    rank: int,
    *,
    key: str = "",
    options: TransportOptions | None = None,
    timeout_s: float = 60.0,
    port: int = TRANSPORT_PORT,
    nic: str = "",
) -> Transport:
    """Open a transport between hosts that have each other's addresses, with or without a controller.

    Args:
        job: the number that all of them have in common, 1…65535; a host has one transport of a job.
        addresses: IPv4 addresses of all hosts, as integers, by rank.
        rank: this host's.
        key: secret of all hosts, 32 bytes in hexadecimal digits; "": packets have a checksum only.
        options: window, time-outs and traffic class.
        timeout_s: how long a call may take before it raises TransportTimeout.
        port: the UDP port at all hosts.
        nic: this host's path in an emulated fabric.

    Raises:
        InvalidPlan: the numbers do not fit together.
        HostError: this host has a transport of the job already.
        OSError: the address cannot be had.
    """
    checks = Checks(InvalidPlan, "transport")
    addresses = [
        checks.integer(f"addresses[{index}]", item, 0, (1 << 32) - 1)
        for index, item in enumerate(checks.items("addresses", addresses, "addresses as integers"))
    ]
    rank = checks.integer("rank", rank, 0, len(addresses) - 1)
    port, nic = checks.integer("port", port, 1, 65_535), checks.text("nic", nic)
    timeout_s = checks.seconds("timeout_s", timeout_s)
    if options is not None:
        checks.instance("options", options, TransportOptions)
    epoch = 1 + secrets.randbelow(SEQUENCES - 1)
    core = TransportCore(TransportPlan(job, addresses[rank], tuple(addresses), epoch, key), options)
    return Transport(UdpTransport(core, port=port, nic=nic), timeout_s=timeout_s)
