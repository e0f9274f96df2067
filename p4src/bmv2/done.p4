/*
 * DONE: a result without its lanes, for a child below which no worker wants them.
 *
 *   contribution ─FLAG_WANTED─▶ its child's bit in slot_wanting (aggregation.p4)
 *   result to all children ───▶ meta.wanting = the slot's map
 *   result to the child that asks again ─▶ meta.wanting = its bit, if it wants
 *   in egress: meta.wanting & the receiving child's bit ─0, and a result with lanes─▶ prune ─▶ DONE ─at the end─▶ truncate
 *
 * meta.wanting is all ones for everything else, so nothing else is pruned. Lanes of results are payload here unless this node has
 * summed them, so they are cut off rather than parsed.
 */

#ifndef WEIR_DONE_P4
#define WEIR_DONE_P4

#define PRUNING

#include "../common/headers.p4"

/* Reads meta.wanting, and the length that the message has here; writes type, lengths and meta.pruned_bytes. */
control Pruning(inout headers_t hdr, inout metadata_t meta) {
    @id(PRUNE_ACTION_ID)
    action prune() {
        bit<16> lane_bytes = meta.udp_length - UDP_BYTES_HEADER_ONLY;
        hdr.aggregation.message_type = DONE;
        hdr.udp.length = hdr.udp.length - lane_bytes;
        hdr.ipv4.total_length = hdr.ipv4.total_length - lane_bytes;
        meta.pruned_bytes = ETHERNET_BYTES + hdr.ipv4.total_length;
        hdr.lanes.setInvalid();
#if LANES > NARROW_LANES
        hdr.wide_lanes.setInvalid();
#endif
    }

    @id(PRUNES_TABLE_ID)
    table prunes {
        key = { hdr.aggregation.message_type: exact; }
        actions = { prune; @defaultonly NoAction; }
        const default_action = NoAction;
        const entries = {
            RESULT: prune();
        }
    }

    apply {
        if (meta.wanting == 0) {
            prunes.apply();
        }
    }
}

#endif
