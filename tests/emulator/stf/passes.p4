// A packet more than once: resubmitted, recirculated and cloned, with metadata that goes along and metadata that does not.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> what; bit<8> kept; bit<8> lost; bit<8> before; bit<8> after; bit<8> steps; bit<16> port; }
struct headers_t { order_t order; }
struct metadata_t {
    @field_list(1) bit<8> kept;
    bit<8> lost;
}
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.order); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        hdr.order.steps = hdr.order.steps + 1;
        hdr.order.before = (bit<8>) sm.instance_type;
        if (sm.instance_type == 0) {
            meta.kept = 0x42;
            meta.lost = 0x43;
            if (hdr.order.what == 1) { resubmit_preserving_field_list(1); mark_to_drop(sm); }
            if (hdr.order.what == 3) { clone_preserving_field_list(CloneType.I2E, 5, 1); meta.kept = 0x44; }
        }
    }
}
control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        hdr.order.kept = meta.kept;
        hdr.order.lost = meta.lost;
        hdr.order.after = (bit<8>) sm.instance_type;
        hdr.order.port = (bit<16>) sm.egress_port;
        if (hdr.order.what == 2 && hdr.order.steps == 1) { recirculate_preserving_field_list(1); }
        if (hdr.order.what == 5 && hdr.order.steps == 1) { truncate(4); recirculate_preserving_field_list(1); }
        if (hdr.order.what == 4 && sm.instance_type == 0) { clone_preserving_field_list(CloneType.E2E, 5, 1); }
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.order); } }
V1Switch(Parse(), NoVerify(), Forward(), Leave(), NoUpdate(), Deparse()) main;
