// Copies: clones from ingress and from egress, multicast with an instance of each copy, and truncation.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> what; bit<8> argument; bit<8> origin; bit<16> instance; bit<16> port; }
struct headers_t { order_t order; }
struct metadata_t { }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.order); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (hdr.order.what == 1) { clone(CloneType.I2E, (bit<32>) hdr.order.argument); }
        if (hdr.order.what == 3) { sm.mcast_grp = (bit<16>) hdr.order.argument; }
        if (hdr.order.what == 4) { truncate((bit<32>) hdr.order.argument); }
        if (hdr.order.what == 5) { mark_to_drop(sm); clone(CloneType.I2E, (bit<32>) hdr.order.argument); }
        hdr.order.origin = 0xee;
    }
}
control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (hdr.order.what == 2 && sm.instance_type == 0) { clone(CloneType.E2E, (bit<32>) hdr.order.argument); }
        hdr.order.instance = sm.instance_type[7:0] ++ sm.egress_rid[7:0];
        hdr.order.port = (bit<16>) sm.egress_port;
        if (hdr.order.what == 3 && sm.egress_port == 6) { mark_to_drop(sm); }
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.order); } }
V1Switch(Parse(), NoVerify(), Forward(), Leave(), NoUpdate(), Deparse()) main;
