/*
 * Parsers and deparsers.
 *
 *   start ─CPU port──────▶ packet_out ─┐
 *     ├────recirculation─▶ again ──────┴▶ ethernet ─0x0800─▶ ipv4 (no options) ─UDP, first fragment─▶ udp ─22341─▶ aggregation ─▶ lanes
 *     └─────────────────────────────────▶
 *
 * Lanes are extracted in ingress from contributions alone: only they are summed. What is not IPv4 without options stays payload
 * behind Ethernet. A packet that ends too early has a parser error, which ingress counts. Egress sees bridged metadata in front.
 */

parser FabricIngressParser(
    packet_in packet,
    out headers_t hdr,
    out ingress_metadata_t meta,
    out ingress_intrinsic_metadata_t ig_intr_md)
{
    Checksum() ipv4_checksum;
    Checksum() aggregation_checksum;

    state start {
        packet.extract(ig_intr_md);
        packet.advance(PORT_METADATA_SIZE);
        meta.bridged.setValid();
        meta.bridged._pad = 0;
        meta.bridged.priority = BULK_PRIORITY;
        meta.bridged.ingress_port = ig_intr_md.ingress_port;
        meta.bridged.ingress_time = 0;
        meta.src_port = 0;
        meta.dst_port = 0;
        meta.drop_reason = 0;
        meta.barred = 0;
        meta.other_source = 0;
        meta.fate = Fate.ROUTE;
        meta.message = Message.OTHER;
        meta.color = MeterColor_t.GREEN;
        meta.ipv4_damaged = false;
        meta.aggregation_damaged = false;
        meta.who = 0;
        meta.chunk = 0;
        meta.child = 0;
        meta.exponent = 0;
        meta.index = 0;
        meta.slots_left = 0;
        meta.other_children = 0;
        meta.is_root = 0;
        meta.up_address = 0;
        meta.up_bit = 0;
        meta.down_group = 0;
        meta.verdict = Verdict.REFUSED;
        meta.children = 0;
        meta.seen = 0;
        meta.missing = 0;
        transition select(ig_intr_md.ingress_port) {
            CPU_PORT: parse_packet_out;
            RECIRCULATION_PORTS &&& RECIRCULATION_MASK: parse_again;
            default: parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }

    state parse_again {
        packet.extract(meta.again);
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
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        meta.src_port = hdr.udp.src_port;
        meta.dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.dst_port) {
            AGGREGATION_PORT: parse_aggregation;
            default: accept;
        }
    }

    state parse_aggregation {
        packet.extract(hdr.aggregation);
        aggregation_checksum.add(hdr.aggregation);
        meta.aggregation_damaged = aggregation_checksum.verify();
        transition select(hdr.aggregation.version, hdr.aggregation.message_type, hdr.udp.length) {
            (AGGREGATION_VERSION, CONTRIBUTION, UDP_BYTES_NARROW):      parse_lanes;
            (AGGREGATION_VERSION, SCALE,        UDP_BYTES_HEADER_ONLY): accept_contribution;
            (AGGREGATION_VERSION, RESULT,       UDP_BYTES_NARROW):      accept_result;
            (AGGREGATION_VERSION, SCALE_RESULT, UDP_BYTES_HEADER_ONLY): accept_result;
            default: accept;
        }
    }

    state parse_lanes {
        packet.extract(hdr.lanes);
        transition accept_contribution;
    }

    state accept_contribution {
        meta.message = Message.CONTRIBUTION;
        transition accept;
    }

    state accept_result {
        meta.message = Message.RESULT;
        transition accept;
    }
}

control FabricIngressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in ingress_metadata_t meta,
    in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md)
{
    Checksum() aggregation_checksum;

    apply {
        // what goes around once more is verified once more
        if (meta.again.isValid()) {
            hdr.aggregation.checksum = aggregation_checksum.update(AGGREGATION_FIELDS);
        }
        packet.emit(meta.bridged);
        packet.emit(meta.again);
        packet.emit(hdr);
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
        meta.depth = 0;
        meta.waited = 0;
        meta.depth_left = 0;
        meta.sojourn_left = 0;
        meta.color = MeterColor_t.GREEN;
        meta.congested = false;
        meta.window_limit = 0;
        meta.congested_limit = 0;
        packet.extract(meta.bridged);
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
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            AGGREGATION_PORT: parse_aggregation;
            default: accept;
        }
    }

    state parse_aggregation {
        packet.extract(hdr.aggregation);
        transition accept;
    }
}

control FabricEgressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in egress_metadata_t meta,
    in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md)
{
    Checksum() ipv4_checksum;
    Checksum() aggregation_checksum;

    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.checksum = ipv4_checksum.update(IPV4_FIELDS);
        }
        if (hdr.aggregation.isValid()) {
            hdr.aggregation.checksum = aggregation_checksum.update(AGGREGATION_FIELDS);
        }
        packet.emit(hdr);
    }
}
