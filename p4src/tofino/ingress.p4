/*
 * Ingress: is it sound, is it for this switch, and where does it go.
 *
 *   sound? ─▶ packet-out ───────────────────────────────────────────────▶ its port
 *        └──▶ policing ─▶ node_address ─mine─▶ aggregation ─▶ a slot, children, around once more, or routing
 *                               └─not mine──▶ admission ─────▶ routing ─▶ traffic_class
 *
 * The first reason to drop counts, once, in `drops`. Summing a packet into a slot is no drop.
 */

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
    action to_node() {}

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
        ig_tm_md.qid = 2w0 ++ priority;
        ig_tm_md.ingress_cos = priority;
        meta.bridged.priority = priority;
    }

    @id(TRAFFIC_CLASS_TABLE_ID)
    table traffic_class {
        key = { hdr.ipv4.dscp: exact; }
        actions = { set_class; @defaultonly NoAction; }
        const default_action = NoAction;
        size = TRAFFIC_CLASSES;
    }

    action stamp() {
        meta.bridged.ingress_time = ig_prsr_md.global_tstamp;
    }

    apply {
        stamp();
        if (ig_prsr_md.parser_err != PARSER_ERROR_OK) {
            refuse(DROP_TRUNCATED);
        } else if (meta.ipv4_damaged || meta.aggregation_damaged) {
            refuse(DROP_BAD_CHECKSUM);
        } else if (hdr.packet_out.isValid()) {
            send_packet_out();
        } else if (!hdr.ipv4.isValid()) {
            refuse(DROP_NOT_IPV4);
        } else {
            policing.apply(hdr, meta, ig_intr_md);
            if (!node_address.apply().hit) {
                admission.apply(hdr, meta, ig_intr_md);
            } else if (hdr.aggregation.isValid()) {
                aggregation.apply(hdr, meta, ig_intr_md, ig_tm_md);
            } else {
                refuse(DROP_NO_SERVICE);
            }
            // tables that do not wait for the color have been asked, to no effect
            if (meta.color == MeterColor_t.RED) {
                refuse(DROP_POLICED);
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
