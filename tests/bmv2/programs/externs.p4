// Registers, counters, hashes and checksums.
#include <core.p4>
#include <v1model.p4>

header data_t {
    bit<8> op; bit<8> index; bit<32> x; bit<12> y; bit<4> z; bit<48> w;
    bit<16> crc16; bit<32> crc32; bit<16> csum16; bit<16> xor16; bit<32> identity; bit<16> ranged; bit<8> flags;
    bit<64> read; bit<16> small;
}
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> diffserv; bit<16> total_length; bit<16> identification; bit<3> flags; bit<13> fragment;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}

struct headers_t { data_t data; ipv4_t ipv4; }
struct metadata_t { bit<16> scratch; }

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.data);
        transition select(hdr.data.z) { 0: accept; default: ipv4; }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), {
            hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.total_length, hdr.ipv4.identification, hdr.ipv4.flags,
            hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst
        }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<64>>(16) wide;
    register<bit<5>>(300) narrow;
    counter(16, CounterType.packets_and_bytes) traffic;
    counter(8, CounterType.packets) packets_only;
    apply {
        if (!hdr.data.isValid()) { mark_to_drop(standard); exit; }
        standard.egress_spec = 1;
        hdr.data.flags = (bit<8>) standard.checksum_error;
        hash(hdr.data.crc16, HashAlgorithm.crc16, 16w0, { hdr.data.x, hdr.data.y }, 32w65536);
        hash(hdr.data.crc32, HashAlgorithm.crc32, 32w0, { hdr.data.x, hdr.data.z, hdr.data.w, hdr.data.y }, 64w0x100000000);
        hash(hdr.data.csum16, HashAlgorithm.csum16, 16w0, { hdr.data.w, hdr.data.x }, 32w65536);
        hash(hdr.data.xor16, HashAlgorithm.xor16, 16w0, { hdr.data.w, hdr.data.x, hdr.data.y, hdr.data.z }, 32w65536);
        hash(hdr.data.identity, HashAlgorithm.identity, 32w5, { hdr.data.x, hdr.data.index }, 64w1000);
        hash(hdr.data.ranged, HashAlgorithm.crc32, 16w100, { hdr.data.w }, 32w77);
        traffic.count((bit<32>) hdr.data.index);
        packets_only.count((bit<32>) hdr.data.index[2:0]);
        bit<64> value;
        bit<5> few;
        wide.read(value, (bit<32>) hdr.data.index);
        narrow.read(few, (bit<32>) hdr.data.index);
        hdr.data.read = value;
        hdr.data.small = (bit<16>) few;
        if (hdr.data.op[0:0] == 1) { wide.write((bit<32>) hdr.data.index, value * 3 + (bit<64>) hdr.data.w); }
        if (hdr.data.op[1:1] == 1) { narrow.write((bit<32>) hdr.data.index, few + hdr.data.x[4:0]); }
        if (hdr.data.op[2:2] == 1) { standard.egress_spec = 2; }
        if (hdr.data.op[3:3] == 1) { hdr.ipv4.setInvalid(); }
        if (hdr.data.op[4:4] == 1 && hdr.ipv4.isValid()) { hdr.ipv4.ttl = hdr.ipv4.ttl - 1; }
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(4, CounterType.bytes) leaving;
    apply { leaving.count((bit<32>) standard.egress_port); }
}

control Update(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.data.op[5:5] == 1, {
            hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.total_length, hdr.ipv4.identification, hdr.ipv4.flags,
            hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst
        }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.data); packet.emit(hdr.ipv4); }
}

V1Switch(Parse(), Verify(), Forward(), Leave(), Update(), Deparse()) main;
