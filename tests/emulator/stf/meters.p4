// Meters of frames and of bytes, and one that each entry of a table has.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> what; bit<8> index; bit<8> color; }
struct headers_t { order_t order; }
struct metadata_t { bit<2> color; }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.order); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    meter(4, MeterType.packets) frames;
    meter(4, MeterType.bytes) octets;
    direct_meter<bit<2>>(MeterType.packets) own;
    action read_own() { own.read(meta.color); }
    table metered {
        key = { hdr.order.index: exact; }
        actions = { read_own; }
        meters = own;
    }
    apply {
        sm.egress_spec = 1;
        meta.color = 3;
        if (hdr.order.what == 1) { frames.execute_meter((bit<32>) hdr.order.index, meta.color); }
        if (hdr.order.what == 2) { octets.execute_meter((bit<32>) hdr.order.index, meta.color); }
        if (hdr.order.what == 3) { metered.apply(); }
        hdr.order.color = (bit<8>) meta.color;
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.order); } }
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
