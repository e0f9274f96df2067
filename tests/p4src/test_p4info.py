"""The control-plane interface of docs/design.md §4.2, as P4Info has it."""

from __future__ import annotations

import re
from typing import Any

from finsy.proto import p4i
from google.protobuf import text_format

from weir import p4src
from weir.controller.p4runtime import tables as names
from weir.tests.paths import ROOT
from weir.wire.fields import REDUCED


def p4info() -> Any:
    info = p4i.P4Info()
    text_format.Parse(p4src.FABRIC_P4INFO.read_text(), info)
    return info


def tables() -> dict[str, str]:
    """Each table that a controller writes as `key kind/width, … → action(parameter/width, …) | …`."""
    info = p4info()
    actions = {action.preamble.id: action for action in info.actions}
    kinds = {value: name.lower() for name, value in p4i.MatchField.MatchType.items()}
    found = {}
    for table in info.tables:
        if table.is_const_table:
            continue
        key = ", ".join(f"{field.name} {kinds[field.match_type]}/{field.bitwidth}" for field in table.match_fields)
        calls = [
            f"{action.preamble.name.rsplit('.', 1)[1]}({', '.join(f'{p.name}/{p.bitwidth}' for p in action.params)})"
            for ref in table.action_refs
            if ref.scope != p4i.ActionRef.DEFAULT_ONLY and (action := actions[ref.id]).preamble.name != "NoAction"
        ]
        found[table.preamble.name] = f"{key} → {' | '.join(calls)}"
    return found


def test_tables_keys_actions_and_parameters() -> None:
    job = "hdr.aggregation.job exact/16, hdr.aggregation.generation exact/8"
    where = "standard_metadata.ingress_port exact/9, hdr.ipv4.src_addr exact/32"
    flow = ", ".join(
        (
            "src_addr ternary/32",
            "dst_addr ternary/32",
            "protocol ternary/8",
            "src_port ternary/16",
            "dst_port ternary/16",
        )
    )
    chosen = "entry/10, every/32, instructions/16, domain_instructions/16"
    steps = "depth_threshold/32, depth_step/32, latency_threshold/32, latency_step/32, period/32"
    assert tables() == {
        "FabricIngress.node_address": "hdr.ipv4.dst_addr exact/32 → to_node()",
        "FabricIngress.aggregation.jobs": (
            f"{job} → inner_node(slot_base/32, slots/16, children/32, parent/32, parent_bit/32)"
            " | switch_root(slot_base/32, slots/16, children/32, group/16)"
        ),
        "FabricIngress.aggregation.members": f"{job}, hdr.aggregation.contributors exact/32, {where} → accept()",
        "FabricIngress.aggregation.parents": f"{job}, {where} → replicate(group/16)",
        "FabricIngress.aggregation.expand.widths": "reserved exact/8 → expand() | expand_wide()",
        "FabricIngress.admission.hosts": ("standard_metadata.ingress_port exact/9 → admit(address/32, messages/8)"),
        "FabricIngress.routing.routes": "hdr.ipv4.dst_addr lpm/32 → forward(port/9, src_mac/48, dst_mac/48)",
        "FabricIngress.traffic_class": "hdr.ipv4.dscp exact/6 → set_class(priority/3)",
        "FabricEgress.replicas": (
            "standard_metadata.egress_rid exact/16 → deliver(dst_addr/32, src_mac/48, dst_mac/48, child_bit/32)"
        ),
        "FabricIngress.policing.policers": (
            "standard_metadata.ingress_port exact/9, priority exact/3, is_message exact/1"
            " → police(bucket_index/32, byte_cost/32, burst/64)"
        ),
        "FabricEgress.congestion.marking": (
            "standard_metadata.egress_port exact/9 → bound_queue(threshold/19, sojourn/32, byte_cost/32, backlog/64,"
            " window/16, congested_window/16)"
        ),
        "FabricEgress.probe_sinks": "standard_metadata.egress_port exact/9 → report(session/32)",
        "FabricEgress.telemetry.node": " → identify(node_id/32)",
        "FabricEgress.telemetry.slots": " → tell_free_slots(slots/32)",
        "FabricEgress.telemetry.ingress_names": "ingress_port exact/9 → name_ingress(interface/32)",
        "FabricIngress.marks": "presence exact/2 → recognise()",
        "FabricIngress.edges": "ingress_port exact/9 → clear_mark()",
        "FabricIngress.int_sink.sinks": "dst_addr exact/32 → strip(period/32)",
        "FabricIngress.drop_watch": f"reason ternary/8, {flow} → report_drop() | ignore_drop()",
        "FabricEgress.int_source.watchlist": (
            f"{flow} → embed_md({chosen}, words/5, hops/8, presence/2)"
            f" | embed_mx({chosen}, presence/2) | export_xd({chosen}) | ignore()"
        ),
        "FabricEgress.int_source.links": "egress_port exact/9 → name_link(mtu/16, interface/32, host/1)",
        "FabricEgress.int_events.queue_watch": f"egress_port exact/9, priority exact/3 → watch_queue({steps})",
        "FabricEgress.int_events.flow_steps": f" → set_steps({steps})",
        "FabricEgress.int_reports.destination": (
            " → address(node_id/32, src_mac/48, dst_mac/48, source/32, collector/32, src_port/16, dst_port/16, dscp/6)"
        ),
        names.MODELS: "model exact/32 → serve(in_bank/1, model/32, n_trees/8)",
        **dict.fromkeys(names.FEATURE, "bank exact/1, value range/8 → encode(above/2048)"),
        **dict.fromkeys(names.TREE, "bank exact/1, code ternary/128 → vote(ballot/128)"),
    }


