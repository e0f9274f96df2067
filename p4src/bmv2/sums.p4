/*
 * The sums that a slot holds: the reduced header fields, and the lanes.
 *
 *               RESTART                 ADD                              REPLAY
 *   packet ──▶ slot         packet + slot ──▶ slot and packet      slot ──▶ packet
 *
 * After any of the three the packet carries what the slot holds, so it can be sent on as it is. A node sums a packet with its
 * slot only when the state machine in aggregation.p4 says so. Each register is touched in one action, once, on any of the ways.
 */

enum bit<2> Sum {
    NONE    = 0,
    RESTART = 1,
    ADD     = 2,
    REPLAY  = 3
}

/* Reads and writes the header fields that have a reduction; docs/design.md §2.2 lists them. */
control HeaderSums(inout aggregation_t aggregation, in bit<32> index, in Sum sum) {
    @id(FLAGS_REGISTER_ID)
    register<bit<8>>(AGGREGATION_SLOTS) flags;
    @id(WINDOW_REGISTER_ID)
    register<bit<16>>(AGGREGATION_SLOTS) window;
    @id(EXPONENT_REGISTER_ID)
    register<bit<8>>(AGGREGATION_SLOTS) exponent;
    @id(WEIGHT_REGISTER_ID)
    register<bit<32>>(AGGREGATION_SLOTS) weight;
    @id(CHECK_REGISTER_ID)
    register<bit<32>>(AGGREGATION_SLOTS) check;

    bit<8>  held_flags;
    bit<16> held_window;
    bit<8>  held_exponent;
    bit<32> held_weight;
    bit<32> held_check;

    action write_back() {
        flags.write(index, aggregation.flags);
        window.write(index, aggregation.window);
        exponent.write(index, aggregation.exponent);
        weight.write(index, aggregation.weight);
        check.write(index, aggregation.check);
    }

    action read_held() {
        flags.read(held_flags, index);
        window.read(held_window, index);
        exponent.read(held_exponent, index);
        weight.read(held_weight, index);
        check.read(held_check, index);
    }

    @id(RESTART_HEADER_ACTION_ID)
    action restart() {
        write_back();
    }

    @id(ADD_HEADER_ACTION_ID)
    action add() {
        read_held();
        aggregation.flags = aggregation.flags | held_flags;
        aggregation.window = held_window < aggregation.window ? held_window : aggregation.window;
        aggregation.exponent = held_exponent > aggregation.exponent ? held_exponent : aggregation.exponent;
        aggregation.weight = aggregation.weight + held_weight;
        aggregation.check = aggregation.check + held_check;
        write_back();
    }

    @id(REPLAY_HEADER_ACTION_ID)
    action replay() {
        read_held();
        aggregation.flags = aggregation.flags | held_flags;   // it tells everyone on the way that it was asked for again
        aggregation.window = held_window;
        aggregation.exponent = held_exponent;
        aggregation.weight = held_weight;
        aggregation.check = held_check;
    }

    @id(HEADER_SUMS_TABLE_ID)
    table sums {
        key = { sum: exact; }
        actions = { restart; add; replay; NoAction; }
        const default_action = NoAction;
        const entries = {
            Sum.RESTART: restart();
            Sum.ADD:     add();
            Sum.REPLAY:  replay();
        }
    }

    apply {
        sums.apply();
    }
}

/* Reads and writes the lanes of the packet, and nothing else. All lane registers have one size, so an implementation may lay them
 * side by side. */
control LaneSums(inout headers_t hdr, in bit<32> index, in Sum sum) {
#define LANE_REGISTER(i) @id(LANE_REGISTER_ID(i)) register<bit<32>>(AGGREGATION_SLOTS) lane_##i;
    EACH_NARROW_LANE(LANE_REGISTER)
#if LANES > NARROW_LANES
    EACH_WIDE_LANE(LANE_REGISTER)
#endif

    bit<32> held;

#define RESTART_LANE(header, i) lane_##i.write(index, hdr.header.lane_##i);
#define ADD_LANE(header, i) \
    lane_##i.read(held, index); \
    hdr.header.lane_##i = hdr.header.lane_##i + held; \
    lane_##i.write(index, hdr.header.lane_##i);
#define REPLAY_LANE(header, i) lane_##i.read(hdr.header.lane_##i, index);

#define RESTART_NARROW(i) RESTART_LANE(lanes, i)
    @id(RESTART_LANES_ACTION_ID)
    action restart() {
        EACH_NARROW_LANE(RESTART_NARROW)
    }

#define ADD_NARROW(i) ADD_LANE(lanes, i)
    @id(ADD_LANES_ACTION_ID)
    action add() {
        EACH_NARROW_LANE(ADD_NARROW)
    }

#define REPLAY_NARROW(i) REPLAY_LANE(lanes, i)
    @id(REPLAY_LANES_ACTION_ID)
    action replay() {
        EACH_NARROW_LANE(REPLAY_NARROW)
    }

    @id(LANE_SUMS_TABLE_ID)
    table sums {
        key = { sum: exact; }
        actions = { restart; add; replay; NoAction; }
        const default_action = NoAction;
        const entries = {
            Sum.RESTART: restart();
            Sum.ADD:     add();
            Sum.REPLAY:  replay();
        }
    }

#if LANES > NARROW_LANES
#define RESTART_WIDE(i) RESTART_LANE(wide_lanes, i)
    @id(RESTART_WIDE_LANES_ACTION_ID)
    action restart_wide() {
        EACH_WIDE_LANE(RESTART_WIDE)
    }

#define ADD_WIDE(i) ADD_LANE(wide_lanes, i)
    @id(ADD_WIDE_LANES_ACTION_ID)
    action add_wide() {
        EACH_WIDE_LANE(ADD_WIDE)
    }

#define REPLAY_WIDE(i) REPLAY_LANE(wide_lanes, i)
    @id(REPLAY_WIDE_LANES_ACTION_ID)
    action replay_wide() {
        EACH_WIDE_LANE(REPLAY_WIDE)
    }

    @id(WIDE_LANE_SUMS_TABLE_ID)
    table wide_sums {
        key = { sum: exact; }
        actions = { restart_wide; add_wide; replay_wide; NoAction; }
        const default_action = NoAction;
        const entries = {
            Sum.RESTART: restart_wide();
            Sum.ADD:     add_wide();
            Sum.REPLAY:  replay_wide();
        }
    }
#endif

    apply {
        if (hdr.lanes.isValid()) {
            sums.apply();
        }
#if LANES > NARROW_LANES
        if (hdr.wide_lanes.isValid()) {
            wide_sums.apply();
        }
#endif
    }
}
