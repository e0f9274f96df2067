"""Wireshark's dissector for aggregation messages, INT and reports: tshark's reading of captures from the emulator
equals the messages sent.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from weir.tests.p4src.int_fabric import NORMAL, Departure, Tree, Watch, tcp_frame, udp_frame
from weir.tests.p4src.test_int_truth import Expected, Packet, run
from weir.tests.paths import ROOT
from weir.wire import int_report, transport
from weir.wire.aggregation import MESSAGE, MessageType, make_tag, set_checksum, version_type
from weir.wire.fields import FIELDS
from weir.wire.frames import encapsulate
from weir.wire.int_report import ReportFlag

LUA: Final = ROOT / "wire" / "weir.lua"

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not on PATH: apt-get install tshark")

WORDS: Final = {
    0: (("node", 4),),
    1: (("ingress_port", 2), ("egress_port", 2)),
    2: (("latency_us", 4),),
    3: (("queue_id", 1), ("queue_packets", 3)),
    4: (("ingress_ns", 8),),
    5: (("egress_ns", 8),),
    6: (("ingress_interface", 4), ("egress_interface", 4)),
    7: (("utilisation", 4),),
    8: (("buffer_id", 1), ("buffer_occupancy", 3)),
    15: (("complement", 4),),
}
"""Data that a node pushes for a bit of the bitmap, by the dissector's names and bytes (INT 2.1, section 5.7)."""
OF_DOMAIN: Final = {0: (("bytes_sent", 8),), 1: (("free_slots", 4),)}


