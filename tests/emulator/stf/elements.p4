// Elements of stacks that bmv2 does not take: validity at a computed index, and of a union in a stack as a whole.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> index; bit<8> count; bit<8> seen; }
header narrow_t { bit<8> value; }
header wide_t { bit<16> value; }
header_union either_t { narrow_t narrow; wide_t wide; }
struct headers_t { order_t order; narrow_t[3] labels; either_t[2] choices; }
struct metadata_t { bit<8> left; }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.order); meta.left = hdr.order.count; transition labels; }
    state labels { transition select(meta.left) { 0: choices; default: label; } }
    state label { packet.extract(hdr.labels.next); meta.left = meta.left - 1; transition labels; }
    state choices {
        transition select(packet.lookahead<bit<8>>()) { 1: narrow; 2: wide; default: accept; }
    }
    state narrow { packet.extract(hdr.choices.next.narrow); transition choices; }
    state wide { packet.extract(hdr.choices.next.wide); transition choices; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (hdr.labels[hdr.order.index].isValid()) { hdr.order.seen = 1; }
        if (hdr.choices[0].isValid()) { hdr.order.seen = hdr.order.seen | 2; }
        if (hdr.choices[1].isValid()) { hdr.order.seen = hdr.order.seen | 4; }
        if (hdr.order.index == 0x80) { hdr.choices.pop_front(1); }
        if (hdr.order.index == 0x81) { hdr.choices.push_front(1); }
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
