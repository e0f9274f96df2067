/*
 * Parser and deparser.
 *
 *   start ─CPU port─▶ packet_out ─▶ ethernet ─0x0800─▶ ipv4 (no options) ─first fragment─▶ udp ─▶ INT? ─▶ aggregation ─▶ lanes
 *     └────────────────────────────────▶                               └───no fragment──▶ tcp ─▶ INT?
 *
 *   INT?  UDP port 5000 ───────────────────────┐
 *         DSCP bit, and what looks like a shim ─┼─▶ shim ─▶ INT-MD or INT-MX ─▶ stack ─▶ UDP to 22341 within: aggregation
 *         probe marker ────────────────────────┘                                   └─▶ the ports of a TCP header within
 *
 * UDP to 22347: a request for a class, with its features. Lanes are extracted from contributions alone: only they are summed. What is not IPv4 without options stays payload behind
 * Ethernet. A packet that ends too early has a parser error, which ingress counts. INT headers that the fabric does not use
 * (marks) stay as they are, whatever the parser took them for. meta.src_port, dst_port and protocol are the flow's without
 * INT, so that its packets take one path with it and without it.
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
        meta.protocol = 0;
        meta.fate = Fate.ROUTE;
        meta.drop_reason = 0;
        meta.leaves = false;
        meta.wanting = 0xFFFFFFFF;
        meta.pruned_bytes = 0;
        meta.mark = Mark.NONE;
        meta.has_int = 0;
        meta.stacks = 0;
        meta.discards = 0;
        meta.whole = 0;
        meta.dscp_marked = 0;
        meta.at_sink = 0;
        meta.due = 0;
        meta.wanted = Mode.NONE;
        meta.ignored = 0;
        meta.sums = L4.NONE;
        meta.resum = 0;
        meta.report = Report.NONE;
        meta.int_bytes = 0;
        meta.udp_length = 0;
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
        meta.protocol = hdr.ipv4.protocol;
        meta.dscp_marked = hdr.ipv4.dscp[0:0];
        meta.whole = ~hdr.ipv4.flags[0:0];
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.flags[0:0], hdr.ipv4.protocol) {
            (0, _, PROTOCOL_UDP): parse_udp;
            (0, 0, PROTOCOL_TCP): look_at_tcp;
            (0, 0, _): accept;
            default: parse_fragment;
        }
    }

    state parse_fragment {
        meta.whole = 0;
        transition accept;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        meta.src_port = hdr.udp.src_port;
        meta.dst_port = hdr.udp.dst_port;
        meta.udp_length = hdr.udp.length;
        meta.sums = L4.UDP;
        // a mark by DSCP or marker is looked for where the datagram has room for it and for the headers behind
        transition select(hdr.udp.dst_port, hdr.udp.length, meta.dscp_marked) {
            (INT_PORT, _, _): parse_port_mark;
            (_, 0 .. 23, _): behind_udp;
            (_, 24 .. 31, 1): look_at_shim;
            (_, 24 .. 31, 0): behind_udp;
            default: look_at_marker;
        }
    }

    /* A segment that is cut short of its header is passed on as it is. */
    state look_at_tcp {
        transition select(hdr.ipv4.total_length) {
            0 .. 39: accept;
            default: parse_tcp;
        }
    }

    state parse_tcp {
        packet.extract(hdr.tcp);
        meta.src_port = hdr.tcp.src_port;
        meta.dst_port = hdr.tcp.dst_port;
        meta.sums = L4.TCP;
        transition select(hdr.ipv4.total_length, meta.dscp_marked) {
            (0 .. 55, _): accept;
            (56 .. 63, 1): look_at_shim;
            (56 .. 63, 0): accept;
            default: look_at_marker;
        }
    }

    state look_at_marker {
        transition select(packet.lookahead<bit<64>>(), meta.dscp_marked) {
            (PROBE_MARKER, _): parse_marker;
            (_, 1): look_at_shim;
            default: behind_udp;
        }
    }

    /* type MD or MX, next protocol type 0; version 2 behind it */
    state look_at_shim {
        transition select(packet.lookahead<bit<40>>()) {
            0x1000000020 &&& 0xFC000000F0: parse_dscp_mark;
            0x3000000020 &&& 0xFC000000F0: parse_dscp_mark;
            default: behind_udp;
        }
    }

    state parse_port_mark {
        meta.mark = Mark.UDP_PORT;
        transition parse_int_shim;
    }

    state parse_dscp_mark {
        meta.mark = Mark.DSCP;
        transition parse_int_shim;
    }

    state parse_marker {
        packet.extract(hdr.int_marker);
        meta.mark = Mark.PROBE_MARKER;
        meta.int_bytes = MARKER_BYTES;
        transition parse_int_shim;
    }

    state parse_int_shim {
        packet.extract(hdr.int_shim);
        transition select(hdr.int_shim.shim_type, hdr.int_shim.length) {
            (_, 0 .. 2): accept;
            (INT_TYPE_MD, _): parse_int_md;
            (INT_TYPE_MX, _): parse_int_mx;
            default: accept;
        }
    }

    state parse_int_md {
        meta.stacks = 1;
        transition parse_int_mx;
    }

    state parse_int_mx {
        packet.extract(hdr.int_md);
        meta.int_bytes = meta.int_bytes + 4 + ((bit<16>)hdr.int_shim.length << 2);
        meta.udp_length = meta.udp_length - meta.int_bytes;
        meta.discards = hdr.int_md.discard;
        transition select(hdr.int_md.version, hdr.int_shim.length) {
            (INT_VERSION, INT_MD_WORDS): behind_int;
            (INT_VERSION, _): parse_int_stack;
            default: accept;
        }
    }

    state parse_int_stack {
        packet.extract(hdr.int_stack, ((bit<32>)hdr.int_shim.length - 3) << 5);
        transition behind_int;
    }

    state behind_int {
        meta.has_int = 1;
        transition select(meta.mark, hdr.int_shim.next_protocol_type) {
            (Mark.UDP_PORT, NPT_UDP_PORT): restore_port;
            (Mark.UDP_PORT, NPT_PROTOCOL): restore_protocol;
            default: behind_udp;
        }
    }

    state restore_port {
        meta.dst_port = hdr.int_shim.original;
        transition behind_udp;
    }

    state restore_protocol {
        meta.protocol = hdr.int_shim.original[7:0];
        meta.sums = L4.NONE;
        meta.src_port = 0;
        meta.dst_port = 0;
        transition select(hdr.int_shim.original[7:0]) {
            PROTOCOL_TCP: look_at_inner_ports;
            default: accept;
        }
    }

    state look_at_inner_ports {
        bit<32> ports = packet.lookahead<bit<32>>();
        meta.src_port = ports[31:16];
        meta.dst_port = ports[15:0];
        transition accept;
    }

    state behind_udp {
        transition select(hdr.ipv4.protocol, meta.dst_port) {
            (PROTOCOL_UDP, AGGREGATION_PORT): parse_aggregation;
            (PROTOCOL_UDP, CLASSIFICATION_PORT): look_at_request;
            default: accept;
        }
    }

    /* An answer on its way back stays payload. */
    state look_at_request {
        transition select(meta.udp_length) {
            UDP_BYTES_CLASSIFICATION: look_at_status;
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
        transition accept;
    }

    state parse_aggregation {
        packet.extract(hdr.aggregation);
        transition select(hdr.aggregation.message_type, meta.udp_length) {
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
}

control FabricDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.packet_out);
        packet.emit(hdr.report_ethernet);
        packet.emit(hdr.report_ipv4);
        packet.emit(hdr.report_udp);
        packet.emit(hdr.report_group);
        packet.emit(hdr.report);
        packet.emit(hdr.report_ports);
        packet.emit(hdr.report_latency);
        packet.emit(hdr.report_queue);
        packet.emit(hdr.report_ingress_time);
        packet.emit(hdr.report_egress_time);
        packet.emit(hdr.report_interfaces);
        packet.emit(hdr.report_utilisation);
        packet.emit(hdr.report_drop);
        packet.emit(hdr.report_bytes);
        packet.emit(hdr.report_slots);
        packet.emit(hdr.report_number);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.tcp);
        packet.emit(hdr.int_marker);
        packet.emit(hdr.int_shim);
        packet.emit(hdr.int_md);
        packet.emit(hdr.int_node_id);
        packet.emit(hdr.int_ports);
        packet.emit(hdr.int_latency);
        packet.emit(hdr.int_queue);
        packet.emit(hdr.int_ingress_time);
        packet.emit(hdr.int_egress_time);
        packet.emit(hdr.int_interfaces);
        packet.emit(hdr.int_utilisation);
        packet.emit(hdr.int_baseline_ones_4);
        packet.emit(hdr.int_baseline_ones_2);
        packet.emit(hdr.int_baseline_ones_1);
        packet.emit(hdr.int_bytes);
        packet.emit(hdr.int_slots);
        packet.emit(hdr.int_domain_ones_16);
        packet.emit(hdr.int_domain_ones_8);
        packet.emit(hdr.int_domain_ones_4);
        packet.emit(hdr.int_domain_ones_2);
        packet.emit(hdr.int_domain_ones_1);
        packet.emit(hdr.int_stack);
        packet.emit(hdr.int_inner_tcp);
        packet.emit(hdr.aggregation);
        packet.emit(hdr.lanes);
#if LANES > NARROW_LANES
        packet.emit(hdr.wide_lanes);
#endif
        packet.emit(hdr.classification);
        packet.emit(hdr.features);
    }
}
