"""The program for Tofino: p4c's front and mid end accept it as TNA, and it equals the one for bmv2, packet by packet.

Runs if p4test is on PATH; further errors of the compiler for the chip are not covered.
"""

from __future__ import annotations

import difflib
import itertools
import random
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

from weir import p4src
from weir.tests.p4src.node_model import internet_checksum
from weir.tests.p4src.program_mutants import (
    STACK_INNER_BYTES,
    end_int_as_a_chip_does,
    give_bulk_the_lowest_class,
    keep_what_does_not_fit_out,
    let_any_later_round_take_the_slot,
    push_nothing_where_ones_are_asked_for,
    put_no_int_into_messages,
    report_latency_in_nanoseconds,
    report_no_names,
    rewritten,
    send_no_done,
    tell_latency_in_nanoseconds,
    tell_no_utilisation,
    wrap_no_segments,
)
from weir.tests.p4src.queued_node import QueuedNode
from weir.tests.p4src.small_fabric import (
    PARENT,
    PARENT_PORT,
    ROOT,
    SLOTS,
    STRANGER,
    STRANGER_PORT,
    WORKERS,
    message,
    packet,
    tables,
)
from weir.tests.p4src.tna_node import RECIRCULATION, TnaNode
from weir.tests.p4src.tna_program import Program, controlled, flattened, mutated
from weir.tests.p4src.tofino_traffic import (
    FILLED_OF_THE_DOMAIN,
    MARKER,
    Traffic,
    busy_tables,
    compared_with,
    report_destination,
    rows_of_int,
    watchlist,
    with_ecn,
)
from weir.topologies.targets import BMV2_32, TOFINO
from weir.wire import int_md, int_report

ABSENT = {"out_of_window"}
"""Drop reasons of the program for bmv2 alone: a rule that a chip's register has no comparison left for
(docs/tofino.md)."""


COLLECTOR = (1, 2, 3, 4, 5, 6, 7, 8)
"""Address parameters of reports."""
BEFORE_THE_CARRY = (1, 10)
BYTES_BEFORE = 2**32 - 3000
"""Initial value of a port's low half, which overflows after some packets"""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("p4test") is None:
        pytest.skip("p4test (of p4c) is not on PATH")
    return flattened(tmp_path_factory.mktemp("p4test"))


def test_the_program_run_here_has_the_described_control_plane(text: str) -> None:
    info = text_format.Parse(p4src.p4info_of(TOFINO.program).read_text(), p4i.P4Info())
    program = Program(text)
    assert {table.name: table.id for table in controlled(program)} == {
        table.preamble.name: table.preamble.id & 0xFFFFFF for table in info.tables if not table.is_const_table
    }
    assert program.meters.keys() == {meter.preamble.name for meter in info.meters}


OF_ONE_CHIP = {
    1: (
        "bit<10> session;",
        "bit<10> session;",
        "packet.advance(32w64);",  # over what the chip puts in front of a packet
        "meta.session = 10w0;",
        "9w320: parse_packet_out;",
        "9w68 &&& 9w0x7f: parse_again;",
        "if (ig_dprsr_md.mirror_type == 3w3) {",
        "meta.session = 10w0;",
        "(default, 9w320): parse_for_cpu;",
        "Mirror(3w1) finished_probe;",
        "Mirror(3w2) report;",
        "if (eg_dprsr_md.mirror_type == 3w1) {",
        "if (eg_dprsr_md.mirror_type == 3w2) {",
        "ig_tm_md.ucast_egress_port = ig_intr_md.ingress_port[8:7] ++ 7w68;",
        "ig_dprsr_md.mirror_type = 3w3;",
        "meta.session = 10w249;",
        "ig_tm_md.qid = (bit<5>)priority;",
        "ig_tm_md.ucast_egress_port = 9w320;",
        "meta.session = 10w250;",
        "eg_dprsr_md.mirror_type = 3w2;",
        "meta.session = 10w250;",
        "eg_dprsr_md.mirror_type = 3w2;",
        "eg_dprsr_md.mirror_type = 3w1;",
        "meta.session = (bit<10>)session;",
        "if (eg_intr_md.egress_port == 9w320) {",
    ),
    2: (
        "bit<8> session;",
        "bit<8> session;",
        "packet.advance(32w192);",
        "meta.session = 8w0;",
        "9w0: parse_packet_out;",
        "9w6 &&& 9w0x7f: parse_again;",
        "if (ig_dprsr_md.mirror_type == 4w3) {",
        "meta.session = 8w0;",
        "(default, 9w0): parse_for_cpu;",
        "Mirror(4w1) finished_probe;",
        "Mirror(4w2) report;",
        "if (eg_dprsr_md.mirror_type == 4w1) {",
        "if (eg_dprsr_md.mirror_type == 4w2) {",
        "ig_tm_md.ucast_egress_port = ig_intr_md.ingress_port[8:7] ++ 7w6;",
        "ig_dprsr_md.mirror_type = 4w3;",
        "meta.session = 8w249;",
        "ig_tm_md.qid = (bit<7>)priority;",
        "ig_tm_md.ucast_egress_port = 9w0;",
        "meta.session = 8w250;",
        "eg_dprsr_md.mirror_type = 4w2;",
        "eg_dprsr_md.mirror_io_select = 1w1;",
        "meta.session = 8w250;",
        "eg_dprsr_md.mirror_type = 4w2;",
        "eg_dprsr_md.mirror_io_select = 1w1;",
        "eg_dprsr_md.mirror_type = 4w1;",
        "eg_dprsr_md.mirror_io_select = 1w1;",
        "meta.session = (bit<8>)session;",
        "if (eg_intr_md.egress_port == 9w0) {",
    ),
}
"""Ends of lines that the program for one Tofino has and the other lacks, in the order of the text."""


