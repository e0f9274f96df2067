/*
 * Ingress: is it sound, is it for this switch, and where does it go.
 *
 *   sound? ─▶ packet-out ───────────────────────────────────────────────▶ its port
 *        └──▶ int_sink ─▶ traffic_class ─▶ policing ─▶ node_address ─mine─▶ aggregation ─▶ a slot, children, or routing
 *                                                          │        ├───▶ admission ─▶ inference ─▶ routing
 *                                                          │        └───▶ probe ───────▶ CPU
 *                                                          └─not mine──▶ admission ─────▶ routing
 *
 * The first reason to drop counts, once, in `drops`, and is reported if `drop_watch` wants it. Summing a packet into a slot is
 * no drop.
 */

control FabricIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Policing() policing;
    Aggregation() aggregation;
    Inference() inference;
    Admission() admission;
    Routing() routing;
    IntSink() int_sink;

    bit<1> mine = 0;                // addressed to this node

    @id(DROPS_COUNTER_ID)
    counter(DROP_REASONS, CounterType.packets) drops;

    @id(INGRESS_REFUSE_ACTION_ID)
    action refuse(bit<8> reason) {
        meta.fate = Fate.DROP;
        meta.drop_reason = reason;
    }

    @id(TO_NODE_ACTION_ID)
    action to_node() {}

    @id(NODE_ADDRESS_TABLE_ID)
    table node_address {
        key = { hdr.ipv4.dst_addr: exact; }
        actions = { to_node; @defaultonly NoAction; }
        const default_action = NoAction;
        size = NODE_ADDRESSES;
    }

    @id(SET_CLASS_ACTION_ID)
    action set_class(bit<3> priority) {
        standard_metadata.priority = priority;
    }

    @id(TRAFFIC_CLASS_TABLE_ID)
    table traffic_class {
        key = { hdr.ipv4.dscp: exact; }
        actions = { set_class; }
        const default_action = set_class(BULK_CLASS);
        size = TRAFFIC_CLASSES;
    }

    /* ---- INT ---- */

    @id(RECOGNISE_ACTION_ID)
    action recognise() {}

    @id(REFUSE_MARK_ACTION_ID)
    action refuse_mark() {
        meta.mark = Mark.NONE;
        meta.has_int = 0;
        meta.stacks = 0;
        meta.discards = 0;
    }

    /* The fabric's way to mark INT, beside port 5000: what the parser took for INT of another way is not. */
    @id(MARKS_TABLE_ID)
    table marks {
        key = { meta.mark: exact @name("presence"); }
        actions = { recognise; @defaultonly refuse_mark; }
        const default_action = refuse_mark;
        size = 4;
    }

    @id(CLEAR_MARK_ACTION_ID)
    action clear_mark() {
        hdr.ipv4.dscp = hdr.ipv4.dscp & ~DSCP_MARK;
        refuse_mark();
    }

    /* Ports of hosts in a fabric that marks by DSCP: what comes in there has no INT, and must not look as if it had. */
    @id(EDGES_TABLE_ID)
    table edges {
        key = { standard_metadata.ingress_port: exact @name("ingress_port"); }
        actions = { clear_mark; @defaultonly NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    /* What leaves of a sum is another packet than the one that came. */
    @id(BEGIN_ANEW_ACTION_ID)
    action begin_anew() {
        meta.at_sink = 0;
        meta.due = 0;
        meta.resum = 0;
        meta.wanted = Mode.NONE;
    }

    @id(REPORT_DROP_ACTION_ID)
    action report_drop() {
        meta.report = Report.DROP;
        meta.report_flags = meta.has_int == 1 ? REPORT_DROPPED | REPORT_FLOW : REPORT_DROPPED;
        meta.report_bits = REPORT_BITS_OF_DROP;
        meta.report_domain_bits = 0;
        meta.report_inner_bytes = REPORT_STACK_BYTES + meta.int_bytes;
        meta.report_ingress_port = (bit<16>)standard_metadata.ingress_port;
        meta.report_egress_port = UNAVAILABLE_PORT;
        meta.report_ingress_time = standard_metadata.ingress_global_timestamp;
        meta.report_reason = meta.drop_reason;
        clone_preserving_field_list(CloneType.I2E, REPORT_SESSION, REPORT_FIELDS);
    }

    @id(IGNORE_DROP_ACTION_ID)
    action ignore_drop() {}

    @id(DROP_WATCH_TABLE_ID)
    table drop_watch {
        key = {
            meta.drop_reason:  ternary @name("reason");
            hdr.ipv4.src_addr: ternary @name("src_addr");
            hdr.ipv4.dst_addr: ternary @name("dst_addr");
            meta.protocol:     ternary @name("protocol");
            meta.src_port:     ternary @name("src_port");
            meta.dst_port:     ternary @name("dst_port");
        }
        actions = { report_drop; ignore_drop; @defaultonly NoAction; }
        const default_action = NoAction;
        size = DROP_WATCHLIST;
    }

    apply {
        if (meta.dscp_marked == 1) {
            edges.apply();
        }
        if (meta.mark == Mark.DSCP || meta.mark == Mark.PROBE_MARKER) {
            marks.apply();
        }
        if (meta.has_int == 1 && meta.discards == 0 && standard_metadata.parser_error == error.NoError
            && standard_metadata.checksum_error == 0) {
            int_sink.apply(hdr, meta, standard_metadata);
        }

        // as it comes in: its policer goes by its class, and what a switch makes of it stays in it
        if (hdr.ipv4.isValid()) {
            traffic_class.apply();
        } else {
            set_class(BULK_CLASS);
        }
        // the classes of jobs are for messages; everything else in them is bulk traffic
        if (standard_metadata.priority != LOWER_EFFORT_CLASS && standard_metadata.priority != CONTROL_CLASS
            && !hdr.aggregation.isValid()) {
            set_class(BULK_CLASS);
        }

        if (standard_metadata.parser_error != error.NoError) {
            refuse(DROP_TRUNCATED);
        } else if (standard_metadata.checksum_error == 1) {
            refuse(DROP_BAD_CHECKSUM);
        } else if (hdr.packet_out.isValid()) {
            standard_metadata.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
            meta.fate = Fate.SEND;
        } else if (!hdr.ipv4.isValid()) {
            refuse(DROP_NOT_IPV4);
        } else if (meta.mark == Mark.NONE && hdr.int_shim.isValid() && hdr.udp.isValid()
                   && meta.dst_port == AGGREGATION_PORT) {
            // a message that was read as INT and is none: hosts would take it for what no switch has looked at
            refuse(DROP_MALFORMED);
        } else {
            policing.apply(hdr, meta, standard_metadata);
            if (meta.fate == Fate.ROUTE) {
                if (node_address.apply().hit) {
                    mine = 1;
                }
                // a sample's class goes to the address that it came from, so that must be the host's
                if (mine == 0 || hdr.classification.isValid()) {
                    admission.apply(hdr, meta, standard_metadata);
                }
            }
            if (meta.fate == Fate.ROUTE && mine == 1) {
                if (hdr.aggregation.isValid() && hdr.udp.isValid()) {
                    aggregation.apply(hdr, meta, standard_metadata);
                    begin_anew();
                } else if (hdr.classification.isValid() && meta.has_int == 0) {
                    inference.apply(hdr, meta);
                    begin_anew();
                } else if (meta.stacks == 1) {
                    standard_metadata.egress_spec = CPU_PORT;
                    meta.fate = Fate.SEND;
                } else {
                    refuse(DROP_NO_SERVICE);
                }
            }
        }

        if (meta.fate == Fate.ROUTE) {
            routing.apply(hdr, meta, standard_metadata);
        }
        if (meta.fate == Fate.DROP) {
            if (hdr.ipv4.isValid()) {
                drop_watch.apply();
            }
            drops.count((bit<32>)meta.drop_reason);
            mark_to_drop(standard_metadata);
        } else if (meta.fate == Fate.KEEP) {
            mark_to_drop(standard_metadata);
        }
    }
}
