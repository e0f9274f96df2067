/*
 * INT sink: where a packet with INT-MX leaves the fabric it becomes what it was before INT.
 *
 *   IntSink      sinks (destination: a host at this switch) ─▶ bridged: its INT ends here
 *   Restoration  mark, transport ─▶ headers out; lengths, port, DSCP, checksum back
 *
 * This node reports the packet as any other on its way does (Room in int_transit.p4), without what came off it. INT-MD passes (Room
 * looks whether it is): its stack is payload to a chip. So does INT-MX with words behind its header. Reads the INT headers; writes ipv4, udp, the INT headers.
 */

control IntSink(inout headers_t hdr, inout ingress_metadata_t meta) {
    /* A chip has no period to judge: each packet is reported. */
    @id(STRIP_ACTION_ID)
    action strip(bit<32> period) {
        meta.bridged.ends = 1;
    }

    @id(SINKS_TABLE_ID)
    table sinks {
        key = { hdr.ipv4.dst_addr: exact @name("dst_addr"); }
        actions = { strip; @defaultonly NoAction; }
        const default_action = NoAction;
        size = SINKS;
    }

    apply {
        if (meta.has_int && hdr.int_md.discard == 0 && hdr.int_shim.length == INT_MD_WORDS) {
            sinks.apply();
        }
    }
}

control Restoration(inout headers_t hdr, inout egress_metadata_t meta) {
    /* A length falls by a number as it grows by its negative, and a checksum's sum as it grows by the complement (RFC 1071). */
#define NEGATIVE(bytes) (0 - bytes)

    action forget_int(bit<16> growth) {
        hdr.ipv4.total_length = hdr.ipv4.total_length + growth;
        hdr.int_marker.setInvalid();
        hdr.int_shim.setInvalid();
        hdr.int_md.setInvalid();
    }

    action shorten_segment(bit<16> growth, bit<16> growth_of_sum) {
        forget_int(growth);
        meta.grown = growth_of_sum;
    }

    action shorten_datagram(bit<16> growth, bit<16> growth_of_sum) {
        forget_int(growth);
        hdr.udp.length = hdr.udp.length + growth;
        meta.grown_twice = growth_of_sum;
    }

    action restore_port() {
        hdr.udp.dst_port = hdr.int_shim.original;
        shorten_datagram(NEGATIVE(INT_FIXED_BYTES), ~(2 * INT_FIXED_BYTES));
    }

    /* The segment's own header comes next, and its checksum was right all the time. */
    action unwrap() {
        hdr.ipv4.protocol = hdr.int_shim.original[7:0];
        forget_int(NEGATIVE(INT_LONG_BYTES));
        hdr.udp.setInvalid();
        meta.sums_udp = false;
    }

    action restore_dscp_of_datagram() {
        hdr.ipv4.dscp = hdr.int_shim.original[7:2];
        shorten_datagram(NEGATIVE(INT_FIXED_BYTES), ~(2 * INT_FIXED_BYTES));
    }

    action restore_dscp_of_segment() {
        hdr.ipv4.dscp = hdr.int_shim.original[7:2];
        shorten_segment(NEGATIVE(INT_FIXED_BYTES), ~INT_FIXED_BYTES);
    }

    table restorations {
        key = {
            meta.bridged.mark:               exact;
            hdr.int_shim.next_protocol_type: ternary;
            hdr.tcp.isValid():               exact @name("tcp");
        }
        actions = {
            restore_port; unwrap; shorten_datagram; restore_dscp_of_datagram; restore_dscp_of_segment; shorten_segment;
            @defaultonly NoAction;
        }
        const default_action = NoAction;
        const entries = {
            (Mark.UDP_PORT,     NPT_UDP_PORT, false): restore_port();
            (Mark.UDP_PORT,     NPT_PROTOCOL, false): unwrap();
            (Mark.UDP_PORT,     _,            false): shorten_datagram(NEGATIVE(INT_FIXED_BYTES), ~(2 * INT_FIXED_BYTES));
            (Mark.DSCP,         _,            false): restore_dscp_of_datagram();
            (Mark.DSCP,         _,            true):  restore_dscp_of_segment();
            (Mark.PROBE_MARKER, _,            false): shorten_datagram(NEGATIVE(INT_LONG_BYTES), ~(2 * INT_LONG_BYTES));
            (Mark.PROBE_MARKER, _,            true):  shorten_segment(NEGATIVE(INT_LONG_BYTES), ~INT_LONG_BYTES);
        }
        size = 8;
    }

    apply {
        restorations.apply();
    }
}
