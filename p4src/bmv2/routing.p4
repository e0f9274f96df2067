/*
 * Plain IP routing with equal-cost paths.
 *
 *   destination address ─routes (longest prefix)─▶ group ─hash of the flow─▶ port and MAC addresses
 *
 * Reads ipv4 and meta's flow. Writes the MAC addresses, TTL, egress_spec, meta.fate, meta.drop_reason.
 */

control Routing(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    bit<8> hops_left = 0;

    @id(ROUTING_REFUSE_ACTION_ID)
    action refuse(bit<8> reason) {
        meta.fate = Fate.DROP;
        meta.drop_reason = reason;
    }

    @id(COUNT_HOP_ACTION_ID)
    action count_hop() {
        hops_left = hdr.ipv4.ttl |-| 1;
    }

    @id(FORWARD_ACTION_ID)
    action forward(port_t port, mac_address_t src_mac, mac_address_t dst_mac) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.src_addr = src_mac;
        hdr.ethernet.dst_addr = dst_mac;
        hdr.ipv4.ttl = hops_left;
        meta.fate = Fate.SEND;
    }

    @id(ECMP_PROFILE_ID) @max_group_size(64)
    action_selector(HashAlgorithm.crc32, ECMP_MEMBERS, ECMP_GROUP_WIDTH) ecmp;

    @id(ROUTES_TABLE_ID)
    table routes {
        key = {
            hdr.ipv4.dst_addr: lpm;
            hdr.ipv4.src_addr: selector;
            hdr.ipv4.dst_addr: selector;
            meta.protocol: selector;
            meta.src_port: selector;
            meta.dst_port: selector;
        }
        actions = { forward; }
        implementation = ecmp;
        size = ROUTES;
    }

    apply {
        count_hop();
        if (hops_left == 0) {
            refuse(DROP_TTL_EXPIRED);
        } else if (!routes.apply().hit) {
            refuse(DROP_NO_ROUTE);
        }
    }
}
