/*
 * An aggregating node: what to do with a message that is addressed to this switch.
 *
 *   formats ─contribution─▶ jobs ─▶ members ─▶ slot ─▶ freshness ─▶ steps ─▶ sums ─▶ emissions ─▶ parent, children or asker
 *      │ └──────result────▶ parents ──────────────────────────────────────────────────────────▶ children
 *      └─ anything else: dropped and counted
 *
 * Reads and writes ipv4, udp, aggregation, lanes; writes mcast_grp, meta.fate, meta.drop_reason. Lanes of a packet that has
 * none (scale rounds) are never touched. State per slot: whose round it holds (job, tag), which children have contributed,
 * and the sums (sums.p4). All of it is in ingress, which is one thread.
 *
 * Control plane: the slot ranges of jobs do not overlap and end at or below AGGREGATION_SLOTS; `slots` is a power of two;
 * `contributors` in members has one bit, and `children` is their union; a job number is not used anew while a slot may still
 * hold a round of an older job with that number.
 */

enum bit<2> Freshness {
    NEWER = 0,
    SAME  = 1,
    OLDER = 2
}

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    HeaderSums() header_sums;
    LaneSums() lane_sums;

    register<bit<16>>(AGGREGATION_SLOTS) slot_job;
    register<bit<32>>(AGGREGATION_SLOTS) slot_tag;
    register<bit<32>>(AGGREGATION_SLOTS) slot_contributors;

    /* the packet's job in this node */
    bit<32> job_base = 0;
    bit<16> job_slots = 0;
    bit<32> job_children = 0;
    bit<1>  is_root = 0;
    ipv4_address_t up_address = 0;
    bit<32> up_bit = 0;
    bit<16> down_group = 0;

    /* the packet and its slot */
    bit<32> index = 0;
    bit<16> held_job = 0;
    bit<32> held_tag = 0;
    bit<32> held_contributors = 0;
    bit<1>  same_job = 0;
    bit<8>  generation_ahead = 0;
    bit<24> chunk_ahead = 0;
    Freshness freshness = Freshness.NEWER;
    bit<1>  seen = 0;
    bit<1>  complete = 0;

    /* what is decided */
    bit<1> is_contribution = 0;
    bit<1> is_result = 0;
    Sum    sum = Sum.NONE;
    bit<1> emits = 0;

    action refuse(bit<8> reason) {
        meta.fate = Fate.DROP;
        meta.drop_reason = reason;
    }

    /* ---- what kind of message ---- */

    action contribution() {
        is_contribution = 1;
    }

    action result() {
        is_result = 1;
    }

    table formats {
        key = {
            hdr.aggregation.version:      exact;
            hdr.aggregation.message_type: exact;
            hdr.udp.length:               exact;
        }
        actions = { contribution; result; refuse; }
        const default_action = refuse(DROP_MALFORMED);
        const entries = {
            (AGGREGATION_VERSION, CONTRIBUTION,  UDP_BYTES_WITH_LANES):  contribution();
            (AGGREGATION_VERSION, SCALE,         UDP_BYTES_HEADER_ONLY): contribution();
            (AGGREGATION_VERSION, RESULT,        UDP_BYTES_WITH_LANES):  result();
            (AGGREGATION_VERSION, SCALE_RESULT,  UDP_BYTES_HEADER_ONLY): result();
            // well formed, but a matter of hosts
            (AGGREGATION_VERSION, FETCH,         UDP_BYTES_HEADER_ONLY): refuse(DROP_NO_SERVICE);
            (AGGREGATION_VERSION, FETCHED,       UDP_BYTES_WITH_LANES):  refuse(DROP_NO_SERVICE);
            (AGGREGATION_VERSION, SCALE_FETCHED, UDP_BYTES_HEADER_ONLY): refuse(DROP_NO_SERVICE);
        }
    }

    /* ---- who may take part ---- */

    action inner_node(
        bit<32> slot_base, bit<16> slots, bit<32> children, ipv4_address_t parent, bit<32> parent_bit)
    {
        job_base = slot_base;
        job_slots = slots;
        job_children = children;
        up_address = parent;
        up_bit = parent_bit;
    }

    action switch_root(bit<32> slot_base, bit<16> slots, bit<32> children, bit<16> group) {
        job_base = slot_base;
        job_slots = slots;
        job_children = children;
        is_root = 1;
        down_group = group;
    }

    table jobs {
        key = {
            hdr.aggregation.job:        exact;
            hdr.aggregation.generation: exact;
        }
        actions = { inner_node; switch_root; @defaultonly refuse; }
        const default_action = refuse(DROP_UNKNOWN_JOB);
        size = JOBS;
    }

    action accept() {}

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

    /* ---- how the packet stands to its slot ---- */

    action judge(Freshness verdict) {
        freshness = verdict;
    }

    /* Chunks are serial numbers: ahead is packet minus slot, and its top bit says that the packet is behind. Of a job's
     * generations, jobs has the present one alone: a slot with another one has been left behind, however long ago. */
    table serial {
        key = {
            same_job:         exact;
            generation_ahead: ternary;
            chunk_ahead:      ternary;
        }
        actions = { judge; }
        const default_action = judge(Freshness.NEWER);
        const entries = {
            (0, _, _):                   judge(Freshness.NEWER);   // an empty slot, or another job's
            (1, 0, 0):                   judge(Freshness.SAME);
            (1, 0, 0x800000 &&& 0x800000): judge(Freshness.OLDER); // an earlier chunk of this generation
            (1, 0, _):                   judge(Freshness.NEWER);   // a later chunk of this generation
            (1, _, _):                   judge(Freshness.NEWER);   // a generation that is over
        }
    }

    /* ---- the state machine ---- */

    action restart(bit<1> then_emit) {
        sum = Sum.RESTART;
        emits = then_emit;
        slot_job.write(index, hdr.aggregation.job);
        slot_tag.write(index, hdr.aggregation.generation ++ hdr.aggregation.chunk);
        slot_contributors.write(index, hdr.aggregation.contributors);
    }

    action add(bit<1> then_emit) {
        sum = Sum.ADD;
        emits = then_emit;
        slot_contributors.write(index, held_contributors | hdr.aggregation.contributors);
    }

    action replay() {
        sum = Sum.REPLAY;
        emits = 1;
    }

    table steps {
        key = {
            freshness: exact;
            seen:      ternary;
            complete:  ternary;
        }
        actions = { restart; add; replay; refuse; }
        const default_action = refuse(DROP_LATE);
        const entries = {
            (Freshness.NEWER, _, 0): restart(0);             // the round's first packet
            (Freshness.NEWER, _, 1): restart(1);             // the round's only packet: one child
            (Freshness.SAME,  0, 1): add(1);                 // the last child
            (Freshness.SAME,  0, 0): add(0);                 // more are to come
            (Freshness.SAME,  1, 1): replay();               // the round's emission was lost: again
            (Freshness.SAME,  1, 0): refuse(DROP_DUPLICATE); // already in the sum, which waits for others
            (Freshness.OLDER, _, _): refuse(DROP_LATE);      // a round that everyone has completed
        }
    }

    /* ---- what leaves ---- */

    action sign() {
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;   // this node's address is the one that the packet was sent to
        hdr.ipv4.ttl = DEFAULT_TTL;
        hdr.udp.src_port = AGGREGATION_PORT;
        hdr.udp.checksum = 0;
        meta.src_port = AGGREGATION_PORT;
    }

    action to_parent() {
        sign();
        hdr.ipv4.dst_addr = up_address;
        hdr.aggregation.contributors = up_bit;
    }

    action to_children() {
        sign();
        hdr.aggregation.message_type = hdr.aggregation.message_type + 1;
        hdr.aggregation.contributors = 0;
        standard_metadata.mcast_grp = down_group;
        meta.fate = Fate.SEND;
    }

    action to_asker() {
        ipv4_address_t asker = hdr.ipv4.src_addr;
        sign();
        hdr.ipv4.dst_addr = asker;
        hdr.aggregation.message_type = hdr.aggregation.message_type + 1;
        hdr.aggregation.contributors = 0;
    }

    action keep() {
        meta.fate = Fate.KEEP;
    }

    table emissions {
        key = {
            emits:   exact;
            is_root: exact;
            sum:     ternary;
        }
        actions = { to_parent; to_children; to_asker; keep; }
        const default_action = keep;
        const entries = {
            (1, 0, _):          to_parent();     // the sum, or the sum again
            (1, 1, Sum.REPLAY): to_asker();      // the others have the result
            (1, 1, _):          to_children();
            (0, 0, _):          keep();
            (0, 1, _):          keep();
        }
    }

    /* ---- results on their way down ---- */

    action replicate(bit<16> group) {
        sign();
        standard_metadata.mcast_grp = group;
        meta.fate = Fate.SEND;
    }

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
        formats.apply();
        if (is_result == 1) {
            parents.apply();
        } else if (is_contribution == 1) {
            if (jobs.apply().hit) {
                if (members.apply().hit) {
                    if (hdr.aggregation.slot >= job_slots) {
                        meta.fate = Fate.DROP;
                        meta.drop_reason = DROP_BAD_SLOT;
                    } else {
                        index = job_base + (bit<32>)hdr.aggregation.slot;
                        slot_job.read(held_job, index);
                        slot_tag.read(held_tag, index);
                        slot_contributors.read(held_contributors, index);
                        same_job = held_job == hdr.aggregation.job ? 1w1 : 1w0;
                        generation_ahead = hdr.aggregation.generation - held_tag[31:24];
                        chunk_ahead = hdr.aggregation.chunk - held_tag[23:0];
                        serial.apply();
                        if (freshness == Freshness.NEWER) {
                            held_contributors = 0;
                        }
                        seen = (held_contributors & hdr.aggregation.contributors) != 0 ? 1w1 : 1w0;
                        complete = (held_contributors | hdr.aggregation.contributors) == job_children ? 1w1 : 1w0;
                        steps.apply();
                        if (sum != Sum.NONE) {
                            header_sums.apply(hdr.aggregation, index, sum);
                            if (hdr.lanes.isValid()) {
                                lane_sums.apply(hdr.lanes, index, sum);
                            }
                            emissions.apply();
                        }
                    }
                }
            }
        }
    }
}
