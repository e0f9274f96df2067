"""INT source, transit and sink on bmv2 and on the emulated switch: the same packets, and the controller's entries.

::

    h3 ── s2 (source) ── s3 (transit) ── s1 (sink) ── h1        each of them a pair of both switches; what leaves one
                                                                of them goes into the next, and all reports are compared
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import numpy as np
import pytest
from finsy.p4schema import P4Schema

from weir import p4src
from weir.controller.int_config.settings import TELLING_DROPS, IntConfig, WatchedFlows, WatchMode
from weir.controller.int_config.table_entries import watch_state
from weir.controller.p4runtime.entities import as_entity
from weir.controller.p4runtime.entries import Entry
from weir.controller.planning.plan import base_state
from weir.tests.bmv2.differential import Pair
from weir.tests.bmv2.harness import Compiled, Output, needs_bmv2
from weir.tests.p4src.int_fabric import as_delivered, tcp_frame, udp_frame
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Topology
from weir.topologies.routing import Routes
from weir.wire import int_report
from weir.wire.int_md import DomainInstruction, Instruction
from weir.wire.int_report import REPORT_PORT, ReportFlag, ReportGroup
from weir.wire.int_shim import Presence

pytestmark = [pytest.mark.bmv2, needs_bmv2]

BUILD: Final = p4src.ROOT / "build"


def fabric() -> Topology:
    """Return the fabric. The P4Runtime server of simple_switch_grpc takes no class of a clone."""
    topology = leaf_spine(2, 1, 3)
    switches = (replace(switch, target=replace(switch.target, clone_classes=False)) for switch in topology.switches)
    return replace(topology, switches=tuple(switches))


TOPOLOGY: Final = fabric()
"""h1, h2, h3 at s1; h4, h5, h6 at s2; s3 above both. Hosts are at ports 1 to 3."""
COLLECTORS: Final = {"s1": "h3", "s2": "h6", "s3": "h6"}
"""Behind a port that no watched packet leaves by: bmv2's threads race for the order of reports, and of bytes sent."""
WITHOUT_TIMES: Final = (
    Instruction.NODE_ID
    | Instruction.PORTS
    | Instruction.LEVEL2_PORTS
    | Instruction.BUFFER
    | Instruction.CHECKSUM_COMPLEMENT
)
BYTES_AND_SLOTS: Final = DomainInstruction.BYTES_SENT | DomainInstruction.FREE_SLOTS


def watched_flow(mode: WatchMode, source_port: int, every: int = 1, hops: int = 8) -> WatchedFlows:
    return WatchedFlows(
        mode,
        source_port=(source_port, 0xFFFF),
        every=every,
        instructions=WITHOUT_TIMES,
        domain_instructions=BYTES_AND_SLOTS,
        hops=hops,
    )


def watched(switch: str, presence: Presence) -> IntConfig:
    """Watchlist by the source port: MD, MX, XD, and MD of every third packet with too few hops; others are not
    watched.
    """
    return IntConfig(
        (
            watched_flow(WatchMode.MD, 1000),
            watched_flow(WatchMode.MX, 1001),
            watched_flow(WatchMode.XD, 1002),
            watched_flow(WatchMode.MD, 1003, every=3, hops=1),
        ),
        presence,
        COLLECTORS[switch],
        drops=TELLING_DROPS,
    )


@contextmanager
def node(name: str, presence: Presence) -> Iterator[Pair]:
    """A pair of this switch of the fabric, holding what the controller writes there."""
    routes = Routes(TOPOLOGY)
    states = base_state(TOPOLOGY, routes, name), watch_state(TOPOLOGY, routes, name, watched(name, presence))
    items = [item for state in states for item in state.items.values()]
    schema = P4Schema(BUILD / "fabric.p4info.txtpb")
    with Pair(Compiled.read(BUILD / "fabric.json", BUILD / "fabric.p4info.txtpb"), range(1, 5)) as pair:
        defaults = [item for item in items if isinstance(item, Entry) and item.default]
        pair.insert(*(as_entity(item, schema).encode(schema) for item in items if item not in defaults))
        pair.modify(*(as_entity(item, schema).encode(schema) for item in defaults))
        yield pair


def report_in(frame: bytes) -> ReportGroup | None:
    is_report = frame[23:24] == b"\x11" and frame[36:38] == REPORT_PORT.to_bytes(2, "big")
    return int_report.decode(frame[42:]) if is_report else None


def comparable(output: Output) -> Output:
    """A report without its number, which egress threads race for in bmv2, and without times."""
    group = report_in(output.frame)
    if group is None:
        return output
    (report,) = group.reports
    timeless = {name: 0 if name.endswith("_ns") else value for name, value in report.metadata.items()}
    of_it = (report.flags, report.report_type, report.inner_type, report.domain, tuple(timeless.items()), report.inner)
    return Output(output.port, repr((output.frame[:42], group.node_id, group.hardware_id, of_it)).encode())


def packets(rng: np.random.Generator) -> Iterator[tuple[int, bytes]]:
    """(IPv4 identification, frame): from h4 to h1 and to h5, of both transports, all watched flows and others."""
    source, far, near = (int(TOPOLOGY.host(name).address) for name in ("h4", "h1", "h5"))
    for number in range(1, 121):
        payload = rng.bytes(int(rng.choice([0, 1, 30, 600, 1400, 1440])))
        port = 1000 + int(rng.integers(5))
        if number % 6 == 0 and port == 1003:
            port = 1004  # packets to different ports race for their turn in bmv2
        ends = source, near if number % 6 == 0 else far, payload[:1428], number
        if rng.random() < 0.5:
            yield number, tcp_frame(*ends, source_port=port, destination_port=80)
        else:
            yield number, udp_frame(*ends, checksum=bool(rng.random() < 0.7), source_port=port, destination_port=9)


@pytest.mark.parametrize(
    "presence",
    [
        pytest.param(each, id=each.value, marks=() if each == Presence.UDP_PORT else pytest.mark.long)
        for each in Presence
    ],
)
def test_source_transit_and_sink_do_the_same_to_every_packet(presence: Presence) -> None:
    rng = np.random.default_rng(7)
    sent = dict(packets(rng))
    met: Counter[str] = Counter()
    arriving = [(1, frame) for frame in sent.values()]
    arriving.append((1, udp_frame(int(TOPOLOGY.host("h4").address), 0x0A09_0909, b"to nobody", 999)))
    for name, left in (("s2", 4), ("s3", 1), ("s1", 1)):
        with node(name, presence) as pair:
            outputs = [out for found in pair.compare(arriving, comparable) for out in found]
        for group in filter(None, (report_in(out.frame) for out in outputs)):
            met[f"{name} reports"] += 1
            met["drops"] += bool(group.reports[0].flags & ReportFlag.DROPPED)
        forwarded = [out for out in outputs if out.port == left and report_in(out.frame) is None]
        if name == "s2":
            stayed = [out.frame for out in outputs if out.port == 2]
            assert len(stayed) == 20
        met[f"{name} with INT"] += sum(
            len(out.frame) > len(sent[int.from_bytes(out.frame[18:20])]) for out in forwarded
        )
        arriving = [({"s2": 2, "s3": 4}.get(name, 0), out.frame) for out in forwarded]
    far = [number for number in sent if number % 6]
    assert sorted(frame[14:] for _, frame in arriving) == sorted(as_delivered(sent[number], 3) for number in far)
    assert min(met[f"{name} reports"] for name in ("s1", "s2", "s3")) > 15
    assert min(met["s2 with INT"], met["s3 with INT"]) > 30
    assert (met["s1 with INT"], met["drops"]) == (0, 1)
