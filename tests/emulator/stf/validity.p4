// Headers that come and go: a table over their validity, copies, and the deparser's order.
#include <core.p4>
#include <v1model.p4>

header tag_t { bit<8> kind; bit<8> steps; }
header word_t { bit<16> value; }
struct headers_t { tag_t tag; word_t first; word_t second; }
struct metadata_t { }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.tag);
        transition select(hdr.tag.kind[1:0]) {
            1: one;
            2: two;
            3: both;
            default: accept;
        }
    }
    state one { packet.extract(hdr.first); transition accept; }
    state two { packet.extract(hdr.second); transition accept; }
    state both { packet.extract(hdr.first); transition two; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action drop() { mark_to_drop(sm); }
    action add_first(bit<16> value) { hdr.first.setValid(); hdr.first.value = value; }
    action remove_second() { hdr.second.setInvalid(); }
    action copy() { hdr.second = hdr.first; }
    table shape {
        key = { hdr.first.isValid(): exact; hdr.second.isValid(): exact; }
        actions = { add_first; remove_second; copy; drop; }
        default_action = drop();
        size = 16;
    }
    apply {
        sm.egress_spec = 1;
        shape.apply();
        if (hdr.first.isValid()) { hdr.tag.steps = hdr.tag.steps + 1; }
        if (hdr.second.isValid()) { hdr.tag.steps = hdr.tag.steps + 0x10; }
    }
}
control Deparse(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.tag); packet.emit(hdr.second); packet.emit(hdr.first); }
}
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
