/*
 * Parser and deparser.
 *
 *   start ─CPU port─▶ packet_out ─▶ ethernet ─0x0800─▶ ipv4 (no options) ─UDP, first fragment─▶ udp ─22341─▶ aggregation ─▶ lanes
 *     └────────────────────────────────▶                                                        └─5000──▶ INT shim ─▶ INT-MD
 *
 * Lanes are extracted from contributions alone: only they are summed. What is not IPv4 without options stays payload behind
 * Ethernet. A packet that ends too early has a parser error, which ingress counts.
 */

parser FabricParser(
    packet_in packet,
    out headers_t hdr,
    inout metadata_t meta,
    inout standard_metadata_t standard_metadata)
{
    state start {
        meta.src_port = 0;
        meta.dst_port = 0;
        meta.fate = Fate.ROUTE;
        meta.drop_reason = 0;
        meta.leaves = false;
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
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
            INT_PORT: parse_int_shim;
            default: accept;
        }
    }

    state parse_aggregation {
        packet.extract(hdr.aggregation);
        transition select(hdr.aggregation.message_type, hdr.udp.length) {
            (CONTRIBUTION, UDP_BYTES_NARROW): parse_lanes;
#if LANES > NARROW_LANES
            (CONTRIBUTION, UDP_BYTES_WITH_LANES): parse_wide_lanes;
#endif
            default: accept;
        }
    }

    state parse_lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }

#if LANES > NARROW_LANES
    state parse_wide_lanes {
        packet.extract(hdr.lanes);
        packet.extract(hdr.wide_lanes);
        transition accept;
    }
#endif

    state parse_int_shim {
        packet.extract(hdr.int_shim);
        transition select(hdr.int_shim.shim_type) {
            INT_TYPE_MD: parse_int_md;
            default: accept;
        }
    }

    state parse_int_md {
        packet.extract(hdr.int_md);
        transition accept;
    }
}

control FabricDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}
