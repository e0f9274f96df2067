// Constants below zero where a table has them. p4c writes no P4Info for such a program.
#include <core.p4>
#include <v1model.p4>

header order_t { int<8> amount; int<13> wide; bit<3> pad; bit<8> entry; }
struct headers_t { order_t order; }
struct metadata_t { }

parser SignsParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.order);
        transition select(hdr.order.wide, hdr.order.amount) {
            (-3, -100): outside;
            (-4096, 7): outside;
            default: accept;
        }
    }
    state outside { hdr.order.pad = 5; transition accept; }
}
control SignsVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control SignsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action add(int<8> amount, int<13> more) {
        hdr.order.amount = hdr.order.amount + amount;
        hdr.order.wide = hdr.order.wide + more;
    }
    action mark(bit<8> by) { hdr.order.entry = by; }
    table shift { actions = { add; } default_action = add(-3, -4096); }
    table signs {
        key = { hdr.order.amount: exact; }
        actions = { add; mark; NoAction; }
        const entries = { -8: mark(8); -1: add(-128, -1); 4: mark(4); }
        const default_action = NoAction();
    }
    table masks {
        key = { hdr.order.amount: ternary; }
        actions = { mark; NoAction; }
        const entries = { -16 &&& -16: mark(16); _: NoAction(); }
        const default_action = NoAction();
    }
    apply {
        sm.egress_spec = 1;
        shift.apply();
        signs.apply();
        if (hdr.order.entry == 0) { masks.apply(); }
        switch (hdr.order.amount) {
            -2: { hdr.order.entry = hdr.order.entry | 0x40; }
            3: { hdr.order.entry = hdr.order.entry | 0x20; }
            default: { }
        }
    }
}
control SignsEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply { } }
control SignsUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }
control SignsDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.order); } }
V1Switch(SignsParser(), SignsVerify(), SignsIngress(), SignsEgress(), SignsUpdate(), SignsDeparser()) main;
