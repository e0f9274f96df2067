// Statements whose effect is beside the packet: assert, assume, log_msg, random numbers, digests; and exit and return.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> what; bit<8> value; bit<264> wide; }
struct headers_t { order_t order; }
struct metadata_t { bit<8> drawn; }
struct learned_t { bit<8> what; bit<8> value; }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.order); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action leave() { exit; }
    action rest() { if (hdr.order.value == 0) { return; } hdr.order.value = hdr.order.value + 1; }
    apply {
        sm.egress_spec = 1;
        log_msg("what {} value {}", { hdr.order.what, hdr.order.value });
        if (hdr.order.what == 1) { assert(hdr.order.value != 0); }
        if (hdr.order.what == 2) { assume(hdr.order.value != 0); }
        if (hdr.order.what == 3) {
            random(meta.drawn, 3, 5);
            if (meta.drawn >= 3 && meta.drawn <= 5) { hdr.order.value = 1; }
        }
        if (hdr.order.what == 4) { random(hdr.order.value, 9, 9); }
        if (hdr.order.what == 5) { digest<learned_t>(1, { hdr.order.what, hdr.order.value }); }
        if (hdr.order.what == 6) { leave(); }
        if (hdr.order.what == 7) { rest(); }
        if (hdr.order.what == 8) { hdr.order.wide = (hdr.order.wide << 200) | (hdr.order.wide >> 64); }
        if (hdr.order.what == 9) { hdr.order.wide = hdr.order.wide + 264w1; }
        sm.egress_spec = 2;
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.order); } }
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
