// One table of each kind of key; every action writes the number that its entry carries into the packet.
#include <core.p4>
#include <v1model.p4>

header key_t {
    bit<8>   which;
    bit<48>  mac;
    bit<12>  vlan;
    bit<4>   pcp;
    bit<32>  ip;
    bit<128> ip6;
    bit<16>  port;
    bit<8>   protocol;
}
header answer_t {
    bit<8>  hit;
    bit<32> number;
}
struct headers_t { key_t key; answer_t answer; }
struct metadata_t { }

parser TablesParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start { packet.extract(hdr.key); packet.extract(hdr.answer); transition accept; }
}
control TablesVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control TablesIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) exact_hits;
    action number(bit<32> n) { hdr.answer.number = n; hdr.answer.hit = 1; }
    action none() { hdr.answer.hit = 0; }
    table exact_wide {
        key = { hdr.key.mac: exact; hdr.key.vlan: exact; hdr.key.ip6: exact; }
        actions = { number; none; }
        default_action = none;
        counters = exact_hits;
        size = 8192;
    }
    table longest {
        key = { hdr.key.ip: lpm; hdr.key.pcp: exact; }
        actions = { number; none; }
        default_action = none;
        size = 8192;
    }
    table ternary6 {
        key = { hdr.key.ip6: ternary; hdr.key.port: ternary; hdr.key.vlan: exact; }
        actions = { number; none; }
        default_action = none;
        size = 8192;
    }
    table ranges {
        key = { hdr.key.port: range; hdr.key.protocol: ternary; hdr.key.ip: lpm; }
        actions = { number; none; }
        default_action = none;
        size = 4096;
    }
    table optionals {
        key = { hdr.key.port: optional; hdr.key.protocol: optional; }
        actions = { number; none; }
        default_action = none;
        size = 4096;
    }
    table constants {
        key = { hdr.key.protocol: ternary; hdr.key.port: range; }
        actions = { number; none; }
        const default_action = none();
        const entries = {
            (0x06, 0x0050 .. 0x0051): number(1);
            (0x06, _): number(2);
            (0x10 &&& 0xf0, 0x0100 .. 0x01ff): number(3);
            (_, 0x0100): number(4);
        }
    }
    table keyless {
        actions = { number; none; }
        default_action = number(77);
    }
    table fixed {
        actions = { number; }
        const default_action = number(78);
    }
    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.key.which == 0) { exact_wide.apply(); }
        else if (hdr.key.which == 1) { longest.apply(); }
        else if (hdr.key.which == 2) { ternary6.apply(); }
        else if (hdr.key.which == 3) { ranges.apply(); }
        else if (hdr.key.which == 4) { optionals.apply(); }
        else if (hdr.key.which == 5) { constants.apply(); }
        else if (hdr.key.which == 6) { keyless.apply(); }
        else { fixed.apply(); }
    }
}
control TablesEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply { } }
control TablesUpdate(inout headers_t hdr, inout metadata_t meta) { apply { } }
control TablesDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.key); packet.emit(hdr.answer); } }
V1Switch(TablesParser(), TablesVerify(), TablesIngress(), TablesEgress(), TablesUpdate(), TablesDeparser()) main;
