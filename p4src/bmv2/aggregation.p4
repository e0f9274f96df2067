/*
 * An aggregating node: what to do with a message that is addressed to this switch.
 *
 *   source port ─▶ formats ─contribution─▶ jobs ─▶ members ─▶ claim ─▶ gather ─▶ steps ─▶ sums ─▶ parent, children or asker
 *                     │ └──────result────▶ parents ─▶ jobs ─▶ recall ─▶ find_wanting ───────────▶ children
 *                     └─ anything else: dropped and counted
 *
 * Reads and writes ipv4, udp, aggregation, lanes; writes mcast_grp, meta.fate, meta.drop_reason, meta.wanting. Lanes of a packet
 * that has none (scale rounds) are never touched. INT that no sink has taken out stays where it is: what leaves of a round has
 * the stack of the packet that completed it, or asked for it again. State per slot: whose round it holds, which children have
 * contributed, which of them want the result, and the sums (sums.p4). Each register is touched in one action, once, however a
 * packet goes: claim compares the slot's round with the packet's and replaces it at once, gather does so with the children. All
 * of it is in ingress, which is one thread.
 *
 * Control plane: the slot ranges of jobs do not overlap and end at or below AGGREGATION_SLOTS; `slots` is a power of two;
 * `contributors` in members has one bit, and `children` is their union; a job number is not used anew while a slot may still
 * hold a round of an older job with that number.
 */

