/*
 * An aggregating node: what to do with a message that is addressed to this switch.
 *
 *   contribution ─▶ jobs, members ─▶ claim ─▶ gather ─▶ sums, and beside them steps ─▶ parent, children or asker
 *                        └──again──▶ reclaim ─────────▶ sums, and beside them steps ─┘  └──▶ around once more
 *   result ───────▶ parents ──────────────────────────────────────────────────────────▶ children
 *   other ────────▶ formats: dropped and counted
 *
 * jobs, members and parents are asked about messages to other nodes, too, so that nothing waits for who is addressed.
 *
 * Reads and writes ipv4, udp, aggregation, lanes; writes mcast_grp_a, meta.fate, meta.drop_reason, meta.again. State per slot: whose
 * round it holds, which children have contributed, and the sums (sums.p4). Each register is touched once in a pass, and each is in
 * a stage of its own: claim says whether the packet's round is newer than its slot's, gather which children the round had.
 *
 * A register hands out one of its two numbers, so what a round adds up to leaves after two passes: the first adds, and sends the
 * packet through the recirculation port with what it may show (meta.again); the second shows the rest and does what the step asks
 * for. A newer round can take the slot in between only when every worker has the result (docs/design.md §3.1), so what is read for
 * a late repeat then is asked for by nobody; reclaim drops it.
 *
 * Control plane: as p4src/bmv2/aggregation.p4 has it; and each pipe has slots of its own, so the children of a node are linked to
 * ports of one pipe.
 */

struct round_t {
    bit<32> who;         // job (16 bits), generation (8), 8 zeros. Job 0: an empty slot.
    bit<32> chunk;       // chunk (24), 8 zeros: so the difference of two is a serial number's
}

struct children_t {
    bit<32> bits;
    bit<32> chunk;
}

#include "sums.p4"

