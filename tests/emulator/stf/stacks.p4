// Header stacks: filled by a loop to the last element or beyond, pushed, popped, copied, and read at a computed index.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> what; bit<8> index; bit<8> result; bit<8> error_code; }
header label_t { bit<7> value; bit<1> bottom; }
struct headers_t { order_t order; label_t[4] labels; label_t[4] copies; }
struct metadata_t { }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.order);
        transition labels;
    }
    state labels {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.bottom) { 1: accept; default: labels; }
    }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (sm.parser_error == error.StackOutOfBounds) { hdr.order.error_code = 1; }
        if (sm.parser_error == error.PacketTooShort) { hdr.order.error_code = 2; }
        if (hdr.order.what == 1) { hdr.labels.push_front(1); hdr.labels[0].setValid(); hdr.labels[0].value = 0x7f; hdr.labels[0].bottom = 0; }
        if (hdr.order.what == 2) { hdr.labels.pop_front(1); }
        if (hdr.order.what == 3) { hdr.labels.push_front(2); }
        if (hdr.order.what == 4) { hdr.copies = hdr.labels; hdr.labels[0].value = 1; }
        if (hdr.order.what == 5) { hdr.order.result = 1w0 ++ hdr.labels[hdr.order.index].value; }
        if (hdr.order.what == 6) { hdr.labels[hdr.order.index].value = 0x55; }
        if (hdr.order.what == 7) { hdr.labels[1].setInvalid(); }
        if (hdr.order.what == 8 && hdr.labels[2].isValid()) { hdr.order.result = 2; }
    }
}
control Deparse(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.order); packet.emit(hdr.labels); packet.emit(hdr.copies); }
}
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
