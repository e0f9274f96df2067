/* Stacks, unions, stacks of unions and varbit fields. The command's `what` says what ingress does with them:
 *
 *   | command | label × 0…4, the last one marked | option × count, of a byte or of two | text: size, varbit, end |
 */
#include <core.p4>
#include <v1model.p4>

header command_t {
    bit<8> what;
    bit<8> index;
    bit<8> labels;  // 0: no labels follow
    bit<8> options;
}

header label_t {
    bit<7> value;
    bit<1> last;
}

header narrow_t {
    bit<8> kind;
    bit<8> value;
}

header wide_t {
    bit<8>  kind;
    bit<16> value;
}

header_union option_t {
    narrow_t narrow;
    wide_t   wide;
}

header text_t {
    bit<8>      size;
    varbit<64>  text;
    bit<16>     end;
}

struct headers_t {
    command_t   command;
    label_t[4]  labels;
    option_t[2] options;
    text_t      text;
    text_t      twin;
}

struct metadata_t {
    bit<8> left;
}

parser AggregatesParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.command);
        meta.left = hdr.command.options;
        transition select(hdr.command.labels) {
            0: parse_options;
            default: parse_label;
        }
    }
    state parse_label {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.last) {
            1: parse_options;
            default: parse_label;
        }
    }
    state parse_options {
        transition select(meta.left, packet.lookahead<bit<8>>()) {
            (0, _): parse_text;
            (_, 1): parse_narrow;
            default: parse_wide;
        }
    }
    state parse_narrow {
        packet.extract(hdr.options.next.narrow);
        meta.left = meta.left - 1;
        transition parse_options;
    }
    state parse_wide {
        packet.extract(hdr.options.next.wide);
        meta.left = meta.left - 1;
        transition parse_options;
    }
    state parse_text {
        packet.extract(hdr.text, (bit<32>)packet.lookahead<bit<8>>());
        transition accept;
    }
}

control AggregatesVerify(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

control AggregatesIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 1;
        bit<8> index = hdr.command.index;
        if (hdr.command.what == 1) {
            hdr.labels.push_front(1);
            hdr.labels[0].setValid();
            hdr.labels[0].value = 0x55;
            hdr.labels[0].last = 0;
        } else if (hdr.command.what == 2) {
            hdr.labels.pop_front(2);
        } else if (hdr.command.what == 3) {
            hdr.labels[index].value = hdr.labels[index].value + 1;
        } else if (hdr.command.what == 4) {
            hdr.labels[index].setInvalid();
        } else if (hdr.command.what == 5) {
            hdr.options[0].wide.setValid();
            hdr.options[0].wide.kind = 2;
            hdr.options[0].wide.value = 0xBEEF;
        } else if (hdr.command.what == 6) {
            hdr.options[1].wide.setInvalid();
            if (!hdr.options[1].narrow.isValid()) {
                hdr.command.index = 0xFF;
            }
        } else if (hdr.command.what == 7) {
            hdr.twin = hdr.text;
            hdr.twin.end = 0x2222;
        } else if (hdr.command.what == 8) {
            hdr.text.setInvalid();
        }
    }
}

control AggregatesEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.command.what == 9) {
            hdr.command.index = (bit<8>)standard.packet_length;
        }
        if (hdr.command.what == 8) {
            hdr.command.index = (bit<8>)standard.packet_length;
        }
    }
}

control AggregatesCompute(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.twin.isValid(), {hdr.text.size, hdr.text.text, hdr.command.what}, hdr.twin.end,
                        HashAlgorithm.csum16);
    }
}

control AggregatesDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.command);
        packet.emit(hdr.labels);
        packet.emit(hdr.options);
        packet.emit(hdr.text);
        packet.emit(hdr.twin);
    }
}

V1Switch(AggregatesParser(), AggregatesVerify(), AggregatesIngress(), AggregatesEgress(), AggregatesCompute(),
         AggregatesDeparser()) main;
