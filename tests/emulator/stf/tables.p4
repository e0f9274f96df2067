// Every kind of key, with priorities, entries of the program's own, defaults, and switch over the action that ran.
#include <core.p4>
#include <v1model.p4>

header probe_t { bit<8> table_number; bit<32> key; bit<16> result; bit<8> path; }
struct headers_t { probe_t probe; }
struct metadata_t { }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.probe); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action drop() { mark_to_drop(sm); }
    action answer(bit<16> result) { hdr.probe.result = result; }
    action answer_at(bit<16> result, bit<9> port) { hdr.probe.result = result; sm.egress_spec = port; }
    table by_exact {
        key = { hdr.probe.key: exact; }
        actions = { answer; answer_at; drop; NoAction; }
        default_action = NoAction();
    }
    table by_prefix {
        key = { hdr.probe.key: lpm @name("address"); }
        actions = { answer; drop; }
        default_action = answer(0xdead);
    }
    table by_ternary {
        key = { hdr.probe.key: ternary; sm.ingress_port: exact @name("port"); }
        actions = { answer; answer_at; @defaultonly drop; }
        const default_action = drop();
    }
    table by_range {
        key = { hdr.probe.key[15:0]: range @name("low_half"); }
        actions = { answer; NoAction; }
    }
    table by_optional {
        key = { hdr.probe.key: optional; hdr.probe.result: optional; }
        actions = { answer; NoAction; }
    }
    table constant {
        key = { hdr.probe.key[31:24]: ternary; hdr.probe.key[7:0]: range; }
        actions = { answer; drop; }
        const default_action = drop();
        const entries = {
            (0x10 &&& 0xf0, 0..9)   : answer(1);
            (0x12,          5..20)  : answer(2);
            (_,             20..30) : answer(3);
        }
    }
    table keyless {
        actions = { answer; NoAction; }
        default_action = NoAction();
    }
    apply {
        sm.egress_spec = 1;
        if (hdr.probe.table_number == 0) {
            switch (by_exact.apply().action_run) {
                answer: { hdr.probe.path = 1; }
                answer_at: { hdr.probe.path = 2; }
                default: { hdr.probe.path = 3; }
            }
        }
        if (hdr.probe.table_number == 1) {
            if (by_prefix.apply().hit) { hdr.probe.path = 1; } else { hdr.probe.path = 2; }
        }
        if (hdr.probe.table_number == 2) { by_ternary.apply(); }
        if (hdr.probe.table_number == 3) { by_range.apply(); }
        if (hdr.probe.table_number == 4) { by_optional.apply(); }
        if (hdr.probe.table_number == 5) { constant.apply(); }
        if (hdr.probe.table_number == 6) { keyless.apply(); }
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.probe); } }
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
