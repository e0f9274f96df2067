/*
 * Ingress: is it sound, is it for this switch, and where does it go.
 *
 *   sound? ─▶ packet-out ───────────────────────────────────────────────▶ its port
 *        └──▶ node_address ─mine─▶ aggregation ─▶ a slot, children, or routing
 *                   │        └───▶ probe ───────▶ CPU
 *                   └─not mine───────────────────▶ routing ─▶ traffic_class
 *
 * The first reason to drop counts, once, in `drops`. Summing a packet into a slot is no drop.
 */

control FabricIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Aggregation() aggregation;
    Routing() routing;

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
        actions = { set_class; @defaultonly NoAction; }
        const default_action = NoAction;
        size = TRAFFIC_CLASSES;
    }

    apply {
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
        } else if (node_address.apply().hit) {
            if (hdr.aggregation.isValid()) {
                aggregation.apply(hdr, meta, standard_metadata);
            } else if (hdr.int_md.isValid()) {
                standard_metadata.egress_spec = CPU_PORT;
                meta.fate = Fate.SEND;
            } else {
                refuse(DROP_NO_SERVICE);
            }
        }

        if (meta.fate == Fate.ROUTE) {
            routing.apply(hdr, meta, standard_metadata);
        }
        if (meta.fate == Fate.DROP) {
            drops.count((bit<32>)meta.drop_reason);
            mark_to_drop(standard_metadata);
        } else if (meta.fate == Fate.KEEP) {
            mark_to_drop(standard_metadata);
        } else if (hdr.ipv4.isValid()) {
            traffic_class.apply();
        }
    }
}