def test_programs_for_both_chips_differ_only_in_numbers(text: str, tmp_path: Path) -> None:
    def own_lines(text: str) -> list[str]:
        """Lines without annotations for the back end and without p4c's new numbers."""
        text = re.sub(r"@pa_(byte|no)_pack\(.*?\) |#include.*", "", text)
        return [re.sub(r"_\d+\b", "", " ".join(line.split())) for line in text.splitlines()]

    alone: dict[int, list[str]] = {1: [], 2: []}
    for line in difflib.ndiff(own_lines(text), own_lines(flattened(tmp_path, 2))):
        if line[0] in "-+" and line[1:].strip():
            alone[1 if line[0] == "-" else 2].append(line)
    for chip, endings in OF_ONE_CHIP.items():
        unlike = [
            pair for pair in itertools.zip_longest(alone[chip], endings, fillvalue="?") if not pair[0].endswith(pair[1])
        ]
        assert not unlike, f"Tofino {chip}: {unlike}"


@cache
def program_of_bmv2() -> bytes:
    """The one for bmv2, without the rule that a chip has no room for, with virtual queues that are meters, and with a
    chip's clock.
    """

    def as_on_a_chip(program: Any) -> None:
        let_any_later_round_take_the_slot(program)
        keep_what_does_not_fit_out(program)
        tell_latency_in_nanoseconds(program)
        send_no_done(program)
        tell_no_utilisation(program)
        report_latency_in_nanoseconds(program)
        report_no_names(program)
        push_nothing_where_ones_are_asked_for(program)
        put_no_int_into_messages(program)
        wrap_no_segments(program)
        end_int_as_a_chip_does(program)
        give_bulk_the_lowest_class(program)

    return rewritten(as_on_a_chip, p4src.json_of(BMV2_32.program))


def compared(seed: int, text: str, packets: int) -> TnaNode:
    """Run a sequence through both; the node of the program for Tofino."""
    traffic = Traffic(seed)
    configured = busy_tables(traffic.rng)
    chip = TnaNode(Program(text), configured)
    bmv2 = QueuedNode(configured, program_of_bmv2())
    for row in rows_of_int(traffic.rng):
        chip.write(*row)
        bmv2.write(*row)
    reports_leave_by, address = report_destination(traffic.rng)
    watched = watchlist(traffic.rng)
    chip.report_to(reports_leave_by)
    if address:  # without one the program for bmv2 lets a clone leave as it is, so a controller gives it no session
        bmv2.report_to(reports_leave_by)
    for node in (chip, bmv2):
        if address:
            node.write("FabricEgress.int_reports.destination", (), "FabricEgress.int_reports.address", address)
        for rank, (match, action, params) in enumerate(watched):
            node.watch(match, 1000 - rank, f"FabricEgress.int_source.{action}", params)
    for port in BEFORE_THE_CARRY:
        chip.set_bytes_sent(port, BYTES_BEFORE)
        bmv2.state.registers["FabricEgress.telemetry.bytes_sent"].values[port] = BYTES_BEFORE
    for number in range(packets):
        frame, port = traffic.next()
        chip.queue = bmv2.queue = traffic.queue
        expected, got = bmv2.forward(frame, port, traffic.now_us), chip.forward(frame, port, traffic.now_us)
        met = f"seed {seed}, packet {number} at port {port}: {frame.hex()}"
        assert sorted(map(compared_with, got)) == sorted(map(compared_with, expected)), met
    assert chip.drops == bmv2.drops, f"seed {seed}"
    assert chip.bytes_sent == bmv2.bytes_sent, f"seed {seed}"
    return chip


@pytest.mark.parametrize("seed", range(3))
def test_it_does_as_the_program_for_bmv2(text: str, seed: int) -> None:
    chip = compared(seed, text, 600)
    assert chip.second_passes > 10
    assert sum(chip.drops.values()) < 250, "the traffic should be mostly good"


def test_the_traffic_meets_every_reason_to_drop(text: str) -> None:
    drops = compared(98, text, 1200).drops
    assert {reason for reason, count in drops.items() if not count} == ABSENT


