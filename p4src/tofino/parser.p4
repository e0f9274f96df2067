/*
 * Parsers and deparsers.
 *
 *   start ─recirculation─▶ again ─▶ ethernet ─▶ ipv4 ─▶ udp ─▶ aggregation ─▶ lanes
 *     ├────CPU port──────▶ packet_out ──▶ ethernet ─0x0800─▶ ipv4 (no options) ─first fragment─▶ udp ─▶ INT? ─no, 22341─▶ aggregation ─▶ lanes
 *     └─────────────────────────────────▶                              └───no fragment──▶ tcp ─▶ INT?
 *
 *   INT?  UDP port 5000 ───────────────────────┐
 *         DSCP bit, and what looks like a shim ─┼─▶ shim ─▶ INT-MD or INT-MX; the stack is payload, and so is what is behind it
 *         probe marker ────────────────────────┘
 *                                                 where INT ends, egress passes over the stack, word by word
 *
 * Lanes are extracted in ingress from contributions alone: only they are summed. What goes around once more is a sound message without
 * INT, and PRESENT then has lanes (present.p4). What is not IPv4 without options stays payload
 * behind Ethernet. A packet that ends too early has a parser error, which ingress counts; one that ends within a stack, egress drops.
 * Egress sees bridged metadata in front, by which it knows whether there is INT or a message.
 */

parser FabricIngressParser(
    packet_in packet,
    out headers_t hdr,
    out ingress_metadata_t meta,
    out ingress_intrinsic_metadata_t ig_intr_md)
{
    Checksum() ipv4_checksum;
    Checksum() aggregation_checksum;

    state start {
        packet.extract(ig_intr_md);
        packet.advance(PORT_METADATA_SIZE);
        meta.bridged.setValid();
        meta.bridged._pad = 0;
        meta.bridged.expanded = 0;
        meta.bridged.ends = 0;
        meta.bridged.numbered = 0;
        meta.bridged.kind = Kind.BRIDGED;
        meta.bridged.mark = Mark.NONE;
        meta.bridged.priority = 5w0 ++ BULK_PRIORITY;
        meta.bridged.ingress_port = 0;
        meta.bridged.ingress_time = 0;
        meta.src_port = 0;
        meta.dst_port = 0;
        meta.mark = Mark.NONE;
        meta.has_int = false;
        meta.stacks = false;
        meta.dscp_marked = 0;
        meta.session = 0;
        meta.reported = 0;
        meta.drop_reason = 0;
        meta.mine = false;
        meta.barred = 0;
        meta.other_source = 0;
        meta.fate = Fate.ROUTE;
        meta.message = Message.OTHER;
        meta.answer = 0;
        meta.color = MeterColor_t.GREEN;
        meta.ipv4_damaged = false;
        meta.aggregation_damaged = false;
        meta.who = 0;
        meta.chunk = 0;
        meta.child = 0;
        meta.exponent = 0;
        meta.has_job = false;
        meta.is_member = false;
        meta.is_parent = false;
        meta.index = 0;
        meta.slots_left = 0;
        meta.other_children = 0;
        meta.is_root = 0;
        meta.up_address = 0;
        meta.up_bit = 0;
        meta.down_group = 0;
        meta.turn = Turn.NONE;
        meta.claimed = 0;
        meta.children = 0;
        meta.seen = 0;
        meta.missing = 0;
        transition select(ig_intr_md.ingress_port) {
            CPU_PORT: parse_packet_out;
            RECIRCULATION_PORTS &&& RECIRCULATION_MASK: parse_again;
            default: parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }

    state parse_again {
        packet.extract(meta.again);
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        meta.src_port = hdr.udp.src_port;
        meta.dst_port = hdr.udp.dst_port;
        packet.extract(hdr.aggregation);
        transition select(hdr.aggregation.message_type) {
            SCALE:   accept_scale;
            PRESENT: parse_lanes_of_present;
            default: parse_lanes;
        }
    }

    state parse_lanes_of_present {
        meta.bridged.expanded = 1;
        transition parse_lanes;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: look_at_ipv4;
            default: accept;
        }
    }

    state look_at_ipv4 {
        transition select(packet.lookahead<bit<8>>()) {
            IPV4_NO_OPTIONS: look_at_length;
            default: accept;
        }
    }

    /* By DSCP and length, which a state that chooses by fragment and protocol has no bits left for: what a TCP segment would have
     * room for. One that is cut short of its header is passed on as it is. */
    state look_at_length {
        transition select(packet.lookahead<bit<32>>()[23:16], packet.lookahead<bit<32>>()[15:0]) {
            (_,           0 &&& 16w0xFFE0):  parse_short_ipv4;
            (_,           32 &&& 16w0xFFF8): parse_short_ipv4;
            (_,           40 &&& 16w0xFFF8): parse_bare_ipv4;
            (_,           48 &&& 16w0xFFF8): parse_bare_ipv4;
            (0 &&& 8w0x04, 56 &&& 16w0xFFF8): parse_bare_ipv4;
            (4 &&& 8w0x04, 56 &&& 16w0xFFF8): parse_short_marked_ipv4;
            (4 &&& 8w0x04, _):               parse_marked_ipv4;
            default: parse_ipv4;
        }
    }

#define PARSE_IPV4(name, what_tcp_is) \
    state name { \
        packet.extract(hdr.ipv4); \
        ipv4_checksum.add(hdr.ipv4); \
        meta.ipv4_damaged = ipv4_checksum.verify(); \
        meta.dscp_marked = hdr.ipv4.dscp[0:0]; \
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.flags[0:0], hdr.ipv4.protocol) { \
            (0, _, PROTOCOL_UDP): parse_udp; \
            (0, 0, PROTOCOL_TCP): what_tcp_is; \
            default: accept; \
        } \
    }

    PARSE_IPV4(parse_short_ipv4, accept)
    PARSE_IPV4(parse_bare_ipv4, parse_bare_tcp)
    PARSE_IPV4(parse_short_marked_ipv4, parse_short_marked_tcp)
    PARSE_IPV4(parse_marked_ipv4, parse_marked_tcp)
    PARSE_IPV4(parse_ipv4, parse_tcp)

