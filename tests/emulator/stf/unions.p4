// A header union: one member at most is valid, whichever was made so last.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> kind; bit<8> what; bit<8> seen; }
header short_t { bit<8> value; }
header long_t { bit<32> value; }
header_union address_t { short_t short_form; long_t long_form; }
struct headers_t { order_t order; address_t address; }
struct metadata_t { }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.order);
        transition select(hdr.order.kind) { 1: short_form; 4: long_form; default: accept; }
    }
    state short_form { packet.extract(hdr.address.short_form); transition accept; }
    state long_form { packet.extract(hdr.address.long_form); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (hdr.address.isValid()) { hdr.order.seen = 0x10; }
        if (hdr.address.short_form.isValid()) { hdr.order.seen = hdr.order.seen + 1; }
        if (hdr.address.long_form.isValid()) { hdr.order.seen = hdr.order.seen + 4; }
        if (hdr.order.what == 1) { hdr.address.short_form.setValid(); hdr.address.short_form.value = 0x77; }
        if (hdr.order.what == 2) { hdr.address.long_form.setValid(); hdr.address.long_form.value = 0x11223344; }
        if (hdr.order.what == 3) { hdr.address.short_form.setInvalid(); }
        if (hdr.order.what == 4) { hdr.address.long_form.setInvalid(); }
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.order); packet.emit(hdr.address); } }
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