@pytest.mark.parametrize("bit", range(16))
def test_a_hop_that_cannot_fill_a_domain_item_pushes_nothing(text: str, bit: int) -> None:
    """A chip has no room for runs of ones for all that the domain may ask for one day."""
    domain_bitmap = 0x8000 >> bit
    probe = int_md.probe_frame(
        source=PARENT, destination=STRANGER, source_mac=1, destination_mac=2, domain_instructions=domain_bitmap
    )
    [(port, left)] = TnaNode(Program(text), tables()).forward(probe, PARENT_PORT)
    assert port == STRANGER_PORT
    probes = int_md.parse_frames([left])
    assert len(probes.hops) == (domain_bitmap in FILLED_OF_THE_DOMAIN)
    assert not probes.records["hop_limit_exceeded"][0]
    assert not probes.records["mtu_exceeded"][0]


@pytest.mark.parametrize("dscp", [0, 1])
@pytest.mark.parametrize("behind", range(0, 32, 4))
def test_a_marked_segment_has_int_only_if_there_is_room(text: str, behind: int, dscp: int) -> None:
    """The TCP segment has this many bytes of marker, shim and INT-MD behind its header."""
    int_headers = MARKER + bytes([0x10, 3, 0, 0, 0x20]) + bytes(19)
    body = bytes(12) + int_headers[:behind]
    frame = bytearray(packet(body, PARENT, STRANGER, destination_port=9, dscp=dscp))
    frame[23] = 6
    segment = with_ecn(bytes(frame), 0)
    chip, bmv2 = TnaNode(Program(text), tables()), QueuedNode(tables(), program_of_bmv2())
    assert chip.forward(segment, PARENT_PORT) == bmv2.forward(segment, PARENT_PORT)
    assert chip.drops == bmv2.drops


def test_int_comes_off_as_it_was_put_on(text: str) -> None:
    take_int_out_again(text)


def test_a_recirculated_packets_report_names_its_port(text: str) -> None:
    chip = TnaNode(Program(text), tables())
    chip.report_to(PARENT_PORT)
    chip.write("FabricEgress.int_reports.destination", (), "FabricEgress.int_reports.address", COLLECTOR)
    chip.watch(((0, 0),) * 5, 1, "FabricEgress.int_source.export_xd", (1, 1, 0x4000, 0))
    for worker in range(3):
        payload = message(lanes=1, width=32, job=ROOT, contributors=1 << worker)
        sent = chip.forward(packet(payload, WORKERS[worker]), worker)
    ports = [frame[62:66] for port, frame in sent if port == PARENT_PORT]
    assert ports == [RECIRCULATION.to_bytes(2) + worker.to_bytes(2) for worker in range(3)]


