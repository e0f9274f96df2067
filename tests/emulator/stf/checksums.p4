// Checksums verified and made anew, over headers and over the payload; every hash of v1model.
#include <core.p4>
#include <v1model.p4>

header ipv4_t {
    bit<8> version_length; bit<8> tos; bit<16> total; bit<16> id; bit<16> fragment;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> source; bit<32> destination;
}
header label_t { bit<8> algorithm; bit<72> text; bit<64> value; }
struct headers_t { label_t label; ipv4_t ipv4; }
struct metadata_t { }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        transition select(packet.lookahead<bit<8>>()) { 0x45: ipv4; default: label; }
    }
    state ipv4 { packet.extract(hdr.ipv4); transition accept; }
    state label { packet.extract(hdr.label); transition accept; }
}
control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version_length, hdr.ipv4.tos, hdr.ipv4.total, hdr.ipv4.id, hdr.ipv4.fragment, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (sm.checksum_error == 1) { sm.egress_spec = 2; }
        if (hdr.ipv4.isValid()) { hdr.ipv4.ttl = hdr.ipv4.ttl - 1; }
        if (hdr.label.algorithm == 0) { hash(hdr.label.value, HashAlgorithm.crc32, 64w0, { hdr.label.text }, 128w0x100000000); }
        if (hdr.label.algorithm == 1) { hash(hdr.label.value, HashAlgorithm.crc16, 64w0, { hdr.label.text }, 128w0x10000); }
        if (hdr.label.algorithm == 2) { hash(hdr.label.value, HashAlgorithm.csum16, 64w0, { hdr.label.text }, 128w0x10000); }
        if (hdr.label.algorithm == 3) { hash(hdr.label.value, HashAlgorithm.xor16, 64w0, { hdr.label.text }, 128w0x10000); }
        if (hdr.label.algorithm == 4) { hash(hdr.label.value, HashAlgorithm.identity, 64w0, { hdr.label.text[31:0] }, 128w0x100000000); }
        if (hdr.label.algorithm == 5) { hash(hdr.label.value, HashAlgorithm.crc32, 64w1000, { hdr.label.text }, 128w97); }
    }
}
control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version_length, hdr.ipv4.tos, hdr.ipv4.total, hdr.ipv4.id, hdr.ipv4.fragment, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.label); packet.emit(hdr.ipv4); } }
V1Switch(Parse(), Verify(), Forward(), NoEgress(), Update(), Deparse()) main;
