/*
 * PRESENT: a child takes part in a round whose messages have lanes, and adds nothing to them.
 *
 *   PRESENT ─expand─▶ lanes that are 0, summed as any ─shape─▶ contract ─▶ PRESENT, to the parent, if no child has added lanes
 *                                                          └─▶ lengthen ─▶ as long as the others, in all other cases
 *
 * So the state machine and the sums know nothing of it. Which of the two: contributions with lanes have FLAG_LANES, and flags are
 * or-ed in the slot. `reserved` says how many lanes the round has. The controller writes a row for each width that the switch can
 * take: a packet of simple_switch grows by 512 bytes at most, so it takes NARROW_LANES alone.
 */

#ifndef WEIR_PRESENT_P4
#define WEIR_PRESENT_P4

#include "../common/headers.p4"

#define WIDTHS 2                  // messages have NARROW_LANES or LANES
#define UNIT_SHIFT 7              // `reserved` counts 32 lanes, of 4 bytes each

/* Reads `reserved`; writes the lanes and the type. A width that is not taken is malformed. */
control Expand(inout headers_t hdr, inout metadata_t meta) {
#define CLEAR_LANE(i) hdr.lanes.lane_##i = 0;
    @id(EXPAND_ACTION_ID)
    action expand() {
        hdr.lanes.setValid();
        EACH_NARROW_LANE(CLEAR_LANE)
        hdr.aggregation.message_type = CONTRIBUTION;
    }

#if LANES > NARROW_LANES
#define CLEAR_WIDE_LANE(i) hdr.wide_lanes.lane_##i = 0;
    @id(EXPAND_WIDE_ACTION_ID)
    action expand_wide() {
        expand();
        hdr.wide_lanes.setValid();
        EACH_WIDE_LANE(CLEAR_WIDE_LANE)
    }
#endif

    @id(REFUSE_WIDTH_ACTION_ID)
    action refuse() {
        meta.fate = Fate.DROP;
        meta.drop_reason = DROP_MALFORMED;
    }

    @id(WIDTHS_TABLE_ID)
    table widths {
        key = { hdr.aggregation.reserved: exact @name("reserved"); }
        actions = {
            expand;
#if LANES > NARROW_LANES
            expand_wide;
#endif
            @defaultonly refuse;
        }
        const default_action = refuse;
        size = WIDTHS;
    }

    apply {
        widths.apply();
    }
}

/* What leaves of a round that PRESENT has completed, or asked for again; its sum is in the packet. Writes the lengths, too. */
control Shape(inout headers_t hdr, inout metadata_t meta, in bit<1> is_root) {
    @id(CONTRACT_ACTION_ID)
    action contract() {
        hdr.lanes.setInvalid();
#if LANES > NARROW_LANES
        hdr.wide_lanes.setInvalid();
#endif
        hdr.aggregation.message_type = PRESENT;
    }

    @id(LENGTHEN_ACTION_ID)
    action lengthen() {
        bit<16> growth = (bit<16>)hdr.aggregation.reserved << UNIT_SHIFT;
        hdr.aggregation.reserved = 0;
        hdr.udp.length = hdr.udp.length + growth;
        hdr.ipv4.total_length = hdr.ipv4.total_length + growth;
        meta.udp_length = meta.udp_length + growth;
    }

    @id(SHAPES_TABLE_ID)
    table shapes {
        key = {
            is_root:               exact;
            hdr.aggregation.flags: ternary;
        }
        actions = { contract; @defaultonly lengthen; }
        const default_action = lengthen;
        const entries = {
            (0, 0 &&& FLAG_LANES): contract();
        }
    }

    apply {
        shapes.apply();
    }
}

#endif
