#include <core.p4>
#include <v1model.p4>
// Egress of packets whose egress port (400) the switch does not have. Programs send to such a port what egress is to
// count, recirculate or mirror; only transmission drops it.
header h_t { bit<48> dst; bit<48> src; bit<16> type; bit<8> op; bit<8> count; }
struct H { h_t h; }
struct M { }
parser P(packet_in p, out H hdr, inout M m, inout standard_metadata_t s) { state start { p.extract(hdr.h); transition accept; } }
control V(inout H hdr, inout M m) { apply { } }
control I(inout H hdr, inout M m, inout standard_metadata_t s) {
    apply {
        hdr.h.count = hdr.h.count + 1;
        if (s.instance_type == 4) { s.egress_spec = 2; }   // recirculated
        else if (hdr.h.op == 3) { s.mcast_grp = 9; }       // group 9: port 400
        else if (hdr.h.op == 4) { clone(CloneType.I2E, 6); s.egress_spec = 2; }   // session 6: port 400
        else { s.egress_spec = 400; }                      // no interface there
    }
}
control E(inout H hdr, inout M m, inout standard_metadata_t s) {
    counter(8, CounterType.packets) seen;
    register<bit<32>>(8) last;
    apply {
        if (s.egress_port == 400) {
            seen.count((bit<32>)hdr.h.op);
            last.write((bit<32>)hdr.h.op, 32w0xabcd);
            if (hdr.h.op == 1) { recirculate_preserving_field_list(0); }
            if (hdr.h.op == 2) { clone(CloneType.E2E, 5); }   // session 5: port 3
        }
    }
}
control C(inout H hdr, inout M m) { apply { } }
control D(packet_out p, in H hdr) { apply { p.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
