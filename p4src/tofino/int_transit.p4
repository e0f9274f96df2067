/*
 * INT transit: each INT-MD packet that leaves gets this hop's items pushed in front of the earlier hops', which stay payload.
 *
 *   Instructions  instructions ─▶ asked, words of them;  hop_words ─▶ lengths
 *   Room          lengths as they would be ─▶ compare with words and MTU ─▶ room ─yes─▶ lengths, hop count
 *                                                                             └─no─▶ E (hop limit), M (MTU), or untouched
 *                 INT-MX, INT that ends here, or a watched packet ─▶ a mirror, which becomes a report of this node (int_reports.p4)
 *   Telemetry     any packet that leaves onto a link ─▶ bytes_sent[egress port] += its length, in two registers of 32 bits;  items
 *
 * A hop pushes exactly hop_words words or nothing, so lengths follow from hop_words, and what is asked for is only compared with
 * it. Where bits 8 to 15 are set, or those of the domain that this program cannot fill, it pushes nothing. A chip's clock has
 * nanoseconds, so the latency is in these; depths are in cells. Reads intrinsic and bridged metadata; writes ipv4's and udp's lengths,
 * and the INT headers.
 */

#define BIT(byte, i) ((byte >> (7 - i)) & 1)
#define ONES_1_TO_7(byte) \
    (BIT(byte, 1) + BIT(byte, 2) + BIT(byte, 3) + BIT(byte, 4) + BIT(byte, 5) + BIT(byte, 6) + BIT(byte, 7))

/* What is asked for: items that this program fills, and all words. */
control Instructions(inout headers_t hdr, inout egress_metadata_t meta) {
    @id(ASK_BASELINE_HIGH_ACTION_ID)
    action ask_baseline_high(bit<8> asked, bit<8> asked_words) {
        meta.items = asked;
        meta.words = asked_words;
    }

#define BASELINE_HIGH(byte) byte: ask_baseline_high( \
        byte, BIT(byte, 0) + ONES_1_TO_7(byte) + BIT(byte, 4) + BIT(byte, 5) + BIT(byte, 6));
    @id(BASELINE_HIGH_TABLE_ID)
    table baseline_high {
        key = { meta.asked[15:8]: exact @name("instructions_0_7"); }
        actions = { ask_baseline_high; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = { EACH_BYTE(BASELINE_HIGH) }
        size = 256;
    }

    /* Items of another domain, and those of ours that this program cannot fill, are not counted: so hop_words does not fit them. */
    @id(ASK_DOMAIN_HIGH_ACTION_ID)
    action ask_domain_high(bit<2> asked, bit<8> asked_words) {
        meta.domain_items = asked;
        meta.domain_words = asked_words;
    }

    @id(DOMAIN_HIGH_TABLE_ID)
    table domain_high {
        key = {
            meta.wanted:          ternary;
            hdr.int_md.domain:    ternary;
            meta.asked_of_domain: ternary;
        }
        actions = { ask_domain_high; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (Mode.MD,   _,          0x4000): ask_domain_high(1, 1);   // by a watchlist here, which knows our domain alone
            (Mode.MD,   _,          0x8000): ask_domain_high(2, 2);
            (Mode.MD,   _,          0xC000): ask_domain_high(3, 3);
            (Mode.NONE, INT_DOMAIN, 0x4000): ask_domain_high(1, 1);
            (Mode.NONE, INT_DOMAIN, 0x8000): ask_domain_high(2, 2);
            (Mode.NONE, INT_DOMAIN, 0xC000): ask_domain_high(3, 3);
        }
        size = 8;
    }

    @id(ADD_UP_ACTION_ID)
    action add_up() {
        meta.words = meta.words + meta.domain_words;
    }

    action measure(bit<8> hop_words, bit<16> growth, bit<16> twice_growth) {
        meta.hop_words = hop_words;
        meta.growth = growth;
        meta.twice_growth = twice_growth;
        meta.uncountable = ~meta.shim_words;
    }

#define LENGTHS(words) words: measure(words, 4 * words, 8 * words);
    table lengths {
        key = { meta.asked_words: exact; }
        actions = { measure; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            FIRST_TEN(LENGTHS) TEN(LENGTHS, 1) TEN(LENGTHS, 2) LENGTHS(30) LENGTHS(31)
        }
        size = 32;
    }

    apply {
        baseline_high.apply();
        domain_high.apply();
        lengths.apply();
        add_up();
    }
}

