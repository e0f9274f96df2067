/*
 * INT-MD 2.1 transit: each probe that leaves gets this hop's items pushed in front of the earlier hops'.
 *
 *   instructions ─▶ asked, by slices of eight bits ─▶ add up ─▶ room ─yes─▶ items in the order of the bits, lengths, hop count
 *                                                                └─no─▶ E (hop limit), M (MTU), or untouched (a layout that
 *                                                                       cannot be had)
 *   any packet that leaves onto a link ─▶ bytes_sent[egress port] += its length
 *
 * A hop pushes exactly hop_words words or nothing. What this program cannot fill is all ones, in runs: a run is made of
 * headers of 16, 8, 4, 2 and 1 words, one per bit of its length. Reads standard_metadata and meta.leaves; writes ipv4's and
 * udp's lengths and the INT headers.
 */

#define BIT(byte, i) ((byte >> (7 - i)) & 1)
#define ONES_1_TO_7(byte) \
    (BIT(byte, 1) + BIT(byte, 2) + BIT(byte, 3) + BIT(byte, 4) + BIT(byte, 5) + BIT(byte, 6) + BIT(byte, 7))

control Telemetry(inout headers_t hdr, in metadata_t meta, in standard_metadata_t standard_metadata) {
    /* Bytes of the Ethernet frames that have left each port, without padding. */
    @id(BYTES_SENT_REGISTER_ID)
    register<bit<64>>(PORTS) bytes_sent;

    bit<32> this_node = UNAVAILABLE;

    /* what the instructions ask for, by their bytes: words of items that this program fills, and words of ones */
    bit<6>  items = 0;           // bits 0 to 5
    bit<6>  item_words = 0;
    bit<1>  domain_item = 0;     // the domain's bit 0
    bit<6>  domain_item_words = 0;
    bit<5>  ones_6_7 = 0;
    bit<5>  ones_8_14 = 0;
    bit<5>  ones_15 = 0;         // the last word of a hop, behind the domain's
    bit<5>  domain_ones_1_7 = 0;
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
    bit<16> frame_bytes = 0;

    @id(IDENTIFY_ACTION_ID)
    action identify(bit<32> node_id) {
        this_node = node_id;
    }

    @id(NODE_TABLE_ID)
    table node {
        actions = { identify; }
        default_action = identify(UNAVAILABLE);
    }

    /* ---- what is asked for ---- */

    @id(ASK_BASELINE_HIGH_ACTION_ID)
    action ask_baseline_high(bit<6> asked, bit<6> asked_words, bit<5> ones) {
        items = asked;
        item_words = asked_words;
        ones_6_7 = ones;
    }

#define BASELINE_HIGH(byte) byte: ask_baseline_high( \
        byte >> 2, BIT(byte, 0) + BIT(byte, 1) + BIT(byte, 2) + BIT(byte, 3) + 2 * BIT(byte, 4) + 2 * BIT(byte, 5), \
        2 * BIT(byte, 6) + BIT(byte, 7));
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
    action ask_domain_high(bit<1> asked, bit<6> asked_words, bit<5> ones) {
        domain_item = asked;
        domain_item_words = asked_words;
        domain_ones_1_7 = ones;
    }

#define DOMAIN_HIGH(byte) \
        (INT_DOMAIN, byte): ask_domain_high(BIT(byte, 0), 2 * BIT(byte, 0), ONES_1_TO_7(byte));
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
        baseline_ones = ones_6_7 + ones_8_14;
        domain_ones = domain_ones_1_7 + domain_ones_8_15 + ones_15;
        words = item_words + domain_item_words + (bit<6>)baseline_ones + (bit<6>)domain_ones;
    }

    /* ---- whether there is room for it ---- */

    @id(COMPARE_ACTION_ID)
    action compare() {
        mismatch = words ^ (bit<6>)hdr.int_md.hop_words;
        stack_words = (bit<9>)hdr.int_shim.length + (bit<9>)words;
        growth = (bit<16>)words << 2;
        beyond_mtu = hdr.ipv4.total_length + growth |-| MTU;
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
        hdr.udp.length = hdr.udp.length + growth;
        hdr.udp.checksum = 0;
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

    @id(PUSH_BYTES_ACTION_ID)
    action push_bytes() {
        hdr.int_bytes.setValid();
        hdr.int_bytes.bytes_sent = sent_before;
    }

#define PUSH_ONES(run, bit_, words_, bits_) \
    if (run[bit_:bit_] == 1) { \
        hdr.int_##run##_##words_.setValid(); \
        hdr.int_##run##_##words_.ones = ~bits_##w0; \
    }

    apply {
        if (hdr.int_md.isValid()) {
            baseline_high.apply();
            baseline_low.apply();
            domain_high.apply();
            domain_low.apply();
            add_up();
            compare();
            room.apply();
        }

        if (meta.leaves) {
            if (hdr.ipv4.isValid()) {
                frame_bytes = ETHERNET_BYTES + hdr.ipv4.total_length;
            } else {
                frame_bytes = (bit<16>)standard_metadata.packet_length;   // the packet_out header is gone from it
            }
            count_bytes();
        } else {
            show_bytes();
        }

        if (pushes) {
            node.apply();
            if (items[5:5] == 1) { push_node_id(); }
            if (items[4:4] == 1) { push_ports(); }
            if (items[3:3] == 1) { push_latency(); }
            if (items[2:2] == 1) { push_queue(); }
            if (items[1:1] == 1) { push_ingress_time(); }
            if (items[0:0] == 1) { push_egress_time(); }
            PUSH_ONES(baseline_ones, 3, 8, 256)
            PUSH_ONES(baseline_ones, 2, 4, 128)
            PUSH_ONES(baseline_ones, 1, 2, 64)
            PUSH_ONES(baseline_ones, 0, 1, 32)
            if (domain_item == 1) { push_bytes(); }
            PUSH_ONES(domain_ones, 4, 16, 512)
            PUSH_ONES(domain_ones, 3, 8, 256)
            PUSH_ONES(domain_ones, 2, 4, 128)
            PUSH_ONES(domain_ones, 1, 2, 64)
            PUSH_ONES(domain_ones, 0, 1, 32)
        }
    }
}
