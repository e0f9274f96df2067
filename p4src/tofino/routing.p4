/*
 * Plain IP routing with equal-cost paths.
 *
 *   destination address ─routes (longest prefix)─▶ group ─hash of the flow─▶ port and MAC addresses
 *
 * Reads ipv4, meta.src_port, meta.dst_port. Writes the MAC addresses, TTL, ucast_egress_port, meta.fate, meta.drop_reason.
 */

control Routing(
    inout headers_t hdr,
    inout ingress_metadata_t meta,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md)
{
    @id(ROUTING_REFUSE_ACTION_ID)
    action refuse(bit<8> reason) {
        meta.fate = Fate.DROP;
        meta.drop_reason = reason;
    }

    @id(FORWARD_ACTION_ID)
    action forward(port_t port, mac_address_t src_mac, mac_address_t dst_mac) {
        ig_tm_md.ucast_egress_port = port;
        hdr.ethernet.src_addr = src_mac;
        hdr.ethernet.dst_addr = dst_mac;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        meta.fate = Fate.SEND;
    }

    @id(ECMP_PROFILE_ID)
    ActionProfile(ECMP_MEMBERS) ecmp;
    Hash<bit<ECMP_GROUP_WIDTH>>(HashAlgorithm_t.CRC32) flow_hash;
    ActionSelector(ecmp, flow_hash, SelectorMode_t.FAIR, ECMP_GROUP_SIZE, ECMP_GROUPS) ecmp_groups;

    @id(ROUTES_TABLE_ID)
    table routes {
        key = {
            hdr.ipv4.dst_addr: lpm;
            hdr.ipv4.src_addr: selector;
            hdr.ipv4.dst_addr: selector;
            hdr.ipv4.protocol: selector;
            meta.src_port: selector;
            meta.dst_port: selector;
        }
        actions = { forward; }
        implementation = ecmp_groups;
        size = ROUTES;
    }

    apply {
        if (hdr.ipv4.ttl == 0 || hdr.ipv4.ttl == 1) {
            refuse(DROP_TTL_EXPIRED);
        } else if (!routes.apply().hit) {
            refuse(DROP_NO_ROUTE);
        }
    }
}
