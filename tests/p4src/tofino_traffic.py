"""Random traffic for the programs for Tofino and bmv2: a protocol that runs, much that is wrong, and queues."""

from __future__ import annotations

import struct

import numpy as np

from weir.controller.planning.admission import OF_WORKERS
from weir.tests.p4src.emulated_node import PORTS
from weir.tests.p4src.node_model import CPU_PORT, Bound, Policer, Tables
from weir.tests.p4src.queued_node import EMPTY, Queue
from weir.tests.p4src.small_fabric import (
    GENERATION,
    INNER,
    MAC,
    OTHER_SWITCH,
    PARENT,
    PARENT_PORT,
    ROOT,
    STRANGER,
    STRANGER_PORT,
    SWITCH,
    WORKERS,
    host_mac,
    hosts,
    message,
    packet,
    tables,
)
from weir.wire import frames, int_md
from weir.wire.aggregation import MessageType
from weir.wire.fields import REDUCED
from weir.wire.frames import JOB_CLASSES
from weir.wire.int_report import REPORT_PORT

ECN_BYTE = 15
MARKER = b"Weir-INT"
NEAR_THE_WRAP = 2**24 - 4
BEFORE_THE_CLOCK_WRAPS_US = 2**32 // 1000 - 2_000
"""32 bits of nanoseconds end in a sequence."""
TICKS_PER_US = 1 << 16
FILLED_OF_THE_DOMAIN = (0, 0x4000, 0x8000, 0xC000)
"""Domain instructions that the program for a chip fills; with others it pushes nothing."""


STRANGERS_PORTS = (1000, 1001, 9)
"""UDP and TCP ports of the stranger's packets"""


def busy_tables(rng: np.random.Generator) -> Tables:
    """Two jobs, hosts that are policed, and bounds for the queues of most ports."""
    result = tables()
    result.hosts = hosts(OF_WORKERS & ~(1 << MessageType.SCALE))  # the workers sum lanes alone elsewhere
    result.classes = {dscp: priority for dscp, priority in result.classes.items() if priority not in JOB_CLASSES}
    result.classes[49] = 7
    result.sinks = {port: port + 1 for port in (1, STRANGER_PORT) if rng.random() < 0.5}
    result.node_id = None if rng.random() < 0.2 else int(rng.integers(0, 2**32))
    for port in (*range(len(WORKERS)), PARENT_PORT, STRANGER_PORT):
        if rng.random() < 0.8:
            cost = TICKS_PER_US // 2
            virtual = (cost, int(rng.integers(500, 3000)) * cost) if rng.random() < 0.6 else (0, 1)
            window = int(rng.integers(1, 2**16))
            limits = (int(rng.integers(4, 9)), int(rng.integers(15, 24)))
            result.marking[port] = Bound(*limits, *virtual, window, int(rng.integers(1, window + 1)))
        if port == PARENT_PORT:
            continue  # a switch's
        for priority, is_message, bytes_per_us in ((0, 1, 3), (0, 0, 1), (7, 0, 1), (7, 1, 1)):
            burst = int(rng.choice([0, 250, 3000], p=[0.1, 0.3, 0.6]))
            cost = TICKS_PER_US // bytes_per_us
            result.policers[port, priority, is_message] = Policer(len(result.policers), cost, burst * cost)
    return result


Row = tuple[str, tuple[int, ...], str, tuple[int, ...]]
"""A table, the exact key of an entry, or none for the default, its action and parameters."""


def rows_of_int(rng: np.random.Generator) -> list[Row]:
    """Rows that set INT's marking, the names of links and of this node, and the links' MTU."""
    rows: list[Row] = [("FabricIngress.marks", (int(rng.integers(2, 4)),), "FabricIngress.recognise", ())]
    if rng.random() < 0.4:
        rows.append(("FabricIngress.edges", (PARENT_PORT,), "FabricIngress.clear_mark", ()))
    if rng.random() < 0.5:
        rows.append(("FabricEgress.telemetry.slots", (), "FabricEgress.telemetry.tell_free_slots", (7,)))
    for host in (WORKERS[1], STRANGER):
        if rng.random() < 0.6:
            rows.append(("FabricIngress.int_sink.sinks", (host,), "FabricIngress.int_sink.strip", (0,)))
    for port in (1, PARENT_PORT, STRANGER_PORT):
        if rng.random() < 0.6:
            name = (int(rng.choice([600, 1500])), 70000 + port, int(rng.random() < 0.3))
            rows.append(("FabricEgress.int_source.links", (port,), "FabricEgress.int_source.name_link", name))
            name_ingress = "FabricEgress.telemetry.name_ingress"
            rows.append(("FabricEgress.telemetry.ingress_names", (port,), name_ingress, (80000 + port,)))
    return rows