/* Whether there is room for it. */
control Room(inout headers_t hdr, inout egress_metadata_t meta, inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    action sum_tcp() {
        meta.sums_tcp = true;
    }

    /* A datagram without a checksum stays without (RFC 768). */
    action sum_udp() {
        meta.sums_udp = true;
    }

    action measure_lengths() {
        meta.stack_words = meta.shim_words + meta.hop_words;
        meta.uncountable = meta.hop_words |-| meta.uncountable;
        meta.beyond_mtu = hdr.ipv4.total_length + meta.growth;
    }

    @id(COMPARE_ACTION_ID)
    action compare() {
        meta.mismatch = meta.words ^ meta.hop_words;
        meta.beyond_mtu = meta.beyond_mtu |-| meta.mtu;
    }

    @id(EXCEED_HOPS_ACTION_ID)
    action exceed_hops() {
        hdr.int_md.hop_limit_exceeded = 1;
    }

    @id(EXCEED_MTU_ACTION_ID)
    action exceed_mtu() {
        hdr.int_md.mtu_exceeded = 1;
    }

    @id(GROW_ACTION_ID)
    action grow() {
        meta.pushes = true;
        hdr.int_md.remaining_hops = hdr.int_md.remaining_hops - 1;
        hdr.int_shim.length = meta.stack_words;
        hdr.ipv4.total_length = hdr.ipv4.total_length + meta.growth;
        meta.grown = meta.grown + meta.growth;
        meta.grown_twice = meta.grown_twice + meta.twice_growth;
    }

    /* Apart from grow: where there is no UDP header, a chip may have TCP's in its place. */
    action grow_datagram() {
        hdr.udp.length = hdr.udp.length + meta.grown;
    }

    @id(ROOM_TABLE_ID)
    table room {
        key = {
            hdr.int_md.version:        ternary;
            meta.asked[7:0]:           ternary @name("instructions_8_15");
            hdr.int_md.remaining_hops: ternary;
            meta.words:                ternary;
            meta.mismatch:             ternary;
            meta.uncountable:          ternary;
            meta.beyond_mtu:           ternary;
        }
        actions = { exceed_hops; exceed_mtu; grow; NoAction; }
        const default_action = NoAction;   // another version, or hop_words asks for what the specification asks to skip
        const entries = {
            (INT_VERSION, _, 0, _, _, _, _): exceed_hops();
            (INT_VERSION, 0, _, 0, _, _, _): NoAction();      // nothing is asked for
            (INT_VERSION, 0, _, _, 0, 0, 0): grow();
            (INT_VERSION, 0, _, _, 0, 0, _): exceed_mtu();    // the shim could count the words
        }
        size = 4;
    }

    /* What stands in for bit 0: the packet's number, with when it came, which says so. */
    action ask_number() {
        meta.asked = meta.asked | NUMBERED;
    }

    /* What a mirror is to bring back of the packet as it leaves. Bits of what is unavailable are not set (telemetry report 2.0). */
    action capture_of(bit<16> available) {
        meta.asked = meta.asked & available;
        meta.session = (MirrorId_t)REPORT_SESSION;
        meta.becomes = Kind.REPORT;
        eg_dprsr_md.mirror_type = REPORT_MIRROR_TYPE;
#if __TARGET_TOFINO__ == 2
        eg_dprsr_md.mirror_io_select = 1;    // as it leaves, which Tofino 1 does without being told
#endif
    }

    @id(CAPTURE_ACTION_ID)
    action capture() {
        capture_of(REPORT_BITS_OF_QUEUE);
    }

    action capture_numbered() {
        capture_of(REPORT_BITS_OF_QUEUE | NUMBERED);
    }

    Restoration() restoration;

    apply {
        measure_lengths();
        compare();
        if (hdr.int_md.isValid() && meta.bridged.numbered == 1) {
            ask_number();
        }
        if (hdr.int_md.isValid()
            && (hdr.int_shim.shim_type == INT_TYPE_MD || meta.wanted == Mode.MX || meta.bridged.ends == 1)) {
            if (hdr.tcp.isValid()) {
                sum_tcp();
            } else if (hdr.udp.checksum != 0) {
                sum_udp();
            }
        }
        if (hdr.int_md.isValid() && hdr.int_shim.shim_type == INT_TYPE_MD && meta.bridged.ends == 0) {
            room.apply();
        } else if (meta.leaves) {
            if (meta.bridged.numbered == 1) {
                capture_numbered();
            } else if (meta.wanted == Mode.XD || hdr.int_md.isValid()) {
                capture();
            }
            if (meta.bridged.ends == 1) {
                restoration.apply(hdr, meta);
            }
        }
        if (meta.grown != 0 && hdr.udp.isValid()) {
            grow_datagram();
        }
    }
}