#define PARSE_TCP(name, next) \
    state name { \
        packet.extract(hdr.tcp); \
        meta.src_port = hdr.tcp.src_port; \
        meta.dst_port = hdr.tcp.dst_port; \
        transition next; \
    }

    PARSE_TCP(parse_bare_tcp, accept)
    PARSE_TCP(parse_short_marked_tcp, look_at_shim)
    PARSE_TCP(parse_marked_tcp, look_at_shim_or_marker)
    PARSE_TCP(parse_tcp, look_at_marker)

    /* A mark by DSCP or marker is looked for where the datagram has room for it and for the headers behind. A state can choose by 32
     * bits, what later ones ask for included: so the states that look for a mark are there twice, for messages and for all others. */
    state parse_udp {
        packet.extract(hdr.udp);
        meta.src_port = hdr.udp.src_port;
        meta.dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.dst_port) {
            INT_PORT: parse_port_mark;
            AGGREGATION_PORT: look_for_mark_of_message;
            default: look_for_mark;
        }
    }

    state look_for_mark {
        transition select(hdr.udp.length, meta.dscp_marked) {
            (24 &&& 16w0xFFF8, 1): look_at_shim;
            (0 &&& 16w0xFFE0,  _): accept;
            (_,               1): look_at_shim_or_marker;
            default: look_at_marker;
        }
    }

    state look_for_mark_of_message {
        transition select(hdr.udp.length, meta.dscp_marked) {
            (24 &&& 16w0xFFF8, 1): look_at_shim_of_message;
            (0 &&& 16w0xFFE0,  _): parse_aggregation;
            (_,               1): look_at_shim_or_marker_of_message;
            default: look_at_marker_of_message;
        }
    }

    /* type MD or MX, next protocol type 0; version 2 behind it */