LANES = "aggregation_lane_sums_lane"
BROKEN = {
    "a later chunk is taken for the same": ("(int<32>)(meta.chunk - held.chunk) > 32s0", "false"),
    "jobs and generations share a slot": ("held.who != meta.who || ", ""),
    "a newer round keeps the former one's children": ("held.bits = meta.child;", "held.bits = held.bits | meta.child;"),
    "an older round has the children of the slot": (" before = 32w0;", " before = held.bits;"),
    "the packet's round is complete without the others": (
        "meta.missing = meta.other_children & ~meta.children;",
        "meta.missing = 32w0;",
    ),
    "PRESENT of other widths is taken": (
        "(4w1, 4w8, 16w36, 8w1): accept_lanes;",
        "(4w1, 4w8, 16w36, default): accept_lanes;",
    ),
    "PRESENT adds what the lanes' storage has": ("hdr.lanes.lane_5 = 32w0;", ""),
    "what goes to the parent stays PRESENT": (
        "4w8 : length_lengthen_0(4w1);",
        "4w8 : length_lengthen_0(4w8);",
    ),
    "PRESENT goes up without the others' lanes": ("hdr.aggregation.flags & 8w0x4 == 8w0", "true"),
    "PRESENT goes up with lanes that nobody has added": ("hdr.aggregation.flags & 8w0x4 == 8w0", "false"),
    "PRESENT is short when it has been around": ("meta.bridged.expanded = 1w1;\n        transition", "transition"),
    "a message that others sum is lengthened": (
        "if (hdr.aggregation.isValid() && meta.bridged.expanded == 1w1) {",
        "if (hdr.aggregation.isValid()) {",
    ),
    "a round that PRESENT completes says how many lanes it would have": ("hdr.aggregation.reserved = 8w0;", ""),
    "a host sends PRESENT though no contributions": ("(4w8, 8w2 &&& 8w2) : admission_refuse_0(8w15);", ""),
    "what is asked for again goes to all": ("aggregation_go_around_0(1w1);", "aggregation_go_around_0(1w0);"),
    "half a sum leaves": ("aggregation_go_around_0(1w0);", "aggregation_to_parent_0();"),
    "a child that asks again is added": (
        f"(2w1, 1w0, 32w4 &&& 32w4, 32w4 &&& 32w4) : {LANES}_0_replay_0();",
        f"(2w1, 1w0, 32w4 &&& 32w4, 32w4 &&& 32w4) : {LANES}_0_add_0();",
    ),
    "the second half of a pair is the first": (
        f"hdr.lanes.lane_31 = {LANES}_30_rest_of_pair",
        f"hdr.lanes.lane_31 = {LANES}_30_replay_pair",
    ),
    "the second half is not added": (
        "held.check = held.check + hdr.aggregation.check;",
        "held.check = hdr.aggregation.check;",
    ),
    "the window is the largest": ("held.window = min<bit<16>>(", "held.window = max<bit<16>>("),
    "the exponent is the last": (
        "held.exponent = max<bit<16>>(held.exponent, meta.exponent);",
        "held.exponent = meta.exponent;",
    ),
    "a host sends in another's name": ("meta.other_source = hdr.ipv4.src_addr ^ address;", "meta.other_source = 32w0;"),
    "a host sends any message": ("meta.barred = ~messages;", "meta.barred = 8w0;"),
    "messages come from any port": ("meta.src_port != 16w22341", "false"),
    "a host sends as fast as it likes": ("meta.color = policing_buckets.execute(bucket_index);", ""),
    "what is policed is summed": (" && meta.mine && meta.color != 8w3", " && meta.mine"),
    "what is damaged is summed": (
        "!meta.aggregation_damaged && hdr.aggregation.isValid()",
        "hdr.aggregation.isValid()",
    ),
    "what is another node's is summed": (" && meta.mine && meta.color", " && meta.color"),
    "who is no member contributes": ("} else if (meta.is_member) {", "} else if (true) {"),
    "a job's slots have no end": ("if (meta.slots_left == 16w0)", "if (false)"),
    "anybody hands results down": ("} else if (meta.is_parent) {", "} else if (true) {"),
    "what is damaged takes from its bucket": (
        "!meta.ipv4_damaged && !meta.aggregation_damaged && hdr.ipv4.isValid()",
        "hdr.ipv4.isValid()",
    ),
    "a queue without a bound lowers windows": (
        "if (meta.bounded && hdr.aggregation.isValid())",
        "if (hdr.aggregation.isValid())",
    ),
    "a queue without a bound marks": ("if (meta.bounded) {\n", "if (true) {\n"),
    "the control class is marked": ("meta.bridged.priority == 8w0", "true"),
    "the depth is not asked": ("meta.depth_left = meta.depth_left |-| meta.depth;", ""),
    "a queue at its threshold is below it": (
        "meta.depth_left = 13w0 ++ threshold;",
        "meta.depth_left = (13w0 ++ threshold) + 32w5;",
    ),
    "the wait is not asked": ("meta.sojourn_left = meta.sojourn_left |-| meta.waited;", ""),
    "the virtual queue is not asked": ("(default, default, 8w3) : congestion_congest_0();", ""),
    "a full queue allows as much as an empty one": ("meta.window_limit = meta.congested_limit;", ""),
    "a queue raises the window": (
        "hdr.aggregation.window = min<bit<16>>(hdr.aggregation.window, meta.window_limit);",
        "hdr.aggregation.window = meta.window_limit;",
    ),
    "a message whose window is limited keeps its UDP checksum": (
        "hdr.aggregation.window, meta.window_limit);\n        hdr.udp.checksum = 16w0;",
        "hdr.aggregation.window, meta.window_limit);",
    ),
    "a message is not marked": ("hdr.aggregation.flags = hdr.aggregation.flags | 8w0x1;", ""),
    "what knows no ECN is marked and what knows it is not": ("2w0 : NoAction", "2w1 : NoAction"),
    "E is not set": ("hdr.int_md.hop_limit_exceeded = 1w1;", ""),
    "M is not set": ("hdr.int_md.mtu_exceeded = 1w1;", ""),
    "a hop does not count": ("hdr.int_md.remaining_hops = hdr.int_md.remaining_hops + 8w255;", ""),
    "a hop pushes what hop ML does not allow": ("meta.mismatch = meta.words ^ meta.hop_words;", ""),
    "a stack grows beyond what the shim can count": (
        "8w0, 8w0, 16w0) : room_grow_0();",
        "8w0, default, 16w0) : room_grow_0();",
    ),
    "links have no MTU": ("meta.beyond_mtu = meta.beyond_mtu |-| meta.mtu;", "meta.beyond_mtu = 16w0;"),
    "a length counts once in UDP's checksum": (
        "meta.grown_twice = meta.grown_twice + meta.twice_growth;",
        "meta.grown_twice = meta.grown_twice + meta.growth;",
    ),
    "a length does not count in TCP's checksum": ("meta.grown = meta.grown + meta.growth;", ""),
    "a datagram without a checksum gets one": ("hdr.udp.checksum != 16w0", "true"),
    "the high half of a port's bytes stays": ("held.wraps = held.wraps + 32w1;", ""),
    "a finished probe counts as sent": ("            meta.leaves = false;", "            meta.leaves = true;"),
    "ones are pushed where no item is known": (
        "(4w2, 8w0, default, default, 8w0, 8w0, 16w0) : room_grow_0();",
        "(4w2, default, default, default, 8w0, 8w0, 16w0) : room_grow_0();",
    ),
    "every packet is chosen": ("meta.skipped = int_source_count_skipped.execute(meta.sampler);", ""),
    "one more is left out between two": ("held >= meta.one_in_less_1", "held > meta.one_in_less_1"),
    "fragments are watched": (
        "(13w0, 1w0, 8w17): parse_udp_alone;\n            (13w0, 1w0, 8w6): parse_tcp_alone;",
        "(13w0, default, 8w17): parse_udp_alone;\n            (13w0, 1w0, 8w6): parse_tcp_alone;",
    ),
    "INT goes into messages": (
        "(default, 16w0, default, true, default, default, default, default, default) : encapsulation_export",
        "(default, 16w0, 1w1, true, default, default, default, default, default) : encapsulation_export",
    ),
    "INT goes to hosts": (
        "(default, 16w0, 1w1, default, default, default, default, default, default) : encapsulation_export",
        "(default, 16w0, 1w1, true, default, default, default, default, default) : encapsulation_export",
    ),
    "INT goes where there is no room for its headers": (
        "(2w1, 16w0, default, default, 2w1, true, default, 16w0, default) : encapsulation_rewrite_port_0(4w1);",
        "(2w1, 16w0, default, default, 2w1, true, default, default, default) : encapsulation_rewrite_port_0(4w1);",
    ),
    "a marker is forgotten where there is room for the other headers": (
        "(2w1, 16w0, default, default, 2w3, true, default, default, 16w0) : encapsulation_insert_marker_0(4w1);",
        "(2w1, 16w0, default, default, 2w3, true, default, 16w0, default) : encapsulation_insert_marker_0(4w1);",
    ),
    "a packet that has INT-MX is not reported": (
        "meta.wanted == 2w3 || hdr.int_md.isValid()",
        "meta.wanted == 2w3",
    ),
    "a watched packet is not reported": (
        "meta.wanted == 2w3 || hdr.int_md.isValid()",
        "hdr.int_md.isValid()",
    ),
    "what ends here is reported": ("} else if (meta.leaves) {", "} else if (true) {"),
    "a report says more than it has": ("meta.asked = meta.asked & 16w0x7c00;", ""),
    "a report has an item that nobody wants": ("hdr.int_latency.setInvalid();", ""),
    "a report counts nothing of the packet": (
        "meta.report_bytes = meta.report_bytes + bytes;",
        "",
    ),
    "a report takes more of the packet than its mirror does": (
        "meta.inner_bytes = min<bit<16>>(meta.inner_bytes, 16w64);",
        "meta.inner_bytes = min<bit<16>>(meta.inner_bytes, 16w68);",
    ),
    "reports have no numbers": ("meta.sequence = int_reports_next_in_sequence.execute(1w0);", ""),
    "a report that leaves is not counted in its port's bytes": ("tbl_leave.apply();", ""),
    "a report that goes nowhere is sent": ("tbl_end.apply();", ""),
    "a checksum does not cover INT-MX": (" || meta.wanted == 2w2 || meta.bridged", " || meta.bridged"),
    "a checksum covers INT-MX that came off": (" || meta.bridged.ends == 1w1)) {", ")) {"),
    "the next hop does not see the mark": ("hdr.ipv4.dscp = hdr.ipv4.dscp | 6w0x1;", ""),
    "INT of another way is INT": (
        "        meta.mark = 2w0;\n        meta.has_int = false;\n        meta.stacks = false;\n    }",
        "    }",
    ),
    "a message that reads as INT passes": ("meta.mark == 2w0 && hdr.int_shim.isValid()", "false"),
    "INT is not taken out": ("meta.bridged.ends = 1w1;", ""),
    "a stack stays": (
        "default: parse_ending_md_behind_udp;",
        "default: parse_int_md;",
    ),
    "a stack's last word stays": (
        "{f0 = meta.stack_word_2.word});\n        transition pass_over_1;",
        "{f0 = meta.stack_word_2.word});\n        transition accept;",
    ),
    "a datagram's length counts the stack that came off": ("hdr.udp.length = hdr.udp.length + growth_6;", ""),
    "a packet's length counts the stack that came off": (
        "meta.grown = growth_of_sum;",
        "meta.grown = growth_of_sum; hdr.ipv4.total_length = hdr.ipv4.total_length - growth_2;",
    ),
    "a checksum covers the stack that came off": (
        "l4_checksum_0.subtract<tuple_6>((tuple_6){f0 = meta.stack_word_3.word});",
        "",
    ),
    "a datagram's checksum covers its length with a stack": (
        "meta.grown_twice = growth_of_sum_2;",
        "meta.grown_twice = 16w65535;",
    ),
    "a hop pushes where INT ends": (
        "hdr.int_shim.shim_type == 4w1 && meta.bridged.ends == 1w0",
        "hdr.int_shim.shim_type == 4w1",
    ),
    "a stack is not reported": ("ig_dprsr_md.mirror_type = 3w3;", ""),
    "INT-MX without words is reported as a stack": (
        "(false, 8w3, default, default) : NoAction_30();",
        "",
    ),
    "INT-MX with words is not reported as a stack": (
        "(false, 8w3, default, default) : NoAction_30();",
        "(false, default, default, default) : NoAction_30();",
    ),
    "INT-MD without a stack is not reported as one": (
        "(false, 8w3, default, default) : NoAction_30();",
        "(default, 8w3, default, default) : NoAction_30();",
    ),
    "the stack in a report is cut short": (
        "meta.inner_bytes = min<bit<16>>(meta.inner_bytes, 16w140);",
        "meta.inner_bytes = min<bit<16>>(meta.inner_bytes, 16w64);",
    ),
    "the two reports of a packet have nothing in common": ("meta.asked = meta.asked | 16w0x8800;", ""),
    "a report without a number says when its packet came": (
        "if (hdr.int_md.isValid() && meta.bridged.numbered == 1w1) {",
        "if (hdr.int_md.isValid()) {",
    ),
    "a stack that is too long for the parser ends": (
        "(default, 8w15, default, default) : int_sink_leave_in_0();",
        "(default, 8w15, default, default) : int_sink_report_stack_0();",
    ),
    "INT from the control plane ends": (" && !hdr.packet_out.isValid() && ig_prsr_md", " && ig_prsr_md"),
    "what is damaged is reported": (" && !meta.ipv4_damaged) {", ") {"),
    "what is discarded elsewhere ends here": (" && hdr.int_md.discard == 1w0", ""),
    "a datagram's checksum covers the marker that came off": (
        "(2w3, default, false) : room_restoration_shorten_datagram_0(16w65512, 16w65488);",
        "(2w3, default, false) : room_restoration_shorten_datagram_0(16w65512, 16w65504);",
    ),
    "a segment's checksum covers what came off": ("meta.grown = growth_of_sum;", ""),
    "INT's port stays": ("hdr.udp.dst_port = hdr.int_shim.original;", ""),
    "a segment stays wrapped": (
        "(2w1, 2w2, false) : room_restoration_unwrap_0();",
        "(2w1, 2w2, false) : room_restoration_shorten_datagram_0(16w65520, 16w65504);",
    ),
    "a host marks what has no INT": ("hdr.ipv4.dscp = hdr.ipv4.dscp & 6w0x3e;", ""),
    "flags of others are lost": (
        "hdr.aggregation.flags | aggregation_header_sums_all_flags_held_flags",
        "hdr.aggregation.flags",
    ),
}


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=pytest.mark.long if index % 3 else ()) for index, rule in enumerate(BROKEN)]
)
def test_a_broken_rule_is_found(text: str, rule: str) -> None:
    with pytest.raises(AssertionError, match=r"^(seed \d|INT-M)"):
        _compare_seeds(mutated(text, *BROKEN[rule]))