def dissected(frames: list[bytes], folder: Path, *fields: str) -> list[dict[str, list[str]]]:
    """Values of these fields, by frame, each as often as it occurs."""
    from scapy.layers.l2 import Ether
    from scapy.utils import wrpcap

    capture = folder / "capture.pcap"
    wrpcap(str(capture), [Ether(frame) for frame in frames])
    command = ["tshark", "-X", f"lua_script:{LUA}", "-r", str(capture), "-T", "json", "--no-duplicate-keys"]
    done = subprocess.run(
        [*command, *(word for field in fields for word in ("-e", field))],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "Lua" not in done.stderr, done.stderr
    layers = [packet["_source"].get("layers", {}) for packet in json.loads(done.stdout)]
    assert len(layers) == len(frames)
    return layers


def numbers(layers: dict[str, list[str]], field: str) -> list[int]:
    """Flags are said as 0 and 1, or as words."""
    words = {"True": 1, "False": 0}
    return [words[value] if value in words else int(value, 0) for value in layers.get(field, [])]


def stack_of(watch: Watch, expected: Expected) -> dict[str, list[int]]:
    """The fields of a stack, hop by hop, newest first."""
    found: dict[str, list[int]] = {}
    data = expected.stack
    while data:
        baseline, last = watch.instructions & ~1, watch.instructions & 1
        for bits, table in ((baseline, WORDS), (watch.domain_instructions, OF_DOMAIN), (last, WORDS)):
            for bit in range(16):
                if not bits << bit & 0x8000:
                    continue
                for name, size in table.get(bit, (("reserved_metadata", 4),)):
                    found.setdefault(name, []).append(int.from_bytes(data[:size], "big"))
                    data = data[size:]
    return found


def watched_traffic(presence: str, mode: str) -> tuple[Tree, list[Packet], dict[int, list[Departure]]]:
    """A line of three switches, and flows over all of it that ask for all kinds of items."""
    tree = next(
        tree for seed in range(20) if (tree := Tree(np.random.default_rng(seed), 3, presence)).parent == {1: 0, 2: 1}
    )
    hosts = sorted(tree.hosts)
    packets: list[Packet] = []
    for index, (is_tcp, instructions, domain_instructions) in enumerate(
        [(False, 0xFF01, 0xC000), (True, 0xFC80, 0x8001), (False, 0xF000, 0), (True, 0x8000, 0x4000)]
    ):
        watch = Watch(mode, instructions, domain_instructions, hops=1 if index == 2 else 9)
        source, destination = hosts[index % 2], hosts[-1 - index % 2]
        watch.source, watch.source_port = source, 2000 + index
        for number in range(tree.switches) if mode == "xd" else (tree.hosts[source][0],):
            tree.watch(number, watch, index)
        for size in (0, 1, 300):
            ends, number = (source, destination, bytes(number % 251 for number in range(size))), len(packets) + 1
            if is_tcp:
                frame = tcp_frame(*ends, number, source_port=2000 + index, destination_port=80)
            else:
                frame = udp_frame(*ends, number, source_port=2000 + index, destination_port=9)
            packets.append(Packet(frame, source, destination, watch))
    run(tree, packets)
    ways: dict[int, list[Departure]] = {}
    for departure in tree.log:
        if departure.instance_type == NORMAL and departure.packet:
            ways.setdefault(departure.packet, []).append(departure)
    return tree, packets, ways


CASES = [("udp-port", "md"), ("dscp", "md"), ("probe-marker", "md"), ("udp-port", "mx")]


@pytest.mark.parametrize(("presence", "mode"), CASES)
def test_int_on_the_way_is_shown_as_it_was_put_in(presence: str, mode: str, tmp_path: Path) -> None:
    tree, packets, ways = watched_traffic(presence, mode)
    frames, truths = [], []
    for number, way in ways.items():
        packet = packets[number - 1]
        expected = Expected(packet, tree)
        for departure in way[:-1]:
            if mode == "md":
                expected.cross(departure)
            assert packet.watch
            header = {
                "shim.type": [1 if mode == "md" else 3],
                "shim.length": [3 + len(expected.stack) // 4],
                "version": [2],
                "instructions": [packet.watch.instructions],
                "domain_instructions": [packet.watch.domain_instructions],
                "domain": [0x5745],
                "remaining_hops": [expected.remaining] if mode == "md" else [],
                "hops_exceeded": [expected.flags >> 2 & 1] if mode == "md" else [],
                "mtu_exceeded": [expected.flags >> 1 & 1] if mode == "md" else [],
                "marker": [0x5765_6972_2D49_4E54] if presence == "probe-marker" else [],
                "shim.port": [9] if presence == "udp-port" and not packet.is_tcp else [],
                "shim.protocol": [6] if presence == "udp-port" and packet.is_tcp else [],
                "shim.dscp": [0] if presence != "udp-port" else [],
            }
            frames.append(departure.frame)
            truths.append(header | stack_of(packet.watch, expected))
        frames.append(way[-1].frame)  # the sink has taken it out
        truths.append({})
    names = sorted({name for truth in truths for name in truth})
    assert {"node", "queue_packets", "bytes_sent", "free_slots", "shim.type"} <= set(names) or mode == "mx"
    assert any(truth.get("hops_exceeded") == [1] for truth in truths) == (mode == "md")
    shown = dissected(frames, tmp_path, *(f"weir_int.{name}" for name in names))
    for layers, truth in zip(shown, truths, strict=True):
        assert {name: numbers(layers, f"weir_int.{name}") for name in names} == {
            name: truth.get(name, []) for name in names
        }


def test_reports_are_shown_as_the_codec_reads_them(tmp_path: Path) -> None:
    tree, _, _ = watched_traffic("udp-port", "md")
    frames = tree.received["collector"]
    outer = ("version", "hardware_id", "sequence", "node")
    flags = {"dropped": ReportFlag.DROPPED, "congested": ReportFlag.CONGESTED_QUEUE, "flow": ReportFlag.TRACKED_FLOW}
    items = {name for each in (*WORDS.values(), *OF_DOMAIN.values()) for name, _ in each}
    metadata = sorted(items | {"packet_number"})
    wanted = [f"weir_report.{name}" for name in (*outer, *flags, "type", "inner_type")]
    shown = dissected(frames, tmp_path, *wanted, *(f"weir_int.{name}" for name in metadata), "ip.id", "weir_int.hops")
    stacks = 0
    for frame, layers in zip(frames, shown, strict=True):
        group = int_report.decode(frame[42:])
        assert group is not None
        (report,) = group.reports
        assert [numbers(layers, f"weir_report.{name}") for name in outer] == [
            [2],
            [group.hardware_id],
            [group.sequence],
            [group.node_id],
        ]
        assert numbers(layers, "weir_report.type") == [1]
        assert numbers(layers, "weir_report.inner_type") == [4]
        assert {name: numbers(layers, f"weir_report.{name}") for name in flags} == {
            name: [int(bool(report.flags & flag))] for name, flag in flags.items()
        }
        # the report's own metadata come first; behind them those of the stack in the packet that is reported
        for name in metadata:
            values = numbers(layers, f"weir_int.{name}")
            own = [report.metadata[name]] if name in report.metadata else []
            assert values[: len(own)] == own, name
        assert numbers(layers, "ip.id")[1:] == [int.from_bytes(report.inner[4:6], "big")]
        stacks += bool(numbers(layers, "weir_int.hops"))
    assert len(frames) > stacks > 0


def test_aggregation_messages_are_shown_field_by_field(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    message = np.zeros(1, MESSAGE)
    header = message["header"]
    for field in FIELDS:
        header[field.name] = int(rng.integers(1 << 7, 1 << min(field.bits, 31)))
    header["version_type"], header["flags"] = version_type(MessageType.CONTRIBUTION), 3
    header["tag"] = make_tag(77, 123456)
    message["lanes"] = rng.integers(-(2**31), 2**31, 256)
    set_checksum(header)
    frame = encapsulate(
        message.view(np.uint8).reshape(1, -1),
        source=0x0A000001,
        destination=0x0AFF0001,
        source_mac=1,
        destination_mac=2,
    )[0].tobytes()
    truth: dict[str, Any] = {
        **{field.name: [int(header[field.name][0])] for field in FIELDS if not field.parts},
        "version": [1],
        "type": [1],
        "flags.congestion": [1],
        "flags.retransmission": [1],
        "generation": [77],
        "chunk": [123456],
        "lanes": [256],
        "lane": message["lanes"][0].tolist(),
    }
    (layers,) = dissected([frame], tmp_path, *(f"weir_agg.{name}" for name in truth))
    assert {name: numbers(layers, f"weir_agg.{name}") for name in truth} == truth


def test_packets_of_the_transport_are_shown_field_by_field(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    head = np.zeros(1, transport.HEADER)
    for field in transport.FIELDS:
        head[field.name] = int(rng.integers(1 << 6, 1 << min(field.bits, 62)))
    head["version_type"] = transport.VERSION << 4 | transport.PacketType.ACK
    frame = encapsulate(
        head.view(np.uint8).reshape(1, -1),
        source=0x0A000001,
        destination=0x0A000002,
        source_mac=1,
        destination_mac=2,
        source_port=transport.TRANSPORT_PORT,
        destination_port=transport.TRANSPORT_PORT,
    )[0].tobytes()
    truth = {field.name: [int(head[field.name][0])] for field in transport.FIELDS if not field.parts}
    truth |= {"version": [transport.VERSION], "type": [transport.PacketType.ACK]}
    (layers,) = dissected([frame], tmp_path, *(f"weir_p2p.{name}" for name in truth))
    assert {name: numbers(layers, f"weir_p2p.{name}") for name in truth} == truth
