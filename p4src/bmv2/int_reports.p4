/*
 * Telemetry reports 2.0: a clone of the packet becomes the report about it.
 *
 *   clone, with what meta.report_* says ─▶ destination ─▶ words of metadata ─▶ sequence number, lengths ─▶ headers in front
 *                                              └─ none is set: the clone ends                        the packet, cut short
 *
 * The inner packet begins with its IPv4 header and has whole words. Its Ethernet header goes. The clone leaves by the port of
 * its session, the CPU's among them; it is not routed here. Reads ipv4 and meta; writes the report's headers.
 */

control IntReports(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    @id(REPORT_SEQUENCE_REGISTER_ID)
    register<bit<32>>(1) report_sequence;

    bit<1>  addressed = 0;
    bit<8>  metadata_words = 0;
    bit<8>  last_words = 0;
    bit<32> sequence = 0;
    bit<16> inner_bytes = 0;
    bit<16> all_bytes = 0;      // from the report's IPv4 header on
    bit<16> report_words = 0;

    @id(ADDRESS_ACTION_ID)
    action address(
        bit<32> node_id, mac_address_t src_mac, mac_address_t dst_mac, ipv4_address_t source, ipv4_address_t collector,
        bit<16> src_port, bit<16> dst_port, bit<6> dscp)
    {
        addressed = 1;
        hdr.report_ethernet.setValid();
        hdr.report_ethernet.dst_addr = dst_mac;
        hdr.report_ethernet.src_addr = src_mac;
        hdr.report_ethernet.ether_type = ETHERTYPE_IPV4;
        hdr.report_ipv4.setValid();
        hdr.report_ipv4.version = 4;
        hdr.report_ipv4.ihl = 5;
        hdr.report_ipv4.dscp = dscp;
        hdr.report_ipv4.ecn = ECN_NOT_ECT;
        hdr.report_ipv4.identification = 0;
        hdr.report_ipv4.flags = 2;          // do not fragment
        hdr.report_ipv4.fragment_offset = 0;
        hdr.report_ipv4.ttl = DEFAULT_TTL;
        hdr.report_ipv4.protocol = PROTOCOL_UDP;
        hdr.report_ipv4.src_addr = source;
        hdr.report_ipv4.dst_addr = collector;
        hdr.report_udp.setValid();
        hdr.report_udp.src_port = src_port;
        hdr.report_udp.dst_port = dst_port;
        hdr.report_udp.checksum = 0;
        hdr.report_group.setValid();
        hdr.report_group.version = REPORT_VERSION;
        hdr.report_group.hardware_id = 0;
        hdr.report_group.node_id = node_id;
    }

    @id(DESTINATION_TABLE_ID)
    table destination {
        actions = { address; NoAction; }
        default_action = NoAction;
    }

    @id(COUNT_WORDS_ACTION_ID)
    action count_words(bit<8> count) {
        metadata_words = count;
    }

    /* Bit 0 is reserved, and never set. */
#define REPORT_WORDS(bits) bits: count_words(ONES_1_TO_7(bits) + BIT(bits, 4) + BIT(bits, 5) + BIT(bits, 6));
#define EACH_OF_SEVEN_BITS(F) \
    EACH_NARROW_LANE(F) F(32) F(33) F(34) F(35) F(36) F(37) F(38) F(39) TEN(F, 4) TEN(F, 5) TEN(F, 6) TEN(F, 7) \
    TEN(F, 8) TEN(F, 9) TEN(F, 10) TEN(F, 11) F(120) F(121) F(122) F(123) F(124) F(125) F(126) F(127)
    @id(REPORT_WORDS_TABLE_ID)
    table words_in_front {
        key = { meta.report_bits[14:8]: exact @name("bits_1_7"); }
        actions = { count_words; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = { EACH_OF_SEVEN_BITS(REPORT_WORDS) }
    }

    @id(COUNT_LAST_WORDS_ACTION_ID)
    action count_last_words(bit<8> count) {
        last_words = count;
    }

    @id(LAST_WORDS_TABLE_ID)
    table words_behind {
        key = {
            meta.report_bits[0:0]:          exact @name("drop");
            meta.report_domain_bits[15:13]: exact @name("domain_bits_0_2");
        }
        actions = { count_last_words; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (0, 0): count_last_words(0);
            (0, 1): count_last_words(1);
            (0, 2): count_last_words(1);
            (0, 3): count_last_words(2);
            (0, 4): count_last_words(2);
            (0, 5): count_last_words(3);
            (0, 6): count_last_words(3);
            (0, 7): count_last_words(4);
            (1, 0): count_last_words(1);
        }
    }

    @id(COUNT_REPORT_ACTION_ID)
    action count_report() {
        report_sequence.read(sequence, 0);
        report_sequence.write(0, sequence + 1);
    }

    @id(SIZE_ACTION_ID)
    action size() {
        metadata_words = metadata_words + last_words;
        inner_bytes = (hdr.ipv4.total_length < meta.report_inner_bytes ? hdr.ipv4.total_length : meta.report_inner_bytes)
            & 0xFFFC;
        report_words = REPORT_FIXED_WORDS + (bit<16>)metadata_words + (inner_bytes >> 2);
        all_bytes = REPORT_HEADER_BYTES + ((bit<16>)metadata_words << 2) + inner_bytes;
    }

    @id(BUILD_ACTION_ID)
    action build() {
        hdr.ethernet.setInvalid();
        hdr.report_ipv4.total_length = all_bytes;
        hdr.report_udp.length = all_bytes - IPV4_BYTES;
        hdr.report_group.sequence = sequence[21:0];
        hdr.report.setValid();
        hdr.report.report_type = REPORT_TYPE_INT;
        hdr.report.inner_type = REPORT_INNER_IPV4;
        hdr.report.length = report_words < (bit<16>)REPORT_TO_THE_END ? report_words[7:0] : REPORT_TO_THE_END;
        hdr.report.metadata_length = metadata_words;
        hdr.report.flags = meta.report_flags;
        hdr.report.metadata_bits = meta.report_bits;
        hdr.report.domain = INT_DOMAIN;
        hdr.report.domain_bits = meta.report_domain_bits;
        hdr.report.domain_status = 0;
    }

    apply {
        destination.apply();
        if (addressed == 1) {
            words_in_front.apply();
            words_behind.apply();
            count_report();
            size();
            build();
            if (meta.report_bits[14:14] == 1) {
                hdr.report_ports.setValid();
                hdr.report_ports.ingress_port = meta.report_ingress_port;
                hdr.report_ports.egress_port = meta.report_egress_port;
            }
            if (meta.report_bits[13:13] == 1) {
                hdr.report_latency.setValid();
                hdr.report_latency.microseconds = meta.report_latency;
            }
            if (meta.report_bits[12:12] == 1) {
                hdr.report_queue.setValid();
                hdr.report_queue.queue_id = meta.report_queue_id;
                hdr.report_queue.packets = meta.report_depth;
            }
            if (meta.report_bits[11:11] == 1) {
                hdr.report_ingress_time.setValid();
                hdr.report_ingress_time.nanoseconds = (bit<64>)meta.report_ingress_time * NS_PER_US;
            }
            if (meta.report_bits[10:10] == 1) {
                hdr.report_egress_time.setValid();
                hdr.report_egress_time.nanoseconds = (bit<64>)meta.report_egress_time * NS_PER_US;
            }
            if (meta.report_bits[9:9] == 1) {
                hdr.report_interfaces.setValid();
                hdr.report_interfaces.ingress_interface = meta.report_ingress_name;
                hdr.report_interfaces.egress_interface = meta.report_egress_name;
            }
            if (meta.report_bits[8:8] == 1) {
                hdr.report_utilisation.setValid();
                hdr.report_utilisation.bytes_in_window = meta.report_utilisation;
            }
            if (meta.report_bits[0:0] == 1) {
                hdr.report_drop.setValid();
                hdr.report_drop.queue_id = 0xFF;      // it had none yet
                hdr.report_drop.reason = meta.report_reason;
                hdr.report_drop.padding = 0;
            }
            if (meta.report_domain_bits[15:15] == 1) {
                hdr.report_bytes.setValid();
                hdr.report_bytes.bytes_sent = meta.report_bytes_sent;
            }
            if (meta.report_domain_bits[14:14] == 1) {
                hdr.report_slots.setValid();
                hdr.report_slots.free_slots = meta.report_free_slots;
            }
            if (meta.report_domain_bits[13:13] == 1) {
                hdr.report_number.setValid();
                hdr.report_number.packet_number = meta.report_number;
            }
            if (standard_metadata.egress_port == CPU_PORT) {
                truncate((bit<32>)(PACKET_IN_BYTES + ETHERNET_BYTES + all_bytes));
            } else {
                truncate((bit<32>)(ETHERNET_BYTES + all_bytes));
            }
        }
    }
}