def test_the_designs_table_lists_all_tables_and_actions() -> None:
    section = (ROOT / "docs" / "design.md").read_text().split("\n### 4.2 ")[1].split("\n### ")[0]
    rows = re.findall(r"^\| `(\w+(?:\.\w+)+)` \| .* \| (.*) \|$", section, re.M)
    drawn = {name: re.findall(r"`(\w+\(.*?\))`", calls) for name, calls in rows}
    assert drawn == {
        name: re.sub(r"/\d+", "", line.partition(" → ")[2]).split(" | ")
        for name, line in tables().items()
        if name not in (*names.FEATURE[1:], *names.TREE[1:])
    }


def test_a_controller_has_a_name_for_every_table() -> None:
    own = {name for name in vars(names).values() if isinstance(name, str)}
    assert tables().keys() - own - {*names.FEATURE, *names.TREE} == set()


def test_everything_else_a_controller_names() -> None:
    info = p4info()
    headers = {
        packet.preamble.name: [(field.name, field.bitwidth) for field in packet.metadata]
        for packet in info.controller_packet_metadata
    }
    assert headers == {
        "packet_in": [("ingress_port", 9), ("_pad", 7)],
        "packet_out": [("egress_port", 9), ("_pad", 7)],
    }
    assert [(counter.preamble.name, counter.size) for counter in info.counters] == [
        ("FabricIngress.drops", len(names.DROP_REASONS))
    ]
    assert [(profile.preamble.name, profile.with_selector) for profile in info.action_profiles] == [
        ("FabricIngress.routing.ecmp", True)
    ]
    registers = {register.preamble.name: register.size for register in info.registers}
    lanes = {f"FabricIngress.aggregation.lane_sums.lane_{lane}" for lane in range(256)}
    sums = {f"FabricIngress.aggregation.header_sums.{field.name}" for field in REDUCED}
    slots = {f"FabricIngress.aggregation.slot_{name}" for name in ("round", "contributors", "wanting")}
    assert registers == {
        **dict.fromkeys(lanes | sums | slots, 1024),
        "FabricIngress.policing.buckets": 1024,
        "FabricEgress.congestion.virtual_queues": 512,
        "FabricEgress.telemetry.bytes_sent": 512,
        "FabricEgress.telemetry.port_window": 512,
        "FabricEgress.int_source.samples": 1024,
        "FabricIngress.int_sink.packet_number": 1,
        "FabricEgress.int_reports.report_sequence": 1,
        **dict.fromkeys((f"FabricEgress.int_events.queue_{name}" for name in ("depth", "latency", "time")), 4096),
        **dict.fromkeys((f"FabricEgress.int_events.flow{name}" for name in ("s", "_depth", "_latency")), 4096),
        "FabricIngress.int_sink.sink_flows": 4096,
    }


def test_every_id_is_given_in_the_source_so_that_none_moves() -> None:
    """The kind is in the top byte; `NoAction` is p4c's own."""
    info = p4info()
    files = ("common/interface.p4", "bmv2/classification.p4")
    text = "".join((p4src.ROOT / name).read_text() for name in files)
    given = {name: int(number) for name, number in re.findall(r"^#define (\w+)_ID +(\d+)$", text, re.M)}
    ids = {
        kind: {
            item.preamble.name: item.preamble.id & 0xFFFFFF
            for item in getattr(info, kind)
            if item.preamble.name != "NoAction"
        }
        for kind in ("tables", "actions", "action_profiles", "counters", "registers", "controller_packet_metadata")
    }
    lanes = {f"FabricIngress.aggregation.lane_sums.lane_{lane}": int(f"1{lane}") for lane in range(256)}
    many = {name: int(f"10{number}") for number, name in enumerate(names.FEATURE)}
    many |= {name: int(f"20{number}") for number, name in enumerate(names.TREE)}
    for kind, suffix in (("tables", "_TABLE"), ("actions", "_ACTION"), ("registers", "_REGISTER")):
        numbers = sorted(number for name, number in given.items() if name.endswith(suffix))
        assert len(set(numbers)) == len(numbers), f"two {kind} have one id"
        assert sorted(number for name, number in ids[kind].items() if name not in lanes | many) == numbers
        assert len(set(ids[kind].values())) == len(ids[kind])
    assert {name: ids["registers"][name] for name in lanes} == lanes
    assert {name: ids["tables"][name] for name in many} == many
    assert ids["action_profiles"] == {"FabricIngress.routing.ecmp": given["ECMP_PROFILE"]}
    assert ids["controller_packet_metadata"] == {"packet_in": given["PACKET_IN"], "packet_out": given["PACKET_OUT"]}
    assert ids["counters"] == {"FabricIngress.drops": given["DROPS_COUNTER"]}
    controllers = {
        name.rsplit(".", 1)[1].upper(): number
        for name, number in (ids["tables"] | ids["actions"]).items()
        if name in {f"FabricIngress.aggregation.{table}" for table in ("jobs", "members", "parents", "replicate")}
    }
    assert controllers == {
        "JOBS": given["JOBS_TABLE"],
        "MEMBERS": given["MEMBERS_TABLE"],
        "PARENTS": given["PARENTS_TABLE"],
        "REPLICATE": given["REPLICATE_ACTION"],
    }