control Aggregation(
    inout headers_t hdr,
    inout ingress_metadata_t meta,
    in ingress_intrinsic_metadata_t ig_intr_md,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md)
{
    HeaderSums() header_sums;
    LaneSums() lane_sums;

    @id(SLOT_ROUND_REGISTER_ID)
    Register<round_t, bit<16>>(AGGREGATION_SLOTS) slot_round;
    @id(SLOT_CONTRIBUTORS_REGISTER_ID)
    Register<children_t, bit<16>>(AGGREGATION_SLOTS) slot_contributors;

    @id(AGGREGATION_REFUSE_ACTION_ID)
    action refuse(bit<8> reason) {
        meta.fate = Fate.DROP;
        meta.drop_reason = reason;
    }

    /* ---- what kind of message ---- */

    /* The parser has told contributions and results apart, so that nothing waits for this table: what it is asked for is neither. */
    @id(FORMATS_TABLE_ID)
    table formats {
        key = {
            hdr.aggregation.version:      exact;
            hdr.aggregation.message_type: exact;
            hdr.udp.length:               exact;
        }
        actions = { refuse; }
        const default_action = refuse(DROP_MALFORMED);
        const entries = {
            // well formed, but a matter of hosts
            (AGGREGATION_VERSION, FETCH,         UDP_BYTES_HEADER_ONLY): refuse(DROP_NO_SERVICE);
            (AGGREGATION_VERSION, FETCHED,       UDP_BYTES_NARROW):      refuse(DROP_NO_SERVICE);
            (AGGREGATION_VERSION, SCALE_FETCHED, UDP_BYTES_HEADER_ONLY): refuse(DROP_NO_SERVICE);
        }
    }

    /* ---- who may take part ---- */

    action find_slot(bit<32> slot_base, bit<16> slots, bit<32> all_children) {
        meta.who = hdr.aggregation.job ++ hdr.aggregation.generation ++ 8w0;
        meta.chunk = hdr.aggregation.chunk ++ 8w0;
        meta.child = hdr.aggregation.contributors;
        meta.exponent = 8w0 ++ hdr.aggregation.exponent;
        meta.index = slot_base[15:0] + hdr.aggregation.slot;
        meta.slots_left = slots |-| hdr.aggregation.slot;
        meta.other_children = all_children & ~hdr.aggregation.contributors;
        meta.has_job = true;
    }

    @id(INNER_NODE_ACTION_ID)
    action inner_node(
        bit<32> slot_base, bit<16> slots, @name("children") bit<32> all_children, ipv4_address_t parent, bit<32> parent_bit)
    {
        find_slot(slot_base, slots, all_children);
        meta.up_address = parent;
        meta.up_bit = parent_bit;
    }

    @id(SWITCH_ROOT_ACTION_ID)
    action switch_root(bit<32> slot_base, bit<16> slots, @name("children") bit<32> all_children, bit<16> group) {
        find_slot(slot_base, slots, all_children);
        meta.is_root = 1;
        meta.down_group = group;
    }

    @id(JOBS_TABLE_ID)
    table jobs {
        key = {
            hdr.aggregation.job:        exact;
            hdr.aggregation.generation: exact;
        }
        actions = { inner_node; switch_root; @defaultonly NoAction; }
        const default_action = NoAction;
        size = JOBS;
    }

    @id(ACCEPT_ACTION_ID)
    action accept() {
        meta.is_member = true;
    }

    @id(MEMBERS_TABLE_ID)
    table members {
        key = {
            hdr.aggregation.job:          exact;
            hdr.aggregation.generation:   exact;
            hdr.aggregation.contributors: exact;
            ig_intr_md.ingress_port:      exact @name("standard_metadata.ingress_port");
            hdr.ipv4.src_addr:            exact;
        }
        actions = { accept; @defaultonly NoAction; }
        const default_action = NoAction;
        size = MEMBERS;
    }

    /* ---- the packet and its slot ---- */

    /* The slot is the packet's from here on, unless the packet is older, or of the same round. Chunks are serial numbers: ahead is
     * packet minus slot, and its top bit says that the packet is behind. */
    RegisterAction<round_t, bit<16>, bit<1>>(slot_round) claim_round = {
        void apply(inout round_t held, out bit<1> said) {
            if (held.who != meta.who || (int<32>)(meta.chunk - held.chunk) > 0) {
                held.who = meta.who;
                held.chunk = meta.chunk;
                said = 1;
            } else {
                said = 0;
            }
        }
    };

    @id(CLAIM_ACTION_ID)
    action claim() {
        meta.turn = Turn.FIRST;
        meta.claimed = claim_round.execute(meta.index);
    }

    RegisterAction<round_t, bit<16>, bit<1>>(slot_round) is_round_there = {
        void apply(inout round_t held, out bit<1> said) {
            if (held.who == meta.who && held.chunk == meta.chunk) {
                said = 1;
            } else {
                said = 0;
            }
        }
    };

    action reclaim() {
        meta.turn = Turn.SECOND;
        meta.claimed = is_round_there.execute(meta.index);
    }

    /* The packet's child joins those of its round; of a newer round it is the first. */
    RegisterAction<children_t, bit<16>, bit<32>>(slot_contributors) begin_with_child = {
        void apply(inout children_t held) {
            held.bits = meta.child;
            held.chunk = meta.chunk;
        }
    };

    RegisterAction<children_t, bit<16>, bit<32>>(slot_contributors) join_children = {
        void apply(inout children_t held, out bit<32> before) {
            if (held.chunk == meta.chunk) {
                before = held.bits;
                held.bits = held.bits | meta.child;
            } else {
                before = 0;
            }
        }
    };

    /* PRESENT, in its first pass: the second finds lanes behind it. */
#define CLEAR_LANE(i) hdr.lanes.lane_##i = 0;
    @id(EXPAND_ACTION_ID)
    action expand() {
        hdr.lanes.setValid();
        meta.bridged.expanded = 1;
        EACH_NARROW_LANE(CLEAR_LANE)
    }

    /* It goes to the parent as it came: no child has added lanes. */
    @id(CONTRACT_ACTION_ID)
    action contract() {
        hdr.lanes.setInvalid();
        meta.bridged.expanded = 0;
    }

    action begin() {
        begin_with_child.execute(meta.index);
    }

    @id(GATHER_ACTION_ID)
    action gather() {
        meta.children = join_children.execute(meta.index);
    }

    action compare() {
        meta.seen = meta.children & meta.child;
        meta.missing = meta.other_children & ~meta.children;
    }

    /* ---- what leaves ---- */

    action sign() {
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;   // this node's address is the one that the packet was sent to
        hdr.ipv4.ttl = DEFAULT_TTL;
        hdr.udp.src_port = AGGREGATION_PORT;
        hdr.udp.checksum = 0;
        meta.src_port = AGGREGATION_PORT;
    }

    action sign_sum() {
        sign();
        meta.again.setInvalid();
    }

    @id(KEEP_ACTION_ID)
    action keep() {
        meta.fate = Fate.KEEP;
    }

    /* Read the other halves first: the packet comes back as it came, with half of what the slot holds. */
    action go_around(bit<1> repeated) {
        meta.bridged.setInvalid();
        meta.again.setValid();
        meta.again._pad = 0;
        meta.again.repeated = repeated;
        ig_tm_md.ucast_egress_port = ig_intr_md.ingress_port[8:7] ++ RECIRCULATION;
        ig_tm_md.bypass_egress = 1;
        meta.fate = Fate.SEND;
    }

    @id(TO_PARENT_ACTION_ID)
    action to_parent() {
        sign_sum();
        hdr.ipv4.dst_addr = meta.up_address;
        hdr.aggregation.contributors = meta.up_bit;
    }

    @id(TO_CHILDREN_ACTION_ID)
    action to_children() {
        sign_sum();
        hdr.aggregation.message_type = meta.answer;
        hdr.aggregation.contributors = 0;
        ig_tm_md.mcast_grp_a = meta.down_group;
        meta.fate = Fate.SEND;
    }

    @id(TO_ASKER_ACTION_ID)
    action to_asker() {
        ipv4_address_t asker = hdr.ipv4.src_addr;
        sign_sum();
        hdr.ipv4.dst_addr = asker;
        hdr.aggregation.message_type = meta.answer;
        hdr.aggregation.contributors = 0;
    }

    /* ---- the state machine ---- */

    @id(STEPS_TABLE_ID)
    table steps {
        key = {
            meta.turn:           ternary;
            meta.claimed:        ternary;
            meta.children:       ternary;
            meta.seen:           ternary;
            meta.missing:        ternary;
            meta.is_root:        ternary;
            meta.again.repeated: ternary;
        }
        actions = { keep; go_around; to_parent; to_children; to_asker; refuse; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            (Turn.FIRST,  1, _, _, 0, 0, _): to_parent();            // the round's only packet: one child
            (Turn.FIRST,  1, _, _, 0, 1, _): to_children();
            (Turn.FIRST,  1, _, _, _, _, _): keep();                 // the round's first packet
            (Turn.FIRST,  0, 0, _, _, _, _): refuse(DROP_LATE);      // a round that everyone has completed
            (Turn.FIRST,  0, _, 0, 0, _, _): go_around(0);           // the last child
            (Turn.FIRST,  0, _, 0, _, _, _): keep();                 // more are to come
            (Turn.FIRST,  0, _, _, 0, _, _): go_around(1);           // the round's emission was lost: again
            (Turn.FIRST,  0, _, _, _, _, _): refuse(DROP_DUPLICATE); // already in the sum, which waits for others
            (Turn.SECOND, 1, _, _, _, 0, _): to_parent();
            (Turn.SECOND, 1, _, _, _, 1, 0): to_children();
            (Turn.SECOND, 1, _, _, _, 1, 1): to_asker();             // the others have the result
            (Turn.SECOND, 0, _, _, _, _, _): refuse(DROP_LATE);      // everyone has completed it meanwhile
        }
        size = 16;
    }

    /* ---- results on their way down ---- */

    @id(REPLICATE_ACTION_ID)
    action replicate(bit<16> group) {
        meta.down_group = group;
        meta.is_parent = true;
    }

    @id(PARENTS_TABLE_ID)
    table parents {
        key = {
            hdr.aggregation.job:        exact;
            hdr.aggregation.generation: exact;
            ig_intr_md.ingress_port:    exact @name("standard_metadata.ingress_port");
            hdr.ipv4.src_addr:          exact;
        }
        actions = { replicate; @defaultonly NoAction; }
        const default_action = NoAction;
        size = PARENTS;
    }

    action hand_down() {
        sign();
        ig_tm_md.mcast_grp_a = meta.down_group;
        meta.fate = Fate.SEND;
    }

    apply {
        if (meta.message == Message.CONTRIBUTION) {
            jobs.apply();
            members.apply();
        } else if (meta.message == Message.RESULT) {
            parents.apply();
        }

        if (ig_prsr_md.parser_err == PARSER_ERROR_OK && !meta.ipv4_damaged && !meta.aggregation_damaged
            && hdr.aggregation.isValid() && meta.mine && meta.color != MeterColor_t.RED) {
            if (meta.src_port != AGGREGATION_PORT) {
                refuse(DROP_FOREIGN_PORT);
            } else if (meta.message == Message.CONTRIBUTION) {
                if (!meta.has_job) {
                    refuse(DROP_UNKNOWN_JOB);
                } else if (meta.again.isValid()) {
                    reclaim();
                } else if (!meta.is_member) {
                    refuse(DROP_NOT_MEMBER);
                } else if (meta.slots_left == 0) {
                    refuse(DROP_BAD_SLOT);
                } else {
                    claim();
                }
            } else if (meta.message == Message.OTHER) {
                formats.apply();
            } else if (meta.is_parent) {
                hand_down();
            } else {
                refuse(DROP_NOT_PARENT);
            }
        }

        if (meta.turn == Turn.FIRST) {
            if (meta.claimed == 1) {
                begin();
            } else {
                gather();
            }
            if (hdr.aggregation.message_type == PRESENT) {
                expand();
            }
        }
        compare();
        steps.apply();    // before the sums, so that what they ask for need not be kept longer
        header_sums.apply(
            hdr.aggregation, meta.index, meta.turn, meta.claimed, meta.children, meta.child, meta.exponent);
        lane_sums.apply(hdr.lanes, meta.index, meta.turn, meta.claimed, meta.children, meta.child);
        if (meta.bridged.isValid() && meta.bridged.expanded == 1 && hdr.aggregation.message_type == PRESENT
            && (hdr.aggregation.flags & FLAG_LANES) == 0) {
            contract();
        }
    }
}
