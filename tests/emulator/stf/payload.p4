// Checksums that cover the payload, verified and made anew, each under a condition of its own.
#include <core.p4>
#include <v1model.p4>

header order_t { bit<8> what; bit<8> verdict; bit<16> key; bit<16> sum; }
struct headers_t { order_t order; }
struct metadata_t { bit<8> seen; }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.order); transition accept; }
}
control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum_with_payload(hdr.order.what == 1, { hdr.order.what, hdr.order.verdict, hdr.order.key },
            hdr.order.sum, HashAlgorithm.csum16);
        verify_checksum(hdr.order.what == 2, { hdr.order.key }, hdr.order.sum, HashAlgorithm.csum16);
    }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (sm.checksum_error == 1) { sm.egress_spec = 2; }
        if (hdr.order.key == 0x1111) { truncate(8); }
    }
}
control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum_with_payload(hdr.order.what == 3, { hdr.order.what, hdr.order.verdict, hdr.order.key },
            hdr.order.sum, HashAlgorithm.csum16);
        update_checksum(hdr.order.what == 4, { hdr.order.key }, hdr.order.sum, HashAlgorithm.csum16);
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.order); } }
V1Switch(Parse(), Verify(), Forward(), NoEgress(), Update(), Deparse()) main;
