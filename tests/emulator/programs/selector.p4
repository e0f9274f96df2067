// Action profile and action selector, and IPv4 checksum over a header that may be absent.
#include <core.p4>
#include <v1model.p4>

header key_t { bit<8> kind; bit<32> flow; bit<16> value; bit<16> checksum; }
header more_t { bit<16> word; }
struct headers_t { key_t key; more_t more; }
struct metadata_t { }

parser SelectorParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.key);
        transition select(hdr.key.kind) { 0x80 &&& 0x80: more; default: accept; }
    }
    state more { packet.extract(hdr.more); transition accept; }
}
control SelectorVerify(inout headers_t hdr, inout metadata_t meta) {
    apply { verify_checksum(hdr.key.kind == 7, { hdr.key.flow, hdr.key.value }, hdr.key.checksum, HashAlgorithm.csum16); }
}
control SelectorIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action_selector(HashAlgorithm.crc16, 64, 16) choose;
    action_profile(32) plain;
    action to(bit<9> port, bit<80> big) { sm.egress_spec = port; hdr.key.flow = big[79:48]; }
    action drop() { mark_to_drop(sm); }
    table grouped {
        key = { hdr.key.kind: exact; hdr.key.flow: selector; hdr.more.word: selector; }
        actions = { to; drop; }
        implementation = choose;
    }
    table single {
        key = { hdr.key.kind: exact; }
        actions = { drop; to; NoAction; }
        implementation = plain;
    }
    apply {
        if (!grouped.apply().hit) {
            switch (single.apply().action_run) {
                to: { hdr.key.value = 0xaaaa; }
                default: { hdr.key.value = 0xbbbb; }
            }
        }
    }
}
control SelectorEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply { } }
control SelectorUpdate(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.key.kind != 9, { hdr.key.flow, hdr.more.word, hdr.key.value }, hdr.key.checksum, HashAlgorithm.csum16);
    }
}
control SelectorDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.key); packet.emit(hdr.more); } }
V1Switch(SelectorParser(), SelectorVerify(), SelectorIngress(), SelectorEgress(), SelectorUpdate(), SelectorDeparser()) main;
