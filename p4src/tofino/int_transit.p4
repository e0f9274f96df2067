/*
 * INT transit: each INT-MD packet that leaves gets this hop's items pushed in front of the earlier hops', which stay payload.
 *
 *   instructions ─▶ asked, by slices of eight bits ─▶ pairs ─▶ total ─▶ compare ─┐
 *   hop_words ────▶ lengths ─▶ lengths as they would be ─▶ compare with the MTU ─┴▶ room ─yes─▶ items, lengths, hop count
 *                                                                                    └─no─▶ E (hop limit), M (MTU), or untouched
 *   any packet that leaves onto a link ─▶ bytes_sent[egress port] += its length, in two registers of 32 bits
 *
 * A hop pushes exactly hop_words words or nothing, so lengths follow from hop_words, and what is asked for is only compared with
 * it. What this program cannot fill of the baseline is all ones, in runs of 4, 2 and 1 words. A chip's clock has nanoseconds, so the latency is
 * in these; depths are in cells. Reads intrinsic and bridged metadata; writes ipv4's and udp's lengths, and the INT headers.
 */

#define BIT(byte, i) ((byte >> (7 - i)) & 1)
#define ONES_1_TO_7(byte) \
    (BIT(byte, 1) + BIT(byte, 2) + BIT(byte, 3) + BIT(byte, 4) + BIT(byte, 5) + BIT(byte, 6) + BIT(byte, 7))

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

    /* ---- what is asked for: items that this program fills, words of ones, and all words ---- */

    @id(ASK_BASELINE_HIGH_ACTION_ID)
    action ask_baseline_high(bit<8> asked, bit<8> asked_words) {
        meta.items = asked;
        meta.words_0_7 = asked_words;
    }

#define BASELINE_HIGH(byte) byte: ask_baseline_high( \
        byte, BIT(byte, 0) + ONES_1_TO_7(byte) + BIT(byte, 4) + BIT(byte, 5) + BIT(byte, 6));
    @id(BASELINE_HIGH_TABLE_ID)
    table baseline_high {
        key = { hdr.int_md.instructions[15:8]: exact @name("instructions_0_7"); }
        actions = { ask_baseline_high; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = { EACH_BYTE(BASELINE_HIGH) }
        size = 256;
    }

    @id(ASK_BASELINE_LOW_ACTION_ID)
    action ask_baseline_low(bit<8> ones, bit<8> last, bit<8> asked_words) {
        meta.baseline_ones = ones;
        meta.ones_15 = last;
        meta.words_8_15 = asked_words;
    }

#define BASELINE_LOW(byte) byte: ask_baseline_low( \
        BIT(byte, 0) + ONES_1_TO_7(byte) - BIT(byte, 7), BIT(byte, 7), BIT(byte, 0) + ONES_1_TO_7(byte));
    @id(BASELINE_LOW_TABLE_ID)
    table baseline_low {
        key = { hdr.int_md.instructions[7:0]: exact @name("instructions_8_15"); }
        actions = { ask_baseline_low; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = { EACH_BYTE(BASELINE_LOW) }
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
            hdr.int_md.domain: exact;
            hdr.int_md.domain_instructions: exact;
        }
        actions = { ask_domain_high; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (INT_DOMAIN, 0x4000): ask_domain_high(1, 1);
            (INT_DOMAIN, 0x8000): ask_domain_high(2, 2);
            (INT_DOMAIN, 0xC000): ask_domain_high(3, 3);
        }
        size = 4;
    }

    action sum_tcp() {
        meta.sums_tcp = true;
    }

    /* A datagram without a checksum stays without (RFC 768). */
    action sum_udp() {
        meta.sums_udp = true;
    }

    action add_pairs() {
        meta.words = meta.words_0_7 + meta.words_8_15;
    }

    @id(ADD_UP_ACTION_ID)
    action add_up() {
        meta.words = meta.words + meta.domain_words;
    }

    /* ---- whether there is room for it ---- */

    action measure(bit<8> hop_words, bit<16> growth, bit<16> twice_growth) {
        meta.hop_words = hop_words;
        meta.growth = growth;
        meta.twice_growth = twice_growth;
        meta.countable = ~hdr.int_shim.length;
    }

