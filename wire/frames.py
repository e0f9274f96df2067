"""Whole Ethernet/IPv4/UDP frames, in batches of equal size, and the datagrams inside them (docs/design.md §2.1).

Protocol cores exchange `Datagrams`: payloads with the peer's address. Drivers turn them into frames and back::

    core ──Datagrams (address = destination)──▶ encapsulate ──frames──▶ link
    core ◀──Datagrams (address = source)─────── decapsulate ◀──frames── link

Formats: RFC 894 (IPv4 over Ethernet), RFC 791 (IPv4; no options, no fragments), RFC 768 (UDP; the checksum is 0, for
switches rewrite what it would cover).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .aggregation import AGGREGATION_PORT, internet_checksum
from .errors import WireError

ETHERNET_BYTES: Final = 14
IPV4_BYTES: Final = 20
UDP_BYTES: Final = 8
FRAME_HEADER_BYTES: Final = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
"""42: everything in front of a UDP payload."""

MTU: Final = 1500
"""Bytes of an IPv4 packet, its header included."""

ETHERTYPE_IPV4: Final = 0x0800
PROTOCOL_UDP: Final = 17
DSCP_CONTROL: Final = 48
"""CS6: the code point of the control class."""
CONTROL_CODE_POINTS: Final = (DSCP_CONTROL, 56)
"""Code points that switches put into the control class: CS6 and CS7, which precede the default (RFC 2474, §4.2.2.2)."""

DSCP_BULK: Final = 0
DSCP_LOWER_EFFORT: Final = 8
"""CS1, for traffic that is to go behind all other (RFC 3662, section 2). RFC 8622's code point has INT's DSCP bit."""

LOWER_EFFORT_PRIORITY: Final = 0
BULK_PRIORITY: Final = 1
"""Class of every code point that `TRAFFIC_CLASSES` does not list."""
CONTROL_PRIORITY: Final = 7
JOB_DSCPS: Final = {BULK_PRIORITY: DSCP_BULK, 2: 16, 3: 24, 4: 32, 5: 40}
"""Code points of a job's messages by its class: bulk, and CS2 to CS5 above it (RFC 2474, section 4.2.2)."""
JOB_CLASSES: Final = tuple(JOB_DSCPS)
TRAFFIC_CLASSES: Final = (
    {DSCP_LOWER_EFFORT: LOWER_EFFORT_PRIORITY}
    | {dscp: priority for priority, dscp in JOB_DSCPS.items() if priority != BULK_PRIORITY}
    | dict.fromkeys(CONTROL_CODE_POINTS, CONTROL_PRIORITY)
)
"""Classes by code point, in the order of IEEE 802.1Q: a larger one goes first. Switches put only aggregation messages
into the classes of jobs above bulk; everything else with such a code point is bulk traffic there.
"""


def traffic_class(dscp: int) -> int:
    """Return the priority, 0 to 7, in which hosts and switches queue a packet with this code point."""
    return TRAFFIC_CLASSES.get(dscp, BULK_PRIORITY)


DSCP_SHIFT: Final = 2
"""DSCP is the upper six bits of its byte, ECN the lower two."""

ECN_NOT_CAPABLE: Final = 0
ECN_CAPABLE: Final = 2
"""ECT(0): the sender yields to marks (RFC 3168, section 5)."""
ECN_CONGESTED: Final = 3
"""CE: the mark that switches set in a long queue (RFC 3168, section 5)."""
DEFAULT_TTL: Final = 64

_IPV4_NO_OPTIONS: Final = 0x45
_MORE_OR_OFFSET: Final = 0x3FFF  # of the flags-and-fragment word: more fragments, or an offset
_DONT_FRAGMENT: Final = 0x4000

