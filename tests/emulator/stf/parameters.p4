// Actions and controls that change what they are given: p4c hands them a copy, of the standard metadata too.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> what; bit<8> value; }
struct headers_t { order_t order; order_t second; }
struct metadata_t { bit<8> seen; }
#include "skeleton.p4"

action drop(inout standard_metadata_t standard) { mark_to_drop(standard); }
action send_to(inout standard_metadata_t standard, in bit<9> port) { standard.egress_spec = port; }
action swap(inout order_t left, inout order_t right) { order_t kept = left; left = right; right = kept; }
control Spread(inout standard_metadata_t standard, in bit<8> value) {
    apply { standard.mcast_grp = 5; if (value == 0) { mark_to_drop(standard); } }
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.order); packet.extract(hdr.second); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    Spread() spread;
    table dropping { actions = { drop(sm); } const default_action = drop(sm); }
    apply {
        send_to(sm, 1);
        if (hdr.order.what == 1) { dropping.apply(); }
        if (hdr.order.what == 2) { drop(sm); }
        if (hdr.order.what == 3) { drop(sm); send_to(sm, 2); }
        if (hdr.order.what == 4) { spread.apply(sm, hdr.order.value); }
        if (hdr.order.what == 5) { swap(hdr.order, hdr.second); }
    }
}
control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply { if (hdr.order.what == 6) { drop(sm); } }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(Parse(), NoVerify(), Forward(), Leave(), NoUpdate(), Deparse()) main;
