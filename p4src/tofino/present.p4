/*
 * PRESENT: a child takes part in a round whose messages have lanes, and adds nothing to them.
 *
 *   PRESENT ─expand─▶ lanes that are 0, summed as any ─around once more, as it came, with lanes behind─▶ sums
 *                                                      ├─▶ contract ─▶ PRESENT, to the parent, if no child has added lanes
 *                                                      └─▶ leaves with lanes ─to egress─▶ lengthen ─▶ as long as the others
 *
 * Ingress (aggregation.p4) has no containers for lengths that it writes: so they say until egress that a message came without lanes. A
 * round of other lanes than these is malformed, as the parser has seen.
 */

#ifndef WEIR_PRESENT_P4
#define WEIR_PRESENT_P4

/* In egress, before lengths are asked for: what ingress has expanded */
control Length(inout headers_t hdr, in egress_metadata_t meta) {
    @id(LENGTHEN_ACTION_ID)
    action lengthen(bit<4> type) {
        hdr.aggregation.message_type = type;
        hdr.aggregation.reserved = 0;
        hdr.udp.length = UDP_BYTES_NARROW;
        hdr.ipv4.total_length = IPV4_BYTES + UDP_BYTES_NARROW;
    }

    table lengths {
        key = { hdr.aggregation.message_type: exact; }
        actions = { lengthen; NoAction; }
        const default_action = NoAction;
        const entries = {
            PRESENT: lengthen(CONTRIBUTION);
            RESULT:  lengthen(RESULT);
        }
        size = 2;
    }

    apply {
        if (hdr.aggregation.isValid() && meta.bridged.expanded == 1) {
            lengths.apply();
        }
    }
}

#endif
