// Headers in numbers and of no fixed size: a stack, a varbit field, a union.
//
//   kind 1: labels (stack of 4, up to the bottom bit)    kind 2: options (varbit, length in words)    kind 3: either of two
#include <core.p4>
#include <v1model.p4>

header kind_t { bit<8> kind; bit<8> errors; bit<8> op; }
header label_t { bit<20> value; bit<3> class; bit<1> bottom; bit<8> ttl; }
header options_t { bit<4> words; bit<12> id; varbit<112> body; }
header short_t { bit<8> tag; bit<8> x; }
header long_t { bit<8> tag; bit<24> y; }
header_union either_t { short_t short; long_t long; }
struct headers_t { kind_t kind; label_t[4] labels; options_t options; options_t copied; either_t either; }
struct metadata_t { }

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.kind);
        transition select(hdr.kind.kind) {
            1: labels;
            2: options;
            3: either;
            default: accept;
        }
    }
    state labels {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.bottom) {
            0: labels;
            1: accept;
        }
    }
    state options {
        packet.extract(hdr.options, (bit<32>) packet.lookahead<bit<4>>() << 3);
        transition accept;
    }
    state either {
        transition select(packet.lookahead<bit<8>>()) {
            0 &&& 1: short;
            default: long;
        }
    }
    state short { packet.extract(hdr.either.short); transition accept; }
    state long { packet.extract(hdr.either.long); transition accept; }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        if (!hdr.kind.isValid()) { mark_to_drop(standard); exit; }
        if (standard.parser_error == error.NoError) { hdr.kind.errors = 0; }
        else if (standard.parser_error == error.PacketTooShort) { hdr.kind.errors = 1; }
        else if (standard.parser_error == error.StackOutOfBounds) { hdr.kind.errors = 3; }
        else if (standard.parser_error == error.HeaderTooShort) { hdr.kind.errors = 4; }
        else { hdr.kind.errors = 0xee; }
        if (hdr.kind.op == 1) { hdr.labels.pop_front(1); }
        if (hdr.kind.op == 2) {
            hdr.labels.push_front(1);
            hdr.labels[0].setValid();
            hdr.labels[0].value = 0xabcde;
        }
        if (hdr.kind.op == 3) { hdr.labels.pop_front(3); }
        if (hdr.kind.op == 4) { hdr.labels.push_front(2); }
        if (hdr.kind.op == 5 && hdr.labels[1].isValid()) { hdr.labels[2] = hdr.labels[1]; hdr.labels[1].setInvalid(); }
        if (hdr.kind.op == 6 && hdr.options.isValid()) { hdr.copied = hdr.options; hdr.copied.id = hdr.copied.id + 1; }
        if (hdr.kind.op == 7 && hdr.either.short.isValid()) {
            hdr.either.long.setValid();
            hdr.either.long.tag = 7;
            hdr.either.long.y = 0x123456;
        }
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control Update(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.kind);
        packet.emit(hdr.labels);
        packet.emit(hdr.options);
        packet.emit(hdr.copied);
        packet.emit(hdr.either);
    }
}

V1Switch(Parse(), Verify(), Forward(), Leave(), Update(), Deparse()) main;
