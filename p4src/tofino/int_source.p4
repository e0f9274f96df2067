/*
 * INT source: of it there is the link that a packet with INT leaves by, which transit asks about. No packet gets INT here.
 *
 * Writes meta.mtu, meta.egress_name.
 */

control IntSource(inout egress_metadata_t meta, in egress_intrinsic_metadata_t eg_intr_md) {
    /* Which links are hosts' concerns sources. */
    @id(NAME_LINK_ACTION_ID)
    action name_link(bit<16> mtu, bit<32> interface, bit<1> host) {
        meta.mtu = mtu;
        meta.egress_name = interface;
    }

    @id(LINKS_TABLE_ID)
    table links {
        key = { eg_intr_md.egress_port: exact @name("egress_port"); }
        actions = { name_link; }
        default_action = name_link(MTU, UNAVAILABLE, 0);
        size = PORTS;
    }

    apply {
        links.apply();
    }
}
