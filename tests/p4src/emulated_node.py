"""The compiled program in an emulated switch, with the tables of the plain-Python model."""

from __future__ import annotations

from collections.abc import Iterator

from weir import p4src
from weir.controller.planning.plan import EXPANSIONS
from weir.emulator.entries import ActionCall, ActionSet, CloneSession, Exact, Lpm, Replica, TableEntry, WeightedAction
from weir.emulator.switch import Switch
from weir.tests.p4src.node_model import CPU_PORT, DROP_REASONS, Slot, Tables
from weir.wire.fields import REDUCED

PORTS = 16
AGGREGATION = "FabricIngress.aggregation"


def exact_entries(tables: Tables) -> Iterator[tuple[str, tuple[int, ...], str, tuple[int, ...]]]:
    """(table, key, action, parameters) of the tables with exact keys that the programs for all targets have."""
    for address in tables.addresses:
        yield "FabricIngress.node_address", (address,), "FabricIngress.to_node", ()
    for who, job in tables.jobs.items():
        common = (job.slot_base, job.slots, job.children)
        if job.group:
            yield f"{AGGREGATION}.jobs", who, f"{AGGREGATION}.switch_root", (*common, job.group)
        else:
            yield f"{AGGREGATION}.jobs", who, f"{AGGREGATION}.inner_node", (*common, job.parent, job.parent_bit)
    for member in tables.members:
        yield f"{AGGREGATION}.members", member, f"{AGGREGATION}.accept", ()
    for parent, group in tables.parents.items():
        yield f"{AGGREGATION}.parents", parent, f"{AGGREGATION}.replicate", (group,)
    for port, host in tables.hosts.items():
        yield "FabricIngress.admission.hosts", (port,), "FabricIngress.admission.admit", host
    for dscp, priority in tables.classes.items():
        yield "FabricIngress.traffic_class", (dscp,), "FabricIngress.set_class", (priority,)


class EmulatedNode:
    """Emulated switch with the interface of `NodeModel`: `forward` and `drops`."""

    def __init__(self, tables: Tables, program: bytes | None = None) -> None:
        """It runs the switch program unless given another one."""
        self.switch = Switch(1, ports=range(PORTS))
        self.switch.load(p4src.FABRIC_JSON.read_bytes() if program is None else program)
        state = self.switch.state
        assert state is not None
        self.state = state
        for table, key, action, params in exact_entries(tables):
            self._insert(table, key, action, *params)
        for rid, delivery in tables.replicas.items():
            self._insert("FabricEgress.replicas", (rid,), "FabricEgress.deliver", *delivery)
        for width, lanes in tables.widths.items():
            if lanes <= self.lanes:
                action = f"{AGGREGATION}.expand.{EXPANSIONS[lanes]}"
                self._insert(f"{AGGREGATION}.expand.widths", (width,), action)
        for route in tables.routes:
            forward = ActionCall("FabricIngress.routing.forward", (route.port, route.src_mac, route.dst_mac))
            self.route(route.prefix, route.length, forward)
        for group, replicas in tables.groups.items():
            self.switch.replication.set_group(group, tuple(Replica(port, rid) for port, rid in replicas))
        for port, bound in tables.marking.items():
            self._insert("FabricEgress.congestion.marking", (port,), "FabricEgress.congestion.bound_queue", *bound)
        for key, policer in tables.policers.items():
            self._insert("FabricIngress.policing.policers", key, "FabricIngress.policing.police", *policer)
        for port, session in tables.sinks.items():
            self._insert("FabricEgress.probe_sinks", (port,), "FabricEgress.report", session)
            self.switch.replication.set_session(session, CloneSession((Replica(CPU_PORT),)))
        if tables.node_id is not None:
            identify = ActionCall("FabricEgress.telemetry.identify", (tables.node_id,))
            state.tables["FabricEgress.telemetry.node"].set_default(identify)

    def _insert(self, table: str, key: tuple[int, ...], action: str, *params: int) -> None:
        entry = TableEntry(tuple(Exact(value) for value in key), ActionCall(action, params))
        self.state.tables[table].insert(entry)

    def route(self, prefix: int, length: int, *forwards: ActionCall) -> None:
        """A route over one or more equal-cost paths."""
        paths = ActionSet(tuple(WeightedAction(forward) for forward in forwards))
        self.state.tables["FabricIngress.routing.routes"].insert(TableEntry((Lpm(prefix, length),), paths))

    def forward(self, frame: bytes, port: int, now_us: int = 0) -> list[tuple[int, bytes]]:
        return self.switch.forward(frame, port, now_us * 1000)

    @property
    def lanes(self) -> int:
        """Lanes that the program sums."""
        return sum(".lane_sums.lane_" in name for name in self.state.registers)

    @property
    def drops(self) -> dict[str, int]:
        counts = self.state.counters["FabricIngress.drops"].packets.tolist()
        return dict(zip(DROP_REASONS, counts, strict=True))

    def slot(self, index: int) -> Slot:
        """Registers' content for one slot."""
        values = {name: register.values for name, register in self.state.registers.items()}

        def at(register: str) -> int:
            return int(values[f"{AGGREGATION}.{register}"][index])

        sums = {field.name: at(f"header_sums.{field.name}") for field in REDUCED}
        lanes = tuple(at(f"lane_sums.lane_{lane}") for lane in range(self.lanes))
        held = at("slot_round")
        who = (held >> 48, held >> 40 & 0xFF, held >> 8 & 0xFFFFFF)
        return Slot(*who, at("slot_contributors"), at("slot_wanting"), sums, lanes)

    @property
    def bytes_sent(self) -> dict[int, int]:
        values = self.state.registers["FabricEgress.telemetry.bytes_sent"].values
        return {port: int(value) for port, value in enumerate(values) if value}
