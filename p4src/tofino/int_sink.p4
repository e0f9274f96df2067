/*
 * INT sink: where a packet with INT leaves the fabric it becomes what it was before INT.
 *
 *   IntSink      sinks (destination: a host at this switch) ─▶ bridged: its INT ends here
 *                                                        └─▶ INT-MD, or words behind the header: a mirror of the packet as it came
 *   StackRemoval the egress parser has passed over the stack; its length ─▶ lengths, checksum
 *   Restoration  mark, transport ─▶ headers out; lengths, port, DSCP, checksum back
 *
 * This node reports the packet as any other on its way does (Room in int_transit.p4), without what came off it. Where its stack is
 * reported, too, both reports have the same number: the lower half of when it came, which few other packets have, and none of its
 * port within 4 s. A stack that is too long for the egress parser passes. Reads the INT headers; writes ipv4, udp, the INT headers.
 */

control IntSink(
    inout headers_t hdr,
    inout ingress_metadata_t meta,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
    inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md)
{
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

    /* A mirror of ingress takes the packet as it came. */
    action report_stack() {
        ig_dprsr_md.mirror_type = STACK_MIRROR_TYPE;
        meta.session = (MirrorId_t)STACK_SESSION;
        meta.reported = A_STACK;
        meta.bridged.numbered = 1;
    }

    action leave_in() {
        meta.bridged.ends = 0;
    }

    /* The egress parser of a Tofino 1 goes no deeper than 160 bytes: 16 words behind an INT header right behind UDP's. Elsewhere it is
     * as many as there is depth for behind TCP's header and a marker, 11. */
    table stacks {
        key = {
            meta.stacks:         ternary;
            hdr.int_shim.length: ternary;
            hdr.udp.isValid():   ternary @name("udp");
            meta.mark:           ternary;
        }
        actions = { NoAction; report_stack; leave_in; }
        const default_action = leave_in;
        const entries = {
            (false, INT_MD_WORDS,  _,    _):             NoAction();    // INT-MX and no more
            (_,     15,            true, Mark.UDP_PORT): report_stack();
            (_,     15,            true, Mark.DSCP):     report_stack();
            (_,     15,            _,    _):             leave_in();
            (_,     0 &&& 0xF0,    _,    _):             report_stack();
            (_,     0x10 &&& 0xFC, true, Mark.UDP_PORT): report_stack();
            (_,     0x10 &&& 0xFC, true, Mark.DSCP):     report_stack();
        }
        size = 8;
    }

    apply {
        if (meta.has_int && hdr.int_md.discard == 0 && !hdr.packet_out.isValid()
            && ig_prsr_md.parser_err == PARSER_ERROR_OK && !meta.ipv4_damaged) {
            sinks.apply();
        }
        if (meta.bridged.ends == 1) {
            stacks.apply();
        }
    }
}

control StackRemoval(inout headers_t hdr, inout egress_metadata_t meta) {
    /* A length falls by a number as it grows by its negative, and a checksum's sum as it grows by the complement (RFC 1071), which
     * falls as the number grows. */
#define NEGATIVE(bytes) (0 - bytes)

    action cut_segment(bit<16> growth, bit<16> growth_of_sum) {
        hdr.ipv4.total_length = hdr.ipv4.total_length + growth;
        meta.grown = growth_of_sum;
    }

    action cut_datagram(bit<16> growth, bit<16> growth_of_sum) {
        hdr.ipv4.total_length = hdr.ipv4.total_length + growth;
        hdr.udp.length = hdr.udp.length + growth;
        meta.grown_twice = growth_of_sum;
    }

#define STACK_BYTES(words) (4 * words + 4 - INT_FIXED_BYTES)
#define CUT_STACK(words) \
    (words, false): cut_segment(NEGATIVE(STACK_BYTES(words)), ~STACK_BYTES(words)); \
    (words, true):  cut_datagram(NEGATIVE(STACK_BYTES(words)), ~(2 * STACK_BYTES(words)));
    table stack_lengths {
        key = {
            meta.shim_words:   exact;
            hdr.udp.isValid(): exact @name("udp");
        }
        actions = { cut_segment; cut_datagram; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = { FIRST_TEN(CUT_STACK) TEN(CUT_STACK, 1) }
        size = 64;
    }

    apply {
        if (hdr.int_md.isValid() && meta.bridged.ends == 1) {
            stack_lengths.apply();
        }
    }
}

control Restoration(inout headers_t hdr, inout egress_metadata_t meta) {
    action forget_int(bit<16> growth) {
        hdr.ipv4.total_length = hdr.ipv4.total_length + growth;
        hdr.int_marker.setInvalid();
        hdr.int_shim.setInvalid();
        hdr.int_md.setInvalid();
    }

    action shorten_segment(bit<16> growth) {
        forget_int(growth);
        meta.grown = meta.grown + growth;
    }

    action shorten_datagram(bit<16> growth, bit<16> twice_growth) {
        forget_int(growth);
        hdr.udp.length = hdr.udp.length + growth;
        meta.grown_twice = meta.grown_twice + twice_growth;
    }

    action restore_port() {
        hdr.udp.dst_port = hdr.int_shim.original;
        shorten_datagram(NEGATIVE(INT_FIXED_BYTES), NEGATIVE(2 * INT_FIXED_BYTES));
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
        shorten_datagram(NEGATIVE(INT_FIXED_BYTES), NEGATIVE(2 * INT_FIXED_BYTES));
    }

    action restore_dscp_of_segment() {
        hdr.ipv4.dscp = hdr.int_shim.original[7:2];
        shorten_segment(NEGATIVE(INT_FIXED_BYTES));
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
            (Mark.UDP_PORT,     _,            false): shorten_datagram(NEGATIVE(INT_FIXED_BYTES), NEGATIVE(2 * INT_FIXED_BYTES));
            (Mark.DSCP,         _,            false): restore_dscp_of_datagram();
            (Mark.DSCP,         _,            true):  restore_dscp_of_segment();
            (Mark.PROBE_MARKER, _,            false): shorten_datagram(NEGATIVE(INT_LONG_BYTES), NEGATIVE(2 * INT_LONG_BYTES));
            (Mark.PROBE_MARKER, _,            true):  shorten_segment(NEGATIVE(INT_LONG_BYTES));
        }
        size = 8;
    }

    apply {
        restorations.apply();
    }
}