def test_a_write_to_a_header_that_is_not_there_is_found(text: str) -> None:
    """A chip keeps fields of TCP's where UDP's are not."""
    broken = mutated(text, "if (meta.grown != 16w0 && hdr.udp.isValid())", "if (meta.grown != 16w0)")
    with pytest.raises(AssertionError, match=r"^hdr\.udp\.length changes .*no hdr\.udp"):
        _compare_seeds(broken)


def _compare_seeds(text: str) -> None:
    take_int_out_again(text)
    leave_what_is_damaged(text)
    leave_what_is_too_long(text, 3, 17)
    for seed in range(10):
        compared(seed, text, 400)


SOURCE_PORTS = {(presence, mode): 10 * at + presence for at, mode in enumerate(("mx", "md")) for presence in (1, 2, 3)}
"""Source port that selects the marking of a packet, and its mode."""


def take_int_out_again(text: str) -> None:
    """Packets that one chip puts INT into, and another adds to, leave the third as they came, whichever way they are
    marked. It reports them, once more as they came to it, if they have a stack.
    """
    nodes = source, middle, sink = [TnaNode(Program(text), tables()) for _ in range(3)]
    for number, node in enumerate(nodes):
        node.report_to(PARENT_PORT)
        for presence in (2, 3):
            node.write("FabricIngress.marks", (presence,), "FabricIngress.recognise", ())
        node.write("FabricEgress.telemetry.node", (), "FabricEgress.telemetry.identify", (70 + number,))
    sink.write("FabricEgress.int_reports.destination", (), "FabricEgress.int_reports.address", COLLECTOR)
    sink.write("FabricIngress.int_sink.sinks", (STRANGER,), "FabricIngress.int_sink.strip", (0,))
    for presence, mode in SOURCE_PORTS:
        port = SOURCE_PORTS[presence, mode]
        by_port = ((0, 0), (0, 0), (0, 0), (port, 0xFFFF), (0, 0))
        asked = (port, 1, 0xE000, 0x8000) + ((int_md.hop_words(0xE000, 0x8000), 8) if mode == "md" else ())
        source.watch(by_port, presence, f"FabricEgress.int_source.embed_{mode}", (*asked, presence))
    marked = ((1, 17), (2, 17), (2, 6), (3, 17), (3, 6))
    for now_us, ((presence, protocol), mode) in enumerate(itertools.product(marked, ("mx", "md")), 5_000_000):
        for sum_of_it in (0xBEEF, 0) if protocol == 17 else (0xBEEF,):
            port = SOURCE_PORTS[presence, mode]
            frame = bytearray(packet(bytes(range(60)), PARENT, STRANGER, source_port=port, destination_port=9))
            frame[23] = protocol
            at = 40 if protocol == 17 else 50
            frame[at : at + 2] = sum_of_it.to_bytes(2)
            sent = under_way = with_ecn(bytes(frame), 0)
            met = f"INT-{mode.upper()} of presence {presence} in protocol {protocol}, checksum {sum_of_it:#x}"
            for node in (source, middle):
                left = node.forward(under_way, PARENT_PORT)
                assert len(left) == 1, f"{met}: reports that are addressed to nobody"
                [(_, under_way)] = left
                assert under_way[34:] != sent[34:], met
            at_sink = sink.forward(under_way, PARENT_PORT, now_us)
            assert [frame[34:] for port, frame in at_sink if port == STRANGER_PORT] == [sent[34:]], met
            assert [frame[14:22] for port, frame in at_sink if port == STRANGER_PORT] == [sent[14:22]], met
            reports = [reported(frame, met) for port, frame in at_sink if port == PARENT_PORT]
            own = [report for report in reports if "latency_us" in report.metadata]
            assert [tensor.metadata["ingress_port"] for tensor in own] == [PARENT_PORT], met
            stacks = [report for report in reports if report not in own]
            if mode == "mx":
                assert not stacks, met
                assert "packet_number" not in own[0].metadata, met
                continue
            assert [stack.metadata for stack in stacks] == [
                {"ingress_ns": 1000 * now_us, "packet_number": 1000 * now_us & 0xFFFFFFFF}
            ], met
            assert own[0].metadata.get("packet_number") == stacks[0].metadata["packet_number"], met
            assert own[0].metadata.get("ingress_ns") == stacks[0].metadata["ingress_ns"], met
            came = under_way[14 : 14 + STACK_INNER_BYTES]
            assert stacks[0].inner == came[: len(came) & ~3], met


