/*
 * Ingress: is it sound, is it for this switch, and where does it go.
 *
 *   node_address, policing, edges, marks ─▶ aggregation: mine, a message, sound ─▶ a slot, children, around once more, or routing
 *                                      └──▶ the others: sound? ─packet-out───────▶ its port
 *                                                           ├───mine, a probe────▶ CPU
 *                                                           └───not mine─admission─▶ routing ─▶ traffic_class
 *
 * A chip places tables in the order of the text where one condition has several behind it. So what only the packet decides is asked
 * first, each table with a condition of its own, and reasons to drop what is no message for this node are weighed beside the sums.
 * Policing comes before `edges`: it sees the DSCP as it came.
 *
 * The first reason to drop counts, once, in `drops`. Summing a packet into a slot is no drop.
 */

/* Bytes of the aggregation header that move, or change apart from their neighbours */
@pa_container_size("ingress", "hdr.aggregation.flags", 8)
@pa_container_size("ingress", "hdr.aggregation.generation", 8)
@pa_container_size("ingress", "hdr.aggregation.chunk", 8)
@pa_container_size("ingress", "hdr.aggregation.exponent", 8)
control FabricIngress(
    inout headers_t hdr,
    inout ingress_metadata_t meta,
    in ingress_intrinsic_metadata_t ig_intr_md,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
    inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md)
{
    Policing() policing;
    Aggregation() aggregation;
    Admission() admission;
    Routing() routing;
    IntSink() int_sink;

    @id(DROPS_COUNTER_ID)
    Counter<bit<32>, bit<8>>(DROP_REASONS, CounterType_t.PACKETS) drops;

    @id(INGRESS_REFUSE_ACTION_ID)
    action refuse(bit<8> reason) {
        meta.fate = Fate.DROP;
        meta.drop_reason = reason;
    }

    action discard() {
        ig_dprsr_md.drop_ctl = 1;
    }

    action send_packet_out() {
        ig_tm_md.ucast_egress_port = hdr.packet_out.egress_port;
        hdr.packet_out.setInvalid();
        meta.fate = Fate.SEND;
    }

    @id(TO_NODE_ACTION_ID)
    action to_node() {
        meta.mine = true;
    }

    @id(NODE_ADDRESS_TABLE_ID)
    table node_address {
        key = { hdr.ipv4.dst_addr: exact; }
        actions = { to_node; @defaultonly NoAction; }
        const default_action = NoAction;
        size = NODE_ADDRESSES;
    }

    /* A class is a queue of that number; 7 goes before all others. */
    @id(SET_CLASS_ACTION_ID)
    action set_class(bit<3> priority) {
        ig_tm_md.qid = (QueueId_t)priority;
        ig_tm_md.ingress_cos = priority;
        meta.bridged.priority = 5w0 ++ priority;
    }

    @id(TRAFFIC_CLASS_TABLE_ID)
    table traffic_class {
        key = { hdr.ipv4.dscp: exact; }
        actions = { set_class; @defaultonly NoAction; }
        const default_action = NoAction;
        size = TRAFFIC_CLASSES;
    }

    /* ---- INT ---- */

    @id(RECOGNISE_ACTION_ID)
    action recognise() {}

    @id(REFUSE_MARK_ACTION_ID)
    action refuse_mark() {
        meta.mark = Mark.NONE;
        meta.has_int = false;
        meta.stacks = false;
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
        key = { ig_intr_md.ingress_port: exact @name("ingress_port"); }
        actions = { clear_mark; @defaultonly NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    /* The port behind INT; here, for the parser's states behind the shim are those of other marks too, which have none. */
    action restore_port() {
        meta.dst_port = hdr.int_shim.original;
    }

    action bridge_mark() {
        meta.bridged.mark = meta.mark;
    }

    action bridge_message() {
        meta.bridged.kind = Kind.MESSAGE;
    }

    action to_cpu() {
        ig_tm_md.ucast_egress_port = CPU_PORT;
        meta.fate = Fate.SEND;
    }

    action stamp() {
        meta.bridged.ingress_time = ig_prsr_md.global_tstamp;
        meta.bridged.ingress_port = 7w0 ++ ig_intr_md.ingress_port;
    }

    apply {
        stamp();
        if (hdr.ipv4.isValid()) {
            node_address.apply();
        }
        if (ig_prsr_md.parser_err == PARSER_ERROR_OK && !meta.ipv4_damaged && !meta.aggregation_damaged
            && hdr.ipv4.isValid() && !hdr.packet_out.isValid()) {
            policing.apply(hdr, meta, ig_intr_md);
        }
        if (meta.dscp_marked == 1) {
            edges.apply();
        }
        if (meta.mark == Mark.DSCP || meta.mark == Mark.PROBE_MARKER) {
            marks.apply();
        }
        if (meta.has_int) {
            bridge_mark();
        }
        int_sink.apply(hdr, meta, ig_prsr_md, ig_dprsr_md);
        if (meta.mark == Mark.UDP_PORT && meta.has_int && hdr.int_shim.next_protocol_type == NPT_UDP_PORT) {
            restore_port();
        }
        if (hdr.aggregation.isValid()) {
            bridge_message();
        }
        aggregation.apply(hdr, meta, ig_intr_md, ig_prsr_md, ig_tm_md);

        if (ig_prsr_md.parser_err != PARSER_ERROR_OK) {
            refuse(DROP_TRUNCATED);
        } else if (meta.ipv4_damaged || meta.aggregation_damaged) {
            refuse(DROP_BAD_CHECKSUM);
        } else if (hdr.packet_out.isValid()) {
            send_packet_out();
        } else if (!hdr.ipv4.isValid()) {
            refuse(DROP_NOT_IPV4);
        } else if (meta.mark == Mark.NONE && hdr.int_shim.isValid() && hdr.udp.isValid()
                   && meta.dst_port == AGGREGATION_PORT) {
            // a message that was read as INT and is none: hosts would take it for what no switch has looked at
            refuse(DROP_MALFORMED);
        } else if (meta.color == MeterColor_t.RED) {
            refuse(DROP_POLICED);
        } else if (!meta.mine) {
            admission.apply(hdr, meta, ig_intr_md);
        } else if (!hdr.aggregation.isValid()) {
            if (meta.stacks) {
                to_cpu();
            } else {
                refuse(DROP_NO_SERVICE);
            }
        }

        if (meta.fate == Fate.ROUTE) {
            routing.apply(hdr, meta, ig_tm_md);
        }
        if (meta.fate == Fate.DROP) {
            drops.count(meta.drop_reason);
            discard();
        } else if (meta.fate == Fate.KEEP) {
            discard();
        } else if (hdr.ipv4.isValid()) {
            traffic_class.apply();
        }
    }
}
