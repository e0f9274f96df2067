"""Telemetry reports 2.0 collected.

A report describes one packet at one node: ports, latency, queue, egress time, bytes sent, and the packet's first 28
bytes; 72 bytes of UDP payload. The plain Python loop reads the same from a datagram by `struct` and keeps the same data
of links and streams in dicts (no flows, no order, no check for copies). The scapy loop dissects it with this project's
layers.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from subprocess import PIPE, Popen
from typing import Any, Final

import numpy as np

from weir.bench.measure import Aim, Figure, TimedWork, compare, cpu_seconds
from weir.controller.telemetry.collector import ReportCollector
from weir.controller.telemetry.link_state import LinkState
from weir.controller.telemetry.report_socket import BATCH, ReportSocket
from weir.topologies import Topology, leaf_spine
from weir.wire import int_report
from weir.wire.int_report import InnerType, Report, ReportFlag, ReportGroup

PERIOD_NS: Final = 10_000_000
RUNS: Final = 5
IN_MEMORY: Final = 1 << 18
BY_HAND: Final = 1 << 15
BY_SCAPY: Final = 1 << 9
THROUGH_UDP: Final = 50_000
"""Number of reports that the socket's buffer holds."""
PACED_PER_S: Final = 100_000
PACED_S: Final = 2.0
_GROUP: Final = struct.Struct("!II")
_REST: Final = struct.Struct("!4BHHHHHHIIQQ")


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    topology = leaf_spine(4, 2, 3)
    many = _datagrams(topology, IN_MEMORY)
    yield compare(
        "parsed from memory, 512 a batch",
        "reports/s",
        TimedWork("weir", IN_MEMORY, partial(_collect, topology, *_together(many))),
        TimedWork("Python loop", BY_HAND, partial(_by_hand, many[:BY_HAND])),
        aim=Aim(3e6),
        runs=RUNS,
        clock=cpu_seconds,
    )
    yield compare(
        "the same beside scapy",
        "reports/s",
        TimedWork("weir", IN_MEMORY, partial(_collect, topology, *_together(many))),
        TimedWork("scapy loop", BY_SCAPY, partial(_by_scapy, many[:BY_SCAPY])),
        runs=3,
        clock=cpu_seconds,
    )
    rates, lost = zip(*(_through_udp(topology) for _ in range(RUNS)), strict=True)
    theirs = tuple(_by_hand_through_udp(topology) for _ in range(RUNS))
    yield Figure("taken from a UDP socket, loopback", "reports/s", rates, "Python loop", theirs, aim=Aim(500e3))
    yield Figure("of these, lost but not by the kernel", "reports", lost, less_is_better=True, aim=Aim(0))
    ages = [asyncio.run(_age_of_the_newest(topology)) for _ in range(RUNS)]
    for name, place in (("median", 0), ("99 %", 1)):
        yield Figure(
            f"age of the newest report in the snapshot, {PACED_PER_S // 1000} k/s, {name}",
            "s",
            tuple(age[place] for age in ages),
            less_is_better=True,
            aim=Aim(5e-3),
        )


