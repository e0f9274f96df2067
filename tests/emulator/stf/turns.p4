// Loops in actions: for, nested, with break and continue, and one that never ends by itself.
#include <core.p4>
#include <v1model.p4>

header data_t {
    bit<8>  count;
    bit<32> sum;
    bit<32> product;
    bit<32> odd;
}

struct headers_t { data_t data; }
struct metadata_t {}

parser TurnsParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.data);
        transition accept;
    }
}

control NoChecksum(inout headers_t hdr, inout metadata_t meta) { apply {} }

control TurnsIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action add() {
        for (bit<8> i = 1; i <= hdr.data.count; i = i + 1) {
            hdr.data.sum = hdr.data.sum + (bit<32>) i;
        }
    }
    action multiply() {
        for (bit<8> i = 0; i < hdr.data.count; i = i + 1) {
            for (bit<8> j = 0; j < hdr.data.count; j = j + 1) {
                hdr.data.product = hdr.data.product + 1;
            }
        }
    }
    action add_odd() {
        for (bit<8> i = 0; i < hdr.data.count; i = i + 1) {
            if (i == 9) {
                break;
            }
            if ((i & 1) == 0) {
                continue;
            }
            hdr.data.odd = hdr.data.odd + (bit<32>) i;
        }
    }
    apply {
        standard.egress_spec = 2;
        add();  // a count of 255 never ends by itself: i wraps
        if (hdr.data.count != 255) {
            multiply();
            add_odd();
        }
    }
}

control TurnsEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply {} }

control TurnsDeparser(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.data); }
}

V1Switch(TurnsParser(), NoChecksum(), TurnsIngress(), TurnsEgress(), NoChecksum(), TurnsDeparser()) main;
