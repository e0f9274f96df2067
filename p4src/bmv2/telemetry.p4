/*
 * INT-MD 2.1 transit: each probe that leaves gets this hop's items pushed in front of the earlier hops'.
 *
 *   INT-MD ─▶ may this hop push? ─yes─▶ items in the order of the instruction bits, lengths, hop count
 *                 └─no─▶ E (hop limit), M (MTU), or untouched (a layout that cannot be had)
 *   any packet that leaves onto a link ─▶ bytes_sent[egress port] += its length
 *
 * A hop pushes exactly hop_words words or nothing. What this program cannot fill is all ones, in runs: a run is made of
 * headers of 16, 8, 4, 2 and 1 words, one per bit of its length. Reads standard_metadata and meta.leaves; writes ipv4's and
 * udp's lengths and the INT headers.
 */

#define BASELINE_BIT(i) ((bit<5>)hdr.int_md.instructions[15 - i:15 - i])
#define DOMAIN_BIT(i) ((bit<5>)hdr.int_md.domain_instructions[15 - i:15 - i])

control Telemetry(inout headers_t hdr, in metadata_t meta, in standard_metadata_t standard_metadata) {
    /* Bytes of the Ethernet frames that have left each port, without padding. */
    register<bit<64>>(PORTS) bytes_sent;

    bit<32> this_node = UNAVAILABLE;
    bit<5>  baseline_ones = 0;   // words that bits 6 to 14 ask for
    bit<5>  domain_ones = 0;     // words that the domain's bits 1 to 15 ask for, and bit 15 behind them
    bit<6>  words = 0;           // that this hop pushes, if it may
    bit<16> growth = 0;          // bytes that it does push
    bit<64> sent_before = 0;
    bit<16> frame_bytes = 0;

    action identify(bit<32> node_id) {
        this_node = node_id;
    }

    table node {
        actions = { identify; }
        default_action = identify(UNAVAILABLE);
    }

    action measure() {
        baseline_ones = (BASELINE_BIT(6) << 1) + BASELINE_BIT(7) + BASELINE_BIT(8) + BASELINE_BIT(9) + BASELINE_BIT(10)
            + BASELINE_BIT(11) + BASELINE_BIT(12) + BASELINE_BIT(13) + BASELINE_BIT(14);
        domain_ones = BASELINE_BIT(15);
        words = (bit<6>)(BASELINE_BIT(0) + BASELINE_BIT(1) + BASELINE_BIT(2) + BASELINE_BIT(3)
            + (BASELINE_BIT(4) << 1) + (BASELINE_BIT(5) << 1));
    }

    /* Items of another domain have unknown lengths: they are not counted, so that hop_words does not fit them. */
    action measure_domain() {
        domain_ones = domain_ones + DOMAIN_BIT(1) + DOMAIN_BIT(2) + DOMAIN_BIT(3) + DOMAIN_BIT(4) + DOMAIN_BIT(5)
            + DOMAIN_BIT(6) + DOMAIN_BIT(7) + DOMAIN_BIT(8) + DOMAIN_BIT(9) + DOMAIN_BIT(10) + DOMAIN_BIT(11)
            + DOMAIN_BIT(12) + DOMAIN_BIT(13) + DOMAIN_BIT(14) + DOMAIN_BIT(15);
        words = words + (bit<6>)(DOMAIN_BIT(0) << 1);
    }

    action grow() {
        growth = (bit<16>)words << 2;
        hdr.int_md.remaining_hops = hdr.int_md.remaining_hops - 1;
        hdr.int_shim.length = hdr.int_shim.length + (bit<8>)words;
        hdr.udp.length = hdr.udp.length + growth;
        hdr.udp.checksum = 0;
        hdr.ipv4.total_length = hdr.ipv4.total_length + growth;
    }

    action push_node_id() {
        hdr.int_node_id.setValid();
        hdr.int_node_id.node_id = this_node;
    }

    action push_ports() {
        hdr.int_ports.setValid();
        hdr.int_ports.ingress_port = (bit<16>)standard_metadata.ingress_port;
        hdr.int_ports.egress_port = (bit<16>)standard_metadata.egress_port;
    }

    action push_latency() {
        hdr.int_latency.setValid();
        hdr.int_latency.microseconds =
            (bit<32>)(standard_metadata.egress_global_timestamp - standard_metadata.ingress_global_timestamp);
    }

    action push_queue() {
        hdr.int_queue.setValid();
        hdr.int_queue.queue_id = (bit<8>)standard_metadata.priority;
        hdr.int_queue.packets = (bit<24>)standard_metadata.deq_qdepth;
    }

    action push_ingress_time() {
        hdr.int_ingress_time.setValid();
        hdr.int_ingress_time.nanoseconds = (bit<64>)standard_metadata.ingress_global_timestamp * NS_PER_US;
    }

    action push_egress_time() {
        hdr.int_egress_time.setValid();
        hdr.int_egress_time.nanoseconds = (bit<64>)standard_metadata.egress_global_timestamp * NS_PER_US;
    }

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
        if (hdr.int_md.isValid() && hdr.int_md.version == INT_VERSION) {
            measure();
            if (hdr.int_md.domain == INT_DOMAIN) {
                measure_domain();
            }
            words = words + (bit<6>)baseline_ones + (bit<6>)domain_ones;
            if (hdr.int_md.remaining_hops == 0) {
                hdr.int_md.hop_limit_exceeded = 1;
            } else if (words == 0 || words != (bit<6>)hdr.int_md.hop_words
                    || (bit<9>)hdr.int_shim.length + (bit<9>)words > INT_LENGTH_LIMIT) {
                // the source's layout cannot be had: the specification asks to skip
            } else if (hdr.ipv4.total_length + ((bit<16>)words << 2) > MTU) {
                hdr.int_md.mtu_exceeded = 1;
            } else {
                grow();
            }
        }

        bytes_sent.read(sent_before, (bit<32>)standard_metadata.egress_port);
        if (meta.leaves) {
            if (hdr.ipv4.isValid()) {
                frame_bytes = ETHERNET_BYTES + hdr.ipv4.total_length;
            } else {
                frame_bytes = (bit<16>)standard_metadata.packet_length;   // the packet_out header is gone from it
            }
            bytes_sent.write((bit<32>)standard_metadata.egress_port, sent_before + (bit<64>)frame_bytes);
        }

        if (growth != 0) {
            node.apply();
            if (BASELINE_BIT(0) == 1) { push_node_id(); }
            if (BASELINE_BIT(1) == 1) { push_ports(); }
            if (BASELINE_BIT(2) == 1) { push_latency(); }
            if (BASELINE_BIT(3) == 1) { push_queue(); }
            if (BASELINE_BIT(4) == 1) { push_ingress_time(); }
            if (BASELINE_BIT(5) == 1) { push_egress_time(); }
            PUSH_ONES(baseline_ones, 3, 8, 256)
            PUSH_ONES(baseline_ones, 2, 4, 128)
            PUSH_ONES(baseline_ones, 1, 2, 64)
            PUSH_ONES(baseline_ones, 0, 1, 32)
            if (hdr.int_md.domain == INT_DOMAIN && DOMAIN_BIT(0) == 1) { push_bytes(); }
            PUSH_ONES(domain_ones, 4, 16, 512)
            PUSH_ONES(domain_ones, 3, 8, 256)
            PUSH_ONES(domain_ones, 2, 4, 128)
            PUSH_ONES(domain_ones, 1, 2, 64)
            PUSH_ONES(domain_ones, 0, 1, 32)
        }
    }
}
