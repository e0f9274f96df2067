/*
 * Egress: what happens on the way out of one port.
 *
 *   to the CPU ──▶ packet_in header, and nothing else
 *   to a link ───▶ replicas (address of one child) ─▶ probe_sinks ─▶ congestion ─▶ int_source ─▶ instructions ─▶ stack_removal ─┐
 *                  │                   │        what is to be reported: mirrored ◀─ room, telemetry ◀─ encapsulation ◀────────┘
 *                  │                   └─ a finished probe: mirrored to the CPU, the original ends
 *                  └─ a stack that ends early where it was to come off: the packet ends
 *   mirrored ────▶ int_reports, or a finished probe as it is
 *
 * A chip places what stands in the text behind a condition with several tables behind that condition: so reports are one branch, and in
 * the other each table has a condition of its own, in the order in which they find what they need.
 * Before all this, what came as PRESENT gets the lengths of what it has become (present.p4).
 * Reads bridged and intrinsic metadata; writes addresses and the packet_in header.
 */

/* What never comes together: messages, INT, reports. */
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.int_marker")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.int_shim")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.int_md")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.int_node_id")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.int_interfaces")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.int_utilisation")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.int_bytes")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.int_slots")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.tcp")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.int_ports")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.int_latency")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.int_queue")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.int_ingress_time")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.int_egress_time")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.report_group")
@pa_mutually_exclusive("egress", "hdr.report_group", "hdr.int_marker")
@pa_mutually_exclusive("egress", "hdr.report_group", "hdr.int_shim")
@pa_mutually_exclusive("egress", "hdr.report_group", "hdr.int_md")
@pa_mutually_exclusive("egress", "hdr.report_group", "hdr.int_node_id")
@pa_mutually_exclusive("egress", "hdr.report_group", "hdr.int_interfaces")
@pa_mutually_exclusive("egress", "hdr.report_group", "hdr.int_utilisation")
@pa_mutually_exclusive("egress", "hdr.report_group", "hdr.int_bytes")
@pa_mutually_exclusive("egress", "hdr.report_group", "hdr.int_slots")
@pa_mutually_exclusive("egress", "hdr.report_group", "hdr.tcp")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.report")
@pa_mutually_exclusive("egress", "hdr.report", "hdr.int_marker")
@pa_mutually_exclusive("egress", "hdr.report", "hdr.int_shim")
@pa_mutually_exclusive("egress", "hdr.report", "hdr.int_md")
@pa_mutually_exclusive("egress", "hdr.report", "hdr.int_node_id")
@pa_mutually_exclusive("egress", "hdr.report", "hdr.int_interfaces")
@pa_mutually_exclusive("egress", "hdr.report", "hdr.int_utilisation")
@pa_mutually_exclusive("egress", "hdr.report", "hdr.int_bytes")
@pa_mutually_exclusive("egress", "hdr.report", "hdr.int_slots")
@pa_mutually_exclusive("egress", "hdr.report", "hdr.tcp")
@pa_mutually_exclusive("egress", "hdr.aggregation", "meta.inner_bytes")
@pa_mutually_exclusive("egress", "hdr.aggregation", "meta.report_bytes")
@pa_mutually_exclusive("egress", "hdr.aggregation", "meta.report_words")
@pa_mutually_exclusive("egress", "hdr.aggregation", "meta.reported")
@pa_mutually_exclusive("egress", "meta.bridged", "hdr.report")
@pa_mutually_exclusive("egress", "meta.bridged", "hdr.report_group")
@pa_mutually_exclusive("egress", "meta.bridged", "meta.inner_bytes")
@pa_mutually_exclusive("egress", "hdr.aggregation", "hdr.report_number")
@pa_mutually_exclusive("egress", "hdr.int_marker", "hdr.report_number")
@pa_mutually_exclusive("egress", "hdr.int_shim", "hdr.report_number")
@pa_mutually_exclusive("egress", "hdr.int_md", "hdr.report_number")
@pa_mutually_exclusive("egress", "hdr.int_node_id", "hdr.report_number")
@pa_mutually_exclusive("egress", "hdr.int_interfaces", "hdr.report_number")
@pa_mutually_exclusive("egress", "hdr.int_utilisation", "hdr.report_number")
@pa_mutually_exclusive("egress", "hdr.int_bytes", "hdr.report_number")
@pa_mutually_exclusive("egress", "hdr.int_slots", "hdr.report_number")
@pa_mutually_exclusive("egress", "hdr.tcp", "hdr.report_number")
@pa_mutually_exclusive("egress", "meta.bridged", "hdr.report_number")
@pa_mutually_exclusive("egress", "meta.bridged", "meta.reported")
#if __TARGET_TOFINO__ == 2
/* Whether each of them is there, in one byte: a checksum of Tofino 2 looks at four bytes of such bits. */
@pa_byte_pack("egress", "hdr.int_node_id.$valid", "hdr.int_ports.$valid", "hdr.int_latency.$valid", "hdr.int_queue.$valid",
              "hdr.int_ingress_time.$valid", "hdr.int_egress_time.$valid", "hdr.int_interfaces.$valid", "hdr.int_bytes.$valid")
