// A field whose length the packet gives: parsed, too long, copied with its header, compared, taken out, and parsed once more.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> what; bit<8> size; bit<8> result; }
header options_t { bit<8> first; varbit<64> data; }
struct headers_t { order_t order; options_t options; options_t copy; }
struct metadata_t { }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.order);
        packet.extract(hdr.options, (bit<32>) hdr.order.size << 3);
        transition select(hdr.order.what) { 2: second; 4: again; default: accept; }
    }
    state again { packet.extract(hdr.options, 8); transition accept; }
    state second { packet.extract(hdr.copy, 16); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (sm.parser_error == error.HeaderTooShort) { hdr.order.result = 1; }
        if (sm.parser_error == error.PacketTooShort) { hdr.order.result = 2; }
        if (hdr.order.what == 1) { hdr.copy = hdr.options; hdr.copy.first = 0xcc; }
        if (hdr.order.what == 2 && hdr.options.data == hdr.copy.data) { hdr.order.result = 3; }
        if (hdr.order.what == 3) { hdr.options.setInvalid(); }
    }
}
control Deparse(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.order); packet.emit(hdr.options); packet.emit(hdr.copy); }
}
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