def _datagrams(topology: Topology, count: int) -> list[bytes]:
    """Reports of all switches in turn, on 64 flows."""
    rng = random.Random(1)
    switches = topology.switches
    made = []
    for number in range(count):
        switch = switches[number % len(switches)]
        flow = rng.randrange(64)
        inner = struct.pack(
            "!BBHHHBBHIIHHHH", 0x45, 0, 28, 0, 0, 60, 17, 0, 0x0A000101, 0x0A000201, 4000 + flow, 9, 8, 0
        )
        metadata = {
            "ingress_port": 1,
            "egress_port": 1 + rng.randrange(2),
            "latency_us": rng.randrange(100),
            "queue_id": 0,
            "queue_packets": rng.randrange(30),
            "egress_ns": number * 3_000,
            "bytes_sent": number * 100,
        }
        report = Report(ReportFlag.TRACKED_FLOW, metadata, InnerType.IPV4, inner)
        made.append(int_report.encode(ReportGroup(switch.device_id, number // len(switches), (report,))))
    return made


def _together(datagrams: Sequence[bytes]) -> tuple[np.ndarray[Any, Any], ...]:
    lengths = np.array([len(datagram) for datagram in datagrams], np.int64)
    return np.frombuffer(b"".join(datagrams), np.uint8), lengths.cumsum() - lengths, lengths


def _collect(
    topology: Topology,
    data: np.ndarray[Any, Any],
    starts: np.ndarray[Any, Any],
    lengths: np.ndarray[Any, Any],
) -> None:
    collector = ReportCollector(topology, LinkState(topology, period_ns=PERIOD_NS))
    for index in range(0, len(starts), BATCH):
        collector.receive_batch(
            data, starts[index : index + BATCH], lengths[index : index + BATCH], BATCH, 3_000 * index
        )
    if collector.reports != len(starts):
        raise RuntimeError(f"{collector.reports} of {len(starts)} reports were taken; {collector.faults}")


# --- the peers ---


class _PlainLoop:
    """Links and streams in dicts, a datagram at a time."""

    def __init__(self) -> None:
        self.links: dict[tuple[int, int], dict[str, float]] = {}
        self.streams: dict[tuple[int, int], list[int]] = {}

    def receive(self, datagram: bytes) -> None:
        head, node = _GROUP.unpack_from(datagram)
        types, words, metadata, _, bits, _, domain_bits, _, _, egress, latency, queue, at_ns, sent = _REST.unpack_from(
            datagram, 8
        )
        if head >> 28 != 2 or types >> 4 != 1 or 12 + 4 * words > len(datagram):
            return
        if (bits, domain_bits, metadata) != (0x7400, 0x8000, 7):
            return
        self.count(node, head)
        self.note(node, egress, latency, queue & 0xFFFFFF, at_ns, sent)

    def count(self, node: int, head: int) -> None:
        key, sequence = (node, head >> 22 & 0x3F), head & 0x3FFFFF
        stream = self.streams.get(key)
        if stream is None:
            self.streams[key] = [sequence, 0]
        else:
            stream[1] += ((sequence - stream[0]) & 0x3FFFFF) - 1
            stream[0] = sequence

    def note(self, node: int, port: int, latency: int, depth: int, at_ns: int, sent: int) -> None:
        link = self.links.get((node, port))
        if link is None:
            self.links[node, port] = {"at": at_ns, "sent": sent, "queue": depth, "latency": latency, "rate": 0.0}
            return
        elapsed = at_ns - link["at"]
        weight = min(elapsed, 2 * PERIOD_NS) / (2 * PERIOD_NS)
        link["queue"] += weight * (depth - link["queue"])
        link["latency"] += weight * (latency - link["latency"])
        if elapsed >= PERIOD_NS // 8:
            link["rate"] += weight * ((sent - link["sent"]) / (elapsed * 1e-9) - link["rate"])
            link["at"], link["sent"] = at_ns, sent


def _by_hand(datagrams: Sequence[bytes]) -> None:
    loop = _PlainLoop()
    for datagram in datagrams:
        loop.receive(datagram)


def _by_scapy(datagrams: Sequence[bytes]) -> None:
    from weir.wire.scapy_layers import ReportGroup as Layer

    loop = _PlainLoop()
    for datagram in datagrams:
        group = Layer(datagram)
        for report in group.reports:
            told = report.items()
            loop.note(
                group.node_id,
                *(told[name] for name in ("egress_port", "latency_us", "queue_packets", "egress_ns", "bytes_sent")),
            )


# --- through a socket ---


def _sender(port: int, count: int, per_s: int, node: int) -> Popen[str]:
    """Another process that sends reports of this node; it waits for a line on its input."""
    words = [sys.executable, "-m", "weir.bench.report_sender", str(port), str(count), str(per_s), str(node)]
    process = Popen(words, stdin=PIPE, stdout=PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _go(process: Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _through_udp(topology: Topology) -> tuple[float, float]:
    """Reports per second of processor time, from a socket in whose buffer another process has put them, the kernel's
    work included; and how many were lost elsewhere than in that buffer.
    """
    collector = ReportCollector(topology, LinkState(topology, period_ns=PERIOD_NS))
    with ReportSocket(collector, 0) as reports:
        process = _sender(reports.port, THROUGH_UDP, 0, topology.switches[0].device_id)
        _go(process)
        process.wait()
        taken = cpu_seconds(partial(_drain, reports))
        missing = THROUGH_UDP - collector.datagrams - reports.kernel_drops
        return collector.datagrams / taken, float(missing)


def _drain(reports: ReportSocket) -> None:
    while reports.poll(time.monotonic_ns()):
        pass


def _by_hand_through_udp(topology: Topology) -> float:
    """The same by a plain loop over `recv`."""
    loop, taken = _PlainLoop(), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
        plain.bind(("127.0.0.1", 0))
        plain.setblocking(False)
        process = _sender(plain.getsockname()[1], THROUGH_UDP, 0, topology.switches[0].device_id)
        _go(process)
        process.wait()
        began = time.thread_time()
        with suppress(BlockingIOError):
            while True:
                loop.receive(plain.recv(2048))
                taken += 1
        return taken / (time.thread_time() - began)


async def _age_of_the_newest(topology: Topology) -> tuple[float, float]:
    """Age of a link's newest report when a reader polls, every millisecond: median and 99th percentile, in seconds.

    The age is counted from the report's own time of sending, on the clock that both processes share.
    """
    links = LinkState(topology, period_ns=PERIOD_NS)
    collector = ReportCollector(topology, links)
    first = topology.switches[0]
    row = next(index for index, link in enumerate(links.links) if (link.node, link.port) == (first.name, 1))
    ages = []
    with ReportSocket(collector, 0) as reports:
        asyncio.get_running_loop().add_reader(reports, lambda: reports.poll(time.monotonic_ns()))
        total = round(PACED_PER_S * PACED_S)
        process = _sender(reports.port, total, PACED_PER_S, first.device_id)
        _go(process)
        while collector.datagrams < 0.95 * total and process.poll() is None:  # the last one ages for ever
            await asyncio.sleep(0.001)
            reports.poll(time.monotonic_ns())
            links.snapshot(time.monotonic_ns())
            if collector.datagrams > 0.05 * total:
                ages.append((time.monotonic_ns() - int(links.state["egress_ns"][row])) / 1e9)
        asyncio.get_running_loop().remove_reader(reports)
        process.wait()
    return float(np.median(ages)), float(np.percentile(ages, 99))
