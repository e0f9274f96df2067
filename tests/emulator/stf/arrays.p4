// Registers of several widths, indirect counters and a direct one.
#include <core.p4>
#include <v1model.p4>

header cell_t { bit<8> what; bit<8> index; bit<48> value; }
struct headers_t { cell_t cell; }
struct metadata_t { }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.cell); transition accept; }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    register<bit<48>>(4) wide;
    register<bit<5>>(4) narrow;
    counter(4, CounterType.packets_and_bytes) seen;
    direct_counter(CounterType.packets_and_bytes) hits;
    action add_up() {
        bit<48> before;
        wide.read(before, (bit<32>) hdr.cell.index);
        hdr.cell.value = hdr.cell.value + before;
        wide.write((bit<32>) hdr.cell.index, hdr.cell.value);
    }
    action add_up_narrow() {
        bit<5> before;
        narrow.read(before, (bit<32>) hdr.cell.index);
        before = before + hdr.cell.value[4:0];
        narrow.write((bit<32>) hdr.cell.index, before);
        hdr.cell.value = (bit<48>) before;
    }
    action count() { seen.count((bit<32>) hdr.cell.index); }
    table step {
        key = { hdr.cell.what: exact; }
        actions = { add_up; add_up_narrow; count; NoAction; }
        default_action = NoAction();
        counters = hits;
    }
    apply { sm.egress_spec = 1; step.apply(); }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.cell); } }
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
