"""The TNA program as a node: parsers, pipelines, replication, the recirculation port, and the tables of the model."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from weir.controller.int_config.table_entries import STACK_SESSION
from weir.tests.p4src.emulated_node import exact_entries
from weir.tests.p4src.int_fabric import REPORT_SESSION
from weir.tests.p4src.node_model import CPU_PORT, DROP_REASONS, Tables
from weir.tests.p4src.queued_node import EMPTY
from weir.tests.p4src.tna_program import Frame, Meter, Program
from weir.topologies.targets import TOFINO

CHIP_CPU_PORT = 320
RECIRCULATION = 68
MAX_PASSES = 2
EXACT = -1
BRIDGED_BYTES = 10
"""Bytes in front of a packet between ingress and egress."""
CELLS = 5
"""Cells of each packet in a queue."""
FCS_BYTES = 4
"""Bytes of the frame's checksum, which a chip counts"""
TICKS_PER_NS = Fraction(1 << 16, 1000)
"""Ticks of the leaky buckets of the program for bmv2, per ns."""


class TnaNode:
    """TNA switch with the interface of `QueuedNode`: `forward`, `drops` and `queue`. Tables use the units of the
    program for bmv2.
    """

    def __init__(self, program: Program, tables: Tables) -> None:
        self.program = program
        self.groups = tables.groups
        self.second_passes = 0
        self.between: Callable[[], object] = lambda: None
        """Called when a packet is on its way from its first pass to its second."""
        for table, key, action, params in exact_entries(tables):
            self._insert(table, key, action, *params)
        for rid, (address, src_mac, dst_mac, _) in tables.replicas.items():
            self._insert("FabricEgress.replicas", (rid,), "FabricEgress.deliver", address, src_mac, dst_mac)
        for route in sorted(tables.routes, key=lambda route: -route.length):
            prefix = (route.prefix, (1 << 32) - (1 << 32 - route.length))
            forward = (route.port, route.src_mac, route.dst_mac)
            program.insert("FabricIngress.routing.routes", (prefix,), "FabricIngress.routing.forward", *forward)
        self.queue = EMPTY
        self.now_us = 0
        self._bound_queues(tables)
        self.sessions = dict.fromkeys(tables.sinks.values(), CHIP_CPU_PORT)
        self.truncated: dict[int, int] = {}
        """Bytes of a frame that a session's mirror takes; of others all."""
        for port, session in tables.sinks.items():
            self._insert("FabricEgress.probe_sinks", (port,), "FabricEgress.report", session)
        if tables.node_id is not None:
            program.set_default("FabricEgress.telemetry.node", "FabricEgress.telemetry.identify", tables.node_id)

    def write(self, table: str, key: tuple[int, ...], action: str, params: tuple[int, ...]) -> None:
        """One entry, or without a key the default."""
        if key:
            self._insert(table, key, action, *params)
        else:
            self.program.set_default(table, action, *params)

    def watch(self, match: tuple[tuple[int, int], ...], priority: int, action: str, params: tuple[int, ...]) -> None:
        """Add a watchlist entry, in the order of `QueuedNode.watch`: the highest priority first."""
        self.program.insert("FabricEgress.int_source.watchlist", match, action, *params)

    def report_to(self, port: int) -> None:
        """Reports leave by this port."""
        cut = {REPORT_SESSION: TOFINO.report_clone_bytes, STACK_SESSION: TOFINO.stack_clone_bytes}
        for session, taken in cut.items():
            self.sessions[session] = CHIP_CPU_PORT if port == CPU_PORT else port
            self.truncated[session] = taken

    def _bound_queues(self, tables: Tables) -> None:
        """Cells for packets, nanoseconds for microseconds, meters for costs of bytes, DSCPs for classes: those of the
        control class, and below them one entry for all others.
        """
        meters = self.program.meters
        policers, police = "FabricIngress.policing.policers", "FabricIngress.policing.police"
        control = [dscp for dscp, priority in tables.classes.items() if priority]
        for (port, priority, is_message), (bucket, byte_cost, burst) in sorted(
            tables.policers.items(), key=lambda item: -item[0][1]
        ):
            for dscp in [(each, EXACT) for each in control] if priority else [(0, 0)]:
                key = ((port, EXACT), dscp, (is_message, EXACT))
                self.program.insert(policers, key, police, bucket)
            rate = TICKS_PER_NS / byte_cost
            meters["FabricIngress.policing.buckets"][bucket] = Meter(rate, Fraction(burst, byte_cost))
        for port, bound in tables.marking.items():
            limits = (bound.threshold * CELLS, bound.sojourn * 1000, bound.window, bound.congested_window)
            self._insert("FabricEgress.congestion.marking", (port,), "FabricEgress.congestion.bound_queue", *limits)
            if bound.byte_cost:  # a meter is red above its burst, the virtual queue of bmv2 over from its backlog on
                rate, burst_bytes = TICKS_PER_NS / bound.byte_cost, Fraction(bound.backlog - 1, bound.byte_cost)
                meters["FabricEgress.congestion.virtual_queues"][port] = Meter(rate, burst_bytes)

    def _insert(self, table: str, key: tuple[int, ...], action: str, *params: int) -> None:
        self.program.insert(table, tuple((value, EXACT) for value in key), action, *params)

    def forward(self, data: bytes, port: int, now_us: int = 0, passes: int = 1) -> list[tuple[int, bytes]]:
        """Frames that leave for one frame, as (port, frame)."""
        assert passes <= MAX_PASSES, "a packet goes round and round"
        self.now_us = now_us
        frame = Frame(data=data, now_ns=1000 * now_us, length=len(data))
        frame.values["ig_prsr_md.global_tstamp"] = frame.now_ns
        frame.values["ig_intr_md.ingress_port"] = CHIP_CPU_PORT if port == CPU_PORT else port
        frame.values["ig_prsr_md.parser_err"] = self.program.parse("FabricIngressParser", frame)
        self.program.run("FabricIngress", frame)
        self.program.run("FabricIngressDeparser", frame)
        mirrored = self._mirrored(frame, data)
        if frame.values.get("ig_dprsr_md.drop_ctl"):
            return mirrored
        sent, out = frame.emitted(), frame.values.get("ig_tm_md.ucast_egress_port")
        if frame.values.get("ig_tm_md.bypass_egress"):
            assert out == RECIRCULATION | frame.values["ig_intr_md.ingress_port"] & 0x180
            self.second_passes += 1
            self.between()
            return self.forward(sent, out, now_us, passes + 1)
        copies = list(self.groups.get(frame.values.get("ig_tm_md.mcast_grp_a", 0), []))
        copies += [] if out is None else [(out, 0)]
        return mirrored + [leaving for port, rid in copies for leaving in self._egress(sent, port, rid)]

    def _mirrored(self, frame: Frame, data: bytes) -> list[tuple[int, bytes]]:
        """Frames that leave for a frame's mirror, if it has one: of the received bytes in ingress, of the departing
        ones in egress.
        """
        if frame.mirrored is None:
            return []
        session, front = frame.mirrored
        taken = data[: self.truncated.get(session)]
        return self._egress(Frame(out=front).emitted() + taken, self.sessions[session], 0)

    def _egress(self, data: bytes, port: int, rid: int) -> list[tuple[int, bytes]]:
        frame = Frame(data=data, now_ns=1000 * (self.now_us + self.queue.wait_us), length=len(data) - BRIDGED_BYTES)
        frame.values |= {
            "eg_intr_md.egress_port": port,
            "eg_intr_md.egress_rid": rid,
            "eg_intr_md.enq_qdepth": self.queue.depth * CELLS + self.queue.depth % CELLS,
            "eg_intr_md.deq_qdepth": self.queue.left,
            "eg_intr_md.pkt_length": len(data) + FCS_BYTES,
            "eg_prsr_md.global_tstamp": frame.now_ns,
        }
        frame.values["eg_prsr_md.parser_err"] = self.program.parse("FabricEgressParser", frame)
        self.program.run("FabricEgress", frame)
        self.program.run("FabricEgressDeparser", frame)
        sent = frame.emitted()
        leaving = [(CPU_PORT if port == CHIP_CPU_PORT else port, sent)]
        if frame.values.get("eg_dprsr_md.drop_ctl"):
            leaving = []
        return leaving + self._mirrored(frame, sent)

    @property
    def bytes_sent(self) -> dict[int, int]:
        low, high = (self.program.registers[f"telemetry_bytes_{half}"] for half in ("sent", "carried"))
        counts = {
            port: high[port]["wraps"] + (high[port]["found"] > held[""]) << 32 | held[""] for port, held in low.items()
        }
        return {port: count for port, count in counts.items() if count}

    def set_bytes_sent(self, port: int, count: int) -> None:
        low, high = (self.program.registers[f"telemetry_bytes_{half}"] for half in ("sent", "carried"))
        low[port] = {"": count & 0xFFFFFFFF}
        high[port] = {"wraps": count >> 32, "found": count & 0xFFFFFFFF}

    @property
    def drops(self) -> dict[str, int]:
        [counts] = self.program.counters.values()
        return {reason: counts.get(index, 0) for index, reason in enumerate(DROP_REASONS)}
