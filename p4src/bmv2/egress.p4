/*
 * Egress: what happens on the way out of one port.
 *
 *   to the CPU ──▶ packet_in header, and nothing else
 *   to a link ───▶ replicas (address of one child) ─▶ pruning ─▶ congestion ─▶ probe_sinks ─▶ INT ─▶ DONE's lanes are cut off
 *                                                                                   └─ a finished probe: clone to the CPU,
 *                                                                                      the original ends
 *   INT ─────────▶ int_source ─▶ int_events ─▶ telemetry; what is to be reported: clone
 *   a clone ─────▶ int_reports, or a finished probe as it is
 *
 * Reads standard_metadata; writes addresses and the packet_in header.
 */

control FabricEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    Pruning() pruning;
    Marking() congestion;
    IntSource() int_source;
    IntEvents() int_events;
    IntReports() int_reports;
    Telemetry() telemetry;

    bit<1>  measured = 0;        // it counts among what leaves the port, or is a probe that ends there

    @id(END_ACTION_ID)
    action end() {
        meta.leaves = false;
        mark_to_drop(standard_metadata);
    }

    /* `child_bit`: the child's in the members of its job here. */
    @id(DELIVER_ACTION_ID)
    action deliver(ipv4_address_t dst_addr, mac_address_t src_mac, mac_address_t dst_mac, bit<32> child_bit) {
        hdr.ipv4.dst_addr = dst_addr;
        hdr.ethernet.src_addr = src_mac;
        hdr.ethernet.dst_addr = dst_mac;
        meta.wanting = meta.wanting & child_bit;
    }

    /* One entry per child of each job here; a replica without one has no address to go to, and ends. */
    @id(REPLICAS_TABLE_ID)
    table replicas {
        key = { standard_metadata.egress_rid: exact; }
        actions = { deliver; @defaultonly end; }
        const default_action = end;
        size = REPLICAS;
    }

    @id(TO_CPU_ACTION_ID)
    action to_cpu() {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = standard_metadata.ingress_port;
        hdr.packet_in._pad = 0;
    }

    /* The clone is taken at the end of egress, so it has this hop's items and the packet_in header; metadata it has none. */
    @id(REPORT_ACTION_ID)
    action report(bit<32> session) {
        clone(CloneType.E2E, session);
        to_cpu();
        end();
    }

    @id(PROBE_SINKS_TABLE_ID)
    table probe_sinks {
        key = { standard_metadata.egress_port: exact; }
        actions = { report; @defaultonly NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    /* What ingress reported is said; from here on meta holds what this pass has to say. */
    @id(BEGIN_REPORT_ACTION_ID)
    action begin_report() {
        meta.report = Report.NONE;
        meta.report_flags = 0;
        meta.report_bits = 0;
        meta.report_domain_bits = 0;
        meta.steps_set = 0;
        meta.flow_event = 0;
        meta.queue_event = 0;
    }

    @id(EXPORT_OWN_ACTION_ID)
    action export_own() {
        meta.report = Report.OWN;
        clone_preserving_field_list(CloneType.E2E, REPORT_SESSION, REPORT_FIELDS);
    }

    apply {
        if (standard_metadata.instance_type == INGRESS_CLONE || standard_metadata.instance_type == EGRESS_CLONE) {
            // of the clones, finished probes are as report() left them
            if (meta.report != Report.NONE) {
                int_reports.apply(hdr, meta, standard_metadata);
                begin_report();
                meta.has_int = 0;
                meta.wanted = Mode.NONE;
                if (!hdr.report.isValid()) {
                    end();
                } else if (standard_metadata.egress_port == CPU_PORT) {
                    to_cpu();
                } else {
                    meta.leaves = true;
                    measured = 1;
                }
            }
        } else if (standard_metadata.egress_port == CPU_PORT) {
            to_cpu();
        } else {
            meta.leaves = true;
            measured = 1;
            if (standard_metadata.egress_rid != 0) {
                replicas.apply();
            }
            pruning.apply(hdr, meta);
            congestion.apply(hdr, meta, standard_metadata);
            if (meta.discards == 1 && hdr.int_md.isValid()) {
                probe_sinks.apply();
            }
            begin_report();
            int_source.apply(hdr, meta, standard_metadata);
            if (meta.leaves) {
                int_events.apply(hdr, meta, standard_metadata);
            }
        }
        if (measured == 1) {
            telemetry.apply(hdr, meta, standard_metadata);
            if (meta.leaves && meta.report_flags != 0) {
                export_own();
            }
        }
        if (meta.pruned_bytes != 0) {
            truncate((bit<32>)(ETHERNET_BYTES + hdr.ipv4.total_length));
        }
    }
}
