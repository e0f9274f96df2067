/*
 * Admission: what goes through by a host's port is that host's own, and of the kinds that it has a part in.
 *
 *   ingress port ─hosts─▶ the host's address ─is not the packet's source─▶ drop: `foreign_source`
 *                 └─────▶ messages that it may send ─barred_types─no──────▶ drop: `foreign_type`
 *
 * Ports of switches have no entry: what comes in there was looked at where it came into the fabric. What is addressed to this node
 * is not asked about here, for `members` and `parents` ask for more. Reads ipv4 and aggregation; writes meta.other_source,
 * meta.barred, meta.fate, meta.drop_reason.
 */

control Admission(inout headers_t hdr, inout ingress_metadata_t meta, in ingress_intrinsic_metadata_t ig_intr_md) {
    @id(ADMISSION_REFUSE_ACTION_ID)
    action refuse(bit<8> reason) {
        meta.fate = Fate.DROP;
        meta.drop_reason = reason;
    }

    /* Bit i of `messages`: the host may send messages of type i. */
    @id(ADMIT_ACTION_ID)
    action admit(ipv4_address_t address, bit<8> messages) {
        meta.other_source = hdr.ipv4.src_addr ^ address;
        meta.barred = ~messages;
    }

    @id(HOSTS_TABLE_ID)
    table hosts {
        key = { ig_intr_md.ingress_port: exact @name("standard_metadata.ingress_port"); }
        actions = { admit; @defaultonly NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    /* What is of no type at all is a matter of who gets it. PRESENT and DONE, for which there are no bits, are judged as a
     * contribution and a result. */
    @id(BARRED_TYPES_TABLE_ID)
    table barred_types {
        key = {
            hdr.aggregation.message_type: exact;
            meta.barred:                  ternary;
        }
        actions = { refuse; NoAction; }
        const default_action = NoAction;
        const entries = {
            (CONTRIBUTION,  8w1 << 1 &&& 8w1 << 1): refuse(DROP_FOREIGN_TYPE);
            (RESULT,        8w1 << 2 &&& 8w1 << 2): refuse(DROP_FOREIGN_TYPE);
            (SCALE,         8w1 << 3 &&& 8w1 << 3): refuse(DROP_FOREIGN_TYPE);
            (SCALE_RESULT,  8w1 << 4 &&& 8w1 << 4): refuse(DROP_FOREIGN_TYPE);
            (FETCH,         8w1 << 5 &&& 8w1 << 5): refuse(DROP_FOREIGN_TYPE);
            (FETCHED,       8w1 << 6 &&& 8w1 << 6): refuse(DROP_FOREIGN_TYPE);
            (SCALE_FETCHED, 8w1 << 7 &&& 8w1 << 7): refuse(DROP_FOREIGN_TYPE);
            (PRESENT,       8w1 << 1 &&& 8w1 << 1): refuse(DROP_FOREIGN_TYPE);
            (DONE,          8w1 << 2 &&& 8w1 << 2): refuse(DROP_FOREIGN_TYPE);
        }
        size = 16;
    }

    apply {
        if (hosts.apply().hit) {
            if (meta.other_source != 0) {
                refuse(DROP_FOREIGN_SOURCE);
            } else if (hdr.aggregation.isValid()) {
                barred_types.apply();
            }
        }
    }
}
