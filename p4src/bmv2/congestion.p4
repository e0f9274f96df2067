/*
 * Congestion: senders are policed at ingress, queues are bounded by marks at egress.
 *
 *   Policing   (port, class) ─policers─▶ bucket ─▶ fill_bucket ─conforms─▶ go on
 *                                                      └─does not──▶ drop: `policed`
 *   Marking    packet in a job's class, bounded port ─marking─▶ depth, sojourn, virtual queue
 *                  none is over ─▶ window ≤ what the queue allows
 *                  any is over ──▶ window ≤ what the queue allows when it is congested, congestion flag, CE on ECT
 *
 * A bucket and a virtual queue are leaky buckets: a register holds the instant at which what has come will have drained, in
 * 2⁻¹⁶ µs. Each is read, changed and written by one action. The control class is policed and never marked.
 */

/* Class of all that has no entry in traffic_class: one above that of a chip, so that lower effort goes behind it. */
const bit<3> BULK_CLASS = BULK_PRIORITY + 1;
/* The two classes that jobs have no part in; all others have queue bounds. */
const bit<3> LOWER_EFFORT_CLASS = 0;
const bit<3> CONTROL_CLASS = 7;

control Policing(inout headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    @id(BUCKETS_REGISTER_ID)
    register<bit<64>>(BUCKETS) buckets;

    bit<32> bucket = 0;
    bit<64> cost = 0;
    bit<64> burst_cost = 0;
    bit<64> excess = 0;

    @id(POLICE_ACTION_ID)
    action police(bit<32> bucket_index, bit<32> byte_cost, bit<64> burst) {
        bucket = bucket_index;
        cost = (bit<64>)standard_metadata.packet_length * (bit<64>)byte_cost;
        burst_cost = burst;
    }

    /* Hosts' ports: what may come in a class, whatever its DSCP, messages apart from everything else. */
    @id(POLICERS_TABLE_ID)
    table policers {
        key = {
            standard_metadata.ingress_port: exact;
            standard_metadata.priority: exact @name("priority");
            hdr.aggregation.isValid(): exact @name("is_message");
        }
        actions = { police; @defaultonly NoAction; }
        const default_action = NoAction;
        size = 8 * PORTS;
    }

    /* What does not conform takes nothing from the bucket. */
    @id(FILL_BUCKET_ACTION_ID)
    action fill_bucket() {
        bit<64> now = (bit<64>)standard_metadata.ingress_global_timestamp << 16;
        bit<64> drained = 0;
        buckets.read(drained, bucket);
        bit<64> level = (drained |-| now) + cost;
        excess = level |-| burst_cost;
        buckets.write(bucket, excess == 0 ? now + level : drained);
    }

    @id(POLICING_REFUSE_ACTION_ID)
    action refuse() {
        meta.fate = Fate.DROP;
        meta.drop_reason = DROP_POLICED;
    }

    apply {
        if (policers.apply().hit) {
            fill_bucket();
            if (excess != 0) {
                refuse();
            }
        }
    }
}

control Marking(inout headers_t hdr, in metadata_t meta, in standard_metadata_t standard_metadata) {
    @id(VIRTUAL_QUEUES_REGISTER_ID)
    register<bit<64>>(PORTS) virtual_queues;

    bit<19> depth_left = 0;      // until the queue is at its threshold
    bit<32> sojourn_left = 0;    // until the wait is
    bit<64> cost = 0;            // of this packet, in the virtual queue
    bit<64> virtual_limit = 0;
    bit<64> virtual_left = 0;
    bit<16> window_limit = 0;
    bit<16> congested_limit = 0;

    @id(BOUND_QUEUE_ACTION_ID)
    action bound_queue(bit<19> threshold, bit<32> sojourn, bit<32> byte_cost, bit<64> backlog, bit<16> window,
                       bit<16> congested_window) {
        depth_left = threshold |-| standard_metadata.enq_qdepth;
        sojourn_left = sojourn |-| standard_metadata.deq_timedelta;
        bit<32> frame_bytes = meta.pruned_bytes != 0 ? (bit<32>)meta.pruned_bytes : standard_metadata.packet_length;
        cost = (bit<64>)frame_bytes * (bit<64>)byte_cost;
        virtual_limit = backlog;
        window_limit = window;
        congested_limit = congested_window;
    }

    @id(MARKING_TABLE_ID)
    table marking {
        key = { standard_metadata.egress_port: exact; }
        actions = { bound_queue; @defaultonly NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    @id(FILL_VIRTUAL_QUEUE_ACTION_ID)
    action fill_virtual_queue() {
        bit<64> now = (bit<64>)standard_metadata.egress_global_timestamp << 16;
        bit<64> drained = 0;
        virtual_queues.read(drained, (bit<32>)standard_metadata.egress_port);
        bit<64> level = (drained |-| now) + cost;
        virtual_left = virtual_limit |-| level;
        virtual_queues.write((bit<32>)standard_metadata.egress_port, now + level);
    }

    @id(LIMIT_WINDOW_ACTION_ID)
    action limit_window() {
        hdr.aggregation.window = window_limit < hdr.aggregation.window ? window_limit : hdr.aggregation.window;
        hdr.udp.checksum = 0;
    }

    @id(MARK_MESSAGE_ACTION_ID)
    action mark_message() {
        hdr.aggregation.flags = hdr.aggregation.flags | FLAG_CONGESTION;
        window_limit = congested_limit;
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
    }

    apply {
        // the depth is read at enqueue, as DCTCP's analysis has it; only jobs' classes are bounded, bulk among them
        if (standard_metadata.priority != LOWER_EFFORT_CLASS && standard_metadata.priority != CONTROL_CLASS
            && marking.apply().hit) {
            fill_virtual_queue();
            if (depth_left == 0 || sojourn_left == 0 || virtual_left == 0) {
                if (hdr.aggregation.isValid()) {
                    mark_message();
                }
                if (hdr.ipv4.isValid()) {
                    ecn_marks.apply();
                }
            }
            if (hdr.aggregation.isValid()) {
                limit_window();
            }
        }
    }
}
