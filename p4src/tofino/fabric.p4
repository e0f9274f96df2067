/*
 * The fabric switch for Tofino 1 (TNA), and for Tofino 2 (T2NA) where __TARGET_TOFINO__ is 2.
 *
 *   parser ─▶ FabricIngress ─▶ deparser ─▶ queues, replication ─▶ parser ─▶ FabricEgress ─▶ deparser
 *      ▲                           └─▶ recirculation port ─┐
 *      └───────────────────────────────────────────────────┘
 *
 * It routes IP, sums gradients addressed to it, bounds its queues, and tells of them by INT. docs/design.md §2 to §4 is the contract; the names and ids of tables, actions,
 * parameters and counters are those of p4src/bmv2, and docs/tofino.md says what differs and what is not here.
 */

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "target.p4"
#include "../common/headers.p4"
#include "metadata.p4"
#include "checksum.p4"
#include "parser.p4"
#include "aggregation.p4"
#include "routing.p4"
#include "admission.p4"
#include "congestion.p4"
#include "int_sink.p4"
#include "int_source.p4"
#include "int_transit.p4"
#include "int_reports.p4"
#include "ingress.p4"
#include "present.p4"
#include "egress.p4"

Pipeline(
    FabricIngressParser(),
    FabricIngress(),
    FabricIngressDeparser(),
    FabricEgressParser(),
    FabricEgress(),
    FabricEgressDeparser()
) pipe;

Switch(pipe) main;
