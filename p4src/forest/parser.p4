/*
 * Parsers and deparsers.
 *
 *   start ─▶ ethernet ─0x0800─▶ ipv4 (no options) ─UDP, no fragment─▶ udp ─22347, 88 bytes─▶ a request? ─▶ classification ─▶ features
 *
 * What is not IPv4 without options stays payload behind Ethernet. An answer on its way back stays payload. Egress has bridged
 * metadata in front, and looks at the rest only if the packet is an answer of this node.
 */

parser FabricIngressParser(
    packet_in packet,
    out headers_t hdr,
    out ingress_metadata_t meta,
    out ingress_intrinsic_metadata_t ig_intr_md)
{
    Checksum() ipv4_checksum;

#define CLEAR_WORD(i) meta.word_##i = 0;
    state start {
        packet.extract(ig_intr_md);
        packet.advance(PORT_METADATA_SIZE);
        meta.bridged.setValid();
        meta.bridged._pad = 0;
        meta.bridged.asked = 0;
        meta.bridged.trees = 0;
        meta.bridged.voted = 0;
        meta.bridged.ballots_0 = 0x0F0E0D0C;
        meta.bridged.ballots_1 = 0x0B0A0908;
        meta.bridged.ballots_2 = 0x07060504;
        meta.bridged.ballots_3 = 0x03020100;
        meta.src_port = 0;
        meta.dst_port = 0;
        meta.ipv4_damaged = false;
        meta.drop_reason = 0;
        meta.fate = Fate.ROUTE;
        meta.mine = false;
        meta.other_source = 0;
        meta.barred = 0;
        meta.model = 0;
        meta.bank = 0;
        EACH_WORD(CLEAR_WORD)
        meta.odd_voted = 0;
        meta.odd_ballots_0 = 0;
        meta.odd_ballots_1 = 0;
        meta.odd_ballots_2 = 0;
        meta.odd_ballots_3 = 0;
        transition parse_ethernet;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: look_at_ipv4;
            default: accept;
        }
    }

    state look_at_ipv4 {
        transition select(packet.lookahead<bit<8>>()) {
            IPV4_NO_OPTIONS: parse_ipv4;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        ipv4_checksum.add(hdr.ipv4);
        meta.ipv4_damaged = ipv4_checksum.verify();
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.flags[0:0], hdr.ipv4.protocol) {
            (0, _, PROTOCOL_UDP): parse_udp;
            (0, 0, PROTOCOL_TCP): look_at_tcp;
            default: accept;
        }
    }

    /* Its ports, for the hash */
    state look_at_tcp {
        meta.src_port = packet.lookahead<bit<32>>()[31:16];
        meta.dst_port = packet.lookahead<bit<32>>()[15:0];
        transition accept;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        meta.src_port = hdr.udp.src_port;
        meta.dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.dst_port, hdr.udp.length) {
            (CLASSIFICATION_PORT, UDP_BYTES_CLASSIFICATION): look_at_status;
            default: accept;
        }
    }

    state look_at_status {
        transition select(packet.lookahead<bit<32>>()) {
            CLASSIFICATION_REQUEST: parse_request;
            default: accept;
        }
    }

    state parse_request {
        packet.extract(hdr.classification);
        packet.extract(hdr.features);
        meta.model = hdr.classification.model;
        transition accept;
    }
}

control FabricIngressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in ingress_metadata_t meta,
    in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md)
{
    Checksum() ipv4_checksum;

    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.checksum = ipv4_checksum.update(IPV4_FIELDS);
        }
        packet.emit(meta.bridged);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.classification);
        packet.emit(hdr.features);
    }
}

parser FabricEgressParser(
    packet_in packet,
    out headers_t hdr,
    out egress_metadata_t meta,
    out egress_intrinsic_metadata_t eg_intr_md)
{
    state start {
        packet.extract(eg_intr_md);
        meta.missing = 0;
        packet.extract(meta.counted);
        transition select(meta.counted.asked) {
            1: parse_answer;
            default: accept;
        }
    }

    state parse_answer {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.classification);
        transition accept;
    }
}

control FabricEgressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in egress_metadata_t meta,
    in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md)
{
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.classification);
    }
}