def at_a_sink(text: str) -> TnaNode:
    node = TnaNode(Program(text), tables())
    node.report_to(PARENT_PORT)
    node.write("FabricEgress.int_reports.destination", (), "FabricEgress.int_reports.address", COLLECTOR)
    node.write("FabricIngress.int_sink.sinks", (STRANGER,), "FabricIngress.int_sink.strip", (0,))
    for presence in (2, 3):
        node.write("FabricIngress.marks", (presence,), "FabricIngress.recognise", ())
    return node


def with_stack(words: int, payload: bytes = b"payload!", presence: int = 1, protocol: int = 17) -> bytes:
    """Packet to the stranger with INT-MD in front of its payload, this many words behind the header, and a valid UDP or
    TCP checksum.
    """
    header = bytearray(int_md.md_header(9, 0xF000, 0, remaining_hops=0))
    header[1] = 3 + words
    if presence > 1:
        header[0] &= 0xF0
        header[2:4] = bytes(2)
    front = (bytes(12) if protocol == 6 else b"") + (MARKER if presence == 3 else b"")
    port = int_md.INT_PORT if presence == 1 else 9
    stack = random.Random(words).randbytes(4 * words)
    body = front + bytes(header) + stack + payload
    frame = bytearray(packet(body, PARENT, STRANGER, destination_port=port, dscp=int(presence == 2)))
    frame[23] = protocol
    at = 40 if protocol == 17 else 50
    frame[at : at + 2] = bytes(2)
    frame[at : at + 2] = (l4_sum(bytes(frame)) or 0xFFFF).to_bytes(2)
    return with_ecn(bytes(frame), 0)