#define LENGTHS(words) words: measure(words, 4 * words, 8 * words);
    table lengths {
        key = { hdr.int_md.hop_words: exact; }
        actions = { measure; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            FIRST_TEN(LENGTHS) TEN(LENGTHS, 1) TEN(LENGTHS, 2) LENGTHS(30) LENGTHS(31)
        }
        size = 32;
    }

    action measure_lengths() {
        meta.stack_words = hdr.int_shim.length + meta.hop_words;
        meta.uncountable = meta.hop_words |-| meta.countable;
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
        meta.grown = meta.growth;
        meta.grown_twice = meta.twice_growth;
    }

    /* Apart from grow: where there is no UDP header, a chip may have TCP's in its place. */
    action grow_datagram() {
        hdr.udp.length = hdr.udp.length + meta.growth;
    }

    @id(ROOM_TABLE_ID)
    table room {
        key = {
            hdr.int_md.version:        ternary;
            hdr.int_md.remaining_hops: ternary;
            meta.words:                ternary;
            meta.mismatch:             ternary;
            meta.uncountable:          ternary;
            meta.beyond_mtu:           ternary;
        }
        actions = { exceed_hops; exceed_mtu; grow; NoAction; }
        const default_action = NoAction;   // another version, or hop_words asks for what the specification asks to skip
        const entries = {
            (INT_VERSION, 0, _, _, _, _): exceed_hops();
            (INT_VERSION, _, 0, _, _, _): NoAction();      // nothing is asked for
            (INT_VERSION, _, _, 0, 0, 0): grow();
            (INT_VERSION, _, _, 0, 0, _): exceed_mtu();    // the shim could count the words
        }
        size = 4;
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

    /* The last word of a hop, behind the domain's */
    action push_last() {
        hdr.int_domain_ones_1.setValid();
        hdr.int_domain_ones_1.ones = UNAVAILABLE;
    }

#define PUSH_ONES(run, bit_, words_, bits_) \
    if (meta.run##_ones[bit_:bit_] == 1) { \
        hdr.int_##run##_ones_##words_.setValid(); \
        hdr.int_##run##_ones_##words_.ones = ~bits_##w0; \
    }

    apply {
        if (hdr.int_md.isValid() && hdr.int_shim.shim_type == INT_TYPE_MD) {
            baseline_high.apply();
            baseline_low.apply();
            domain_high.apply();
            lengths.apply();
            if (hdr.tcp.isValid()) {
                sum_tcp();
            } else if (meta.udp_sum != 0) {
                sum_udp();
            }
        }
        add_pairs();
        add_up();
        measure_lengths();
        compare();
        if (hdr.int_md.isValid() && hdr.int_shim.shim_type == INT_TYPE_MD) {
            room.apply();
        }

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

        if (meta.pushes && hdr.udp.isValid()) {
            grow_datagram();
        }
        if (meta.pushes) {
            node.apply();
            slots.apply();
            ingress_names.apply();
            if (meta.items[7:7] == 1) { push_node_id(); }
            if (meta.items[6:6] == 1) { push_ports(); }
            if (meta.items[5:5] == 1) { push_latency(); }
            if (meta.items[4:4] == 1) { push_queue(); }
            if (meta.items[3:3] == 1) { push_ingress_time(); }
            if (meta.items[2:2] == 1) { push_egress_time(); }
            if (meta.items[1:1] == 1) { push_interfaces(); }
            if (meta.items[0:0] == 1) { push_utilisation(); }
            PUSH_ONES(baseline, 2, 4, 128)
            PUSH_ONES(baseline, 1, 2, 64)
            PUSH_ONES(baseline, 0, 1, 32)
            if (meta.domain_items[1:1] == 1) { push_bytes(); }
            if (meta.domain_items[0:0] == 1) { push_free_slots(); }
            if (meta.ones_15 == 1) { push_last(); }
        }
    }
}
