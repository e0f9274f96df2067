/*
 * Congestion: senders are policed at ingress, queues are bounded by marks at egress.
 *
 *   Policing   (port, class) ─policers─▶ meter of a bucket ─red─▶ drop: `policed`
 *   Marking    bulk packet of a bounded port ─marking─▶ depth, wait, meter of the virtual queue ─▶ limits
 *                  none is over ─▶ window ≤ what the queue allows
 *                  any is over ──▶ window ≤ what the queue allows when it is congested, congestion flag, CE on ECT
 *
 * A bucket and a virtual queue are meters: the control plane configures their rates and bursts, beside the tables' entries. What
 * does not fit takes nothing from either. Depths are in cells, waits in nanoseconds, from the ingress parser to the egress one.
 * The control class is policed and never marked.
 */

/* The color is looked at by ingress and by claim, which comes a stage later: `jobs` does not wait for it. */
control Policing(in headers_t hdr, inout ingress_metadata_t meta, in ingress_intrinsic_metadata_t ig_intr_md) {
    @id(BUCKETS_REGISTER_ID)
    Meter<bit<32>>(BUCKETS, MeterType_t.BYTES) buckets;

    @id(POLICE_ACTION_ID)
    action police(bit<32> bucket_index) {
        meta.color = buckets.execute(bucket_index);
    }

    /* Hosts' ports: what may come in a class, messages apart from everything else. What the other DSCPs share is one entry. */
    @id(POLICERS_TABLE_ID)
    table policers {
        key = {
            ig_intr_md.ingress_port: exact @name("standard_metadata.ingress_port");
            hdr.ipv4.dscp: ternary;   // the class is known a stage later
            hdr.aggregation.isValid(): exact @name("is_message");
        }
        actions = { police; @defaultonly NoAction; }
        const default_action = NoAction;
        size = BUCKETS;
    }

    apply {
        policers.apply();
    }
}

control Marking(
    inout headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md)
{
    @id(VIRTUAL_QUEUES_REGISTER_ID)
    Meter<port_t>(PORTS, MeterType_t.BYTES) virtual_queues;

    @id(BOUND_QUEUE_ACTION_ID)
    action bound_queue(bit<19> threshold, bit<32> sojourn, bit<16> window, bit<16> congested_window) {
        meta.bounded = true;
        meta.depth_left = 13w0 ++ threshold;
        meta.sojourn_left = sojourn;
        meta.color = virtual_queues.execute(eg_intr_md.egress_port);
        meta.window_limit = window;
        meta.congested_limit = congested_window;
    }

    @id(MARKING_TABLE_ID)
    table marking {
        key = { eg_intr_md.egress_port: exact @name("standard_metadata.egress_port"); }
        actions = { bound_queue; @defaultonly NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    action measure() {
        meta.depth = 13w0 ++ eg_intr_md.enq_qdepth;
        meta.waited = eg_prsr_md.global_tstamp[31:0] - meta.bridged.ingress_time[31:0];
    }

    action compare() {
        meta.depth_left = meta.depth_left |-| meta.depth;
        meta.sojourn_left = meta.sojourn_left |-| meta.waited;
    }

    action congest() {
        meta.congested = true;
        meta.window_limit = meta.congested_limit;
    }

    table limits {
        key = {
            meta.depth_left:   ternary;
            meta.sojourn_left: ternary;
            meta.color:        ternary;
        }
        actions = { congest; NoAction; }
        const default_action = NoAction;
        const entries = {
            (0, _, _): congest();
            (_, 0, _): congest();
            (_, _, MeterColor_t.RED): congest();
        }
        size = 4;
    }

    @id(LIMIT_WINDOW_ACTION_ID)
    action limit_window() {
        hdr.aggregation.window = min(hdr.aggregation.window, meta.window_limit);
        hdr.udp.checksum = 0;
    }

    @id(MARK_MESSAGE_ACTION_ID)
    action mark_message() {
        hdr.aggregation.flags = hdr.aggregation.flags | FLAG_CONGESTION;
    }

    @id(MARK_PACKET_ACTION_ID)
    action mark_packet() {
        hdr.ipv4.ecn = ECN_CE;
    }

    /* A transport that knows no ECN is not marked. */
    @id(ECN_MARKS_TABLE_ID)
    table ecn_marks {
        key = { hdr.ipv4.ecn: exact; }
        actions = { mark_packet; NoAction; }
        const default_action = mark_packet;
        const entries = {
            ECN_NOT_ECT: NoAction();
        }
        size = 1;
    }

    apply {
        // the depth is read at enqueue, as DCTCP's analysis has it; only the bulk class is bounded
        measure();
        if (meta.bridged.priority == 5w0 ++ BULK_PRIORITY) {
            marking.apply();
        }
        compare();
        if (meta.bounded) {
            limits.apply();
        }
        if (meta.congested && hdr.aggregation.isValid()) {
            mark_message();
        }
        if (meta.congested && hdr.ipv4.isValid()) {
            ecn_marks.apply();
        }
        if (meta.bounded && hdr.aggregation.isValid()) {
            limit_window();
        }
    }
}
