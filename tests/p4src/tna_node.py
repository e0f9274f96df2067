"""The TNA program as a node: parsers, pipelines, replication, the recirculation port, and the tables of the model."""

from __future__ import annotations

from collections.abc import Callable

from weir.tests.p4src.emulated_node import exact_entries
from weir.tests.p4src.node_model import CPU_PORT, DROP_REASONS, Tables
from weir.tests.p4src.tna_program import Frame, Program

CHIP_CPU_PORT = 320
RECIRCULATION = 68
MOST_PASSES = 2
EXACT = -1


class TnaNode:
    """As `NodeModel`, it has `forward` and `drops`."""

    def __init__(self, program: Program, tables: Tables) -> None:
        self.program = program
        self.groups = tables.groups
        self.second_passes = 0
        self.between: Callable[[], object] = lambda: None
        """Called when a packet is on its way from its first pass to its second."""
        for table, key, action, params in exact_entries(tables):
            self._insert(table, key, action, *params)
        for route in sorted(tables.routes, key=lambda route: -route.length):
            prefix = (route.prefix, (1 << 32) - (1 << 32 - route.length))
            forward = (route.port, route.src_mac, route.dst_mac)
            program.insert("FabricIngress.routing.routes", (prefix,), "FabricIngress.routing.forward", *forward)

    def _insert(self, table: str, key: tuple[int, ...], action: str, *params: int) -> None:
        self.program.insert(table, tuple((value, EXACT) for value in key), action, *params)

    def forward(self, data: bytes, port: int, passes: int = 1) -> list[tuple[int, bytes]]:
        """What leaves for one frame, as (port, frame)."""
        assert passes <= MOST_PASSES, "a packet goes round and round"
        frame = Frame(data=data)
        frame.values["ig_intr_md.ingress_port"] = CHIP_CPU_PORT if port == CPU_PORT else port
        frame.values["ig_prsr_md.parser_err"] = self.program.parse("FabricIngressParser", frame)
        self.program.run("FabricIngress", frame)
        if frame.values.get("ig_dprsr_md.drop_ctl"):
            return []
        self.program.run("FabricIngressDeparser", frame)
        sent, out = frame.emitted(), frame.values.get("ig_tm_md.ucast_egress_port")
        if frame.values.get("ig_tm_md.bypass_egress"):
            assert out == RECIRCULATION | frame.values["ig_intr_md.ingress_port"] & 0x180
            self.second_passes += 1
            self.between()
            return self.forward(sent, out, passes + 1)
        copies = list(self.groups.get(frame.values.get("ig_tm_md.mcast_grp_a", 0), []))
        copies += [] if out is None else [(out, 0)]
        return [leaving for port, rid in copies for leaving in self._egress(sent, port, rid)]

    def _egress(self, data: bytes, port: int, rid: int) -> list[tuple[int, bytes]]:
        frame = Frame(data=data)
        frame.values |= {"eg_intr_md.egress_port": port, "eg_intr_md.egress_rid": rid}
        assert self.program.parse("FabricEgressParser", frame) == 0
        self.program.run("FabricEgress", frame)
        if frame.values.get("eg_dprsr_md.drop_ctl"):
            return []
        self.program.run("FabricEgressDeparser", frame)
        return [(CPU_PORT if port == CHIP_CPU_PORT else port, frame.emitted())]

    @property
    def drops(self) -> dict[str, int]:
        [counts] = self.program.counters.values()
        return {reason: counts.get(index, 0) for index, reason in enumerate(DROP_REASONS)}
