// Fields of a header that is not there, which are 0 whatever an earlier packet had in them: a length, and an index.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> what; }
header choice_t { bit<8> at; bit<32> bits; }
header tag_t { bit<8> value; }
header options_t { bit<8> first; varbit<64> data; }
struct headers_t { order_t order; choice_t choice; tag_t[3] tags; options_t options; }
struct metadata_t { }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.order);
        transition select(hdr.order.what) { 1: choice; default: options; }
    }
    state choice { packet.extract(hdr.choice); transition options; }
    state options { packet.extract(hdr.options, hdr.choice.bits); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        hdr.tags[hdr.choice.at].setValid();
        if (hdr.tags[0].isValid()) { hdr.tags[0].value = 0xa0; }
        if (hdr.tags[2].isValid()) { hdr.tags[2].value = 0xa2; }
        hdr.options.setInvalid();
    }
}
control Deparse(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.order); packet.emit(hdr.choice); packet.emit(hdr.tags); packet.emit(hdr.options); }
}
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