IPV4: Final = np.dtype(
    [
        ("version_ihl", "u1"),
        ("dscp_ecn", "u1"),
        ("total_length", ">u2"),
        ("identification", ">u2"),
        ("flags_fragment", ">u2"),
        ("ttl", "u1"),
        ("protocol", "u1"),
        ("checksum", ">u2"),
        ("source", ">u4"),
        ("destination", ">u4"),
    ]
)
FRAME_HEADER: Final = np.dtype(
    [
        ("destination_mac", "u1", (6,)),
        ("source_mac", "u1", (6,)),
        ("ethertype", ">u2"),
        ("ipv4", IPV4),
        ("source_port", ">u2"),
        ("destination_port", ">u2"),
        ("udp_length", ">u2"),
        ("udp_checksum", ">u2"),
    ]
)
_IPV4_WORDS: Final = np.dtype([("words", ">u2", (IPV4_BYTES // 2,))])
_CHECKSUM_WORD: Final = 5
_DSCP_ECN: Final = ETHERNET_BYTES + 1

# A frame's header as native 16-bit words, for tests and templates of whole headers. The Internet checksum does not
# mind the byte order (RFC 1071, section 2B).
_HEADER_WORDS: Final = FRAME_HEADER_BYTES // 2
_IPV4_IN_HEADER: Final = slice(ETHERNET_BYTES // 2, (ETHERNET_BYTES + IPV4_BYTES) // 2)
_CHECKSUM_IN_HEADER: Final = ETHERNET_BYTES // 2 + _CHECKSUM_WORD
_SOURCE_IN_HEADER: Final = slice(_CHECKSUM_IN_HEADER + 1, _CHECKSUM_IN_HEADER + 3)
_DESTINATION_IN_HEADER: Final = slice(_CHECKSUM_IN_HEADER + 3, _CHECKSUM_IN_HEADER + 5)
_PORTS_IN_HEADER: Final = slice(_IPV4_IN_HEADER.stop, _IPV4_IN_HEADER.stop + 2)


def _aggregation_port() -> NDArray[np.uint16]:
    return np.array(AGGREGATION_PORT, np.uint16)


@dataclass(frozen=True, slots=True, eq=False)
class Datagrams:
    """n UDP payloads of equal size and their peers: the source of received ones, the destination of sent ones."""

    addresses: NDArray[np.uint32]
    """(n,) IPv4 addresses."""
    payload: NDArray[np.uint8]
    """(n, size): their bytes."""
    source_ports: NDArray[np.uint16] = field(default_factory=_aggregation_port)
    """(n,), or () when all share it; the aggregation port when left out."""
    destination_ports: NDArray[np.uint16] = field(default_factory=_aggregation_port)
    int_headers: NDArray[np.uint8] | None = None
    """(n, size): shim, header and stack of INT-MD in front of each payload, separate from it; None without INT."""

    def __len__(self) -> int:
        return len(self.addresses)


@dataclass(frozen=True, slots=True)
class Rejects:
    """Counts of a batch's rejected frames, by the first reason that applied."""

    truncated: int = 0
    not_ipv4: int = 0
    """Another ethertype, an IPv4 header with options, or another version."""
    bad_checksum: int = 0
    """The checksum of the IPv4 header is wrong."""
    fragment: int = 0
    other_address: int = 0
    not_udp: int = 0
    bad_length: int = 0
    """IPv4's or UDP's length does not say what the frame is."""
    other_port: int = 0
    bad_int: int = 0
    """INT that is no INT-MD of the port that was asked for, or that says it is longer than the datagram."""

    @property
    def total(self) -> int:
        """Rejected frames of all reasons."""
        return (
            self.truncated
            + self.not_ipv4
            + self.bad_checksum
            + self.fragment
            + self.other_address
            + self.not_udp
            + self.bad_length
            + self.other_port
            + self.bad_int
        )

    def __add__(self, other: Rejects) -> Rejects:
        return Rejects(
            self.truncated + other.truncated,
            self.not_ipv4 + other.not_ipv4,
            self.bad_checksum + other.bad_checksum,
            self.fragment + other.fragment,
            self.other_address + other.other_address,
            self.not_udp + other.not_udp,
            self.bad_length + other.bad_length,
            self.other_port + other.other_port,
            self.bad_int + other.bad_int,
        )


def ipv4_checksum(headers: NDArray[np.void]) -> NDArray[np.int64]:
    """Return the Internet checksum (RFC 1071) of each IPv4 header with its checksum field taken as zero. IPV4 (n,) →
    (n,).
    """
    words = headers.view(_IPV4_WORDS)["words"]
    return internet_checksum(words.sum(axis=-1, dtype=np.int64) - words[..., _CHECKSUM_WORD])


def mac_bytes(macs: ArrayLike) -> NDArray[np.uint8]:
    """48-bit integers of any shape → (…, 6) bytes in transmission order."""
    values = np.asarray(macs, dtype=">u8")
    return values[..., None].view(np.uint8)[..., 2:]


def encapsulate(
    payload: NDArray[np.uint8],
    *,
    source: ArrayLike,
    destination: ArrayLike,
    source_mac: ArrayLike,
    destination_mac: ArrayLike,
    source_port: ArrayLike = AGGREGATION_PORT,
    destination_port: ArrayLike = AGGREGATION_PORT,
    dscp: ArrayLike = DSCP_BULK,
    ecn: ArrayLike = ECN_NOT_CAPABLE,
    ttl: ArrayLike = DEFAULT_TTL,
) -> NDArray[np.uint8]:
    """Put Ethernet, IPv4 and UDP in front of each payload.

    All fields are integers, each one for all rows or one per row (n,).

    Args:
        payload: Payloads, uint8 (n, size).
        source: IPv4 addresses of the senders.
        destination: IPv4 addresses of the receivers.
        source_mac: Ethernet addresses of the senders, 48 bits.
        destination_mac: Ethernet addresses of the next hops, 48 bits.
        source_port: UDP ports of the senders.
        destination_port: UDP ports of the receivers.
        dscp: Code points, 0…63.
        ecn: ECN fields, 0…3.
        ttl: Times to live, 0…255.

    Returns:
        Frames, uint8 (n, 42 + size).

    Raises:
        WireError: A packet would exceed the MTU of 1500.
    """
    rows, size = payload.shape
    total_length = IPV4_BYTES + UDP_BYTES + size
    if total_length > MTU:
        raise WireError(
            f"a payload of {size} bytes makes an IPv4 packet of {total_length}; at most {MTU} fit the link", value=size
        )
    frames = np.empty((rows, FRAME_HEADER_BYTES + size), np.uint8)
    frames[:, FRAME_HEADER_BYTES:] = payload

    headers = np.zeros(rows, FRAME_HEADER)
    headers["destination_mac"] = mac_bytes(destination_mac)
    headers["source_mac"] = mac_bytes(source_mac)
    headers["ethertype"] = ETHERTYPE_IPV4
    ipv4 = headers["ipv4"]
    ipv4["version_ihl"] = _IPV4_NO_OPTIONS
    ipv4["dscp_ecn"] = np.asarray(dscp) << DSCP_SHIFT | np.asarray(ecn)
    ipv4["total_length"] = total_length
    ipv4["flags_fragment"] = _DONT_FRAGMENT
    ipv4["ttl"] = ttl
    ipv4["protocol"] = PROTOCOL_UDP
    ipv4["source"] = source
    ipv4["destination"] = destination
    ipv4["checksum"] = ipv4_checksum(ipv4)
    headers["source_port"] = source_port
    headers["destination_port"] = destination_port
    headers["udp_length"] = UDP_BYTES + size

    frames[:, :FRAME_HEADER_BYTES] = headers.view(np.uint8).reshape(rows, FRAME_HEADER_BYTES)
    return frames


class FrameWriter:
    """Frames of one host to any IPv4 address through its gateway, as `encapsulate` makes them; several times faster.

    Only destination and checksum differ between such frames, so the rest is made once for each size of payload.
    """

    def __init__(
        self,
        *,
        source: int,
        source_mac: int,
        destination_mac: int,
        port: int = AGGREGATION_PORT,
        destination_port: int | None = None,
        dscp: int = DSCP_BULK,
    ) -> None:
        """Create the writer of one host.

        Args:
            source: IPv4 address of the host, as a 32-bit number.
            source_mac: MAC address of the host, as a 48-bit number.
            destination_mac: MAC address of its gateway, as a 48-bit number.
            port: UDP source port, and destination port if that is None.
            destination_port: UDP destination port; None: `port`.
            dscp: DSCP of all frames.
        """
        self._ends = {
            "source": source,
            "source_mac": source_mac,
            "destination_mac": destination_mac,
            "source_port": port,
            "destination_port": port if destination_port is None else destination_port,
            "dscp": dscp,
        }
        self._templates: dict[int, tuple[NDArray[np.uint16], int]] = {}

    def encapsulate(self, datagrams: Datagrams, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return frames (n, 42 + size) uint8, in `out` if given. Raises WireError where a packet would exceed the
        MTU of 1500.
        """
        payload = datagrams.payload
        rows, size = payload.shape
        if size not in self._templates:
            self._templates[size] = self._template(size)
        template, total = self._templates[size]
        headers = np.empty((rows, _HEADER_WORDS), np.uint16)
        headers[:] = template
        destination = datagrams.addresses.astype(">u4").view(np.uint16).reshape(rows, 2)
        headers[:, _DESTINATION_IN_HEADER] = destination
        headers[:, _CHECKSUM_IN_HEADER] = internet_checksum(np.add.reduce(destination, 1, np.int64) + total)
        frames = np.empty((rows, FRAME_HEADER_BYTES + size), np.uint8) if out is None else out
        frames[:, :FRAME_HEADER_BYTES] = headers.view(np.uint8)
        frames[:, FRAME_HEADER_BYTES:] = payload
        return frames

    def _template(self, size: int) -> tuple[NDArray[np.uint16], int]:
        """A header without destination and checksum, and the sum of its IPv4 words."""
        frame = encapsulate(np.zeros((1, size), np.uint8), destination=0, **self._ends)
        words = frame[0, :FRAME_HEADER_BYTES].copy().view(np.uint16)
        words[_CHECKSUM_IN_HEADER] = 0
        return words, int(words[_IPV4_IN_HEADER].sum(dtype=np.int64))


def frame_headers(frames: NDArray[np.uint8]) -> NDArray[np.void]:
    """Return the 42 header bytes of each frame as FRAME_HEADER records (a copy). (n, ≥ 42) uint8 → (n,)."""
    headers: NDArray[np.void] = np.ascontiguousarray(frames[:, :FRAME_HEADER_BYTES]).view(FRAME_HEADER)[:, 0]
    return headers


def are_congested(frames: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """True for each IPv4 frame that was marked with CE on its way. (n, ≥ 42) uint8 → (n,)."""
    found: NDArray[np.bool_] = frames[:, _DSCP_ECN] & ECN_CONGESTED == ECN_CONGESTED
    return found


def decapsulate(
    frames: NDArray[np.uint8], address: int | None = None, port: int | None = None
) -> tuple[Datagrams, Rejects]:
    """Return the UDP datagrams in frames of equal length, and the counts of rejected frames. (n, length) uint8.

    With `address`, frames to another IPv4 address are rejected. With `port`, frames to or from another UDP port are
    rejected: a source port on the sender's own host belongs to the process that has bound it.
    """
    rows, length = frames.shape
    if length < FRAME_HEADER_BYTES:
        empty = Datagrams(
            np.empty(0, np.uint32), np.empty((0, 0), np.uint8), np.empty(0, np.uint16), np.empty(0, np.uint16)
        )
        return empty, Rejects(truncated=rows)
    words = np.ascontiguousarray(frames[:, :FRAME_HEADER_BYTES]).view(np.uint16)
    expected, fixed = _expected(length, address, port)
    rejects = _NO_REJECTS
    if np.count_nonzero((words ^ expected) & fixed) or np.count_nonzero(_damaged(words)):
        good, rejects = _sift(words.view(FRAME_HEADER)[:, 0], length, address, port)
        frames, words = frames[good], words[good]
    ports = words[:, _PORTS_IN_HEADER].view(">u2").astype(np.uint16)
    addresses = words[:, _SOURCE_IN_HEADER].view(">u4")[:, 0].astype(np.uint32)
    return Datagrams(addresses, frames[:, FRAME_HEADER_BYTES:], ports[:, 0], ports[:, 1]), rejects


_NO_REJECTS: Final = Rejects()


@lru_cache(maxsize=256)
def _expected(length: int, address: int | None, port: int | None) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Expected header of a good frame, and the mask of its fixed bits: uint16 (21,) each."""
    expected, fixed = np.zeros((2, 1), FRAME_HEADER)
    for header, bits in ((expected, False), (fixed, True)):
        ipv4 = header["ipv4"]
        header["ethertype"] = 0xFFFF if bits else ETHERTYPE_IPV4
        ipv4["version_ihl"] = 0xFF if bits else _IPV4_NO_OPTIONS
        ipv4["total_length"] = 0xFFFF if bits else length - ETHERNET_BYTES & 0xFFFF
        ipv4["flags_fragment"] = _MORE_OR_OFFSET if bits else 0
        ipv4["protocol"] = 0xFF if bits else PROTOCOL_UDP
        header["udp_length"] = 0xFFFF if bits else length - ETHERNET_BYTES - IPV4_BYTES & 0xFFFF
        if address is not None:
            ipv4["destination"] = 0xFFFF_FFFF if bits else address
        if port is not None:
            header["source_port"] = header["destination_port"] = 0xFFFF if bits else port
    return expected.view(np.uint16), fixed.view(np.uint16)


def _damaged(words: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """True for each header with a wrong IPv4 checksum; headers as words, uint16 (n, 21) → (n,)."""
    total = np.add.reduce(words[:, _IPV4_IN_HEADER], 1, np.int64)
    damaged: NDArray[np.bool_] = words[:, _CHECKSUM_IN_HEADER] != internet_checksum(
        total - words[:, _CHECKSUM_IN_HEADER]
    )
    return damaged


def _sift(
    headers: NDArray[np.void], length: int, address: int | None, port: int | None
) -> tuple[NDArray[np.bool_], Rejects]:
    """Return which of these headers are good, and the counts of reasons of the others."""
    ipv4 = headers["ipv4"]
    good = np.ones(len(headers), np.bool_)

    def reject(bad: NDArray[Any]) -> int:
        count = int(np.count_nonzero(good & bad))
        good[bad] = False
        return count

    packet_length = length - ETHERNET_BYTES
    rejects = Rejects(
        not_ipv4=reject((headers["ethertype"] != ETHERTYPE_IPV4) | (ipv4["version_ihl"] != _IPV4_NO_OPTIONS)),
        bad_checksum=reject(ipv4["checksum"] != ipv4_checksum(ipv4)),
        fragment=reject(ipv4["flags_fragment"] & _MORE_OR_OFFSET != 0),
        other_address=0 if address is None else reject(ipv4["destination"] != address),
        not_udp=reject(ipv4["protocol"] != PROTOCOL_UDP),
        bad_length=reject(
            (ipv4["total_length"] != packet_length) | (headers["udp_length"] != packet_length - IPV4_BYTES)
        ),
        other_port=0
        if port is None
        else reject((headers["destination_port"] != port) | (headers["source_port"] != port)),
    )
    return good, rejects
