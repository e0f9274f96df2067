/*
 * INT source: the watchlist, and what is put into a packet that it matches.
 *
 *   IntSource      watchlist (addresses, protocol, ports) ─▶ one in `every`;  link ─▶ room for the headers?
 *   Encapsulation  MD, MX, and there is room ─▶ mark, shim, header
 *                  XD, a host's link, a message ─▶ a report of this node alone
 *
 * A message gets no INT: a node of this kind does not sum one that has. Nor does a TCP segment whose INT would stand behind a UDP
 * header of its own. The source's own items are pushed by transit (int_transit.p4), as any hop's. Reads ipv4, udp, tcp; writes them,
 * the INT headers, and what meta says of the link and of what is asked for.
 */

control IntSource(inout headers_t hdr, inout egress_metadata_t meta, in egress_intrinsic_metadata_t eg_intr_md) {
    @id(SAMPLES_REGISTER_ID)
    Register<bit<16>, bit<10>>(WATCHLIST) samples;

    action want(bit<10> entry, bit<32> every, bit<16> instructions, bit<16> domain_instructions) {
        meta.sampler = entry;
        meta.one_in_less_1 = meta.one_in_less_1 + every[15:0];
        meta.asked = instructions;
        meta.shim_words = INT_MD_WORDS;
        meta.asked_of_domain = domain_instructions;
    }

    @id(EMBED_MD_ACTION_ID)
    action embed_md(
        bit<10> entry, bit<32> every, bit<16> instructions, bit<16> domain_instructions, bit<5> words, bit<8> hops,
        bit<2> presence)
    {
        want(entry, every, instructions, domain_instructions);
        meta.asked_words = words;
        meta.hops = hops;
        meta.source_mark = (Mark)presence;
        meta.wanted = Mode.MD;
    }

    @id(EMBED_MX_ACTION_ID)
    action embed_mx(
        bit<10> entry, bit<32> every, bit<16> instructions, bit<16> domain_instructions, bit<2> presence)
    {
        want(entry, every, instructions, domain_instructions);
        meta.source_mark = (Mark)presence;
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
    }

    @id(WATCHLIST_TABLE_ID)
    table watchlist {
        key = {
            hdr.ipv4.src_addr: ternary @name("src_addr");
            hdr.ipv4.dst_addr: ternary @name("dst_addr");
            hdr.ipv4.protocol: ternary @name("protocol");
            meta.src_port:     ternary @name("src_port");
            meta.dst_port:     ternary @name("dst_port");
        }
        actions = { embed_md; embed_mx; export_xd; ignore; @defaultonly NoAction; }
        const default_action = NoAction;
        size = WATCHLIST;
    }

    /* The first packet is chosen, and then each behind so many that are not. */
    RegisterAction<bit<16>, bit<10>, bit<16>>(samples) count_skipped = {
        void apply(inout bit<16> held, out bit<16> before) {
            before = held;
            if (held >= meta.one_in_less_1) {
                held = 0;
            } else {
                held = held + 1;
            }
        }
    };

    @id(SAMPLE_ACTION_ID)
    action sample() {
        meta.skipped = count_skipped.execute(meta.sampler);
    }

    @id(NAME_LINK_ACTION_ID)
    action name_link(bit<16> mtu, bit<32> interface, bit<1> host) {
        meta.mtu = mtu;
        meta.egress_name = interface;
        meta.to_host = host;
    }

    @id(LINKS_TABLE_ID)
    table links {
        key = { eg_intr_md.egress_port: exact @name("egress_port"); }
        actions = { name_link; }
        default_action = name_link(MTU, UNAVAILABLE, 0);
        size = PORTS;
    }

    action lengthen() {
        meta.beyond_short = hdr.ipv4.total_length + INT_FIXED_BYTES;
        meta.beyond_long = hdr.ipv4.total_length + INT_LONG_BYTES;
    }

    @id(MEASURE_ACTION_ID)
    action measure() {
        meta.beyond_short = meta.beyond_short |-| meta.mtu;
        meta.beyond_long = meta.beyond_long |-| meta.mtu;
    }

    apply {
        links.apply();
        lengthen();
        if (meta.watchable) {
            watchlist.apply();
        }
        measure();
        if (meta.wanted != Mode.NONE) {
            sample();
        }
    }
}

