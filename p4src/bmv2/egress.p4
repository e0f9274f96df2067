/*
 * Egress: what happens on the way out of one port.
 *
 *   to the CPU ──▶ packet_in header, and nothing else
 *   to a link ───▶ replicas (address of one child) ─▶ marking ─▶ probe_sinks ─▶ telemetry
 *                                                                     └─ a finished probe: clone to the CPU, the original ends
 *
 * Reads standard_metadata; writes addresses, aggregation.flags and window, ECN, the packet_in header.
 */

control FabricEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Telemetry() telemetry;

    bit<19> mark_threshold = 0;
    bit<16> window_limit = 0;

    action end() {
        meta.leaves = false;
        mark_to_drop(standard_metadata);
    }

    action deliver(ipv4_address_t dst_addr, mac_address_t src_mac, mac_address_t dst_mac) {
        hdr.ipv4.dst_addr = dst_addr;
        hdr.ethernet.src_addr = src_mac;
        hdr.ethernet.dst_addr = dst_mac;
    }

    /* One entry per child of each job here; a replica without one has no address to go to, and ends. */
    table replicas {
        key = { standard_metadata.egress_rid: exact; }
        actions = { deliver; @defaultonly end; }
        const default_action = end;
        size = REPLICAS;
    }

    action bound_queue(bit<19> threshold, bit<16> window) {
        mark_threshold = threshold;
        window_limit = window;
    }

    table marking {
        key = { standard_metadata.egress_port: exact; }
        actions = { bound_queue; @defaultonly NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    action limit_window() {
        hdr.aggregation.window = window_limit < hdr.aggregation.window ? window_limit : hdr.aggregation.window;
        hdr.udp.checksum = 0;
    }

    action mark_message() {
        hdr.aggregation.flags = hdr.aggregation.flags | FLAG_CONGESTION;
    }

    action to_cpu() {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = standard_metadata.ingress_port;
        hdr.packet_in._pad = 0;
    }

    /* The clone is taken at the end of egress, so it has this hop's items and the packet_in header; metadata it has none. */
    action report(bit<32> session) {
        clone(CloneType.E2E, session);
        to_cpu();
        end();
    }

    table probe_sinks {
        key = { standard_metadata.egress_port: exact; }
        actions = { report; @defaultonly NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    apply {
        if (standard_metadata.instance_type == EGRESS_CLONE) {
            // a finished probe, as report() left it
        } else if (standard_metadata.egress_port == CPU_PORT) {
            to_cpu();
        } else {
            meta.leaves = true;
            if (standard_metadata.egress_rid != 0) {
                replicas.apply();
            }
            // the depth is read at enqueue, as DCTCP's analysis has it; only the bulk class is bounded
            if (standard_metadata.priority == BULK_PRIORITY && marking.apply().hit) {
                if (hdr.aggregation.isValid()) {
                    limit_window();
                }
                if (standard_metadata.enq_qdepth >= mark_threshold) {
                    if (hdr.aggregation.isValid()) {
                        mark_message();
                    }
                    if (hdr.ipv4.isValid() && hdr.ipv4.ecn != ECN_NOT_ECT) {
                        hdr.ipv4.ecn = ECN_CE;
                    }
                }
            }
            if (hdr.int_md.isValid()) {
                probe_sinks.apply();
            }
            telemetry.apply(hdr, meta, standard_metadata);
        }
    }
}
