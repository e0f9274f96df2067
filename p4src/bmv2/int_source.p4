/*
 * INT source: the watchlist, and what is put into a packet that it matches.
 *
 *   watchlist (addresses, protocol, ports) ─▶ one in `every` ─▶ link ─▶ MD, MX: room for the headers? ─▶ mark, shim, header
 *                                                                  └──▶ XD, a host's link, no INT but what looks like it: a report
 *                                                                       of this node alone
 *
 * Every node has a watchlist; the controller puts entries that embed only where a flow enters the fabric. A packet that has
 * INT is not looked up. The source's own metadata is pushed by transit (int_transit.p4), as any hop's. Reads ipv4, udp, tcp,
 * meta's flow; writes them, the INT headers, meta.has_int, wanted, mtu.
 */

control IntSource(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    L4Save() save;

    @id(SAMPLES_REGISTER_ID)
    register<bit<32>>(WATCHLIST) samples;

    /* what the entry says */
    bit<32> sampler = 0;
    bit<32> one_in = 0;
    bit<5>  hop_words = 0;
    bit<8>  hop_limit = 0;
    Mark    mark = Mark.NONE;

    bit<32> skipped = 0;         // packets since the last that was chosen
    bit<1>  to_host = 0;
    bit<16> beyond_short = 0;    // bytes that shim and header would be too many for the link
    bit<16> beyond_long = 0;     // with a marker or a UDP header in front

    action want(bit<10> entry, bit<32> every, bit<16> instructions, bit<16> domain_instructions) {
        sampler = (bit<32>)entry;
        one_in = every;
        meta.instructions = instructions;
        meta.domain_instructions = domain_instructions;
    }

    @id(EMBED_MD_ACTION_ID)
    action embed_md(
        bit<10> entry, bit<32> every, bit<16> instructions, bit<16> domain_instructions, bit<5> words, bit<8> hops,
        bit<2> presence)
    {
        want(entry, every, instructions, domain_instructions);
        hop_words = words;
        hop_limit = hops;
        mark = (Mark)presence;
        meta.wanted = Mode.MD;
    }

    @id(EMBED_MX_ACTION_ID)
    action embed_mx(
        bit<10> entry, bit<32> every, bit<16> instructions, bit<16> domain_instructions, bit<2> presence)
    {
        want(entry, every, instructions, domain_instructions);
        mark = (Mark)presence;
        meta.wanted = Mode.MX;
    }

    @id(EXPORT_ACTION_ID)
    action export_xd(bit<10> entry, bit<32> every, bit<16> instructions, bit<16> domain_instructions) {
        want(entry, every, instructions, domain_instructions);
        meta.wanted = Mode.XD;
    }

    /* Reports on their way: who watched them would make reports of reports. */
    @id(IGNORE_ACTION_ID)
    action ignore() {
        meta.ignored = 1;
    }

    @id(WATCHLIST_TABLE_ID)
    table watchlist {
        key = {
            hdr.ipv4.src_addr: ternary @name("src_addr");
            hdr.ipv4.dst_addr: ternary @name("dst_addr");
            meta.protocol:     ternary @name("protocol");
            meta.src_port:     ternary @name("src_port");
            meta.dst_port:     ternary @name("dst_port");
        }
        actions = { embed_md; embed_mx; export_xd; ignore; @defaultonly NoAction; }
        const default_action = NoAction;
        size = WATCHLIST;
    }

    /* The first packet and then every one_in-th is chosen. */
    @id(SAMPLE_ACTION_ID)
    action sample() {
        samples.read(skipped, sampler);
        samples.write(sampler, skipped + 1 < one_in ? skipped + 1 : 0);
    }

    @id(NAME_LINK_ACTION_ID)
    action name_link(bit<16> mtu, bit<32> interface, bit<1> host) {
        meta.mtu = mtu;
        meta.egress_name = interface;
        to_host = host;
    }

    @id(LINKS_TABLE_ID)
    table links {
        key = { standard_metadata.egress_port: exact @name("egress_port"); }
        actions = { name_link; }
        default_action = name_link(MTU, UNAVAILABLE, 0);
        size = PORTS;
    }

    @id(MEASURE_ACTION_ID)
    action measure() {
        beyond_short = hdr.ipv4.total_length + INT_FIXED_BYTES |-| meta.mtu;
        beyond_long = hdr.ipv4.total_length + INT_LONG_BYTES |-| meta.mtu;
    }

    /* ---- what marks the packet, and the shim ---- */

    action put_shim(bit<2> next_protocol, bit<16> original, bit<16> bytes) {
        hdr.int_shim.setValid();
        hdr.int_shim.shim_type = meta.wanted == Mode.MX ? INT_TYPE_MX : INT_TYPE_MD;
        hdr.int_shim.next_protocol_type = next_protocol;
        hdr.int_shim.reserved = 0;
        hdr.int_shim.length = INT_MD_WORDS;
        hdr.int_shim.original = original;
        hdr.ipv4.total_length = hdr.ipv4.total_length + bytes;
        meta.has_int = 1;
    }

    @id(REWRITE_PORT_ACTION_ID)
    action rewrite_port() {
        put_shim(NPT_UDP_PORT, hdr.udp.dst_port, INT_FIXED_BYTES);
        hdr.udp.dst_port = INT_PORT;
        hdr.udp.length = hdr.udp.length + INT_FIXED_BYTES;
    }

    /* A UDP header of INT's own in front of TCP's; its source port tells flows apart where paths are chosen by a hash. */
    @id(WRAP_ACTION_ID)
    action wrap() {
        put_shim(NPT_PROTOCOL, (bit<16>)PROTOCOL_TCP, INT_LONG_BYTES);
        hdr.int_inner_tcp = hdr.tcp;
        hdr.tcp.setInvalid();
        hdr.udp.setValid();
        hash(hdr.udp.src_port, HashAlgorithm.crc16, 16w0xC000,
             { hdr.ipv4.src_addr, hdr.ipv4.dst_addr, meta.src_port, meta.dst_port }, 32w0x4000);
        hdr.udp.dst_port = INT_PORT;
        hdr.udp.length = hdr.ipv4.total_length - IPV4_BYTES;
        hdr.udp.checksum = 0;
        hdr.ipv4.protocol = PROTOCOL_UDP;
        meta.resum = 0;          // the segment's checksum covers what it did
    }

    @id(SET_DSCP_ACTION_ID)
    action set_dscp() {
        put_shim(NPT_UNCHANGED, 8w0 ++ hdr.ipv4.dscp ++ 2w0, INT_FIXED_BYTES);
        hdr.ipv4.dscp = hdr.ipv4.dscp | DSCP_MARK;
        hdr.udp.length = hdr.udp.length + INT_FIXED_BYTES;   // where there is no UDP header, nothing is written
    }

    @id(INSERT_MARKER_ACTION_ID)
    action insert_marker() {
        put_shim(NPT_UNCHANGED, 8w0 ++ hdr.ipv4.dscp ++ 2w0, INT_LONG_BYTES);
        hdr.int_marker.setValid();
        hdr.int_marker.marker = PROBE_MARKER;
        hdr.udp.length = hdr.udp.length + INT_LONG_BYTES;
    }

    @id(ENCAPSULATIONS_TABLE_ID)
    table encapsulations {
        key = {
            mark:              exact;
            hdr.udp.isValid(): exact @name("udp");
            hdr.tcp.isValid(): exact @name("tcp");
            beyond_short:      ternary;
            beyond_long:       ternary;
        }
        actions = { rewrite_port; wrap; set_dscp; insert_marker; NoAction; }
        const default_action = NoAction;     // no transport to put it behind, or no room for the headers: no INT
        const entries = {
            (Mark.UDP_PORT,     true,  false, 0, _): rewrite_port();
            (Mark.UDP_PORT,     false, true,  _, 0): wrap();
            (Mark.DSCP,         true,  false, 0, _): set_dscp();
            (Mark.DSCP,         false, true,  0, _): set_dscp();
            (Mark.PROBE_MARKER, true,  false, _, 0): insert_marker();
            (Mark.PROBE_MARKER, false, true,  _, 0): insert_marker();
        }
    }

    /* ---- the header ---- */

    action put_header(bit<5> words, bit<8> hops) {
        hdr.int_md.setValid();
        hdr.int_md.version = INT_VERSION;
        hdr.int_md.discard = 0;
        hdr.int_md.hop_limit_exceeded = 0;
        hdr.int_md.mtu_exceeded = 0;
        hdr.int_md.reserved = 0;
        hdr.int_md.hop_words = words;
        hdr.int_md.remaining_hops = hops;
        hdr.int_md.instructions = meta.instructions;
        hdr.int_md.domain = INT_DOMAIN;
        hdr.int_md.domain_instructions = meta.domain_instructions;
        hdr.int_md.domain_flags = 0;
    }

    @id(PUSH_MD_ACTION_ID)
    action put_md() {
        put_header(hop_words, hop_limit);
        meta.stacks = 1;
        meta.wanted = Mode.NONE;
    }

    @id(PUSH_MX_ACTION_ID)
    action put_mx() {
        put_header(0, 0);
    }

    @id(EXPORT_INSTEAD_ACTION_ID)
    action export_instead() {
        meta.wanted = Mode.XD;
    }

    @id(FORGO_ACTION_ID)
    action forgo() {
        meta.wanted = Mode.NONE;
    }

    apply {
        if (hdr.ipv4.isValid() && meta.has_int == 0 && meta.at_sink == 0 && meta.whole == 1) {
            watchlist.apply();
        }
        if (meta.wanted != Mode.NONE && meta.at_sink == 0) {
            sample();
            if (skipped != 0) {
                forgo();
            }
        }
        if (meta.has_int == 1 || meta.wanted != Mode.NONE) {
            links.apply();
        }
        if (meta.wanted == Mode.MD || meta.wanted == Mode.MX) {
            // where INT's headers would stand there may be what only looks like them: the packet's own
            if (to_host == 1 || hdr.int_shim.isValid()) {
                export_instead();
            }
        }
        if ((meta.has_int == 1 && meta.stacks == 1) || meta.wanted == Mode.MD || meta.wanted == Mode.MX) {
            save.apply(hdr, meta);
        }
        if (meta.wanted == Mode.MD || meta.wanted == Mode.MX) {
            measure();
            if (encapsulations.apply().hit) {
                if (meta.wanted == Mode.MD) {
                    put_md();
                } else {
                    put_mx();
                }
            } else {
                forgo();
            }
        }
    }
}