/* Behind `Instructions` (int_transit.p4), which goes by what the watchlist wants. */
control Encapsulation(inout headers_t hdr, inout egress_metadata_t meta) {
    /* What marks the packet, the shim, and the header behind it */
    action put_headers(bit<4> shim_type, bit<2> next_protocol, bit<16> bytes, bit<16> twice_bytes) {
        hdr.int_shim.setValid();
        hdr.int_shim.shim_type = shim_type;
        hdr.int_shim.next_protocol_type = next_protocol;
        hdr.int_shim.reserved = 0;
        hdr.int_shim.length = INT_MD_WORDS;
        hdr.int_md.setValid();
        hdr.int_md.version = INT_VERSION;
        hdr.int_md.discard = 0;
        hdr.int_md.hop_limit_exceeded = 0;
        hdr.int_md.mtu_exceeded = 0;
        hdr.int_md.reserved = 0;
        hdr.int_md.hop_words = meta.asked_words;
        hdr.int_md.remaining_hops = meta.hops;
        hdr.int_md.instructions = meta.asked;
        hdr.int_md.domain = INT_DOMAIN;
        hdr.int_md.domain_instructions = meta.asked_of_domain;
        hdr.int_md.domain_flags = 0;
        hdr.ipv4.total_length = hdr.ipv4.total_length + bytes;
        meta.grown = bytes;
        meta.grown_twice = twice_bytes;
    }

    @id(REWRITE_PORT_ACTION_ID)
    action rewrite_port(bit<4> shim_type) {
        put_headers(shim_type, NPT_UDP_PORT, INT_FIXED_BYTES, 2 * INT_FIXED_BYTES);
        hdr.int_shim.original = hdr.udp.dst_port;
        hdr.udp.dst_port = INT_PORT;
    }

    @id(SET_DSCP_ACTION_ID)
    action set_dscp(bit<4> shim_type) {
        put_headers(shim_type, NPT_UNCHANGED, INT_FIXED_BYTES, 2 * INT_FIXED_BYTES);
        hdr.int_shim.original = 8w0 ++ hdr.ipv4.dscp ++ 2w0;
        hdr.ipv4.dscp = hdr.ipv4.dscp | DSCP_MARK;
    }

    @id(INSERT_MARKER_ACTION_ID)
    action insert_marker(bit<4> shim_type) {
        put_headers(shim_type, NPT_UNCHANGED, INT_LONG_BYTES, 2 * INT_LONG_BYTES);
        hdr.int_shim.original = 8w0 ++ hdr.ipv4.dscp ++ 2w0;
        hdr.int_marker.setValid();
        hdr.int_marker.marker = PROBE_MARKER;
    }

    @id(EXPORT_INSTEAD_ACTION_ID)
    action export_instead() {
        meta.wanted = Mode.XD;
    }

    @id(FORGO_ACTION_ID)
    action forgo() {
        meta.wanted = Mode.NONE;
    }

#define EMBED(mode, type) \
    (mode, 0, _, _, Mark.UDP_PORT,     true,  _, 0, _): rewrite_port(type); \
    (mode, 0, _, _, Mark.DSCP,         true,  _, 0, _): set_dscp(type); \
    (mode, 0, _, _, Mark.DSCP,         _,  true, 0, _): set_dscp(type); \
    (mode, 0, _, _, Mark.PROBE_MARKER, true,  _, _, 0): insert_marker(type); \
    (mode, 0, _, _, Mark.PROBE_MARKER, _,  true, _, 0): insert_marker(type);

    /* No INT where there is no transport to put it behind, or no room for the headers. */
    @id(ENCAPSULATIONS_TABLE_ID)
    table encapsulations {
        key = {
            meta.wanted:               ternary;
            meta.skipped:              ternary;
            meta.to_host:              ternary;
            hdr.aggregation.isValid(): ternary @name("is_message");
            meta.source_mark:          ternary;
            hdr.udp.isValid():         ternary @name("udp");
            hdr.tcp.isValid():         ternary @name("tcp");
            meta.beyond_short:         ternary;
            meta.beyond_long:          ternary;
        }
        actions = { rewrite_port; set_dscp; insert_marker; export_instead; forgo; }
        const default_action = forgo;
        const entries = {
            (Mode.XD, 0, _, _,    _, _, _, _, _): export_instead();
            (_,       0, 1, _,    _, _, _, _, _): export_instead();   // the link is a host's
            (_,       0, _, true, _, _, _, _, _): export_instead();
            EMBED(Mode.MD, INT_TYPE_MD)
            EMBED(Mode.MX, INT_TYPE_MX)
        }
        size = 16;
    }

    apply {
        if (meta.wanted != Mode.NONE) {
            encapsulations.apply();
        }
    }
}