#define LOOK_AT_SHIM(name, otherwise) \
    state name { \
        transition select(packet.lookahead<bit<40>>()[39:32], packet.lookahead<bit<40>>()[7:0]) { \
            (0x10 &&& 0xFC, 0x20 &&& 0xF0): parse_dscp_mark; \
            (0x30 &&& 0xFC, 0x20 &&& 0xF0): parse_dscp_mark; \
            default: otherwise; \
        } \
    }

    LOOK_AT_SHIM(look_at_shim, accept)
    LOOK_AT_SHIM(look_at_shim_or_marker, look_at_marker)
    LOOK_AT_SHIM(look_at_shim_of_message, parse_aggregation)
    LOOK_AT_SHIM(look_at_shim_or_marker_of_message, look_at_marker_of_message)

    state look_at_marker {
        transition select(packet.lookahead<bit<64>>()[63:32]) {
            PROBE_MARKER[63:32]: look_at_marker_end;
            default: accept;
        }
    }

    state look_at_marker_end {
        transition select(packet.lookahead<bit<64>>()[31:0]) {
            PROBE_MARKER[31:0]: parse_marker;
            default: accept;
        }
    }

    /* By 16 bits, for the length is needed further on */
    state look_at_marker_of_message {
        transition select(packet.lookahead<bit<64>>()[63:48]) {
            PROBE_MARKER[63:48]: look_further_of_message;
            default: parse_aggregation;
        }
    }

    state look_further_of_message {
        transition select(packet.lookahead<bit<64>>()[47:32]) {
            PROBE_MARKER[47:32]: look_still_further_of_message;
            default: parse_aggregation;
        }
    }

    state look_still_further_of_message {
        transition select(packet.lookahead<bit<64>>()[31:16]) {
            PROBE_MARKER[31:16]: look_at_marker_end_of_message;
            default: parse_aggregation;
        }
    }

    state look_at_marker_end_of_message {
        transition select(packet.lookahead<bit<64>>()[15:0]) {
            PROBE_MARKER[15:0]: parse_marker;
            default: parse_aggregation;
        }
    }

    state parse_port_mark {
        meta.mark = Mark.UDP_PORT;
        transition parse_int_shim;
    }

    state parse_dscp_mark {
        meta.mark = Mark.DSCP;
        transition parse_int_shim;
    }

    state parse_marker {
        packet.extract(hdr.int_marker);
        meta.mark = Mark.PROBE_MARKER;
        transition parse_int_shim;
    }

    state parse_int_shim {
        packet.extract(hdr.int_shim);
        transition select(hdr.int_shim.shim_type, hdr.int_shim.length) {
            (_, 0 &&& 0xFE): accept;
            (_, 2): accept;
            (INT_TYPE_MD, _): parse_int_md;
            (INT_TYPE_MX, _): parse_int_mx;
            default: accept;
        }
    }

    state parse_int_md {
        meta.stacks = true;
        transition parse_int_mx;
    }

    state parse_int_mx {
        packet.extract(hdr.int_md);
        transition select(hdr.int_md.version) {
            INT_VERSION: behind_int;
            default: accept;
        }
    }

    state behind_int {
        meta.has_int = true;
        transition accept;
    }

    state parse_aggregation {
        packet.extract(hdr.aggregation);
        aggregation_checksum.add(hdr.aggregation);
        meta.aggregation_damaged = aggregation_checksum.verify();
        transition select(hdr.aggregation.version, hdr.aggregation.message_type, hdr.udp.length, hdr.aggregation.reserved) {
            (AGGREGATION_VERSION, CONTRIBUTION, UDP_BYTES_NARROW,      _):     parse_lanes;
            (AGGREGATION_VERSION, PRESENT,      UDP_BYTES_HEADER_ONLY, WIDTH): accept_lanes;
            (AGGREGATION_VERSION, SCALE,        UDP_BYTES_HEADER_ONLY, _):     accept_scale;
            (AGGREGATION_VERSION, RESULT,       UDP_BYTES_NARROW,      _):     accept_result;
            (AGGREGATION_VERSION, SCALE_RESULT, UDP_BYTES_HEADER_ONLY, _):     accept_result;
            (AGGREGATION_VERSION, DONE,         UDP_BYTES_HEADER_ONLY, _):     accept_result;
            default: accept;
        }
    }

    state parse_lanes {
        packet.extract(hdr.lanes);
        transition accept_lanes;
    }

    state accept_lanes {
        meta.answer = RESULT;
        transition accept_contribution;
    }

    state accept_scale {
        meta.answer = SCALE_RESULT;
        transition accept_contribution;
    }

    state accept_contribution {
        meta.message = Message.CONTRIBUTION;
        transition accept;
    }

    state accept_result {
        meta.message = Message.RESULT;
        transition accept;
    }
}

control FabricIngressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in ingress_metadata_t meta,
    in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md)
{
    Mirror() stack;     // of the type that is asked for: so the back end has it beside one of its own

    apply {
        if (ig_dprsr_md.mirror_type == STACK_MIRROR_TYPE) {
            stack.emit<stack_front_t>(
                meta.session, { meta.reported, meta.bridged.ingress_port, meta.bridged.ingress_time });
        }
        packet.emit(meta.bridged);
        packet.emit(meta.again);
        packet.emit(hdr);
    }
}

parser FabricEgressParser(
    packet_in packet,
    out headers_t hdr,
    out egress_metadata_t meta,
    out egress_intrinsic_metadata_t eg_intr_md)
{
    Checksum() l4_checksum;

    state start {
        packet.extract(eg_intr_md);
        meta.leaves = false;
        meta.session = 0;
        meta.becomes = Kind.BRIDGED;
        meta.shown_port = 0;
        meta.depth = 0;
        meta.waited = 0;
        meta.depth_left = 0;
        meta.sojourn_left = 0;
        meta.color = MeterColor_t.GREEN;
        meta.bounded = false;
        meta.congested = false;
        meta.window_limit = 0;
        meta.congested_limit = 0;
        meta.mtu = 0;
        meta.watchable = false;
        meta.src_port = 0;
        meta.dst_port = 0;
        meta.wanted = Mode.NONE;
        meta.sampler = 0;
        meta.one_in_less_1 = 0xFFFF;
        meta.skipped = 0;
        meta.hops = 0;
        meta.source_mark = Mark.NONE;
        meta.to_host = 0;
        meta.beyond_short = 0;
        meta.beyond_long = 0;
        meta.inner_bytes = 0;
        meta.report_words = 0;
        meta.report_bytes = 0;
        meta.sequence = 0;
        meta.asked = 0;
        meta.asked_of_domain = 0;
        meta.asked_words = 0;
        meta.shim_words = 0;
        meta.egress_name = UNAVAILABLE;
        meta.ingress_name = UNAVAILABLE;
        meta.this_node = UNAVAILABLE;
        meta.free_slots = UNAVAILABLE;
        meta.items = 0;
        meta.domain_items = 0;
        meta.words = 0;
        meta.domain_words = 0;
        meta.hop_words = 0;
        meta.mismatch = 0;
        meta.uncountable = 0;
        meta.stack_words = 0;
        meta.growth = 0;
        meta.twice_growth = 0;
        meta.beyond_mtu = 0;
        meta.pushes = false;
        meta.frame_bytes = 0;
        meta.sent_before = 0;
        meta.carried_before = 0;
        meta.rest_of_sum = 0;
        meta.sums_udp = false;
        meta.sums_tcp = false;
        meta.grown = 0;
        meta.grown_twice = 0;
        transition select(packet.lookahead<bit<8>>(), eg_intr_md.egress_port) {
            (0x04 &&& 0x0C, _): parse_mirrored;     // Kind.MIRRORED
            (0x0D &&& 0x0D, _): parse_stack;        // Kind.REPORT, as it came
            (0x0C &&& 0x0C, _): parse_report;       // Kind.REPORT
            (_, CPU_PORT):      parse_for_cpu;
            default: parse_bridged;
        }
    }

    /* The report's IPv4 header comes in front of the packet's, which is payload. */
    state parse_report {
        packet.extract(meta.reported);
        packet.extract(hdr.int_ports);
        packet.extract(hdr.int_latency);
        packet.extract(hdr.int_queue);
        packet.extract(hdr.int_ingress_time);
        packet.extract(hdr.int_egress_time);
        packet.extract(hdr.ethernet);
        meta.inner_bytes = packet.lookahead<bit<32>>()[15:0];
        transition accept;
    }

    state parse_stack {
        packet.extract(meta.reported);
        packet.extract(hdr.int_ingress_time);
        packet.extract(hdr.ethernet);
        meta.inner_bytes = packet.lookahead<bit<32>>()[15:0];
        transition accept;
    }

    /* It has left egress as it is to be. */
    state parse_mirrored {
        packet.extract(meta.mirrored);
        transition accept;
    }

    /* No more than ingress may have changed */
    state parse_for_cpu {
        packet.extract(meta.bridged);
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: look_at_ipv4_for_cpu;
            default: accept;
        }
    }

    state look_at_ipv4_for_cpu {
        transition select(packet.lookahead<bit<8>>()) {
            IPV4_NO_OPTIONS: parse_ipv4_for_cpu;
            default: accept;
        }
    }

    state parse_ipv4_for_cpu {
        packet.extract(hdr.ipv4);
        transition accept;
    }

    state parse_bridged {
        packet.extract(meta.bridged);
        meta.leaves = true;
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: look_at_ipv4;
            default: accept;
        }
    }

    state look_at_ipv4 {
        transition select(packet.lookahead<bit<8>>(), meta.bridged.kind, meta.bridged.mark) {
            (IPV4_NO_OPTIONS, Kind.BRIDGED, Mark.NONE): look_at_length;
            (IPV4_NO_OPTIONS, Kind.MESSAGE, _):         parse_ipv4_of_message;
            (IPV4_NO_OPTIONS, _, _):                    parse_ipv4_of_int;
            default: accept;
        }
    }

    /* A TCP segment that is cut short of its header has none here, as in ingress. */
    state look_at_length {
        transition select(packet.lookahead<bit<32>>()[15:0]) {
            0 &&& 16w0xFFE0:  parse_short_ipv4_alone;
            32 &&& 16w0xFFF8: parse_short_ipv4_alone;
            default: parse_ipv4_alone;
        }
    }

    /* What is watched is whole. */