Watched = tuple[tuple[tuple[int, int], ...], str, tuple[int, ...]]
"""A watchlist's entry: (value, mask) of addresses, protocol and ports, its action and parameters."""
ANY = (0, 0)


def watchlist(rng: np.random.Generator) -> list[Watched]:
    """Rows of the watchlist; the first match counts.

    INT is only for packets of the stranger and of this node: the program for bmv2 reports packets with a shim that it
    has read and not recognised.
    """
    own = (ANY, ANY, (17, 0xFF), ANY, (REPORT_PORT, 0xFFFF))
    found: list[Watched] = [(own, "ignore", ())]
    for entry in range(1, 17):
        embeds = rng.random() < 0.7
        embedded = int(rng.choice([STRANGER, SWITCH], p=[0.7, 0.3]))
        source = embedded if embeds else int(rng.choice([SWITCH, STRANGER, PARENT, *WORKERS]))
        destination = int(rng.choice([PARENT, *WORKERS]))
        protocol = int(rng.choice([6, 17]))
        match = (
            (source, 0xFFFFFFFF) if embeds or rng.random() < 0.7 else (STRANGER & 0xFFFF0000, 0xFFFF0000),
            (destination, 0xFFFFFFFF) if rng.random() < 0.7 else ANY,
            (protocol, 0xFF) if rng.random() < 0.7 else ANY,
            (STRANGERS_PORTS[0], 0xFFFE) if rng.random() < 0.2 else ANY,
            (int(rng.choice(STRANGERS_PORTS)), 0xFFFF) if rng.random() < 0.4 else ANY,
        )
        bitmap = int(rng.choice([0xDC00, 0xFF00, int(rng.integers(0, 2**8)) << 8, int(rng.integers(0, 2**16))]))
        if source == SWITCH:
            bitmap &= ~0x4000  # a chip has another port for recirculated packets
        domain_bitmap = int(rng.choice(FILLED_OF_THE_DOMAIN))
        want = (entry, int(rng.choice([1, 2, 5], p=[0.6, 0.2, 0.2])), bitmap, domain_bitmap)
        presence = int(rng.integers(1, 4))
        if not embeds:
            found.append((match, "export_xd", want))
        elif rng.random() < 0.3:
            found.append((match, "embed_mx", (*want, presence)))
        else:
            words = (int_md.hop_words(bitmap, domain_bitmap) + int(rng.random() < 0.1)) % 32
            found.append((match, "embed_md", (*want, words, int(rng.choice([0, 1, 8])), presence)))
    return found


def report_destination(rng: np.random.Generator) -> tuple[int, tuple[int, ...]]:
    """Port of the reports, and their address parameters; empty if there is no destination."""
    port = int(rng.choice([CPU_PORT, PARENT_PORT], p=[0.3, 0.7]))
    address = (int(rng.integers(0, 2**32)), MAC + port, host_mac(PARENT), SWITCH, PARENT, 5555, REPORT_PORT, 10)
    return port, address if rng.random() < 0.77 else ()


