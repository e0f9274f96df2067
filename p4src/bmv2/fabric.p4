/*
 * The fabric switch for v1model (bmv2 and the emulator).
 *
 *   parser ─▶ verify checksums ─▶ FabricIngress ─▶ queues, replication ─▶ FabricEgress ─▶ compute checksums ─▶ deparser
 *
 * It routes IP, sums gradients and classifies samples addressed to it, bounds queues by marking, and is source, transit and sink
 * of in-band telemetry.
 * docs/design.md §2 to §4 is the contract; the names and ids of tables, actions, parameters, registers and counters are the
 * control plane's interface.
 */

#include <core.p4>
#include <v1model.p4>

#include "target.p4"
#include "classification.p4"
#include "done.p4"
#include "../common/headers.p4"
#include "parser.p4"
#include "checksum.p4"
#include "sums.p4"
#include "present.p4"
#include "aggregation.p4"
#include "routing.p4"
#include "admission.p4"
#include "inference.p4"
#include "congestion.p4"
#include "int_events.p4"
#include "int_source.p4"
#include "int_transit.p4"
#include "int_sink.p4"
#include "int_reports.p4"
#include "ingress.p4"
#include "egress.p4"

V1Switch(
    FabricParser(),
    FabricVerifyChecksum(),
    FabricIngress(),
    FabricEgress(),
    FabricComputeChecksum(),
    FabricDeparser()
) main;
