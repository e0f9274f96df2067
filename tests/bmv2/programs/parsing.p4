// What a parser can do to a packet: lookahead, advance, masks and ranges in select, verify, errors.
//
//   kind 1: one label, a second unless the bottom bit is set    kind 3: mark found by lookahead, after a skipped byte
//   kind 2: options, refused by verify after a lookahead        kind 4: sub-headers by masks, ranges and tuples in select
#include <core.p4>
#include <v1model.p4>

error { BadOption, BadMark }

header kind_t { bit<8> kind; bit<8> errors; }
header label_t { bit<20> value; bit<3> class; bit<1> bottom; bit<8> ttl; }
header options_t { bit<4> words; bit<12> id; bit<40> body; }
header mark_t { bit<7> a; bit<9> b; }
header sub_t { bit<8> selector; bit<8> other; int<12> signed_value; bit<4> rest; }

struct headers_t {
    kind_t kind;
    label_t outer;
    label_t inner;
    options_t options;
    mark_t mark;
    sub_t sub;
    label_t wide;
}

struct metadata_t { bit<16> peeked; bit<8> path; }

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.kind);
        transition select(hdr.kind.kind) {
            1: labels;
            2: options;
            3: mark;
            4: sub;
            5: reject;
            default: accept;
        }
    }
    state labels {
        packet.extract(hdr.outer);
        transition select(hdr.outer.bottom, hdr.outer.class) {
            (0, 0..6): inner;
            (1, _): accept;
        }
    }
    state inner { packet.extract(hdr.inner); transition accept; }
    state options {
        bit<4> words = packet.lookahead<bit<4>>();
        verify(words != 15, error.BadOption);
        packet.extract(hdr.options);
        transition accept;
    }
    state mark {
        packet.advance(8);
        meta.peeked = packet.lookahead<bit<16>>();
        packet.extract(hdr.mark);
        verify(hdr.mark.a != 0, error.BadMark);
        transition select(hdr.mark.b[3:0] ++ hdr.mark.a[1:0]) {
            0x3f: wide;
            default: accept;
        }
    }
    state sub {
        packet.extract(hdr.sub);
        meta.path = 1;
        transition select(hdr.sub.selector, hdr.sub.other) {
            (0x80 &&& 0xc0, _): wide;
            (0x10..0x1f, 7): two;
            (0x20, 0x01 &&& 0x01): accept;
            (_, 0xff): reject;
            (0x30, _): default_error;
        }
    }
    state two {
        meta.path = 2;
        packet.extract(hdr.mark);
        transition accept;
    }
    state wide {
        meta.path = 3;
        packet.extract(hdr.wide);
        transition select(hdr.wide.value) { 0..0x7ffff: accept; default: two; }
    }
    state default_error {
        verify(false, error.HeaderTooShort);
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = standard.ingress_port ^ 1;
        if (!hdr.kind.isValid()) {
            mark_to_drop(standard);
        }
        bit<8> number = 0;
        if (standard.parser_error == error.NoError) { number = 0; }
        else if (standard.parser_error == error.PacketTooShort) { number = 1; }
        else if (standard.parser_error == error.NoMatch) { number = 2; }
        else if (standard.parser_error == error.StackOutOfBounds) { number = 3; }
        else if (standard.parser_error == error.HeaderTooShort) { number = 4; }
        else if (standard.parser_error == error.ParserInvalidArgument) { number = 6; }
        else if (standard.parser_error == error.BadOption) { number = 7; }
        else if (standard.parser_error == error.BadMark) { number = 8; }
        else { number = 0xee; }
        hdr.kind.errors = number | (meta.path << 4);
        if (hdr.outer.isValid() && hdr.inner.isValid()) {
            hdr.inner.ttl = hdr.outer.ttl - 1;
            hdr.outer.setInvalid();
        } else if (hdr.outer.isValid()) {
            hdr.inner = hdr.outer;
            hdr.outer.value = 0xabcde;
            hdr.outer.bottom = 0;
            hdr.inner.class = hdr.inner.class |+| 5;
        }
        if (hdr.mark.isValid() && !hdr.sub.isValid()) {
            hdr.mark.b = meta.peeked[8:0] + 1;
        }
        if (hdr.sub.isValid()) {
            hdr.sub.signed_value = hdr.sub.signed_value >> 2;
            if (hdr.sub.signed_value < 0) { hdr.sub.rest = 0xf; }
        }
    }
}

control Leave(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control Update(inout headers_t hdr, inout metadata_t meta) { apply { } }

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.kind);
        packet.emit(hdr.outer);
        packet.emit(hdr.inner);
        packet.emit(hdr.options);
        packet.emit(hdr.sub);
        packet.emit(hdr.mark);
        packet.emit(hdr.wide);
    }
}

V1Switch(Parse(), Verify(), Forward(), Leave(), Update(), Deparse()) main;
