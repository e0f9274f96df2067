// lastIndex in a select, which p4c writes as an expression of 32 bits, and bmv2 does not take.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> plain; bit<8> result; }
header label_t { bit<8> value; }
struct headers_t { order_t order; label_t[3] labels; }
struct metadata_t { bit<8> how; }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.order);
        transition select(hdr.labels.lastIndex) { 0xffffffff: labels; default: accept; }
    }
    state labels { packet.extract(hdr.labels.next); transition more; }
    state more {
        transition select(hdr.order.plain, hdr.labels.lastIndex) {
            (_, 2): accept;
            (9, 0): short;
            (1, 1): short;
            default: labels;
        }
    }
    state short { meta.how = 0x80; transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        hdr.order.result = meta.how;
        if (hdr.labels[0].isValid()) { hdr.order.result = hdr.order.result | 1; }
        if (hdr.labels[1].isValid()) { hdr.order.result = hdr.order.result | 2; }
        if (hdr.labels[2].isValid()) { hdr.order.result = hdr.order.result | 4; }
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
