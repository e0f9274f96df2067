"""The controller's own work: telemetry collected.

The collector takes the finished probes of a large fabric, period by period, and is held against the plain
way to do it: a Python loop over frames and hops with `struct`, and a dict for each link. Both come to the same rates. A
report is one hop of one probe.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from weir.bench.measure import Aim, Figure, cpu_seconds
from weir.controller.telemetry.link_state import LinkState
from weir.controller.telemetry.probe_reports import ProbeReports
from weir.controller.telemetry.probes import Probe, ProbeFrames, plan_probes
from weir.topologies import Routes, Topology, fat_tree, leaf_spine
from weir.wire.frames import encapsulate
from weir.wire.int_md import INT_PORT, MD_WORDS

RUNS: Final = 5
PERIOD_NS: Final = 10_000_000
PERIODS: Final = 8


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module."""
    yield _collecting(leaf_spine(4, 2, 3))
    yield _collecting(fat_tree(8))
    yield _collecting(fat_tree(16))


_IP_AT: Final = 14
_UDP_AT: Final = 34
_SHIM_AT: Final = 42
_STACK_AT: Final = 58
_HOP: Final = struct.Struct("!IHHIIQQ")
"""Items that the controller's probes request of each hop: node, ports, latency, queue, depth, egress time, bytes
sent.
"""


def _collecting(topology: Topology) -> Figure:
    probes = plan_probes(topology, Routes(topology))
    periods = _finished(topology, probes, random.Random(1))
    reports = sum(len(probe.certain) for probe in probes) * PERIODS
    turns = []
    for _ in range(RUNS):
        state = LinkState(topology, period_ns=PERIOD_NS)
        collector = ProbeReports(state, probes)
        plain = _PlainCollector()
        turns.append(
            (cpu_seconds(partial(_collect, collector, periods)), cpu_seconds(partial(plain.receive_all, periods)))
        )
        rates = [plain.links[topology.switch(link.node).device_id, link.port]["rate"] for link in state.links]
        assert np.allclose(state.state["rate"], rates), "both must come to the same rates"
    mine, theirs = ([reports / taken for taken in column] for column in zip(*turns, strict=True))
    name = f"telemetry of {len(topology.switches)} switches, {len(probes)} probes a period"
    return Figure(name, "reports/s", tuple(mine), "Python loop", tuple(theirs), aim=Aim(1.0, of_ratio=True))


def _collect(collector: ProbeReports, periods: Sequence[Sequence[bytes]]) -> None:
    for number, frames in enumerate(periods):
        collector.send_all(number * PERIOD_NS)
        collector.receive(frames, number * PERIOD_NS + PERIOD_NS // 2)


def _finished(topology: Topology, probes: Sequence[Probe], rng: random.Random) -> list[list[bytes]]:
    """The frames of all probes as the last switches hand them to the controller, period by period."""
    source = ProbeFrames(topology, probes)
    sent = {link: 0 for probe in probes for link in probe.certain}
    periods = []
    for number in range(PERIODS):
        for link in sent:
            sent[link] += rng.randrange(1_000_000)
        frames = []
        for probe in probes:
            frame = source.frame(probe.index, number)
            stack = b"".join(
                _HOP.pack(
                    topology.switch(link.node).device_id, 1, link.port, 7, 3, (1 + number) * PERIOD_NS, sent[link]
                )
                for link in reversed(probe.certain)
            )
            body = bytearray(frame[_SHIM_AT:_STACK_AT] + stack + frame[_STACK_AT:])
            body[1] += len(stack) // 4
            whole = encapsulate(
                np.frombuffer(bytes(body), np.uint8)[None],
                source=int.from_bytes(frame[_IP_AT + 12 : _IP_AT + 16], "big"),
                destination=int.from_bytes(frame[_IP_AT + 16 : _IP_AT + 20], "big"),
                source_mac=1,
                destination_mac=2,
                source_port=INT_PORT,
                destination_port=INT_PORT,
            )
            frames.append(whole.tobytes())
        periods.append(frames)
    return periods


class _PlainCollector:
    """The same averages by a loop over frames and hops."""

    def __init__(self) -> None:
        self.links: dict[tuple[int, int], dict[str, float]] = {}

    def receive_all(self, periods: Iterable[Iterable[bytes]]) -> None:
        for frames in periods:
            for frame in frames:
                self._receive_frame(frame)

    def _receive_frame(self, frame: bytes) -> None:
        total = sum(struct.unpack_from("!10H", frame, _IP_AT))
        ether_type, version, protocol = struct.unpack_from("!HB8xB", frame, _IP_AT - 2)
        port, length = struct.unpack_from("!2xHH", frame, _UDP_AT)
        words, hop_words = struct.unpack_from("!xB4xB", frame, _SHIM_AT)
        if (ether_type, version, protocol, port) != (0x0800, 0x45, 17, INT_PORT) or total % 0xFFFF:
            return
        end = _STACK_AT + 4 * (words - MD_WORDS)
        if length + _UDP_AT > len(frame) or end > len(frame) or 4 * hop_words != _HOP.size:
            return
        for index in range(end - _HOP.size, _STACK_AT - 1, -_HOP.size):
            node, _, egress, latency, depth, at_ns, sent = _HOP.unpack_from(frame, index)
            self._receive_hop(node, egress, latency, depth & 0xFFFFFF, at_ns, sent)

    def _receive_hop(self, node: int, port: int, latency: int, depth: int, at_ns: int, sent: int) -> None:
        link = self.links.get((node, port))
        if link is None:
            fresh = {"at_ns": at_ns, "sent": sent, "queue": depth, "latency": latency, "rate": 0.0, "rated": 0}
            self.links[node, port] = fresh
            return
        elapsed = at_ns - link["at_ns"]
        if elapsed < PERIOD_NS // 8:
            return
        weight = min(elapsed, 2 * PERIOD_NS) / (2 * PERIOD_NS)
        rate = (sent - link["sent"]) / (elapsed * 1e-9)
        link["rate"] = link["rate"] + weight * (rate - link["rate"]) if link["rated"] else rate
        link["queue"] += weight * (depth - link["queue"])
        link["latency"] += weight * (latency - link["latency"])
        link["at_ns"], link["sent"], link["rated"] = at_ns, sent, 1
