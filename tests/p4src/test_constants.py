"""The switch program and the wire agree on every number."""

from __future__ import annotations

import json
import re

import numpy as np

from weir import p4src
from weir.controller.inference import forest
from weir.controller.p4runtime.tables import DROP_REASONS, FEATURE, TREE
from weir.tests.p4src import node_model
from weir.tests.paths import ROOT
from weir.wire import aggregation, classification, frames, int_md
from weir.wire.aggregation import MessageFlag, MessageType
from weir.wire.fields import PARTS, REDUCED


def _constants(name: str) -> dict[str, int]:
    """`const T NAME = value;` and `#define NAME value` of a file in p4src/, where the value is a plain number."""
    text = (p4src.ROOT / name).read_text()
    found = re.findall(r"^const \S+\s+(\w+)\s*=\s*(\w+);", text, re.M) + re.findall(
        r"^#define (\w+) +(\d+)(?: +//.*)?$", text, re.M
    )
    return {key: int(value, 0) for key, value in found}


IDS = _constants("common/ids.p4")
SIZES = _constants("common/sizes.p4")
TARGET = _constants("bmv2/target.p4")
CLASSIFICATION = _constants("bmv2/classification.p4")


def test_message_types_and_flags() -> None:
    assert {kind.name: kind.value for kind in MessageType} == {kind.name: IDS[kind.name] for kind in MessageType}
    assert IDS["AGGREGATION_VERSION"] == aggregation.VERSION
    assert IDS["FLAG_CONGESTION"] == MessageFlag.CONGESTION
    assert IDS["FLAG_LANES"] == MessageFlag.LANES
    assert IDS["FLAG_WANTED"] == MessageFlag.WANTED
    assert 1 << _constants("bmv2/present.p4")["UNIT_SHIFT"] == 4 * aggregation.WIDTH_LANES


def test_drop_reasons() -> None:
    """The program's, its counter's size, the controller's, the design's, and those of the model that judges it."""
    given = {name: index for name, index in IDS.items() if name.startswith("DROP_")}
    assert given == {f"DROP_{name.upper()}": index for index, name in enumerate(DROP_REASONS)}
    assert SIZES["DROP_REASONS"] == len(DROP_REASONS)
    section = (ROOT / "docs" / "design.md").read_text().split("\n### 4.3 ")[1].split("\n### ")[0]
    drawn = re.findall(r"(?:^|· )(\d+) (\w+)", section, re.M)
    assert drawn == [(str(index), name) for index, name in enumerate(DROP_REASONS)]
    assert node_model.DROP_REASONS == DROP_REASONS


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
    assert TARGET["LANES"] == aggregation.LANES
    assert SIZES["ETHERNET_BYTES"] == frames.ETHERNET_BYTES
    assert SIZES["MTU"] == frames.MTU
    assert SIZES["UDP_BYTES_HEADER_ONLY"] == frames.UDP_BYTES + aggregation.HEADER_BYTES
    sizes = (p4src.ROOT / "common/sizes.p4").read_text()
    with_lanes = re.search(r"UDP_BYTES_WITH_LANES\s*= (\d+) \+ 4 \* LANES;", sizes)
    assert with_lanes
    assert int(with_lanes[1]) + 4 * TARGET["LANES"] == frames.UDP_BYTES + aggregation.MESSAGE_BYTES


def test_classification() -> None:
    assert CLASSIFICATION["CLASSIFICATION_PORT"] == classification.CLASSIFICATION_PORT
    assert CLASSIFICATION["UDP_BYTES_CLASSIFICATION"] == frames.UDP_BYTES + classification.MESSAGE_BYTES
    request = classification.pack_requests(np.zeros((1, 1), np.uint8))[0]
    assert CLASSIFICATION["CLASSIFICATION_REQUEST"].to_bytes(4, "big") == request[:4].tobytes()
    statuses = (classification.Status.CLASSIFIED, classification.Status.UNKNOWN_MODEL)
    assert {kind.name: kind.value for kind in statuses} == {kind.name: CLASSIFICATION[kind.name] for kind in statuses}
    assert CLASSIFICATION["CODE_BITS"] == forest.MAX_KEY_BITS
    assert CLASSIFICATION["ALL_CODES"] == forest.MAX_KEY_BITS * forest.MAX_TREES
    assert CLASSIFICATION["ALL_CLASSES"] == CLASSIFICATION["CLASS_BITS"] * forest.MAX_CLASSES
    assert CLASSIFICATION["LEAVES"] == 2 * forest.MAX_LEAVES
    assert CLASSIFICATION["INTERVALS"] >= 2 * forest.MAX_FEATURE_THRESHOLDS
    assert (len(FEATURE), len(TREE)) == (classification.FEATURES, forest.MAX_TREES)


def test_the_compiled_headers_are_the_wires_records() -> None:
    program = json.loads(p4src.FABRIC_JSON.read_text())
    types = {kind["name"]: [(field[0], field[1]) for field in kind["fields"]] for kind in program["header_types"]}
    assert types["aggregation_t"] == [(_p4_name(name), bits) for name, bits in PARTS]
    lanes = [(f"lane_{lane}", 32) for lane in range(aggregation.LANES)]
    assert types["lanes_t"] + types["wide_lanes_t"] == lanes
    assert len(types["lanes_t"]) == TARGET["NARROW_LANES"]
    assert sum(bits for _, bits in types["classification_t"] + types["features_t"]) == 8 * classification.MESSAGE_BYTES
    assert sum(bits for _, bits in types["int_shim_t"] + types["int_md_t"]) == 8 * int_md.INT_HEADER_BYTES
    assert sum(bits for _, bits in types["ipv4_t"]) == 8 * frames.IPV4_BYTES


def test_the_checksum_covers_every_field_but_itself() -> None:
    program = json.loads(p4src.FABRIC_JSON.read_text())
    covered = [_p4_name(name) for name, _ in PARTS if name != "checksum"]
    found = [
        [item["value"][1] for item in calculation["input"]]
        for calculation in program["calculations"]
        if calculation["input"][0]["value"][0] == "aggregation"
    ]
    assert found == [covered] * 2  # verified on arrival, made anew on leaving


def test_a_slot_holds_every_field_that_is_reduced() -> None:
    program = json.loads(p4src.FABRIC_JSON.read_text())
    registers = {
        array["name"].rsplit(".", 1)[1]: (array["bitwidth"], array["size"])
        for array in program["register_arrays"]
        if ".header_sums." in array["name"]
    }
    assert registers == {field.name: (field.bits, SIZES["AGGREGATION_SLOTS"]) for field in REDUCED}


def _p4_name(part: str) -> str:
    """`type` is a word of the language."""
    return "message_type" if part == "type" else part


def test_lane_registers_are_alike_and_may_be_adjacent() -> None:
    program = json.loads(p4src.FABRIC_JSON.read_text())
    lanes = [array for array in program["register_arrays"] if ".lane_sums." in array["name"]]
    assert [array["name"].rsplit(".", 1)[1] for array in lanes] == [f"lane_{lane}" for lane in range(256)]
    assert {(array["size"], array["bitwidth"]) for array in lanes} == {(SIZES["AGGREGATION_SLOTS"], 32)}