#define PARSE_IPV4_ALONE(name, what_tcp_is) \
    state name { \
        packet.extract(hdr.ipv4); \
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.flags[0:0], hdr.ipv4.protocol) { \
            (0, 0, PROTOCOL_UDP): parse_udp_alone; \
            (0, 0, PROTOCOL_TCP): what_tcp_is; \
            (0, 0, _):            watch; \
            default: accept; \
        } \
    }

    PARSE_IPV4_ALONE(parse_short_ipv4_alone, watch)
    PARSE_IPV4_ALONE(parse_ipv4_alone, parse_tcp_alone)

    state parse_ipv4_of_message {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.flags[0:0]) {
            0: parse_whole_message;
            default: parse_message;
        }
    }

    /* What ingress has found INT in is a first fragment. */
    state parse_ipv4_of_int {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.protocol) {
            PROTOCOL_UDP: parse_udp;
            PROTOCOL_TCP: parse_tcp;
            default: accept;
        }
    }

    state watch {
        meta.watchable = true;
        transition accept;
    }

    state parse_udp_alone {
        packet.extract(hdr.udp);
        meta.src_port = hdr.udp.src_port;
        meta.dst_port = hdr.udp.dst_port;
        l4_checksum.subtract({ hdr.udp.dst_port, hdr.udp.checksum });
        l4_checksum.subtract_all_and_deposit(meta.rest_of_sum);
        transition watch;
    }

    state parse_tcp_alone {
        packet.extract(hdr.tcp);
        meta.src_port = hdr.tcp.src_port;
        meta.dst_port = hdr.tcp.dst_port;
        l4_checksum.subtract({ hdr.tcp.checksum });
        l4_checksum.subtract_all_and_deposit(meta.rest_of_sum);
        transition watch;
    }

    state parse_whole_message {
        meta.watchable = true;
        transition parse_message;
    }

    state parse_message {
        packet.extract(hdr.udp);
        meta.src_port = hdr.udp.src_port;
        meta.dst_port = hdr.udp.dst_port;
        transition parse_aggregation;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        l4_checksum.subtract({ hdr.udp.dst_port, hdr.udp.checksum });
        transition select(meta.bridged.mark, meta.bridged.ends) {
            (Mark.PROBE_MARKER, _): parse_int_marker;
            (_, 1): parse_ending_shim_behind_udp;
            default: parse_int_shim;
        }
    }

    state parse_tcp {
        packet.extract(hdr.tcp);
        l4_checksum.subtract({ hdr.tcp.checksum });
        transition select(meta.bridged.mark, meta.bridged.ends) {
            (Mark.PROBE_MARKER, _): parse_int_marker;
            (_, 1): parse_ending_shim;
            default: parse_int_shim;
        }
    }

    state parse_int_marker {
        packet.extract(hdr.int_marker);
        l4_checksum.subtract({ hdr.int_marker.marker });
        transition select(meta.bridged.ends) {
            1: parse_ending_shim;
            default: parse_int_shim;
        }
    }

    state parse_int_shim {
        packet.extract(hdr.int_shim);
        meta.shim_words = hdr.int_shim.length;
        l4_checksum.subtract(SHIM_FIELDS);
        transition parse_int_md;
    }

    state parse_int_md {
        packet.extract(hdr.int_md);
        meta.asked = hdr.int_md.instructions;
        meta.asked_of_domain = hdr.int_md.domain_instructions;
        meta.asked_words = hdr.int_md.hop_words;
        l4_checksum.subtract(MD_FIELDS);
        l4_checksum.subtract_all_and_deposit(meta.rest_of_sum);
        transition accept;
    }

    /* Ingress has seen that the stack is not longer than this parser may go: 160 bytes deep, with the chip's own 27 and bridged_t. */
