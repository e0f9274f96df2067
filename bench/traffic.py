"""Traffic of the benchmarks: small packets to forward, and gradient contributions to sum; and the entries for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import finsy as fy
import numpy as np
from numpy.typing import NDArray

from weir.bench.driver import OUT_PORT
from weir.controller.inference.forest import Forest
from weir.controller.inference.table_entries import model_state
from weir.controller.p4runtime.entries import Entry
from weir.wire.aggregation import LANES, MESSAGE, MessageType, linear_check, make_tag, set_checksum, version_type
from weir.wire.classification import CLASSIFICATION_PORT, pack_requests
from weir.wire.frames import encapsulate

ROUNDS: Final = 1024
PHASES: Final = 4
GENERATIONS: Final = range(1, 1 + PHASES)
"""Generations of the job, one for each phase."""
SWITCH_ADDRESS: Final = 0x0AFF0001
HOST_ADDRESS: Final = 0x0A000101
PARENT: Final = HOST_ADDRESS + 9
JOB: Final = 7
SMALL_PAYLOAD: Final = 22
"""Makes frames of 64 bytes."""

_NETWORK: Final = "10.0.2.0/24"
_AGGREGATION: Final = "FabricIngress.aggregation"


def small_packets() -> dict[int, NDArray[np.uint8]]:
    """64-byte frames of 4096 flows to 256 hosts, at port 1."""
    count = PHASES * ROUNDS
    return {
        1: encapsulate(
            np.zeros((count, SMALL_PAYLOAD), np.uint8),
            source=HOST_ADDRESS,
            destination=0x0A000200 + np.arange(count) % 256,
            source_mac=2,
            destination_mac=1,
            source_port=1000 + np.arange(count),
            destination_port=9,
        )
    }


def contributions(rounds: int = ROUNDS) -> dict[int, NDArray[np.uint8]]:
    """Contributions of two children, by port. A switch sums each pair; the parent's address leads to the port out.

    They cover four generations of the job, all of which the switch knows. The slots of the next phase always hold
    another generation's rounds, so that no packet is late however often all are sent.
    """
    count = PHASES * rounds
    rng = np.random.default_rng(1)
    frames = {}
    for child in range(2):
        messages = np.zeros(count, MESSAGE)
        header = messages["header"]
        messages["lanes"] = rng.integers(-(1 << 20), 1 << 20, (count, LANES))
        header["version_type"] = version_type(MessageType.CONTRIBUTION)
        header["job"] = JOB
        header["tag"] = np.concatenate([make_tag(generation, np.arange(rounds)) for generation in GENERATIONS])
        header["contributors"] = 1 << child
        header["slot"] = np.arange(count) % rounds
        header["window"] = 0xFFFF
        header["weight"] = 1
        header["check"] = linear_check(messages["lanes"], header["weight"])
        set_checksum(header)
        frames[1 + child] = encapsulate(
            messages.view(np.uint8).reshape(count, -1),
            source=HOST_ADDRESS + child,
            destination=SWITCH_ADDRESS,
            source_mac=2,
            destination_mac=1,
        )
    return frames


def fabric_entries() -> list[fy.P4TableEntry]:
    """Entries for `fabric.p4`: routes for the small packets, and a job of two children at ports 1 and 2."""
    entries = [
        _fabric_route(_NETWORK),
        _fabric_route(f"10.0.1.{PARENT & 0xFF}/32"),
        _entry("FabricIngress.node_address", {"hdr.ipv4.dst_addr": SWITCH_ADDRESS}, "FabricIngress.to_node"),
    ]
    room = {"slot_base": 0, "slots": ROUNDS, "children": 0b11, "parent": PARENT, "parent_bit": 1}
    for generation in GENERATIONS:
        now = {"hdr.aggregation.job": JOB, "hdr.aggregation.generation": generation}
        entries.append(_entry(f"{_AGGREGATION}.jobs", now, f"{_AGGREGATION}.inner_node", **room))
        for child in range(2):
            member = {
                **now,
                "hdr.aggregation.contributors": 1 << child,
                "standard_metadata.ingress_port": 1 + child,
                "hdr.ipv4.src_addr": HOST_ADDRESS + child,
            }
            entries.append(_entry(f"{_AGGREGATION}.members", member, f"{_AGGREGATION}.accept"))
    return entries


def requests(samples: NDArray[np.uint8]) -> dict[int, NDArray[np.uint8]]:
    """Requests for the classes of samples (n, features) at port 1, round and round. Answers leave through OUT_PORT."""
    count = PHASES * ROUNDS
    return {
        1: encapsulate(
            pack_requests(samples[np.arange(count) % len(samples)]),
            source=HOST_ADDRESS,
            destination=SWITCH_ADDRESS,
            source_mac=2,
            destination_mac=1,
            destination_port=CLASSIFICATION_PORT,
        )
    }


def model_entries(forest: Forest) -> list[fy.P4TableEntry]:
    """Entries by which `fabric.p4` classifies, and the way of the answers."""
    entries = [_fabric_route(f"10.0.1.{HOST_ADDRESS & 0xFF}/32")]
    for item in model_state(forest, 0).items.values():
        assert isinstance(item, Entry)
        (action,) = item.calls
        call = fy.P4TableAction(action.action, **dict(action.args))
        match = fy.P4TableMatch(dict(item.match))
        entries.append(fy.P4TableEntry(item.table, match=match, action=call, priority=item.priority))
    return entries


def router_entries() -> list[fy.P4TableEntry]:
    """Entries for `programs/l3.p4`: a route for the small packets."""
    prefix = {"hdr.ipv4.dst_addr": _NETWORK}
    return [_entry("RouterIngress.routes", prefix, "RouterIngress.forward", port=OUT_PORT, src_mac=1, dst_mac=2)]


def _fabric_route(prefix: str) -> fy.P4TableEntry:
    forward = fy.P4TableAction("FabricIngress.routing.forward", port=OUT_PORT, src_mac=1, dst_mac=2)
    match = fy.P4TableMatch({"hdr.ipv4.dst_addr": prefix})
    return fy.P4TableEntry("FabricIngress.routing.routes", match=match, action=fy.P4IndirectAction([(1, forward)]))


def _entry(table: str, match: Mapping[str, Any], action: str, **params: int) -> fy.P4TableEntry:
    return fy.P4TableEntry(table, match=fy.P4TableMatch(match), action=fy.P4TableAction(action, **params))
