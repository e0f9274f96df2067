/*
 * INT sink: where a packet with INT leaves the fabric, or is consumed, it becomes what it was before INT.
 *
 *   sinks (destination: a host at this switch, or this node) ─▶ due? ─yes─▶ number, clone: the stack's report
 *                                                                 └──────▶ headers out; lengths, port, DSCP, checksum back
 *
 * Stripping comes before the queue. The queue's own figures are reported from egress (int_transit.p4), under the number that
 * the stack's report has; a packet that is summed here has none. A packet is due when a node upstream has set DS_FLAG_EVENT, or none of its flow was reported for
 * `period` µs. Reads meta's INT part; writes ipv4, udp, tcp, the INT headers, meta.report and what it says.
 */

control IntSink(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    L4Save() save;

    /* The flow's hash (32 bits) and when it was reported last (µs, 32 bits) */
    @id(SINK_FLOW_REGISTER_ID)
    register<bit<64>>(FLOWS) sink_flows;
    @id(PACKET_NUMBER_REGISTER_ID)
    register<bit<32>>(1) packet_number;

    bit<32> quiet_us = 0;
    bit<32> flow = 0;
    bit<1>  flagged = 0;
    bit<1>  passed = 0;

    @id(STRIP_ACTION_ID)
    action strip(bit<32> period) {
        quiet_us = period;
        flagged = hdr.int_md.domain == INT_DOMAIN ? hdr.int_md.domain_flags[15:15] : 0;
        hash(flow, HashAlgorithm.crc32, 32w0,
             { hdr.ipv4.src_addr, hdr.ipv4.dst_addr, meta.protocol, meta.src_port, meta.dst_port }, 64w0x100000000);
    }

    @id(SINKS_TABLE_ID)
    table sinks {
        key = { hdr.ipv4.dst_addr: exact @name("dst_addr"); }
        actions = { strip; @defaultonly NoAction; }
        const default_action = NoAction;
        size = SINKS;
    }

    @id(JUDGE_PERIOD_ACTION_ID)
    action judge_period() {
        bit<64> held;
        bit<32> now = (bit<32>)standard_metadata.ingress_global_timestamp;
        sink_flows.read(held, flow & (FLOWS - 1));
        passed = held[63:32] != flow ? 1w1 : (now - held[31:0] >= quiet_us ? 1w1 : 1w0);
        sink_flows.write(flow & (FLOWS - 1), passed == 1 || flagged == 1 ? flow ++ now : held);
    }

    @id(NUMBER_ACTION_ID)
    action number_packet() {
        packet_number.read(meta.report_number, 0);
        packet_number.write(0, meta.report_number + 1);
    }

    /* The clone is of the packet as it came, with the whole stack. */
    @id(REPORT_STACK_ACTION_ID)
    action report_stack() {
        meta.due = 1;
        meta.report = Report.STACK;
        meta.report_flags = REPORT_FLOW;
        meta.report_bits = REPORT_BITS_OF_STACK;
        meta.report_domain_bits = DOMAIN_BIT_NUMBER;
        meta.report_inner_bytes = REPORT_STACK_BYTES + meta.int_bytes;
        meta.report_ingress_time = standard_metadata.ingress_global_timestamp;
        clone_preserving_field_list(CloneType.I2E, REPORT_SESSION, REPORT_FIELDS);
    }

    /* ---- what INT has changed, back as it was ---- */

    @id(SAVE_STACK_ACTION_ID)
    action save_stack() {
        hdr.gone_stack = hdr.int_stack;
    }

    @id(RESTORE_UDP_ACTION_ID)
    action restore_udp() {
        hdr.udp.dst_port = meta.dst_port;
        hdr.udp.length = meta.udp_length;
    }

    /* The segment's own header comes next, and its checksum was right all the time. */
    @id(UNWRAP_ACTION_ID)
    action unwrap() {
        hdr.udp.setInvalid();
        hdr.ipv4.protocol = meta.protocol;
        hdr.ipv4.total_length = hdr.ipv4.total_length - UDP_BYTES;
    }

    @id(RESTORE_DSCP_ACTION_ID)
    action restore_dscp() {
        hdr.ipv4.dscp = hdr.int_shim.original[7:2];
    }

    @id(FORGET_INT_ACTION_ID)
    action forget_int() {
        hdr.ipv4.total_length = hdr.ipv4.total_length - meta.int_bytes;
        meta.at_sink = 1;
        meta.has_int = 0;
        meta.wanted = Mode.XD;
        meta.instructions = hdr.int_md.instructions;
        meta.domain_instructions = hdr.int_md.domain == INT_DOMAIN ? hdr.int_md.domain_instructions : 0;
        hdr.int_marker.setInvalid();
        hdr.int_shim.setInvalid();
        hdr.int_md.setInvalid();
        hdr.int_stack.setInvalid();
    }

    apply {
        if (sinks.apply().hit) {
            judge_period();
            if (passed == 1 || flagged == 1) {
                number_packet();
                report_stack();
            }
            save.apply(hdr, meta);
            save_stack();
            if (meta.mark == Mark.DSCP) {
                restore_dscp();
            }
            forget_int();
            if (meta.sums == L4.UDP) {
                restore_udp();
            } else if (meta.sums == L4.NONE) {
                unwrap();
            }
        }
    }
}
