// Metadata wider than a machine word on their way from ingress to egress, not all at addresses that divide by 16.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<192> x; bit<128> y; bit<128> z; }
struct headers_t { order_t order; }
struct metadata_t { bit<192> x; bit<128> y; bit<128> z; }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.order); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        meta.x = hdr.order.x + 1;
        meta.y = hdr.order.z;
        meta.z = hdr.order.y ^ hdr.order.z;
    }
}
control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        hdr.order.x = meta.x;
        hdr.order.y = meta.y;
        hdr.order.z = meta.z + meta.y;
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.order); } }
V1Switch(Parse(), NoVerify(), Forward(), Send(), NoUpdate(), Deparse()) main;
