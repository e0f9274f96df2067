// Standard metadata: lengths, ports, times, queues, priority and the kind of packet, in ingress and in egress.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> what; bit<32> first; bit<32> second; }
header extra_t { bit<16> value; }
struct headers_t { order_t order; extra_t extra; }
struct metadata_t { }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.order); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (hdr.order.what == 1) { hdr.order.first = sm.packet_length; hdr.order.second = (bit<32>) sm.ingress_port; }
        if (hdr.order.what == 2) { hdr.extra.setValid(); hdr.extra.value = 0xabcd; }
        if (hdr.order.what == 3) { hdr.order.first = sm.ingress_global_timestamp[31:0]; }
        if (hdr.order.what == 5) { sm.priority = 5; hdr.order.first = (bit<32>) sm.instance_type; }
        if (hdr.order.what == 6) { sm.egress_spec = 1; sm.mcast_grp = 7; hdr.order.first = (bit<32>) sm.egress_spec; }
        if (hdr.order.what == 7) {
            hdr.order.first = (bit<32>) sm.egress_port;
            if (sm.parser_error == error.NoError) { hdr.order.second = (bit<32>) sm.checksum_error; }
        }
        if (hdr.order.what == 8) { mark_to_drop(sm); sm.egress_spec = 3; }
        if (hdr.order.what == 10) { sm.packet_length = 1000; }
        if (hdr.order.what == 9) { mark_to_drop(sm); hdr.order.first = (bit<32>) sm.egress_spec; }
    }
}
control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (hdr.order.what == 10) { hdr.order.first = sm.packet_length; }
        if (hdr.order.what == 2) { hdr.order.first = sm.packet_length; hdr.order.second = (bit<32>) sm.egress_port; }
        if (hdr.order.what == 3) {
            hdr.order.second = (sm.egress_global_timestamp - sm.ingress_global_timestamp)[31:0];
        }
        if (hdr.order.what == 4) {
            hdr.order.first = (bit<32>) sm.enq_qdepth + (bit<32>) sm.deq_qdepth;
            hdr.order.second = sm.deq_timedelta;
        }
        if (hdr.order.what == 5) { hdr.order.second = (bit<32>) sm.priority; }
        if (hdr.order.what == 6) { hdr.order.second = (bit<32>) sm.egress_rid; hdr.order.first = sm.instance_type; }
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.order); packet.emit(hdr.extra); } }
V1Switch(Parse(), NoVerify(), Forward(), Leave(), NoUpdate(), Deparse()) main;
