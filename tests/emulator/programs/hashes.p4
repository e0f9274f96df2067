// Hashes and checksums over the payload and over fields that do not fill whole bytes.
#include <core.p4>
#include <v1model.p4>

header choice_t {
    bit<8>  what;
    bit<4>  upper;
    bit<12> lower;
}

header extra_t {
    bit<3>  a;
    bit<13> b;
}

header result_t {
    bit<64> value;
    bit<32> deparsed;
}

struct headers_t {
    choice_t choice;
    extra_t  extra;
    result_t result;
}

struct metadata_t {
    bit<5> five;
}

parser HashesParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.choice);
        transition select(hdr.choice.what) {
            0 &&& 1: parse_result;
            default: parse_extra;
        }
    }
    state parse_extra {
        packet.extract(hdr.extra);
        transition parse_result;
    }
    state parse_result {
        packet.extract(hdr.result);
        transition accept;
    }
}

control HashesVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum_with_payload(hdr.choice.what[7:4] == 1, {hdr.choice.upper, hdr.choice.lower},
                                     hdr.result.deparsed, HashAlgorithm.crc32);
    }
}

control HashesIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        meta.five = 5w21;
        bit<64> hashed;
        if (hdr.choice.what[7:1] == 1) {
            hash(hashed, HashAlgorithm.crc32, 64w0, {hdr.choice.upper, hdr.extra.b, hdr.choice.lower, 8w7}, 64w0x100000000);
            hdr.result.value = hashed;
        } else if (hdr.choice.what[7:1] == 2) {
            hash(hashed, HashAlgorithm.crc16, 64w3, {meta.five, hdr.extra.a, hdr.choice.lower}, 64w0x10000);
            hdr.result.value = hashed;
        } else if (hdr.choice.what[7:1] == 3) {
            hash(hashed, HashAlgorithm.identity, 64w0, {hdr.extra.b, hdr.choice.lower}, 64w0xFFFFFFFFFFFFFFFF);
            hdr.result.value = hashed;
        } else if (hdr.choice.what[7:1] == 4) {
            hash(hashed, HashAlgorithm.xor16, 64w0, {hdr.extra.a, hdr.choice.what, hdr.choice.upper}, 64w0x10000);
            hdr.result.value = hashed;
        } else if (hdr.choice.what[7:4] == 1) {
            hdr.result.value = (bit<64>)standard.checksum_error;
        }
    }
}

control HashesEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control HashesCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum_with_payload(hdr.choice.what[7:4] == 2, {hdr.choice.what, hdr.extra.b, hdr.choice.lower},
                                     hdr.result.deparsed, HashAlgorithm.crc32);
        update_checksum_with_payload(hdr.choice.what[7:4] == 3, {hdr.choice.what, hdr.extra.b, hdr.extra.a},
                                     hdr.result.deparsed, HashAlgorithm.crc16);
        update_checksum_with_payload(hdr.choice.what[7:4] == 4, {hdr.choice.what},
                                     hdr.result.deparsed, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.choice.what[7:4] == 5, {hdr.choice.what, hdr.extra.a, hdr.extra.b},
                                     hdr.result.deparsed, HashAlgorithm.xor16);
    }
}

control HashesDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.choice);
        packet.emit(hdr.extra);
        packet.emit(hdr.result);
    }
}

V1Switch(HashesParser(), HashesVerify(), HashesIngress(), HashesEgress(), HashesCompute(), HashesDeparser()) main;
