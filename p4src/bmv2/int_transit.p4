/*
 * INT transit: each INT-MD packet that leaves gets this hop's items pushed in front of the earlier hops'. INT-MX and watched
 * packets have the same items captured for a report of this node's own (int_reports.p4).
 *
 *   instructions ─▶ asked, by slices of eight bits ─▶ add up ─▶ room ─yes─▶ items in the order of the bits, lengths, hop count
 *                                                                └─no─▶ E (hop limit), M (MTU), or untouched (a layout that
 *                                                                       cannot be had)
 *   any packet that leaves onto a link ─▶ bytes_sent[egress port] += its length; so for the port's window
 *
 * A hop pushes exactly hop_words words or nothing. What this program cannot fill is all ones, in runs: a run is made of
 * headers of 16, 8, 4, 2 and 1 words, one per bit of its length. Reads standard_metadata and meta; writes ipv4's and udp's
 * lengths, the INT headers, and what meta's report is to say.
 */

#define BIT(byte, i) ((byte >> (7 - i)) & 1)
#define ONES_1_TO_7(byte) \
    (BIT(byte, 1) + BIT(byte, 2) + BIT(byte, 3) + BIT(byte, 4) + BIT(byte, 5) + BIT(byte, 6) + BIT(byte, 7))

control Telemetry(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    /* Bytes of the Ethernet frames that have left each port, without padding. */
    @id(BYTES_SENT_REGISTER_ID)
    register<bit<64>>(PORTS) bytes_sent;
    /* The number of a window of 2^12 µs (16 bits), bytes sent in it (24), bytes sent in the window before it (24) */
    @id(PORT_WINDOW_REGISTER_ID)
    register<bit<64>>(PORTS) port_window;

    bit<32> this_node = UNAVAILABLE;
    bit<32> ingress_name = UNAVAILABLE;
    bit<32> free_slots = UNAVAILABLE;

    /* what the instructions ask for, by their bytes: words of items that this program fills, and words of ones */
    bit<8>  items = 0;           // bits 0 to 7
    bit<6>  item_words = 0;
    bit<2>  domain_items = 0;    // the domain's bits 0 and 1
    bit<6>  domain_item_words = 0;
    bit<5>  ones_8_14 = 0;
    bit<5>  ones_15 = 0;         // the last word of a hop, behind the domain's
    bit<5>  domain_ones_2_7 = 0;
    bit<5>  domain_ones_8_15 = 0;

    /* their sums, and how they stand to the packet */
    bit<5>  baseline_ones = 0;
    bit<5>  domain_ones = 0;
    bit<6>  words = 0;           // that this hop pushes, if it may
    bit<6>  mismatch = 0;        // 0: as many as the source has said
    bit<9>  stack_words = 0;     // behind the shim then
    bit<16> growth = 0;          // in bytes
    bit<16> beyond_mtu = 0;

    bool    pushes = false;
    bit<64> sent_before = 0;
    bit<24> sent_in_window = 0;  // the last whole one
    bit<16> frame_bytes = 0;
    bit<16> report_bits = 0;
    bit<16> report_domain_bits = 0;

    @id(IDENTIFY_ACTION_ID)
    action identify(bit<32> node_id) {
        this_node = node_id;
    }

    @id(NODE_TABLE_ID)
    table node {
        actions = { identify; }
        default_action = identify(UNAVAILABLE);
    }

    @id(TELL_FREE_SLOTS_ACTION_ID)
    action tell_free_slots(bit<32> slots) {
        free_slots = slots;
    }

    /* Aggregation slots that no job has: the controller's to say, for it gives them out. */
    @id(FREE_SLOTS_TABLE_ID)
    table slots {
        actions = { tell_free_slots; }
        default_action = tell_free_slots(UNAVAILABLE);
    }

    @id(NAME_INGRESS_ACTION_ID)
    action name_ingress(bit<32> interface) {
        ingress_name = interface;
    }

    @id(INGRESS_NAMES_TABLE_ID)
    table ingress_names {
        key = { standard_metadata.ingress_port: exact @name("ingress_port"); }
        actions = { name_ingress; @defaultonly NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    /* ---- what is asked for ---- */

    @id(ASK_BASELINE_HIGH_ACTION_ID)
    action ask_baseline_high(bit<8> asked, bit<6> asked_words) {
        items = asked;
        item_words = asked_words;
    }

#define BASELINE_HIGH(byte) byte: ask_baseline_high( \
        byte, BIT(byte, 0) + ONES_1_TO_7(byte) + BIT(byte, 4) + BIT(byte, 5) + BIT(byte, 6));
    @id(BASELINE_HIGH_TABLE_ID)
    table baseline_high {
        key = { hdr.int_md.instructions[15:8]: exact @name("instructions_0_7"); }
        actions = { ask_baseline_high; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = { EACH_BYTE(BASELINE_HIGH) }
    }

    @id(ASK_BASELINE_LOW_ACTION_ID)
    action ask_baseline_low(bit<5> ones, bit<5> last) {
        ones_8_14 = ones;
        ones_15 = last;
    }

#define BASELINE_LOW(byte) byte: ask_baseline_low(BIT(byte, 0) + ONES_1_TO_7(byte) - BIT(byte, 7), BIT(byte, 7));
    @id(BASELINE_LOW_TABLE_ID)
    table baseline_low {
        key = { hdr.int_md.instructions[7:0]: exact @name("instructions_8_15"); }
        actions = { ask_baseline_low; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = { EACH_BYTE(BASELINE_LOW) }
    }

    /* Items of another domain have unknown lengths: they are not counted, so that hop_words does not fit them. */
    @id(ASK_DOMAIN_HIGH_ACTION_ID)
    action ask_domain_high(bit<2> asked, bit<6> asked_words, bit<5> ones) {
        domain_items = asked;
        domain_item_words = asked_words;
        domain_ones_2_7 = ones;
    }

#define DOMAIN_HIGH(byte) \
        (INT_DOMAIN, byte): ask_domain_high( \
            byte >> 6, 2 * BIT(byte, 0) + BIT(byte, 1), ONES_1_TO_7(byte) - BIT(byte, 1));
    @id(DOMAIN_HIGH_TABLE_ID)
    table domain_high {
        key = {
            hdr.int_md.domain: exact;
            hdr.int_md.domain_instructions[15:8]: exact @name("domain_instructions_0_7");
        }
        actions = { ask_domain_high; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = { EACH_BYTE(DOMAIN_HIGH) }
    }

    @id(ASK_DOMAIN_LOW_ACTION_ID)
    action ask_domain_low(bit<5> ones) {
        domain_ones_8_15 = ones;
    }

#define DOMAIN_LOW(byte) (INT_DOMAIN, byte): ask_domain_low(BIT(byte, 0) + ONES_1_TO_7(byte));
    @id(DOMAIN_LOW_TABLE_ID)
    table domain_low {
        key = {
            hdr.int_md.domain: exact;
            hdr.int_md.domain_instructions[7:0]: exact @name("domain_instructions_8_15");
        }
        actions = { ask_domain_low; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = { EACH_BYTE(DOMAIN_LOW) }
    }

    @id(ADD_UP_ACTION_ID)
    action add_up() {
        baseline_ones = ones_8_14;
        domain_ones = domain_ones_2_7 + domain_ones_8_15 + ones_15;
        words = item_words + domain_item_words + (bit<6>)ones_8_14 + (bit<6>)domain_ones_2_7 + (bit<6>)domain_ones_8_15
            + (bit<6>)ones_15;
    }

    /* ---- whether there is room for it ---- */

    @id(COMPARE_ACTION_ID)
    action compare() {
        mismatch = words ^ (bit<6>)hdr.int_md.hop_words;
        stack_words = (bit<9>)hdr.int_shim.length + (bit<9>)words;
        growth = (bit<16>)words << 2;
        beyond_mtu = hdr.ipv4.total_length + growth |-| meta.mtu;
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
        pushes = true;
        hdr.int_md.remaining_hops = hdr.int_md.remaining_hops - 1;
        hdr.int_shim.length = stack_words[7:0];
        hdr.udp.length = hdr.udp.length + growth;   // where there is no UDP header, nothing is written
        hdr.ipv4.total_length = hdr.ipv4.total_length + growth;
    }

    @id(ROOM_TABLE_ID)
    table room {
        key = {
            hdr.int_md.version:        ternary;
            hdr.int_md.remaining_hops: ternary;
            words:                     ternary;
            mismatch:                  ternary;
            stack_words:               ternary;
            beyond_mtu:                ternary;
        }
        actions = { exceed_hops; exceed_mtu; grow; NoAction; }
        const default_action = NoAction;   // another version, or hop_words asks for what the specification asks to skip
        const entries = {
            (INT_VERSION, 0, _, _, _,                     _): exceed_hops();
            (INT_VERSION, _, 0, _, _,                     _): NoAction();      // nothing is asked for
            (INT_VERSION, _, _, 0, 0 &&& INT_BEYOND_SHIM, 0): grow();
            (INT_VERSION, _, _, 0, 0 &&& INT_BEYOND_SHIM, _): exceed_mtu();    // the shim could count the words
        }
    }

    /* ---- bytes ---- */

    @id(COUNT_BYTES_ACTION_ID)
    action count_bytes() {
        bytes_sent.read(sent_before, (bit<32>)standard_metadata.egress_port);
        bytes_sent.write((bit<32>)standard_metadata.egress_port, sent_before + (bit<64>)frame_bytes);
    }

    @id(SHOW_BYTES_ACTION_ID)
    action show_bytes() {
        bytes_sent.read(sent_before, (bit<32>)standard_metadata.egress_port);
    }

    @id(COUNT_WINDOW_ACTION_ID)
    action count_window() {
        bit<64> held;
        bit<16> window = standard_metadata.egress_global_timestamp[27:12];
        port_window.read(held, (bit<32>)standard_metadata.egress_port);
        bit<16> ago = window - held[63:48];
        bit<24> bytes = (bit<24>)frame_bytes;
        sent_in_window = ago == 0 ? held[23:0] : (ago == 1 ? held[47:24] : 24w0);
        port_window.write((bit<32>)standard_metadata.egress_port,
                          window ++ (ago == 0 ? held[47:24] |+| bytes : bytes) ++ sent_in_window);
    }

    @id(SHOW_WINDOW_ACTION_ID)
    action show_window() {
        bit<64> held;
        port_window.read(held, (bit<32>)standard_metadata.egress_port);
        bit<16> ago = standard_metadata.egress_global_timestamp[27:12] - held[63:48];
        sent_in_window = ago == 0 ? held[23:0] : (ago == 1 ? held[47:24] : 24w0);
    }

    /* ---- items ---- */

    @id(PUSH_NODE_ID_ACTION_ID)
    action push_node_id() {
        hdr.int_node_id.setValid();
        hdr.int_node_id.node_id = this_node;
    }

    @id(PUSH_PORTS_ACTION_ID)
    action push_ports() {
        hdr.int_ports.setValid();
        hdr.int_ports.ingress_port = (bit<16>)standard_metadata.ingress_port;
        hdr.int_ports.egress_port = (bit<16>)standard_metadata.egress_port;
    }

    @id(PUSH_LATENCY_ACTION_ID)
    action push_latency() {
        hdr.int_latency.setValid();
        hdr.int_latency.microseconds =
            (bit<32>)(standard_metadata.egress_global_timestamp - standard_metadata.ingress_global_timestamp);
    }

    @id(PUSH_QUEUE_ACTION_ID)
    action push_queue() {
        hdr.int_queue.setValid();
        hdr.int_queue.queue_id = (bit<8>)standard_metadata.priority;
        hdr.int_queue.packets = (bit<24>)standard_metadata.deq_qdepth;
    }

    @id(PUSH_INGRESS_TIME_ACTION_ID)
    action push_ingress_time() {
        hdr.int_ingress_time.setValid();
        hdr.int_ingress_time.nanoseconds = (bit<64>)standard_metadata.ingress_global_timestamp * NS_PER_US;
    }

    @id(PUSH_EGRESS_TIME_ACTION_ID)
    action push_egress_time() {
        hdr.int_egress_time.setValid();
        hdr.int_egress_time.nanoseconds = (bit<64>)standard_metadata.egress_global_timestamp * NS_PER_US;
    }

    @id(PUSH_INTERFACES_ACTION_ID)
    action push_interfaces() {
        hdr.int_interfaces.setValid();
        hdr.int_interfaces.ingress_interface = ingress_name;
        hdr.int_interfaces.egress_interface = meta.egress_name;
    }

    @id(PUSH_UTILISATION_ACTION_ID)
    action push_utilisation() {
        hdr.int_utilisation.setValid();
        hdr.int_utilisation.bytes_in_window = (bit<32>)sent_in_window;
    }

    @id(PUSH_BYTES_ACTION_ID)
    action push_bytes() {
        hdr.int_bytes.setValid();
        hdr.int_bytes.bytes_sent = sent_before;
    }

    @id(PUSH_FREE_SLOTS_ACTION_ID)
    action push_free_slots() {
        hdr.int_slots.setValid();
        hdr.int_slots.free_slots = free_slots;
    }

    @id(FLAG_EVENT_ACTION_ID)
    action flag_event() {
        hdr.int_md.domain_flags = hdr.int_md.domain == INT_DOMAIN
            ? hdr.int_md.domain_flags | DS_FLAG_EVENT : hdr.int_md.domain_flags;
    }

    /* ---- a report of this node's own ---- */

    @id(ASK_HEADER_ACTION_ID)
    action ask_header() {
        meta.wanted = Mode.XD;
        meta.instructions = hdr.int_md.instructions;
        meta.domain_instructions = hdr.int_md.domain == INT_DOMAIN ? hdr.int_md.domain_instructions : 0;
    }

    /* Bits of what is unavailable are not set (telemetry report 2.0). */
    @id(CAPTURE_ACTION_ID)
    action capture() {
        bit<16> names = ingress_name != UNAVAILABLE && meta.egress_name != UNAVAILABLE ? REPORT_BIT_LEVEL2 : 0;
        bit<16> has_slots = free_slots != UNAVAILABLE ? DOMAIN_BIT_SLOTS : 0;
        report_bits = meta.instructions & (REPORT_BITS_KNOWN | names);
        report_domain_bits = meta.domain_instructions & (DOMAIN_BIT_BYTES | has_slots);
        meta.report_ingress_port = (bit<16>)standard_metadata.ingress_port;
        meta.report_egress_port = (bit<16>)standard_metadata.egress_port;
        meta.report_latency =
            (bit<32>)(standard_metadata.egress_global_timestamp - standard_metadata.ingress_global_timestamp);
        meta.report_queue_id = (bit<8>)standard_metadata.priority;
        meta.report_depth = (bit<24>)standard_metadata.deq_qdepth;
        meta.report_ingress_time = standard_metadata.ingress_global_timestamp;
        meta.report_egress_time = standard_metadata.egress_global_timestamp;
        meta.report_ingress_name = ingress_name;
        meta.report_egress_name = meta.egress_name;
        meta.report_utilisation = (bit<32>)sent_in_window;
        meta.report_bytes_sent = sent_before;
        meta.report_free_slots = free_slots;
        meta.report_inner_bytes = REPORT_INNER_BYTES;
    }

    @id(SAY_FLOW_ACTION_ID)
    action say_flow() {
        meta.report_flags = meta.report_flags | REPORT_FLOW;
        meta.report_bits = meta.report_bits | report_bits;
        meta.report_domain_bits = meta.report_domain_bits | report_domain_bits;
    }

    /* The stack's report of this packet has the same ingress timestamp and number. */
    @id(SAY_SINK_ACTION_ID)
    action say_sink() {
        meta.report_bits = meta.report_bits | REPORT_BITS_OF_STACK;
        meta.report_domain_bits = meta.report_domain_bits | DOMAIN_BIT_NUMBER;
    }

    @id(SAY_QUEUE_ACTION_ID)
    action say_queue() {
        meta.report_flags = meta.report_flags | REPORT_QUEUE;
        meta.report_bits = meta.report_bits | REPORT_BITS_OF_QUEUE;
    }

#define PUSH_ONES(run, bit_, words_, bits_) \
    if (run[bit_:bit_] == 1) { \
        hdr.int_##run##_##words_.setValid(); \
        hdr.int_##run##_##words_.ones = ~bits_##w0; \
    }

    apply {
        if (meta.has_int == 1 && meta.stacks == 1) {
            baseline_high.apply();
            baseline_low.apply();
            domain_high.apply();
            domain_low.apply();
            add_up();
            compare();
            room.apply();
            if (meta.flow_event == 1 && meta.steps_set == 1) {
                flag_event();
            }
        } else if (meta.has_int == 1) {
            ask_header();
        }

        if (hdr.report.isValid()) {
            frame_bytes = ETHERNET_BYTES + hdr.report_ipv4.total_length;
        } else if (hdr.ipv4.isValid()) {
            frame_bytes = ETHERNET_BYTES + hdr.ipv4.total_length;
        } else {
            frame_bytes = (bit<16>)standard_metadata.packet_length;   // the packet_out header is gone from it
        }
        if (meta.leaves) {
            count_bytes();
            count_window();
        } else {
            show_bytes();
            show_window();
        }

        if (pushes || meta.wanted == Mode.XD || meta.queue_event == 1) {
            node.apply();
            slots.apply();
            ingress_names.apply();
        }
        if (pushes) {
            if (items[7:7] == 1) { push_node_id(); }
            if (items[6:6] == 1) { push_ports(); }
            if (items[5:5] == 1) { push_latency(); }
            if (items[4:4] == 1) { push_queue(); }
            if (items[3:3] == 1) { push_ingress_time(); }
            if (items[2:2] == 1) { push_egress_time(); }
            if (items[1:1] == 1) { push_interfaces(); }
            if (items[0:0] == 1) { push_utilisation(); }
            PUSH_ONES(baseline_ones, 2, 4, 128)
            PUSH_ONES(baseline_ones, 1, 2, 64)
            PUSH_ONES(baseline_ones, 0, 1, 32)
            if (domain_items[1:1] == 1) { push_bytes(); }
            if (domain_items[0:0] == 1) { push_free_slots(); }
            PUSH_ONES(domain_ones, 4, 16, 512)
            PUSH_ONES(domain_ones, 3, 8, 256)
            PUSH_ONES(domain_ones, 2, 4, 128)
            PUSH_ONES(domain_ones, 1, 2, 64)
            PUSH_ONES(domain_ones, 0, 1, 32)
        }
        if (meta.wanted == Mode.XD || meta.queue_event == 1) {
            capture();
            if (meta.wanted == Mode.XD && meta.flow_event == 1) {
                say_flow();
                if (meta.at_sink == 1 && meta.due == 1) {
                    say_sink();
                }
            }
            if (meta.queue_event == 1) {
                say_queue();
            }
        }
    }
}
