// Corners of the language: a table named outside its control, a clone of what egress drops, a register indexed by a
// stack's member that changes in between.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> index; bit<8> result; }
header label_t { bit<8> value; }
header seen_t { bit<16> length; bit<8> how; }
struct headers_t { seen_t seen; order_t order; label_t[2] labels; }
struct metadata_t { bit<8> at; }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.order); transition labels; }
    state labels { packet.extract(hdr.labels.next); transition second; }
    state second { packet.extract(hdr.labels.next); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    register<bit<8>>(16) cells;
    direct_counter(CounterType.packets) passed;
    bit<8> first;
    bit<8> second;
    action pass(bit<9> port) { sm.egress_spec = port; }
    @name(".top") table top {
        actions = { pass; }
        const default_action = pass(1);
        counters = passed;
    }
    action both() {
        cells.write(4, 0x44);
        cells.write(5, 0x55);
        cells.read(first, (bit<32>) hdr.labels[meta.at].value);
        hdr.labels[1].value = 5;
        cells.read(second, (bit<32>) hdr.labels[meta.at].value);
        hdr.order.result = first ^ second;
    }
    apply {
        top.apply();
        meta.at = 1;
        if (hdr.order.index == 1) { both(); }
    }
}
control Send(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (sm.instance_type == 2) {
            hdr.seen.setValid();
            hdr.seen.length = (bit<16>) sm.packet_length;
            hdr.seen.how = 0xee;
        } else if (hdr.order.index >= 2) {
            if (hdr.order.index == 3) { hdr.labels[0].setInvalid(); }
            if (hdr.order.index == 4) { hdr.seen.setValid(); hdr.seen.length = 0; hdr.seen.how = 0; }
            clone(CloneType.E2E, 5);
            if (hdr.order.index != 5) { mark_to_drop(sm); }
        }
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(Parse(), NoVerify(), Forward(), Send(), NoUpdate(), Deparse()) main;