/* The packet's round, against the one that its slot held */
enum bit<2> Freshness {
    NEWER = 0,
    SAME  = 1,
    OLDER = 2,
    AHEAD = 3      // of all that a worker may send: the slot's next round is the one that comes S later
}

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    HeaderSums() header_sums;
    LaneSums() lane_sums;
    Expand() expand;
    Shape() shape;

    /* Job (16 bits), generation (8), 8 zeros; chunk (24), 8 zeros. Job 0: an empty slot. */
    @id(SLOT_ROUND_REGISTER_ID)
    register<bit<64>>(AGGREGATION_SLOTS) slot_round;
    @id(SLOT_CONTRIBUTORS_REGISTER_ID)
    register<bit<32>>(AGGREGATION_SLOTS) slot_contributors;
    /* Children below which a worker wants the lanes of the round's result */
    @id(SLOT_WANTING_REGISTER_ID)
    register<bit<32>>(AGGREGATION_SLOTS) slot_wanting;

    /* the packet's job in this node */
    bit<32> index = 0;             // of the packet's slot
    bit<16> slots_left = 0;        // from that slot to the end of the job's: 0 is beyond
    bit<32> stride = 0;            // S, where the slot has a chunk
    bit<32> child = 0;             // the packet's
    bit<32> other_children = 0;
    bit<1>  is_root = 0;
    ipv4_address_t up_address = 0;
    bit<32> up_bit = 0;
    bit<16> down_group = 0;

    /* the packet and its slot */
    Freshness freshness = Freshness.NEWER;
    bit<32> seen = 0;              // the packet's child, where its contribution is in the slot already
    bit<32> missing = 0;           // children that are not, when the packet's is

    /* what is decided */
    bit<1> is_result = 0;
    bit<1> is_present = 0;
    Sum    sum = Sum.NONE;

    @id(AGGREGATION_REFUSE_ACTION_ID)
    action refuse(bit<8> reason) {
        meta.fate = Fate.DROP;
        meta.drop_reason = reason;
    }

    /* ---- what kind of message, by its length without INT; a probe is none ---- */

    @id(CONTRIBUTION_ACTION_ID)
    action contribution() {}

    @id(PRESENT_ACTION_ID)
    action present() {
        is_present = 1;
    }

    @id(RESULT_ACTION_ID)
    action result() {
        is_result = 1;
    }

    @id(FORMATS_TABLE_ID)
    table formats {
        key = {
            hdr.aggregation.version:      exact;
            hdr.aggregation.message_type: exact;
            meta.udp_length:              exact @name("udp_length");
            meta.discards:                exact @name("discards");
        }
        actions = { contribution; present; result; refuse; }
        const default_action = refuse(DROP_MALFORMED);
        const entries = {
            (AGGREGATION_VERSION, CONTRIBUTION,  UDP_BYTES_NARROW,      0): contribution();
            (AGGREGATION_VERSION, SCALE,         UDP_BYTES_HEADER_ONLY, 0): contribution();
            (AGGREGATION_VERSION, PRESENT,       UDP_BYTES_HEADER_ONLY, 0): present();
            (AGGREGATION_VERSION, RESULT,        UDP_BYTES_NARROW,      0): result();
            (AGGREGATION_VERSION, SCALE_RESULT,  UDP_BYTES_HEADER_ONLY, 0): result();
            (AGGREGATION_VERSION, DONE,          UDP_BYTES_HEADER_ONLY, 0): result();
            // well formed, but a matter of hosts
            (AGGREGATION_VERSION, FETCH,         UDP_BYTES_HEADER_ONLY, 0): refuse(DROP_NO_SERVICE);
            (AGGREGATION_VERSION, FETCHED,       UDP_BYTES_NARROW,      0): refuse(DROP_NO_SERVICE);
            (AGGREGATION_VERSION, SCALE_FETCHED, UDP_BYTES_HEADER_ONLY, 0): refuse(DROP_NO_SERVICE);
#if LANES > NARROW_LANES
            (AGGREGATION_VERSION, CONTRIBUTION,  UDP_BYTES_WITH_LANES,  0): contribution();
            (AGGREGATION_VERSION, RESULT,        UDP_BYTES_WITH_LANES,  0): result();
            (AGGREGATION_VERSION, FETCHED,       UDP_BYTES_WITH_LANES,  0): refuse(DROP_NO_SERVICE);
#endif
        }
    }

    /* ---- who may take part ---- */

    action find_slot(bit<32> slot_base, bit<16> slots, bit<32> children) {
        index = slot_base + (bit<32>)hdr.aggregation.slot;
        slots_left = slots |-| hdr.aggregation.slot;
        stride = 8w0 ++ slots ++ 8w0;
        child = hdr.aggregation.contributors;
        other_children = children & ~child;
    }

    @id(INNER_NODE_ACTION_ID)
    action inner_node(
        bit<32> slot_base, bit<16> slots, bit<32> children, ipv4_address_t parent, bit<32> parent_bit)
    {
        find_slot(slot_base, slots, children);
        up_address = parent;
        up_bit = parent_bit;
    }

    @id(SWITCH_ROOT_ACTION_ID)
    action switch_root(bit<32> slot_base, bit<16> slots, bit<32> children, bit<16> group) {
        find_slot(slot_base, slots, children);
        is_root = 1;
        down_group = group;
    }

    @id(JOBS_TABLE_ID)
    table jobs {
        key = {
            hdr.aggregation.job:        exact;
            hdr.aggregation.generation: exact;
        }
        actions = { inner_node; switch_root; @defaultonly refuse; }
        const default_action = refuse(DROP_UNKNOWN_JOB);
        size = JOBS;
    }

    @id(ACCEPT_ACTION_ID)
    action accept() {}

    @id(MEMBERS_TABLE_ID)
    table members {
        key = {
            hdr.aggregation.job:            exact;
            hdr.aggregation.generation:     exact;
            hdr.aggregation.contributors:   exact;
            standard_metadata.ingress_port: exact;
            hdr.ipv4.src_addr:              exact;
        }
        actions = { accept; @defaultonly refuse; }
        const default_action = refuse(DROP_NOT_MEMBER);
        size = MEMBERS;
    }

    /* ---- the packet and its slot ---- */

    /* The slot is the packet's from here on, if the packet is newer. Chunks are serial numbers: ahead is packet minus slot, and its
     * top bit says that the packet is behind. A worker sends a round when the one S before is complete, which was summed here: so of
     * later rounds none but the next may take the slot. Of a job's generations, jobs has the present one alone: a slot with another
     * one has been left behind, however long ago. */
    @id(CLAIM_ACTION_ID)
    action claim() {
        bit<64> held;
        bit<32> who = hdr.aggregation.job ++ hdr.aggregation.generation ++ 8w0;
        bit<32> chunk = hdr.aggregation.chunk ++ 8w0;
        slot_round.read(held, index);
        bit<32> ahead = chunk - held[31:0];
        freshness = held[63:32] != who ? Freshness.NEWER
            : (ahead == 0 ? Freshness.SAME
            : (ahead[31:31] == 1 ? Freshness.OLDER
            : (ahead == stride ? Freshness.NEWER : Freshness.AHEAD)));
        slot_round.write(index, freshness == Freshness.NEWER ? who ++ chunk : held);
    }

    /* The packet's child joins those of its round, which a newer round has none of yet. */
    @id(GATHER_ACTION_ID)
    action gather() {
        bit<32> held;
        slot_contributors.read(held, index);
        held = freshness == Freshness.SAME ? held : 0;
        seen = held & hdr.aggregation.contributors;
        missing = other_children & ~held;
        slot_contributors.write(index, held | hdr.aggregation.contributors);
    }

    /* The packet's child joins those that want the result, which a newer round has none of yet. A result goes to all, and the answer
     * to the child that asks again goes by its own word. `steps` has replaced the packet's child, and sums have not joined flags. */
    @id(GATHER_WANTING_ACTION_ID)
    action gather_wanting() {
        bit<32> held;
        bit<32> own = (hdr.aggregation.flags & FLAG_WANTED) != 0 ? child : 0;
        slot_wanting.read(held, index);
        held = (freshness == Freshness.SAME ? held : 0) | own;
        meta.wanting = sum == Sum.REPLAY ? own : held;
        slot_wanting.write(index, held);
    }

    /* ---- what leaves ---- */

    action sign() {
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;   // this node's address is the one that the packet was sent to
        hdr.ipv4.ttl = DEFAULT_TTL;
        hdr.udp.src_port = AGGREGATION_PORT;
        hdr.udp.checksum = 0;
        meta.src_port = AGGREGATION_PORT;
    }

    @id(KEEP_ACTION_ID)
    action keep(Sum operation) {
        sum = operation;
        meta.fate = Fate.KEEP;
    }

    @id(TO_PARENT_ACTION_ID)
    action to_parent(Sum operation) {
        sum = operation;
        sign();
        hdr.ipv4.dst_addr = up_address;
        hdr.aggregation.contributors = up_bit;
    }

    @id(TO_CHILDREN_ACTION_ID)
    action to_children(Sum operation) {
        sum = operation;
        sign();
        hdr.aggregation.message_type = hdr.aggregation.message_type + 1;
        hdr.aggregation.contributors = 0;
        standard_metadata.mcast_grp = down_group;
        meta.fate = Fate.SEND;
    }

    @id(TO_ASKER_ACTION_ID)
    action to_asker(Sum operation) {
        ipv4_address_t asker = hdr.ipv4.src_addr;
        sum = operation;
        sign();
        hdr.ipv4.dst_addr = asker;
        hdr.aggregation.message_type = hdr.aggregation.message_type + 1;
        hdr.aggregation.contributors = 0;
    }

    /* ---- the state machine ---- */

    @id(STEPS_TABLE_ID)
    table steps {
        key = {
            freshness: ternary;
            seen:      ternary;
            missing:   ternary;
            is_root:   ternary;
        }
        actions = { keep; to_parent; to_children; to_asker; refuse; }
        const default_action = refuse(DROP_LATE);
        const entries = {
            (Freshness.NEWER, _, 0, 0): to_parent(Sum.RESTART);      // the round's only packet: one child
            (Freshness.NEWER, _, 0, 1): to_children(Sum.RESTART);
            (Freshness.NEWER, _, _, _): keep(Sum.RESTART);           // the round's first packet
            (Freshness.SAME,  0, 0, 0): to_parent(Sum.ADD);          // the last child
            (Freshness.SAME,  0, 0, 1): to_children(Sum.ADD);
            (Freshness.SAME,  0, _, _): keep(Sum.ADD);               // more are to come
            (Freshness.SAME,  _, 0, 0): to_parent(Sum.REPLAY);       // the round's emission was lost: again
            (Freshness.SAME,  _, 0, 1): to_asker(Sum.REPLAY);        // the others have the result
            (Freshness.SAME,  _, _, _): refuse(DROP_DUPLICATE);      // already in the sum, which waits for others
            (Freshness.OLDER, _, _, _): refuse(DROP_LATE);           // a round that everyone has completed
            (Freshness.AHEAD, _, _, _): refuse(DROP_OUT_OF_WINDOW);  // a round that nobody can have begun
        }
    }

    /* ---- results on their way down ---- */

    @id(REPLICATE_ACTION_ID)
    action replicate(bit<16> group) {
        sign();
        standard_metadata.mcast_grp = group;
        meta.fate = Fate.SEND;
    }

    /* Whether the slot still is the result's round */
    @id(RECALL_ACTION_ID)
    action recall() {
        bit<64> held;
        slot_round.read(held, index);
        freshness = held == hdr.aggregation.job ++ hdr.aggregation.generation ++ 8w0 ++ hdr.aggregation.chunk ++ 8w0
            ? Freshness.SAME : Freshness.OLDER;
    }

    @id(FIND_WANTING_ACTION_ID)
    action find_wanting() {
        bit<32> held;
        slot_wanting.read(held, index);
        meta.wanting = held;
    }

    @id(PARENTS_TABLE_ID)
    table parents {
        key = {
            hdr.aggregation.job:            exact;
            hdr.aggregation.generation:     exact;
            standard_metadata.ingress_port: exact;
            hdr.ipv4.src_addr:              exact;
        }
        actions = { replicate; @defaultonly refuse; }
        const default_action = refuse(DROP_NOT_PARENT);
        size = PARENTS;
    }

    apply {
        if (meta.src_port != AGGREGATION_PORT) {
            refuse(DROP_FOREIGN_PORT);
        } else {
            formats.apply();
        }
        if (is_present == 1) {
            expand.apply(hdr, meta);
        }
        if (is_result == 1) {
            parents.apply();
        }
        if (meta.fate != Fate.DROP) {
            if (jobs.apply().hit) {
                if (is_result == 1) {
                    if (slots_left != 0) {
                        recall();
                        if (freshness == Freshness.SAME) {
                            find_wanting();
                        }
                    }
                } else if (members.apply().hit) {
                    if (slots_left == 0) {
                        refuse(DROP_BAD_SLOT);
                    } else {
                        claim();
                        if (freshness == Freshness.NEWER || freshness == Freshness.SAME) {
                            gather();
                        }
                        steps.apply();
                        if (sum != Sum.NONE) {
                            gather_wanting();
                            header_sums.apply(hdr.aggregation, index, sum);
                            lane_sums.apply(hdr, index, sum);
                            if (is_present == 1) {
                                shape.apply(hdr, meta, is_root);
                            }
                        }
                    }
                }
            }
        }
    }
}
