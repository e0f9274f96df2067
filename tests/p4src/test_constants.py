"""The switch program and the wire agree on every number."""

from __future__ import annotations

import json
import re

from weir import p4src
from weir.wire import aggregation, frames, int_md
from weir.wire.aggregation import MessageFlag, MessageType


def _constants(name: str) -> dict[str, int]:
    """`const T NAME = value;` and `#define NAME value` of a file in common/, where the value is a plain number."""
    text = (p4src.ROOT / "common" / name).read_text()
    found = re.findall(r"^const \S+\s+(\w+)\s*=\s*(\w+);", text, re.M) + re.findall(
        r"^#define (\w+) (\d+)$", text, re.M
    )
    return {key: int(value, 0) for key, value in found}


IDS = _constants("ids.p4")
SIZES = _constants("sizes.p4")


def test_message_types_and_flags() -> None:
    assert {kind.name: kind.value for kind in MessageType} == {kind.name: IDS[kind.name] for kind in MessageType}
    assert IDS["AGGREGATION_VERSION"] == aggregation.VERSION
    assert IDS["FLAG_CONGESTION"] == MessageFlag.CONGESTION


def test_ports_and_protocols() -> None:
    assert IDS["AGGREGATION_PORT"] == aggregation.AGGREGATION_PORT
    assert IDS["INT_PORT"] == int_md.INT_PORT
    assert IDS["INT_TYPE_MD"] == int_md.TYPE_MD
    assert IDS["INT_VERSION"] == int_md.INT_VERSION
    assert IDS["INT_DOMAIN"] == int_md.DOMAIN
    assert IDS["ETHERTYPE_IPV4"] == frames.ETHERTYPE_IPV4
    assert IDS["PROTOCOL_UDP"] == frames.PROTOCOL_UDP
    assert IDS["DEFAULT_TTL"] == frames.DEFAULT_TTL


def test_sizes() -> None:
    assert SIZES["LANES"] == aggregation.LANES
    assert SIZES["ETHERNET_BYTES"] == frames.ETHERNET_BYTES
    assert SIZES["MTU"] == frames.MTU
    assert SIZES["UDP_BYTES_HEADER_ONLY"] == frames.UDP_BYTES + aggregation.HEADER_BYTES
    with_lanes = re.search(r"UDP_BYTES_WITH_LANES\s*= 36 \+ 4 \* LANES;", (p4src.ROOT / "common/sizes.p4").read_text())
    assert with_lanes
    assert 36 + 4 * SIZES["LANES"] == frames.UDP_BYTES + aggregation.MESSAGE_BYTES


def test_the_compiled_headers_are_the_wires_records() -> None:
    program = json.loads(p4src.FABRIC_JSON.read_text())
    types = {kind["name"]: [(name, bits) for name, bits, _ in kind["fields"]] for kind in program["header_types"]}
    header = [("version_type", 8), *((name, bits) for name, bits in types["aggregation_t"][2:])]
    merged = [field for field in header if field[0] not in ("generation", "chunk")]
    merged.insert(3, ("tag", 32))
    assert types["aggregation_t"][:2] == [("version", 4), ("message_type", 4)]
    assert types["aggregation_t"][4:6] == [("generation", 8), ("chunk", 24)]
    fields = aggregation.HEADER.fields
    assert fields is not None
    assert merged == [(name, 8 * field[0].itemsize) for name, field in fields.items()]
    assert types["lanes_t"] == [(f"lane_{lane}", 32) for lane in range(aggregation.LANES)]
    assert sum(bits for _, bits in types["int_shim_t"] + types["int_md_t"]) == 8 * int_md.INT_HEADER_BYTES
    assert sum(bits for _, bits in types["ipv4_t"]) == 8 * frames.IPV4_BYTES


def test_lane_registers_are_alike_so_that_they_may_lie_side_by_side() -> None:
    program = json.loads(p4src.FABRIC_JSON.read_text())
    lanes = [array for array in program["register_arrays"] if ".lane_sums." in array["name"]]
    assert [array["name"].rsplit(".", 1)[1] for array in lanes] == [f"lane_{lane}" for lane in range(256)]
    assert {(array["size"], array["bitwidth"]) for array in lanes} == {(SIZES["AGGREGATION_SLOTS"], 32)}