def compared_with(sent: tuple[int, bytes]) -> tuple[int, bytes]:
    """Comparable part of a departing frame.

    Reports are cut at the same length by a chip, so the bytes behind it are left out, as is the inner checksum of UDP
    or TCP, which bmv2 clones as it was before INT came in.
    """
    port, frame = sent
    at = 2 if port == CPU_PORT else 0
    if frame[at + 23 : at + 24] != b"\x11" or frame[at + 36 : at + 38] != REPORT_PORT.to_bytes(2):
        return sent
    report = bytearray(frame[: at + 14 + int.from_bytes(frame[at + 16 : at + 18])])
    inner = at + 14 + 48 + 4 * int.from_bytes(report[at + 52 : at + 53])
    checksum = inner + {b"\x11": 26, b"\x06": 36}.get(bytes(report[inner + 9 : inner + 10]), len(report))
    report[checksum : checksum + 2] = bytes(len(report[checksum : checksum + 2]))
    return port, bytes(report)


class Traffic:
    """Frames and the ports they arrive at, their times and the queues that they find: a running protocol of two jobs,
    with much that can be wrong mixed in.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.round = NEAR_THE_WRAP
        self.generation = GENERATION
        self.now_us = BEFORE_THE_CLOCK_WRAPS_US
        """When the frame arrives"""
        self.queue = EMPTY
        self.int_ends: int | None = None
        """End of INT's header in the frame, if it has one"""

    def next(self) -> tuple[bytes, int]:
        rng = self.rng
        self.now_us += self.queue.wait_us + int(rng.integers(0, 20))
        self.queue = Queue(int(rng.integers(0, 10)), int(rng.integers(0, 25)), int(rng.integers(0, 2**19)))
        self.int_ends = None
        kinds = {
            "contribution": self._contribution,
            "result": self._result,
            "plain": self._plain,
            "flow": self._flow,
            "probe": self._probe,
        }
        kind = rng.choice([*kinds, "packet-out"], p=[0.54, 0.07, 0.05, 0.2, 0.1, 0.04])
        frame, port = kinds[kind]() if kind in kinds else self._packet_out()
        if self.int_ends is None:
            frame = frame[:40] + rng.bytes(2) + frame[42:]  # the UDP checksum, which nobody verifies
        frame = with_ecn(frame, int(rng.integers(0, 4)))
        # a chip looks no further than INT's header, but at a sink: it does not miss a stack's end
        if rng.random() < 0.03:
            frame = frame[: int(rng.integers(14, self.int_ends or len(frame)))]
        elif rng.random() < 0.02:
            places = range(min(len(frame), 70))
            if self.int_ends is not None:  # but for the domain's bitmap, of which a chip takes less
                places = [self.int_ends - back for back in (11, 10, 9, 7, 6, 5, 2, 1)]
                places += [self.int_ends - 8] if kind != "packet-out" else []  # nor does that ask for ports
            at = int(rng.choice(places))
            frame = frame[:at] + rng.bytes(1) + frame[at + 1 :]
        if kind == "packet-out":
            return (int(rng.integers(0, PORTS)) << 7).to_bytes(2) + frame, CPU_PORT
        return frame, port if rng.random() < 0.97 else int(rng.integers(0, PORTS))

    def _message(self, kind: MessageType, job: int, contributors: int) -> bytes:
        rng = self.rng
        self.round += int(rng.random() < 0.15)
        self.generation = min(self.generation + int(rng.random() < 0.01), GENERATION + 3)
        fields = {field.name: int(rng.integers(0, 1 << field.bits)) for field in REDUCED}
        fields |= {"flags": int(rng.integers(0, 16)), "contributors": contributors}
        if kind is MessageType.PRESENT:
            fields["reserved"] = int(rng.choice([1, 0, 2, 8], p=[0.97, 0.01, 0.01, 0.01]))
        if rng.random() < 0.03:
            fields["version_type"] = int(rng.integers(0, 256))
        if rng.random() < 0.03:
            fields["slot"] = int(rng.choice([0, 3, 4, 0xFFFF]))
        return message(
            kind,
            round_number=self.round if rng.random() < 0.85 else int(self.round + rng.integers(-6, 2)),
            lanes=rng.integers(-(2**31), 2**31, 32),
            width=32,
            job=job if rng.random() < 0.98 else 1,
            generation=self.generation - int(rng.random() < 0.03),
            bad_checksum=rng.random() < 0.02,
            **fields,
        )

    def _contribution(self) -> tuple[bytes, int]:
        rng = self.rng
        worker = int(rng.integers(0, 3))
        kind = MessageType.CONTRIBUTION if self.round % 3 else MessageType.SCALE
        if kind is MessageType.CONTRIBUTION and rng.random() < 0.4:
            kind = MessageType.PRESENT
        kind = kind if rng.random() < 0.97 else MessageType(int(rng.integers(5, 8)))
        child = 1 << worker if rng.random() < 0.97 else int(rng.integers(0, 8))
        payload = self._message(kind, int(rng.choice([INNER, ROOT])), child)
        destination = SWITCH if rng.random() < 0.96 else OTHER_SWITCH
        source_port = 22341 if rng.random() < 0.97 else 22342
        dscp = 10 if self.round % 5 == 0 else 0
        return packet(payload, WORKERS[worker], destination, source_port=source_port, dscp=dscp), worker

    def _result(self) -> tuple[bytes, int]:
        kinds = (MessageType.RESULT, MessageType.RESULT, MessageType.SCALE_RESULT, MessageType.DONE)
        kind = kinds[self.rng.integers(len(kinds))]
        return packet(self._message(kind, INNER, 0), PARENT, dscp=int(self.rng.choice([0, 10, 48, 56]))), PARENT_PORT

    def _plain(self) -> tuple[bytes, int]:
        rng = self.rng
        destination = int(rng.choice([SWITCH, WORKERS[0], STRANGER, PARENT, OTHER_SWITCH, 0x01020304]))
        ttl = int(rng.choice([0, 1, 2, 64]))
        source = STRANGER if rng.random() < 0.8 else PARENT
        if rng.random() < 0.15:  # a message that reads as INT
            payload = message(generation=0x20, flags=int(rng.integers(0, 3)), width=32)
            return packet(payload, PARENT, WORKERS[0], dscp=1), PARENT_PORT
        dscp = int(rng.choice([0, 1, 10, 48]))
        frame = packet(rng.bytes(int(rng.integers(0, 80))), source, destination, destination_port=9, ttl=ttl, dscp=dscp)
        if rng.random() < 0.3:
            frame = frame[:23] + b"\x06" + frame[24:]
        if rng.random() < 0.1:
            frame = frame[:12] + b"\x08\x06" + frame[14:]
        return frame, STRANGER_PORT

    def _flow(self) -> tuple[bytes, int]:
        """Packet of a watched flow, of any length that INT headers may still fit, whole or a fragment."""
        rng = self.rng
        is_tcp = bool(rng.random() < 0.4)
        most = int(rng.choice([600, frames.MTU])) - 28
        payload = max(12, int(rng.choice([12, 13, 30, 70, *range(most - 25, most - 14), most - 56, most])))
        port = int(rng.choice(STRANGERS_PORTS))
        destination = int(rng.choice([PARENT, STRANGER, *WORKERS]))
        dscp = int(rng.choice([0, 10, 48]))
        frame = bytearray(
            packet(rng.bytes(payload), STRANGER, destination, source_port=port, destination_port=port, dscp=dscp)
        )
        if is_tcp:
            frame[23] = 6
        elif rng.random() < 0.3:
            frame[40:42] = bytes(2)
        if rng.random() < 0.25:
            frame[20:22] = int(rng.choice([0x2000, 0x2000, 0x0001, 0x4000])).to_bytes(2)
        if rng.random() < 0.05:
            frame[23] = 1
        self.int_ends = len(frame)
        return bytes(frame), PARENT_PORT

    def _packet_out(self) -> tuple[bytes, int]:
        """Packet-out with an existing egress port.

        A chip has another port for the CPU, so its INT neither requests ports nor ends here, and it is not watched.
        """
        frame, _ = self._plain() if self.rng.random() < 0.5 else self._probe(~0x4000, ends=False)
        return frame[:26] + OTHER_SWITCH.to_bytes(4) + frame[30:], CPU_PORT

    def _probe(self, allowed: int = 0xFFFF, ends: bool = True) -> tuple[bytes, int]:
        """INT of any bitmap, hop limit and stack, marked in any way, behind UDP or TCP; sometimes of a layout that
        cannot be had.
        """
        rng = self.rng
        bitmap = int(rng.choice([0xF000, 0xFC00, int(rng.integers(0, 2**16))])) & allowed
        domain = int(rng.choice([int_md.DOMAIN, 0, 1], p=[0.8, 0.1, 0.1]))
        domain_bitmap = int(rng.choice([0x8000, 0, int(rng.integers(0, 2**16))])) & max(FILLED_OF_THE_DOMAIN)
        words = int_md.hop_words(bitmap, domain_bitmap if domain == int_md.DOMAIN else 0)
        if rng.random() < 0.2:  # unknown values are not counted, or anything is
            known = int_md.hop_words(bitmap & 0xFF00, domain_bitmap if domain == int_md.DOMAIN else 0)
            words = int(rng.choice([known, int(rng.integers(0, 32))]))
        words %= 32
        mark, is_tcp = str(rng.choice(["port", "dscp", "marker"], p=[0.5, 0.25, 0.25])), bool(rng.random() < 0.5)
        is_tcp = is_tcp and mark != "port"
        front = MARKER if mark == "marker" else b""
        # fresh, or of any number of hops; of all of which the shim can count hardly one more
        most = 252 // max(words, 1)
        stack = words * int(rng.choice([int(rng.integers(0, 3)), int(rng.integers(0, most + 1)), most]))
        shim_type = 0x30 if rng.random() < 0.4 else 0x10
        if shim_type == 0x30 and rng.random() < 0.7:
            stack = 0
        room = int(rng.choice([600, frames.MTU])) - 28 - 12 * is_tcp - 16 - len(front) - 4 * stack - 4 * words
        payload = max(0, int(rng.choice([0, 2, room - 1, room, room + 1])))
        first = int(rng.choice([0x10, 0x20, 0x28], p=[0.03, 0.77, 0.2]))
        if mark != "port" or not ends:
            first &= ~0x08  # bmv2 ends what says so at a probe sink, even if it is not marked in the fabric's way
        dscp = int(rng.choice([0, 48]))
        original = dscp << 2 if mark == "dscp" else int(rng.choice([9, 22342]))
        next_type = 0 if mark != "port" or rng.random() < 0.1 else 4
        if mark == "port" and shim_type == 0x30 and rng.random() < 0.3:
            next_type, original, payload = 8, int(rng.choice([6, 47])), max(payload, 20)  # a segment that was wrapped
        shim = struct.pack("!BBH", shim_type | next_type, 3 + stack, original)
        remaining = int(rng.choice([0, 1, 5, 255]))
        header = struct.pack("!BBBBHHHH", first, 0, words, remaining, bitmap, domain, domain_bitmap, 0)
        behind = shim + header + rng.bytes(4 * stack)
        limit = frames.MTU - 28 - 12 * is_tcp - len(front) - len(behind)
        body = (rng.bytes(12) if is_tcp else b"") + front + behind + rng.bytes(min(payload, limit))
        destination = int(rng.choice([SWITCH, WORKERS[1], STRANGER], p=[0.1, 0.4, 0.5]))
        port = {"port": 5000}.get(mark, 9)
        # an edge refuses INT behind port 5000, too; the flow of the program for bmv2 keeps the port behind it
        dscp |= mark == "dscp" or (mark == "marker" and bool(rng.random() < 0.2))
        frame = bytearray(packet(body, PARENT, destination, destination_port=port, dscp=dscp))
        frame[23] = 6 if is_tcp else 17
        if not is_tcp and not first & 0x08 and rng.random() < 0.8:
            frame[40:42] = rng.bytes(2)
        self.int_ends = 42 + 12 * is_tcp + len(front) + 16
        return bytes(frame), PARENT_PORT


def with_ecn(frame: bytes, ecn: int) -> bytes:
    """The frame with these ECN bits, and an IPv4 checksum that holds."""
    changed = bytearray(frame)
    changed[ECN_BYTE] |= ecn
    headers = frames.frame_headers(np.frombuffer(bytes(changed), np.uint8)[None])
    changed[24:26] = int(frames.ipv4_checksum(headers["ipv4"])[0]).to_bytes(2, "big")
    return bytes(changed)