def l4_sum(frame: bytes) -> int:
    """The Internet checksum of a UDP datagram or TCP segment with its pseudo header; 0 where that in it holds."""
    segment = frame[34:]
    return internet_checksum(frame[26:34] + bytes([0, frame[23]]) + len(segment).to_bytes(2) + segment)


def leave_what_is_damaged(text: str) -> None:
    damaged = bytearray(with_stack(8))
    damaged[18] ^= 1
    node = at_a_sink(text)
    assert node.forward(bytes(damaged), PARENT_PORT) == [], "INT-MD behind a damaged header"
    assert node.drops["bad_checksum"] == 1


def test_a_sink_reports_nothing_of_what_is_damaged(text: str) -> None:
    leave_what_is_damaged(text)


MAX_WORDS = {(1, 17): 16, (2, 17): 16, (3, 17): 11, (2, 6): 11, (3, 6): 11}
"""Maximum words of a stack that a sink removes, by presence and protocol: the reach of egress's parser."""


@pytest.mark.parametrize(("presence", "protocol"), MAX_WORDS)
def test_a_stack_comes_off_to_its_last_word(text: str, presence: int, protocol: int) -> None:
    for words in range(MAX_WORDS[presence, protocol] + 1):
        node = at_a_sink(text)
        sent = with_stack(words, b"payload!", presence, protocol)
        leaving = node.forward(sent, PARENT_PORT)
        [left] = [frame for port, frame in leaving if port == STRANGER_PORT]
        assert left[42 if protocol == 17 else 54 :] == b"payload!"
        assert int.from_bytes(left[16:18]) == len(left) - 14
        assert protocol == 6 or int.from_bytes(left[38:40]) == 16
        assert l4_sum(left) == 0
        reports = [reported(frame, "") for port, frame in leaving if port == PARENT_PORT]
        [stack] = [report for report in reports if "latency_us" not in report.metadata]
        assert stack.inner == sent[14 : 14 + (len(sent) - 14 & ~3)]


