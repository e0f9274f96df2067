// An action selector and an action profile: entries that share actions, and a hash that spreads flows.
#include <core.p4>
#include <v1model.p4>

header flow_t { bit<8> group; bit<16> flow; bit<8> member; }
struct headers_t { flow_t flow; }
struct metadata_t { }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.flow); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action drop() { mark_to_drop(sm); }
    action member(bit<8> number, bit<9> port) { hdr.flow.member = number; sm.egress_spec = port; }
    action_selector(HashAlgorithm.identity, 32w64, 32w8) spread;
    action_profile(32w8) shared;
    table spread_flows {
        key = { hdr.flow.group: exact; hdr.flow.flow: selector; }
        actions = { member; drop; }
        implementation = spread;
    }
    action_selector(HashAlgorithm.identity, 32w64, 32w64) wide;
    table spread_more {
        key = { hdr.flow.group: exact; hdr.flow.flow: selector @name("a"); hdr.flow.member: selector; hdr.flow.flow: selector @name("b"); }
        actions = { member; drop; }
        implementation = wide;
    }
    table share_actions {
        key = { hdr.flow.group: exact; }
        actions = { member; drop; }
        implementation = shared;
    }
    apply {
        sm.egress_spec = 7;
        if (hdr.flow.group == 0xc0) { spread_more.apply(); }
        else if (!spread_flows.apply().hit) { share_actions.apply(); }
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.flow); } }
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
