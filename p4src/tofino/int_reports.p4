/*
 * Telemetry reports 2.0: what a mirror has made of a packet becomes the report about it.
 *
 *   mirrored, with reported_t and items ─▶ destination ─▶ words of metadata ─▶ sequence number, lengths ─▶ headers in front
 *                                              └─ none is set: it ends
 *
 * The inner packet begins with its IPv4 header; the session of the mirror cuts it short, so that as many bytes are there as are
 * counted; a shorter one has behind them what is no whole word, and its padding. Its Ethernet header becomes the report's. The mirror
 * of egress has brought all items; those that are not wanted go. That of ingress has brought a packet with its stack, which is cut
 * further behind. Writes Ethernet, IPv4, UDP and the report's headers.
 */

control IntReports(inout headers_t hdr, inout egress_metadata_t meta) {
    @id(REPORT_SEQUENCE_REGISTER_ID)
    Register<bit<32>, bit<1>>(1) report_sequence;

    @id(ADDRESS_ACTION_ID)
    action address(
        bit<32> node_id, mac_address_t src_mac, mac_address_t dst_mac, ipv4_address_t source, ipv4_address_t collector,
        bit<16> src_port, bit<16> dst_port, bit<6> dscp)
    {
        hdr.ethernet.dst_addr = dst_mac;
        hdr.ethernet.src_addr = src_mac;
        hdr.ipv4.setValid();
        hdr.ipv4.version = 4;
        hdr.ipv4.ihl = 5;
        hdr.ipv4.dscp = dscp;
        hdr.ipv4.ecn = ECN_NOT_ECT;
        hdr.ipv4.identification = 0;
        hdr.ipv4.flags = 2;          // do not fragment
        hdr.ipv4.fragment_offset = 0;
        hdr.ipv4.ttl = DEFAULT_TTL;
        hdr.ipv4.protocol = PROTOCOL_UDP;
        hdr.ipv4.src_addr = source;
        hdr.ipv4.dst_addr = collector;
        hdr.udp.setValid();
        hdr.udp.src_port = src_port;
        hdr.udp.dst_port = dst_port;
        hdr.udp.checksum = 0;
        hdr.report_group.setValid();
        hdr.report_group.version = REPORT_VERSION;
        hdr.report_group.hardware_id = 0;
        hdr.report_group.node_id = node_id;
        hdr.report.setValid();
        hdr.report.report_type = REPORT_TYPE_INT;
        hdr.report.inner_type = REPORT_INNER_IPV4;
        hdr.report.flags = REPORT_FLOW;
        hdr.report.domain = INT_DOMAIN;
        hdr.report.domain_status = 0;
    }

    @id(DESTINATION_TABLE_ID)
    table destination {
        actions = { address; NoAction; }
        default_action = NoAction;
    }

    @id(COUNT_WORDS_ACTION_ID)
    action count_words(bit<16> bits, bit<16> domain_bits, bit<8> words, bit<8> all_words, bit<16> all_bytes) {
        hdr.report.metadata_bits = bits;
        hdr.report.domain_bits = domain_bits;
        hdr.report.metadata_length = words;
        meta.report_words = all_words;
        meta.report_bytes = all_bytes;
    }

    /* The packet's number, which bit 0 stands for, is one word, too, and an item of the domain. */
#define ITEM_WORDS(byte) (BIT(byte, 0) + ONES_1_TO_7(byte) + BIT(byte, 4) + BIT(byte, 5) + BIT(byte, 6))
#define REPORT_WORDS(byte) byte: count_words( \
        (byte & 0x7F) << 8, BIT(byte, 0) * DOMAIN_BIT_NUMBER, ITEM_WORDS(byte), REPORT_FIXED_WORDS[7:0] + ITEM_WORDS(byte), \
        REPORT_HEADER_BYTES + 4 * ITEM_WORDS(byte));
    @id(REPORT_WORDS_TABLE_ID)
    table words_in_front {
        key = { meta.reported.items: exact @name("bits_0_7"); }
        actions = { count_words; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = { EACH_BYTE(REPORT_WORDS) }
        size = 256;
    }

    RegisterAction<bit<32>, bit<1>, bit<32>>(report_sequence) next_in_sequence = {
        void apply(inout bit<32> held, out bit<32> before) {
            before = held;
            held = held + 1;
        }
    };

    @id(COUNT_REPORT_ACTION_ID)
    action count_report() {
        meta.sequence = next_in_sequence.execute(0);
    }

    action cut() {
        meta.inner_bytes = min(meta.inner_bytes, REPORT_INNER_BYTES);
    }

    action cut_behind_stack() {
        meta.inner_bytes = min(meta.inner_bytes, STACK_INNER_BYTES);
        hdr.int_ingress_time.nanoseconds[63:48] = 0;    // the ingress port, from bridged_t
    }

    action count_whole_words(bit<8> words, bit<16> bytes) {
        meta.report_words = meta.report_words + words;
        meta.report_bytes = meta.report_bytes + bytes;
    }

#define WHOLE_WORDS(words) words: count_whole_words(words, 4 * words);
    table inner_words {
        key = { meta.inner_bytes[7:2]: exact @name("inner_words"); }
        actions = { count_whole_words; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = { FIRST_TEN(WHOLE_WORDS) TEN(WHOLE_WORDS, 1) TEN(WHOLE_WORDS, 2) TEN(WHOLE_WORDS, 3) }
        size = 64;
    }

    @id(SIZE_ACTION_ID)
    action size() {
        hdr.report_group.sequence = meta.sequence[21:0];
        hdr.report.length = meta.report_words;
        hdr.ipv4.total_length = meta.report_bytes;
    }

    @id(BUILD_ACTION_ID)
    action build() {
        hdr.udp.length = hdr.ipv4.total_length - IPV4_BYTES;
    }

    action number() {
        hdr.report_number.setValid();
        hdr.report_number.packet_number = hdr.int_ingress_time.nanoseconds[31:0];
    }

#define DROP_ITEM(bit_, item) \
    if (meta.reported.items[bit_:bit_] == 0) { \
        hdr.item.setInvalid(); \
    }

    apply {
        destination.apply();
        if (meta.reported.as_it_came == 1) {
            cut_behind_stack();
        } else {
            cut();
        }
        if (meta.reported.items[7:7] == 1) {
            number();
        }
        if (hdr.report.isValid()) {
            words_in_front.apply();
            count_report();
            inner_words.apply();
            size();
            build();
        }
        DROP_ITEM(6, int_ports)
        DROP_ITEM(5, int_latency)
        DROP_ITEM(4, int_queue)
        DROP_ITEM(3, int_ingress_time)
        DROP_ITEM(2, int_egress_time)
    }
}
