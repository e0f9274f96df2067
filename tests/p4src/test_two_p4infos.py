"""One controller drives the programs for bmv2 and for Tofino: their P4Infos agree except for the differences listed
here.
"""

from __future__ import annotations

from typing import Any

from finsy.proto import p4i
from google.protobuf import text_format

from weir import p4src
from weir.controller.p4runtime.tables import FEATURE, MODELS, TREE
from weir.topologies.targets import BMV2_32, TOFINO, TOFINO_2

MISSING = {
    "FabricEgress.int_events.queue_watch": "the program for Tofino reports no queues,",
    "FabricEgress.int_events.flow_steps": "each watched packet, whatever has changed,",
    "FabricIngress.drop_watch": "and no drops",
    "FabricIngress.aggregation.expand.widths": "the parser has the one width of PRESENT that it takes",
    **dict.fromkeys((MODELS, *FEATURE, *TREE), "fields of packets leave no containers for a sample and its codes"),
}
"""Tables of the program for bmv2 alone, and why."""

DIFFERENT = {
    "FabricIngress.policing.policers": (
        "standard_metadata.ingress_port exact/9, hdr.ipv4.dscp ternary/6, is_message exact/1 "
        "-> FabricIngress.policing.police#12(bucket_index/32) 1024",
        "a bucket's rate and burst are a meter's; the class is known a stage later, so DSCPs are asked, which are one "
        "entry but for the control class's",
    ),
    "FabricEgress.congestion.marking": (
        "standard_metadata.egress_port exact/9 -> FabricEgress.congestion.bound_queue#9"
        "(threshold/19, sojourn/32, window/16, congested_window/16) 512",
        "a virtual queue's rate and burst are a meter's",
    ),
    "FabricEgress.replicas": (
        "standard_metadata.egress_rid exact/16 -> FabricEgress.deliver#8(dst_addr/32, src_mac/48, dst_mac/48) 8192",
        "it sends no DONE, so it need not know the child's bit",
    ),
}
"""Differing entries of the Tofino program's tables, with reasons."""

METERS = {
    "FabricIngress.policing.buckets": (2008, p4i.MeterSpec.BYTES, 1024),
    "FabricEgress.congestion.virtual_queues": (2009, p4i.MeterSpec.BYTES, 512),
}
"""Meters that are registers in the program for bmv2, with the same names and numbers."""


def p4info(program: str) -> Any:
    return text_format.Parse(p4src.p4info_of(program).read_text(), p4i.P4Info())


def described(info: Any) -> dict[str, str]:
    """The tables that a control plane writes, in one line each: key, actions with numbers and parameters, size."""
    actions = {action.preamble.id: action for action in info.actions}
    kinds = {value: name.lower() for name, value in p4i.MatchField.MatchType.items()}
    found = {}
    for table in info.tables:
        if table.is_const_table:
            continue
        assert [field.id for field in table.match_fields] == list(range(1, len(table.match_fields) + 1))
        key = ", ".join(f"{field.name} {kinds[field.match_type]}/{field.bitwidth}" for field in table.match_fields)
        calls = sorted(
            f"{action.preamble.name}#{action.preamble.id & 0xFFFFFF}"
            f"({', '.join(f'{p.name}/{p.bitwidth}' for p in sorted(action.params, key=lambda p: p.id))})"
            for ref in table.action_refs
            if ref.scope != p4i.ActionRef.DEFAULT_ONLY and (action := actions[ref.id]).preamble.name != "NoAction"
        )
        found[table.preamble.name] = f"{key} -> {' | '.join(calls)} {table.size}"
    return found


def numbers(things: Any) -> dict[str, int]:
    return {thing.preamble.name: thing.preamble.id for thing in things}


def test_both_chips_have_the_same_control_plane() -> None:
    assert p4info(TOFINO_2.program) == p4info(TOFINO.program)


def test_tables_are_the_same_but_for_those_listed() -> None:
    bmv2, tofino = p4info(BMV2_32.program), p4info(TOFINO.program)
    theirs, mine = described(bmv2), described(tofino)
    assert theirs.keys() - mine.keys() == MISSING.keys()
    assert not mine.keys() - theirs.keys()
    assert {name: line for name, line in mine.items() if line != theirs[name]} == {
        name: line for name, (line, _) in DIFFERENT.items()
    }
    assert {name: numbers(tofino.tables)[name] for name in mine} == {name: numbers(bmv2.tables)[name] for name in mine}


def test_other_names_of_a_controller_are_the_same() -> None:
    bmv2, tofino = p4info(BMV2_32.program), p4info(TOFINO.program)
    assert list(tofino.controller_packet_metadata) == list(bmv2.controller_packet_metadata)
    assert list(tofino.action_profiles) == list(bmv2.action_profiles)
    assert list(tofino.counters) == list(bmv2.counters)
    assert not bmv2.meters
    assert {
        meter.preamble.name: (meter.preamble.id & 0xFFFFFF, meter.spec.unit, meter.size) for meter in tofino.meters
    } == METERS
    registers = {name: number & 0xFFFFFF for name, number in numbers(bmv2.registers).items()}
    assert {name: registers[name] for name in METERS} == {name: number for name, (number, _, _) in METERS.items()}
    assert not METERS.keys() & numbers(tofino.registers).keys()
