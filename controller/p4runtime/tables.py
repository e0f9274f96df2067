"""Names of the switch program's control-plane interface (docs/design.md §4.2 and §4.3), the same on every target."""

from __future__ import annotations

from typing import Final

NODE_ADDRESS: Final = "FabricIngress.node_address"
WIDTHS: Final = "FabricIngress.aggregation.expand.widths"
"""Widths of rounds in which the switch takes PRESENT; not on chips."""
JOBS: Final = "FabricIngress.aggregation.jobs"
MEMBERS: Final = "FabricIngress.aggregation.members"
PARENTS: Final = "FabricIngress.aggregation.parents"
MODELS: Final = "FabricIngress.inference.models"
FEATURE: Final = tuple(f"FabricIngress.inference.feature_{number}" for number in range(64))
TREE: Final = tuple(f"FabricIngress.inference.tree_{number}" for number in range(16))
"""Tables of a decision forest, by feature and by tree; not on chips."""
HOSTS: Final = "FabricIngress.admission.hosts"
ROUTES: Final = "FabricIngress.routing.routes"
NEXT_HOPS: Final = "FabricIngress.routing.ecmp"
"""The action profile of `ROUTES`."""
TRAFFIC_CLASS: Final = "FabricIngress.traffic_class"
REPLICAS: Final = "FabricEgress.replicas"
MARKING: Final = "FabricEgress.congestion.marking"
POLICERS: Final = "FabricIngress.policing.policers"
BUCKET_RATES: Final = "FabricIngress.policing.buckets"
VIRTUAL_QUEUE_RATES: Final = "FabricEgress.congestion.virtual_queues"
"""Meters of the virtual queues, on targets with meters (`Target.meters`): by bucket, and by egress port."""
TELEMETRY_NODE: Final = "FabricEgress.telemetry.node"
TELEMETRY_SLOTS: Final = "FabricEgress.telemetry.slots"
INGRESS_NAMES: Final = "FabricEgress.telemetry.ingress_names"
WATCHLIST: Final = "FabricEgress.int_source.watchlist"
LINK_NAMES: Final = "FabricEgress.int_source.links"
QUEUE_WATCH: Final = "FabricEgress.int_events.queue_watch"
FLOW_STEPS: Final = "FabricEgress.int_events.flow_steps"
REPORT_DESTINATION: Final = "FabricEgress.int_reports.destination"
INT_SINKS: Final = "FabricIngress.int_sink.sinks"
MARKS: Final = "FabricIngress.marks"
EDGES: Final = "FabricIngress.edges"
DROP_WATCH: Final = "FabricIngress.drop_watch"
PROBE_SINKS: Final = "FabricEgress.probe_sinks"
DROPS: Final = "FabricIngress.drops"
DROP_REASONS: Final = (
    *("truncated", "malformed", "bad_checksum", "not_ipv4", "ttl_expired", "no_route", "no_service"),
    *("unknown_job", "not_member", "not_parent", "bad_slot", "duplicate", "late"),
    *("policed", "foreign_source", "foreign_type", "foreign_port", "out_of_window"),
)
"""Meaning of each index of the counter `DROPS` (docs/design.md §4.3)."""