#define PARSE_ENDING(shim, md, entries) \
    state shim { \
        packet.extract(hdr.int_shim); \
        meta.shim_words = hdr.int_shim.length; \
        l4_checksum.subtract(SHIM_FIELDS); \
        transition select(hdr.int_shim.length) { \
            INT_MD_WORDS: parse_int_md; \
            default: md; \
        } \
    } \
    state md { \
        packet.extract(hdr.int_md); \
        meta.asked = hdr.int_md.instructions; \
        l4_checksum.subtract(MD_FIELDS); \
        transition select(hdr.int_shim.length) { \
            entries \
            default: pass_over_1; \
        } \
    }

#define TO_ELEVEN_WORDS \
    14: pass_over_11; 13: pass_over_10; 12: pass_over_9; 11: pass_over_8; 10: pass_over_7; 9: pass_over_6; \
    8: pass_over_5; 7: pass_over_4; 6: pass_over_3; 5: pass_over_2;
#define TO_SIXTEEN_WORDS \
    19: pass_over_16; 18: pass_over_15; 17: pass_over_14; 16: pass_over_13; 15: pass_over_12;

    PARSE_ENDING(parse_ending_shim, parse_ending_md, TO_ELEVEN_WORDS)
    PARSE_ENDING(parse_ending_shim_behind_udp, parse_ending_md_behind_udp, TO_SIXTEEN_WORDS TO_ELEVEN_WORDS)

