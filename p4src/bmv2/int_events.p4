/*
 * Change detection: what is worth a report.
 *
 *   queue_watch (port, priority) ─▶ depth, latency: crossed the threshold, or moved by the step since it was reported; or the
 *                                   period has passed ─▶ queue_event
 *   steps (one for the node) ─▶ the same for the packet's flow ─▶ flow_event; without steps each packet that is wanted is one
 *
 * A cell of the flows belongs to the flow that was in it last: another one is reported, whatever its values. What is compared
 * is what was reported, so slow drift is seen. A sink's period of a flow begins anew with each packet whose stack it
 * reports (meta.due), or the two would part. Depth is in packets, at dequeue; latency in µs, from ingress to egress. Reads
 * standard_metadata and meta; writes meta.queue_event, flow_event, steps_set.
 */

control IntEvents(in headers_t hdr, inout metadata_t meta, in standard_metadata_t standard_metadata) {
    @id(QUEUE_DEPTH_REGISTER_ID)
    register<bit<32>>(QUEUES) queue_depth;
    @id(QUEUE_LATENCY_REGISTER_ID)
    register<bit<32>>(QUEUES) queue_latency;
    @id(QUEUE_TIME_REGISTER_ID)
    register<bit<32>>(QUEUES) queue_time;

    /* The flow's hash (32 bits) and when its period began (µs, 32 bits) */
    @id(FLOW_REGISTER_ID)
    register<bit<64>>(FLOWS) flows;
    @id(FLOW_DEPTH_REGISTER_ID)
    register<bit<32>>(FLOWS) flow_depth;
    @id(FLOW_LATENCY_REGISTER_ID)
    register<bit<32>>(FLOWS) flow_latency;

    bit<32> depth = 0;
    bit<32> latency = 0;
    bit<32> now = 0;
    bit<32> queue = 0;
    bit<32> flow = 0;

    /* what is an event; in one control, for only one of two tables' words is in use at a time */
    bit<32> depth_limit = 0;
    bit<32> depth_by = 0;
    bit<32> latency_limit = 0;
    bit<32> latency_by = 0;
    bit<32> quiet_us = 0;

    bit<1> depth_event = 0;
    bit<1> latency_event = 0;
    bit<1> time_event = 0;
    bit<1> other_flow = 0;

    action judge_by(
        bit<32> depth_threshold, bit<32> depth_step, bit<32> latency_threshold, bit<32> latency_step, bit<32> period)
    {
        depth_limit = depth_threshold;
        depth_by = depth_step;
        latency_limit = latency_threshold;
        latency_by = latency_step;
        quiet_us = period;
    }

    @id(WATCH_QUEUE_ACTION_ID)
    action watch_queue(
        bit<32> depth_threshold, bit<32> depth_step, bit<32> latency_threshold, bit<32> latency_step, bit<32> period)
    {
        judge_by(depth_threshold, depth_step, latency_threshold, latency_step, period);
    }

    @id(QUEUE_WATCH_TABLE_ID)
    table queue_watch {
        key = {
            standard_metadata.egress_port: exact @name("egress_port");
            standard_metadata.priority:    exact @name("priority");
        }
        actions = { watch_queue; @defaultonly NoAction; }
        const default_action = NoAction;
        size = QUEUES;
    }

    @id(SET_STEPS_ACTION_ID)
    action set_steps(
        bit<32> depth_threshold, bit<32> depth_step, bit<32> latency_threshold, bit<32> latency_step, bit<32> period)
    {
        judge_by(depth_threshold, depth_step, latency_threshold, latency_step, period);
        meta.steps_set = 1;
    }

    @id(FLOW_STEPS_TABLE_ID)
    table flow_steps {
        actions = { set_steps; NoAction; }
        default_action = NoAction;
    }

    @id(FIND_QUEUE_ACTION_ID)
    action find_queue() {
        depth = (bit<32>)standard_metadata.deq_qdepth;
        latency = (bit<32>)(standard_metadata.egress_global_timestamp - standard_metadata.ingress_global_timestamp);
        now = (bit<32>)standard_metadata.egress_global_timestamp;
        queue = 20w0 ++ standard_metadata.egress_port ++ standard_metadata.priority;
    }

    @id(FIND_FLOW_ACTION_ID)
    action find_flow() {
        hash(flow, HashAlgorithm.crc32, 32w0,
             { hdr.ipv4.src_addr, hdr.ipv4.dst_addr, meta.protocol, meta.src_port, meta.dst_port }, 64w0x100000000);
    }

#define MOVED(value, last, by) ((value > last ? value - last : last - value) >= by)
#define CROSSED(value, last, limit) ((value >= limit) != (last >= limit))

    @id(COMPARE_DEPTH_ACTION_ID)
    action compare_depth() {
        bit<32> last;
        queue_depth.read(last, queue);
        depth_event = MOVED(depth, last, depth_by) || CROSSED(depth, last, depth_limit) ? 1w1 : 1w0;
        queue_depth.write(queue, depth_event == 1 ? depth : last);
    }

    @id(COMPARE_LATENCY_ACTION_ID)
    action compare_latency() {
        bit<32> last;
        queue_latency.read(last, queue);
        latency_event = MOVED(latency, last, latency_by) || CROSSED(latency, last, latency_limit) ? 1w1 : 1w0;
        queue_latency.write(queue, latency_event == 1 ? latency : last);
    }

    @id(COMPARE_QUEUE_TIME_ACTION_ID)
    action compare_queue_time() {
        bit<32> last;
        queue_time.read(last, queue);
        time_event = now - last >= quiet_us ? 1w1 : 1w0;
        queue_time.write(queue, time_event == 1 ? now : last);
    }

    @id(CLAIM_FLOW_ACTION_ID)
    action claim_flow() {
        bit<64> held;
        flows.read(held, flow & (FLOWS - 1));
        other_flow = held[63:32] != flow ? 1w1 : 1w0;
        time_event = now - held[31:0] >= quiet_us ? 1w1 : 1w0;
        flows.write(flow & (FLOWS - 1), other_flow == 1 || time_event == 1 || meta.due == 1 ? flow ++ now : held);
    }

    @id(COMPARE_FLOW_DEPTH_ACTION_ID)
    action compare_flow_depth() {
        bit<32> last;
        flow_depth.read(last, flow & (FLOWS - 1));
        depth_event = other_flow == 1 || MOVED(depth, last, depth_by) || CROSSED(depth, last, depth_limit) ? 1w1 : 1w0;
        flow_depth.write(flow & (FLOWS - 1), depth_event == 1 ? depth : last);
    }

    @id(COMPARE_FLOW_LATENCY_ACTION_ID)
    action compare_flow_latency() {
        bit<32> last;
        flow_latency.read(last, flow & (FLOWS - 1));
        latency_event =
            other_flow == 1 || MOVED(latency, last, latency_by) || CROSSED(latency, last, latency_limit) ? 1w1 : 1w0;
        flow_latency.write(flow & (FLOWS - 1), latency_event == 1 ? latency : last);
    }

    apply {
        if (meta.ignored == 0) {
            if (queue_watch.apply().hit) {
                find_queue();
                compare_depth();
                compare_latency();
                compare_queue_time();
                if (depth_event == 1 || latency_event == 1 || time_event == 1) {
                    meta.queue_event = 1;
                }
            }
        }
        if (meta.has_int == 1 || meta.wanted != Mode.NONE) {
            flow_steps.apply();
            if (meta.steps_set == 1) {
                find_queue();
                find_flow();
                claim_flow();
                compare_flow_depth();
                compare_flow_latency();
                if (depth_event == 1 || latency_event == 1) {
                    meta.flow_event = 1;
                }
                if (time_event == 1 && meta.stacks == 0) {
                    meta.flow_event = 1;    // of a packet with a stack the sink judges the period, for all hops at once
                }
            } else if (meta.at_sink == 0) {
                meta.flow_event = 1;
            }
            if (meta.due == 1) {
                meta.flow_event = 1;
            }
        }
    }
}
