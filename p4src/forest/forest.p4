/*
 * A switch that routes IP and classifies samples by a decision forest, for Tofino 1 (TNA), and for Tofino 2 (T2NA) where
 * __TARGET_TOFINO__ is 2. The fabric's program for these chips has no containers left for a sample and its codes, so this is a program
 * of its own: it sums nothing and has no telemetry. Packets, and the names and ids of tables and parameters, are those of p4src/bmv2;
 * docs/inference.md says what differs.
 *
 *   parser ─▶ node_address, hosts, models ─▶ features ─▶ trees ─▶ routes ─▶ deparser ─▶ queues ─▶ parser ─▶ count ─▶ deparser
 */

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "../tofino/target.p4"
#include "classification.p4"
#include "../common/headers.p4"
#include "metadata.p4"
#include "../tofino/checksum.p4"
#include "parser.p4"
#include "../tofino/routing.p4"
#include "inference.p4"

control FabricIngress(
    inout headers_t hdr,
    inout ingress_metadata_t meta,
    in ingress_intrinsic_metadata_t ig_intr_md,
    in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
    inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
    inout ingress_intrinsic_metadata_for_tm_t ig_tm_md)
{
    Inference() inference;
    Routing() routing;

    @id(DROPS_COUNTER_ID)
    Counter<bit<32>, bit<8>>(DROP_REASONS, CounterType_t.PACKETS) drops;

    @id(INGRESS_REFUSE_ACTION_ID)
    action refuse(bit<8> reason) {
        meta.fate = Fate.DROP;
        meta.drop_reason = reason;
    }

    action discard() {
        drops.count(meta.drop_reason);
        ig_dprsr_md.drop_ctl = 1;
    }

    @id(TO_NODE_ACTION_ID)
    action to_node() {
        meta.mine = true;
    }

    @id(NODE_ADDRESS_TABLE_ID)
    table node_address {
        key = { hdr.ipv4.dst_addr: exact; }
        actions = { to_node; @defaultonly NoAction; }
        const default_action = NoAction;
        size = NODE_ADDRESSES;
    }

    @id(ADMIT_ACTION_ID)
    action admit(ipv4_address_t address, bit<8> messages) {
        meta.other_source = hdr.ipv4.src_addr ^ address;
        meta.barred = ~messages;
    }

    /* What comes in by a host's port has that host's address (tofino/admission.p4). */
    @id(HOSTS_TABLE_ID)
    table hosts {
        key = { ig_intr_md.ingress_port: exact @name("standard_metadata.ingress_port"); }
        actions = { admit; @defaultonly NoAction; }
        const default_action = NoAction;
        size = PORTS;
    }

    /* The answer goes to the address that the request came from. */
    action turn() {
        meta.bridged.asked = 1;
        hdr.classification.model = meta.model;
        ipv4_address_t asker = hdr.ipv4.src_addr;
        hdr.ipv4.src_addr = hdr.ipv4.dst_addr;
        hdr.ipv4.dst_addr = asker;
        hdr.ipv4.ttl = DEFAULT_TTL;
        bit<16> port = hdr.udp.src_port;
        hdr.udp.src_port = hdr.udp.dst_port;
        hdr.udp.dst_port = port;
        hdr.udp.checksum = 0;       // none (RFC 768)
        meta.src_port = CLASSIFICATION_PORT;
        meta.dst_port = port;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            node_address.apply();
        }
        hosts.apply();
        inference.apply(hdr, meta);
        if (ig_prsr_md.parser_err != PARSER_ERROR_OK) {
            refuse(DROP_TRUNCATED);
        } else if (meta.ipv4_damaged) {
            refuse(DROP_BAD_CHECKSUM);
        } else if (!hdr.ipv4.isValid()) {
            refuse(DROP_NOT_IPV4);
        } else if (meta.mine && !hdr.classification.isValid()) {
            refuse(DROP_NO_SERVICE);
        } else if (meta.other_source != 0) {
            refuse(DROP_FOREIGN_SOURCE);
        } else if (meta.mine) {
            turn();
        }
        if (meta.fate == Fate.ROUTE) {
            routing.apply(hdr, meta, ig_tm_md);
        }
        if (meta.fate == Fate.DROP) {
            discard();
        }
    }
}

control FabricEgress(
    inout headers_t hdr,
    inout egress_metadata_t meta,
    in egress_intrinsic_metadata_t eg_intr_md,
    in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
    inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
    inout egress_intrinsic_metadata_for_output_port_t eg_oport_md)
{
    Counting() counting;

    apply {
        if (hdr.classification.isValid()) {
            counting.apply(hdr, meta);
        }
    }
}

Pipeline(
    FabricIngressParser(),
    FabricIngress(),
    FabricIngressDeparser(),
    FabricEgressParser(),
    FabricEgress(),
    FabricEgressDeparser()
) pipe;

Switch(pipe) main;