#define PASS_OVER(this, next) \
    state pass_over_##this { \
        packet.extract(meta.stack_word_##this); \
        l4_checksum.subtract({ meta.stack_word_##this.word }); \
        transition pass_over_##next; \
    }

    PASS_OVER(16, 15)
    PASS_OVER(15, 14)
    PASS_OVER(14, 13)
    PASS_OVER(13, 12)
    PASS_OVER(12, 11)
    PASS_OVER(11, 10)
    PASS_OVER(10, 9)
    PASS_OVER(9, 8)
    PASS_OVER(8, 7)
    PASS_OVER(7, 6)
    PASS_OVER(6, 5)
    PASS_OVER(5, 4)
    PASS_OVER(4, 3)
    PASS_OVER(3, 2)
    PASS_OVER(2, 1)

    state pass_over_1 {
        packet.extract(meta.stack_word_1);
        l4_checksum.subtract({ meta.stack_word_1.word });
        l4_checksum.subtract_all_and_deposit(meta.rest_of_sum);
        transition accept;
    }

    state parse_aggregation {
        packet.extract(hdr.aggregation);
        transition accept;
    }
}

control FabricEgressDeparser(
    packet_out packet,
    inout headers_t hdr,
    in egress_metadata_t meta,
    in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md)
{
    Checksum() ipv4_checksum;
    Checksum() aggregation_checksum;
    Checksum() udp_checksum;
    Checksum() tcp_checksum;
    Mirror(MIRROR_TYPE) finished_probe;
    Mirror(REPORT_MIRROR_TYPE) report;

    apply {
        if (eg_dprsr_md.mirror_type == MIRROR_TYPE) {
            finished_probe.emit<mirrored_t>(meta.session, { 0, meta.becomes, 0 });
        }
        if (eg_dprsr_md.mirror_type == REPORT_MIRROR_TYPE) {
            report.emit<report_front_t>(meta.session, {
                0, meta.becomes, 0, meta.asked[15:8], meta.bridged.ingress_port, 0, eg_intr_md.egress_port, meta.waited,
                meta.bridged.priority, 0, eg_intr_md.deq_qdepth, 0, meta.bridged.ingress_time, 0, eg_prsr_md.global_tstamp });
        }
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.checksum = ipv4_checksum.update(IPV4_FIELDS);
        }
        if (hdr.aggregation.isValid()) {
            hdr.aggregation.checksum = aggregation_checksum.update(AGGREGATION_FIELDS);
        }
        // a sum that comes out as 0 is written as all ones in UDP
        if (meta.sums_udp) {
            hdr.udp.checksum = udp_checksum.update({ hdr.udp.dst_port, INT_FIELDS, meta.grown_twice, meta.rest_of_sum }, true);
        }
        if (meta.sums_tcp) {
            hdr.tcp.checksum = tcp_checksum.update({ INT_FIELDS, meta.grown, meta.rest_of_sum });
        }
        // items stand behind an INT header or a report's
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.report_group);
        packet.emit(hdr.report);
        packet.emit(hdr.tcp);
        packet.emit(hdr.int_marker);
        packet.emit(hdr.int_shim);
        packet.emit(hdr.int_md);
        packet.emit(hdr.int_node_id);
        packet.emit(hdr.int_ports);
        packet.emit(hdr.int_latency);
        packet.emit(hdr.int_queue);
        packet.emit(hdr.int_ingress_time);
        packet.emit(hdr.int_egress_time);
        packet.emit(hdr.int_interfaces);
        packet.emit(hdr.int_utilisation);
        packet.emit(hdr.int_bytes);
        packet.emit(hdr.int_slots);
        packet.emit(hdr.report_number);
        packet.emit(hdr.aggregation);
    }
}