#else
/* Whether the parser has seen each of them, apart from what it writes as a whole */
@pa_no_pack("egress", "meta.bridged.ends", "hdr.int_ports.$parsed")
@pa_no_pack("egress", "meta.bridged.numbered", "hdr.int_ports.$parsed")
@pa_no_pack("egress", "meta.bridged.kind", "hdr.int_ports.$parsed")
@pa_no_pack("egress", "meta.bridged.mark", "hdr.int_ports.$parsed")
@pa_no_pack("egress", "meta.bridged.ends", "hdr.int_latency.$parsed")
@pa_no_pack("egress", "meta.bridged.numbered", "hdr.int_latency.$parsed")
@pa_no_pack("egress", "meta.bridged.kind", "hdr.int_latency.$parsed")
@pa_no_pack("egress", "meta.bridged.mark", "hdr.int_latency.$parsed")
@pa_no_pack("egress", "meta.bridged.ends", "hdr.int_queue.$parsed")
@pa_no_pack("egress", "meta.bridged.numbered", "hdr.int_queue.$parsed")
@pa_no_pack("egress", "meta.bridged.kind", "hdr.int_queue.$parsed")
@pa_no_pack("egress", "meta.bridged.mark", "hdr.int_queue.$parsed")
@pa_no_pack("egress", "meta.bridged.ends", "hdr.int_ingress_time.$parsed")
@pa_no_pack("egress", "meta.bridged.numbered", "hdr.int_ingress_time.$parsed")
@pa_no_pack("egress", "meta.bridged.kind", "hdr.int_ingress_time.$parsed")
@pa_no_pack("egress", "meta.bridged.mark", "hdr.int_ingress_time.$parsed")
@pa_no_pack("egress", "meta.bridged.ends", "hdr.int_egress_time.$parsed")
@pa_no_pack("egress", "meta.bridged.numbered", "hdr.int_egress_time.$parsed")
@pa_no_pack("egress", "meta.bridged.kind", "hdr.int_egress_time.$parsed")
@pa_no_pack("egress", "meta.bridged.mark", "hdr.int_egress_time.$parsed")
#endif
control FabricEgress(
    inout headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
    inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md)
{
    Length() length;
    Marking() congestion;
    StackRemoval() stack_removal;
    IntSource() int_source;
    Instructions() instructions;
    Encapsulation() encapsulation;
    Room() room;
    IntReports() int_reports;
    Telemetry() telemetry;

    @id(END_ACTION_ID)
    action end() {
        meta.leaves = false;
        eg_dprsr_md.drop_ctl = 1;
    }

    @id(DELIVER_ACTION_ID)
    action deliver(ipv4_address_t dst_addr, mac_address_t src_mac, mac_address_t dst_mac) {
        hdr.ipv4.dst_addr = dst_addr;
        hdr.ethernet.src_addr = src_mac;
        hdr.ethernet.dst_addr = dst_mac;
    }

    /* One entry per child of each job here; a replica without one has no address to go to, and ends. */
    @id(REPLICAS_TABLE_ID)
    table replicas {
        key = { eg_intr_md.egress_rid: exact @name("standard_metadata.egress_rid"); }
        actions = { deliver; @defaultonly end; }
        const default_action = end;
        size = REPLICAS;
    }

    @id(TO_CPU_ACTION_ID)
    action to_cpu() {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = meta.shown_port[15:7];
        hdr.packet_in._pad = meta.shown_port[6:0];
    }

    /* The mirror takes the packet as egress's deparser leaves it, with this hop's items and the packet_in header. */
    @id(REPORT_ACTION_ID)
    action report(bit<32> session) {
        eg_dprsr_md.mirror_type = MIRROR_TYPE;
#if __TARGET_TOFINO__ == 2
        eg_dprsr_md.mirror_io_select = 1;    // as it leaves, which Tofino 1 does without being told
#endif
        meta.session = (MirrorId_t)session;
        meta.becomes = Kind.MIRRORED;
        to_cpu();
        end();
    }

    @id(PROBE_SINKS_TABLE_ID)
    table probe_sinks {
        key = { eg_intr_md.egress_port: exact @name("standard_metadata.egress_port"); }
        actions = { report; @defaultonly NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    action show_port() {
        meta.shown_port = meta.bridged.ingress_port << 7;
    }

    /* A report: what comes from ingress leaves if its port is not the CPU's, as the parser has seen. */
    action leave() {
        meta.leaves = true;
    }

    apply {
        if (meta.reported.isValid()) {
            int_reports.apply(hdr, meta);
            if (!hdr.report.isValid()) {
                end();
            } else if (eg_intr_md.egress_port == CPU_PORT) {
                to_cpu();
            } else {
                leave();
            }
        } else {
            show_port();
            length.apply(hdr, meta);
            if (eg_prsr_md.parser_err != PARSER_ERROR_OK) {
                end();      // where INT was to end, its stack does so too early
            }
            if (eg_intr_md.egress_rid != 0) {
                replicas.apply();
            }
            if (meta.bridged.isValid() && !meta.leaves) {
                to_cpu();
            }
            if (hdr.int_md.isValid() && hdr.int_md.discard == 1) {
                probe_sinks.apply();
            }
            congestion.apply(hdr, meta, eg_intr_md, eg_prsr_md);
            int_source.apply(hdr, meta, eg_intr_md);
            instructions.apply(hdr, meta);
            stack_removal.apply(hdr, meta);
            encapsulation.apply(hdr, meta);
            room.apply(hdr, meta, eg_dprsr_md);
        }
        telemetry.apply(hdr, meta, eg_intr_md, eg_prsr_md);
    }
}
