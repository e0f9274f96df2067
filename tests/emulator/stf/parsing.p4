// What a parser may do: masks and several keys, lookahead, advance, verify, loops, errors and rejection.
#include <core.p4>
#include <v1model.p4>

error { TooDeep }

header first_t { bit<8> what; bit<8> depth; bit<16> error_code; bit<16> ahead; }
header option_t { bit<8> next; bit<8> value; }
struct headers_t { first_t first; option_t option; option_t last; }
struct metadata_t { bit<16> ahead; }
#include "skeleton.p4"

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.first);
        verify(hdr.first.depth < 100, error.TooDeep);
        transition select(hdr.first.what, hdr.first.depth) {
            (0x10 &&& 0xf0, _): look;
            (0x20, 1): skip;
            (0x20, 2..9): option;
            (0x30, _): options;
            (0x40, _): strict;
            default: accept;
        }
    }
    state look { meta.ahead = packet.lookahead<bit<16>>(); transition accept; }
    state skip { packet.advance(16); transition option; }
    state option { packet.extract(hdr.option); transition accept; }
    state options {
        packet.extract(hdr.last);
        transition select(hdr.last.next) { 0: accept; default: options; }
    }
    state strict {
        transition select(hdr.first.depth) { 1: option; }
    }
}
control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        hdr.first.ahead = meta.ahead;
        if (sm.parser_error == error.NoError) { hdr.first.error_code = 1; }
        if (sm.parser_error == error.PacketTooShort) { hdr.first.error_code = 2; }
        if (sm.parser_error == error.NoMatch) { hdr.first.error_code = 3; }
        if (sm.parser_error == error.TooDeep) { hdr.first.error_code = 4; }
        if (!hdr.first.isValid()) { sm.egress_spec = 2; }
    }
}
control Deparse(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.first); packet.emit(hdr.option); packet.emit(hdr.last); }
}
V1Switch(Parse(), NoVerify(), Forward(), NoEgress(), NoUpdate(), Deparse()) main;
