// Packets that never come to an end by themselves: round and round, one by one and in growing numbers.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> what; bit<8> times; bit<16> done; }
struct headers_t { order_t order; }
struct metadata_t { @field_list(1) bit<16> done; }

parser LoopsParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.order); transition select(hdr.order.what) { 9: round; default: accept; } }
    state round { transition select(hdr.order.what) { 9: round; default: accept; } }
}
control LoopsVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control LoopsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 2;
        meta.done = meta.done + 1;
        if (hdr.order.what == 1) { resubmit_preserving_field_list(1); }
        if (hdr.order.what == 2 && meta.done != (bit<16>) hdr.order.times) { resubmit_preserving_field_list(1); }
        if (hdr.order.what == 6) { clone(CloneType.I2E, 1); }
        hdr.order.done = hdr.order.done + 1;
        if (sm.parser_error == error.ParserTimeout) { sm.egress_spec = 3; }
    }
}
control LoopsEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (hdr.order.what == 3) { recirculate_preserving_field_list(1); }
        if (hdr.order.what == 4) { clone(CloneType.E2E, 1); }
        if (hdr.order.what == 5) { clone(CloneType.E2E, 2); }
        if (hdr.order.what == 6) { recirculate_preserving_field_list(1); }
        if (hdr.order.what == 7) { clone(CloneType.E2E, 1); recirculate_preserving_field_list(1); }
    }
}
control LoopsUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }
control LoopsDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.order); } }
V1Switch(LoopsParser(), LoopsVerify(), LoopsIngress(), LoopsEgress(), LoopsUpdate(), LoopsDeparser()) main;