struct wraps_t {
    bit<32> wraps;
    bit<32> found;    // in the low half, by the packet before
}

control Telemetry(
    inout headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md)
{
    /* Bytes of the Ethernet frames that have left each port, without padding: the low half, and how often that has begun anew. */
    @id(BYTES_SENT_REGISTER_ID)
    Register<bit<32>, port_t>(PORTS) bytes_sent;
    Register<wraps_t, port_t>(PORTS) bytes_carried;

    @id(IDENTIFY_ACTION_ID)
    action identify(bit<32> node_id) {
        meta.this_node = node_id;
    }

    @id(NODE_TABLE_ID)
    table node {
        actions = { identify; }
        default_action = identify(UNAVAILABLE);
    }

    @id(TELL_FREE_SLOTS_ACTION_ID)
    action tell_free_slots(bit<32> slots) {
        meta.free_slots = slots;
    }

    /* Aggregation slots that no job has: the controller's to say, for it gives them out. */
    @id(FREE_SLOTS_TABLE_ID)
    table slots {
        actions = { tell_free_slots; }
        default_action = tell_free_slots(UNAVAILABLE);
    }

    @id(NAME_INGRESS_ACTION_ID)
    action name_ingress(bit<32> interface) {
        meta.ingress_name = interface;
    }

    @id(INGRESS_NAMES_TABLE_ID)
    table ingress_names {
        key = { meta.bridged.ingress_port[8:0]: exact @name("ingress_port"); }
        actions = { name_ingress; @defaultonly NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    /* ---- bytes ---- */

    RegisterAction<bit<32>, port_t, bit<32>>(bytes_sent) add_bytes = {
        void apply(inout bit<32> held, out bit<32> before) {
            before = held;
            held = held + (bit<32>)meta.frame_bytes;
        }
    };

    RegisterAction<bit<32>, port_t, bit<32>>(bytes_sent) read_bytes = {
        void apply(inout bit<32> held, out bit<32> before) {
            before = held;
        }
    };

    /* What a packet finds in the first register is less than what the one before it found: that has begun anew. */
    RegisterAction<wraps_t, port_t, bit<32>>(bytes_carried) count_wraps = {
        void apply(inout wraps_t held, out bit<32> high) {
            if (held.found > meta.sent_before) {
                held.wraps = held.wraps + 1;
            }
            held.found = meta.sent_before;
            high = held.wraps;
        }
    };

    action measure_packet() {
        meta.frame_bytes = hdr.ipv4.total_length + ETHERNET_BYTES;
    }

    /* What comes with it from ingress, and the frame's checksum, are counted in its length. */
    action measure_frame() {
        meta.frame_bytes = eg_intr_md.pkt_length - HANDED_BYTES;
    }

    @id(COUNT_BYTES_ACTION_ID)
    action count_bytes() {
        meta.sent_before = add_bytes.execute(eg_intr_md.egress_port);
    }

    @id(SHOW_BYTES_ACTION_ID)
    action show_bytes() {
        meta.sent_before = read_bytes.execute(eg_intr_md.egress_port);
        meta.frame_bytes = 0;
    }

    action carry() {
        meta.carried_before = count_wraps.execute(eg_intr_md.egress_port);
    }

    /* ---- items ---- */

    @id(PUSH_NODE_ID_ACTION_ID)
    action push_node_id() {
        hdr.int_node_id.setValid();
        hdr.int_node_id.node_id = meta.this_node;
    }

    @id(PUSH_PORTS_ACTION_ID)
    action push_ports() {
        hdr.int_ports.setValid();
        hdr.int_ports.ingress_port = meta.bridged.ingress_port;
        hdr.int_ports.egress_port = 7w0 ++ eg_intr_md.egress_port;
    }

    @id(PUSH_LATENCY_ACTION_ID)
    action push_latency() {
        hdr.int_latency.setValid();
        hdr.int_latency.microseconds = meta.waited;    // nanoseconds here
    }

    @id(PUSH_QUEUE_ACTION_ID)
    action push_queue() {
        hdr.int_queue.setValid();
        hdr.int_queue.queue_id = meta.bridged.priority;
        hdr.int_queue.packets = 5w0 ++ eg_intr_md.deq_qdepth;    // cells here
    }

    @id(PUSH_INGRESS_TIME_ACTION_ID)
    action push_ingress_time() {
        hdr.int_ingress_time.setValid();
        hdr.int_ingress_time.nanoseconds = 16w0 ++ meta.bridged.ingress_time;
    }

    @id(PUSH_EGRESS_TIME_ACTION_ID)
    action push_egress_time() {
        hdr.int_egress_time.setValid();
        hdr.int_egress_time.nanoseconds = 16w0 ++ eg_prsr_md.global_tstamp;
    }

    @id(PUSH_INTERFACES_ACTION_ID)
    action push_interfaces() {
        hdr.int_interfaces.setValid();
        hdr.int_interfaces.ingress_interface = meta.ingress_name;
        hdr.int_interfaces.egress_interface = meta.egress_name;
    }

    /* Not available: bytes by windows of time take three numbers that change at once. */
    @id(PUSH_UTILISATION_ACTION_ID)
    action push_utilisation() {
        hdr.int_utilisation.setValid();
        hdr.int_utilisation.bytes_in_window = UNAVAILABLE;
    }

    @id(PUSH_BYTES_ACTION_ID)
    action push_bytes() {
        hdr.int_bytes.setValid();
        hdr.int_bytes.bytes_sent = meta.carried_before ++ meta.sent_before;
    }

    @id(PUSH_FREE_SLOTS_ACTION_ID)
    action push_free_slots() {
        hdr.int_slots.setValid();
        hdr.int_slots.free_slots = meta.free_slots;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            measure_packet();
        } else {
            measure_frame();
        }
        if (meta.leaves) {
            count_bytes();
        } else {
            show_bytes();
        }
        carry();

        ingress_names.apply();
        node.apply();
        slots.apply();
        if (meta.pushes) {
            if (meta.items[7:7] == 1) { push_node_id(); }
            if (meta.items[6:6] == 1) { push_ports(); }
            if (meta.items[5:5] == 1) { push_latency(); }
            if (meta.items[4:4] == 1) { push_queue(); }
            if (meta.items[3:3] == 1) { push_ingress_time(); }
            if (meta.items[2:2] == 1) { push_egress_time(); }
            if (meta.items[1:1] == 1) { push_interfaces(); }
            if (meta.items[0:0] == 1) { push_utilisation(); }
            if (meta.domain_items[1:1] == 1) { push_bytes(); }
            if (meta.domain_items[0:0] == 1) { push_free_slots(); }
        }
    }
}
