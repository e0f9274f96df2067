// Numbers: wrapping and saturating, signed and unsigned, odd widths, shifts, slices, casts, comparison and choice.
#include <core.p4>
#include <v1model.p4>

header operands_t {
    bit<8> what; bit<32> a; bit<32> b; bit<32> result;
}
struct headers_t { operands_t o; }
struct metadata_t { }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.o); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action set(bit<32> value) { hdr.o.result = value; }
    apply {
        sm.egress_spec = 1;
        int<32> a = (int<32>) hdr.o.a;
        int<32> b = (int<32>) hdr.o.b;
        bit<5> small_a = hdr.o.a[4:0];
        bit<5> small_b = hdr.o.b[4:0];
        int<5> signed_a = (int<5>) small_a;
        int<5> signed_b = (int<5>) small_b;
        if (hdr.o.what == 0x01) { set(hdr.o.a + hdr.o.b); }
        else if (hdr.o.what == 0x02) { set(hdr.o.a - hdr.o.b); }
        else if (hdr.o.what == 0x03) { set(hdr.o.a * hdr.o.b); }
        else if (hdr.o.what == 0x04) { set(hdr.o.a |+| hdr.o.b); }
        else if (hdr.o.what == 0x05) { set(hdr.o.a |-| hdr.o.b); }
        else if (hdr.o.what == 0x06) { set((bit<32>) (a |+| b)); }
        else if (hdr.o.what == 0x07) { set((bit<32>) (a |-| b)); }
        else if (hdr.o.what == 0x08) { set((bit<32>) (small_a |+| small_b)); }
        else if (hdr.o.what == 0x09) { set((bit<32>) (bit<5>) (signed_a |+| signed_b)); }
        else if (hdr.o.what == 0x0a) { set((bit<32>) (small_a + small_b)); }
        else if (hdr.o.what == 0x0b) { set((bit<32>) (int<32>) (signed_a + signed_b)); }
        else if (hdr.o.what == 0x10) { set(hdr.o.a << hdr.o.b[7:0]); }
        else if (hdr.o.what == 0x11) { set(hdr.o.a >> hdr.o.b[7:0]); }
        else if (hdr.o.what == 0x12) { set((bit<32>) (a >> hdr.o.b[7:0])); }
        else if (hdr.o.what == 0x20) { set(hdr.o.a[23:8] ++ hdr.o.b[15:0]); }
        else if (hdr.o.what == 0x21) { hdr.o.result[19:4] = hdr.o.a[15:0]; }
        else if (hdr.o.what == 0x22) { set(~(hdr.o.a & hdr.o.b) ^ (hdr.o.a | hdr.o.b)); }
        else if (hdr.o.what == 0x23) { set(-hdr.o.a); }
        else if (hdr.o.what == 0x30) { set(hdr.o.a < hdr.o.b ? 32w1 : 32w2); }
        else if (hdr.o.what == 0x31) { set(a < b ? 32w1 : 32w2); }
        else if (hdr.o.what == 0x32) { set(hdr.o.a == hdr.o.b || hdr.o.a != 0 && hdr.o.b >= 5 ? 32w1 : 32w2); }
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.o); } }
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