@pytest.mark.parametrize(("presence", "protocol"), MAX_WORDS)
def test_a_stack_that_is_too_long_for_the_parser_stays(text: str, presence: int, protocol: int) -> None:
    leave_what_is_too_long(text, presence, protocol)


def leave_what_is_too_long(text: str, presence: int, protocol: int) -> None:
    for words in (MAX_WORDS[presence, protocol] + 1, 40, 252):
        sent = with_stack(words, b"payload!", presence, protocol)
        left = at_a_sink(text).forward(sent, PARENT_PORT)
        at = 42 + 12 * (protocol == 6) + 8 * (presence == 3)
        expected = bytearray(sent[at:])
        expected[4] |= 0x04  # E, for no hop is left
        assert [frame[at:] for _, frame in left] == [expected], f"INT-MD of {words} words, presence {presence}"


@pytest.mark.parametrize("missing", [1, 4, 30])
def test_a_packet_ending_within_its_stack_leaves_no_sink(text: str, missing: int) -> None:
    """Only the received bytes leave, in a report that is as much too short."""
    sent = with_stack(12, b"")[:-missing]
    [(port, report)] = at_a_sink(text).forward(sent, PARENT_PORT)
    assert port == PARENT_PORT
    assert int_report.decode(report[42:]) is None
    assert reported(report + bytes(missing), "").inner[:-missing] == sent[14:]


def reported(frame: bytes, met: str) -> int_report.Report:
    """The report in a frame, which is to be whole."""
    end = 14 + int.from_bytes(frame[16:18])
    group = int_report.decode(frame[42:end])
    assert group, f"{met}: {frame.hex()} is no report"
    [report] = group.reports
    assert report.inner_type is int_report.InnerType.IPV4, met
    return report


def overtaken(text: str) -> list[tuple[int, bytes]]:
    """Frames to a worker that requests a complete round again, whose slot a newer round takes between the passes."""

    def send(worker: int, number: int) -> list[tuple[int, bytes]]:
        payload = message(round_number=number, lanes=number, width=32, job=ROOT, contributors=1 << worker)
        return chip.forward(packet(payload, WORKERS[worker]), worker)

    chip = TnaNode(Program(text), tables())
    assert [len(send(worker, 2)) for worker in range(3)] == [0, 0, 3]
    chip.between = lambda: send(1, 2 + SLOTS)
    return send(0, 2)


def test_a_second_pass_never_mixes_two_rounds(text: str) -> None:
    assert overtaken(text) == []
    assert overtaken(mutated(text, "held.who == meta.who && held.chunk == meta.chunk", "held.who == meta.who")) != []


def test_the_sources_have_the_names_of_the_program_for_bmv2() -> None:
    names = {path.name for path in (p4src.ROOT / "tofino").glob("*.p4")}
    theirs = {path.name for path in Path(p4src.ROOT / "bmv2").glob("*.p4")}
    assert names - theirs == {"metadata.p4"}


def test_the_guide_counts_the_broken_rules() -> None:
    guide = (p4src.ROOT.parent / "docs" / "tofino.md").read_text()
    assert sum(int(count) for count in re.findall(r"(\d+) broken rules", guide)) == len(BROKEN)
    assert f"is that for Tofino 1, except for {len(OF_ONE_CHIP[2])} lines" in guide


def test_no_way_through_a_parser_extracts_a_header_twice(text: str) -> None:
    """The back end for the chips (p4c 1.2.5.16) ends such a way there, without a word."""
    ways = 0
    for parser in ("FabricIngressParser", "FabricEgressParser"):
        body = text[text.index(f"parser {parser}(") :]
        body = body[: body.index("\n}\n") + 1]
        states = dict(re.findall(r"    state (\w+) \{\n(.*?)\n    \}\n", body, re.DOTALL))
        following = {name: set(re.findall(r"(\w+);", state.split("transition ")[1])) for name, state in states.items()}
        taken = {name: re.findall(r"extract<\w+>\(([\w.]+)\)", state) for name, state in states.items()}
        unseen = [("start", frozenset[str]())]
        seen = set()
        while unseen:
            state, before = unseen.pop()
            if state in ("accept", "reject") or (state, before) in seen:
                continue
            seen.add((state, before))
            here = taken[state]
            assert before.isdisjoint(here), f"{parser}: {state} extracts {here} a second time"
            assert len(set(here)) == len(here), f"{parser}: {state} extracts {here}"
            unseen += [(each, before.union(here)) for each in following[state]]
        assert seen >= {("start", frozenset())}
        assert {state for state, _ in seen} == set(states), "a state that no way leads to"
        ways += len(seen)
    assert ways > 150
