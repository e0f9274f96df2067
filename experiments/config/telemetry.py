"""Unprompted reports of switches, in YAML.

::

    collector: h12                  # the host that reports go to; without it the controller, through P4Runtime
    mark: udp-port                  # how packets that carry INT are marked: udp-port, dscp or probe-marker
    watch:                          # the first that matches a packet counts; what is left out matches anything
      - {mode: md, source: h1, destination: 10.0.2.0/24, protocol: tcp, destination_port: 0x1000/0xf000}
      - {mode: xd, protocol: udp, destination_port: 22341, every: 10, collect: [node, ports, latency, queue]}
    changes: {depth_step: 8, latency_step: 100us, period: 100ms}      # off: every watched packet is reported
    queues: {depth: 20, depth_step: 8, classes: [0]}
    drops: [no_route, bad_checksum]                                   # or telling, or all
    reports: {per_second: 500, burst: 20}                             # the most that each switch sends
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from ipaddress import IPv4Network
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from ...controller.errors import PlanError
from ...controller.int_config.settings import (
    LARGEST,
    TELLING_DROPS,
    EventThresholds,
    IntConfig,
    ReportLimit,
    WatchedFlows,
    WatchMode,
)
from ...controller.int_config.table_entries import check_int_config
from ...controller.p4runtime.tables import DROP_REASONS
from ...topologies import Topology
from ...topologies.problems import BadFile, shown
from ...topologies.spelling import nearest
from ...topologies.yaml_file import YamlFile
from ...wire.frames import BULK_PRIORITY
from ...wire.int_md import DomainInstruction, Instruction
from ...wire.int_report import REPORT_PORT
from ...wire.int_shim import Presence
from ..errors import ExperimentError
from .sections import Duration, Section, read_section

COLLECTABLE: Final = {
    "node": Instruction.NODE_ID,
    "ports": Instruction.PORTS,
    "latency": Instruction.HOP_LATENCY,
    "queue": Instruction.QUEUE,
    "ingress_time": Instruction.INGRESS_TIMESTAMP,
    "egress_time": Instruction.EGRESS_TIMESTAMP,
    "interfaces": Instruction.LEVEL2_PORTS,
    "utilisation": Instruction.UTILISATION,
    "buffer": Instruction.BUFFER,
    "checksum": Instruction.CHECKSUM_COMPLEMENT,
    "bytes": DomainInstruction.BYTES_SENT,
    "slots": DomainInstruction.FREE_SLOTS,
}
"""Data that nodes can collect, by the names in files."""

PROTOCOLS: Final = {"icmp": 1, "tcp": 6, "udp": 17}


def _or(*others: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Extend a key's JSON schema by further types, which are converted before validation."""

    def widen(schema: dict[str, Any]) -> None:
        own = {key: schema.pop(key) for key in ("anyOf", "type", "items") if key in schema}
        schema["anyOf"] = [*own.get("anyOf", [own]), *others]

    return widen


class FlowsConfig(Section):
    """One entry of the watchlist."""

    mode: WatchMode = WatchMode.XD
    """md: nodes put collected data into the packet; mx: the packet makes nodes report; xd: nodes report by their own
    watchlists, and the packet stays unchanged.
    """
    source: str | None = None
    """A host or switch of the fabric, an address, or a network such as 10.0.1.0/24; left out: anybody."""
    destination: str | None = None
    protocol: int | None = Field(None, ge=0, le=255, json_schema_extra=_or({"enum": list(PROTOCOLS)}))
    """tcp, udp, icmp or a number."""
    source_port: str | int | None = None
    """A number, or bits and the mask of those that count: 0x1000/0xf000."""
    destination_port: str | int | None = None
    every: int = Field(1, ge=1, le=LARGEST)
    """Sampling: one packet in this many, including the first of each source."""
    collect: list[str] = Field(["node", "ports", "latency", "queue", "egress_time", "bytes"], min_length=1)
    """Data that nodes collect."""
    hops: int = Field(8, ge=0, le=255)
    """Maximum number of nodes that insert data, in mode md."""

    @field_validator("protocol", mode="before")
    @classmethod
    def _by_name(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value not in PROTOCOLS:
            raise ValueError(f"is no protocol; write {', '.join(PROTOCOLS)} or a number")
        return PROTOCOLS[value]

    @field_validator("collect")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in COLLECTABLE:
                raise ValueError(
                    f"nodes do not collect {shown(name)}{nearest(name, COLLECTABLE)}; "
                    f"there are {', '.join(COLLECTABLE)}"
                )
        return names

    def flows(self, topology: Topology) -> WatchedFlows:
        """Return the watched flows.

        Raises:
            PlanError: A value is invalid; the text begins with its key.
        """
        asked = [COLLECTABLE[name] for name in self.collect]
        return WatchedFlows(
            self.mode,
            _network("source", self.source, topology),
            _network("destination", self.destination, topology),
            self.protocol,
            _port("source_port", self.source_port),
            _port("destination_port", self.destination_port),
            self.every,
            reduce(or_, (bit for bit in asked if isinstance(bit, Instruction)), Instruction(0)),
            reduce(or_, (bit for bit in asked if isinstance(bit, DomainInstruction)), DomainInstruction(0)),
            self.hops,
        )


def _network(key: str, text: str | None, topology: Topology) -> IPv4Network | None:
    if text is None:
        return None
    names = [node.name for node in topology.nodes]
    if text in names:
        return IPv4Network(topology.node(text).address)
    try:
        return IPv4Network(text)
    except ValueError:
        raise PlanError(
            f"{key}: {shown(text)} is no node of {topology.name}{nearest(text, names)}, and no network; "
            "write a host or switch, an address, or a network like 10.0.1.0/24"
        ) from None


def _port(key: str, text: str | int | None) -> tuple[int, int] | None:
    if text is None:
        return None
    value, slash, mask = str(text).partition("/")
    try:
        return int(value, 0), int(mask, 0) if slash else 0xFFFF
    except ValueError:
        raise PlanError(f"{key}: {shown(text)} is no port; write it like 9, or 0x1000/0xf000") from None


class StepsConfig(Section):
    """Thresholds of reports. Omitted ones cause no event."""

    depth: int | None = Field(None, ge=1, le=LARGEST)
    """Packets: the queue's depth crosses this, up or down."""
    depth_step: int | None = Field(None, ge=1, le=LARGEST)
    """Packets: the depth has moved by so much since it was reported."""
    latency: Duration | None = Field(None, ge=1_000)
    """The time from ingress to egress crosses this, up or down."""
    latency_step: Duration | None = Field(None, ge=1_000)
    """That time has moved by so much since it was reported."""
    period: Duration | None = Field(None, ge=1_000)
    """So much time has passed since the last report."""

    def steps(self) -> EventThresholds:
        """Return the steps in microseconds.

        Raises:
            PlanError: A step is invalid.
        """
        latency, latency_step, period = (
            None if time_ns is None else time_ns // 1000 for time_ns in (self.latency, self.latency_step, self.period)
        )
        return EventThresholds(self.depth, self.depth_step, latency, latency_step, period)


class QueuesConfig(StepsConfig):
    """Queue settings, the same for all queues and any packets in them."""

    classes: list[int] = Field([BULK_PRIORITY], min_length=1)
    """The queues of each port, by priority: 0 is lower effort, 1 bulk, 7 control."""


class ReportsConfig(Section):
    """Declared maximum of the reports of each switch, by which queues on their path have a bound."""

    per_second: float = Field(gt=0, le=LARGEST)
    burst: int = Field(1, ge=1, le=LARGEST)
    """Reports that may leave a switch at once."""


def _off(value: object) -> object:
    return None if value is False else value


class TelemetryConfig(Section):
    """Watched packets, thresholds of reports, and the reports' destination."""

    collector: str | None = None
    port: int = Field(REPORT_PORT, ge=1, le=65_535)
    dscp: int = Field(0, ge=0, le=63)
    """DSCP of reports; 48 is the control class."""
    mark: Presence = Presence.UDP_PORT
    mtu: int | None = Field(None, ge=576, le=9216)
    watch: list[FlowsConfig] = Field([])
    changes: Annotated[StepsConfig | None, BeforeValidator(_off)] = Field(
        StepsConfig(depth_step=8, latency_step=100_000, period=100_000_000), json_schema_extra=_or({"const": False})
    )
    queues: Annotated[QueuesConfig | None, BeforeValidator(_off)] = Field(None, json_schema_extra=_or({"const": False}))
    reports: ReportsConfig | None = None
    drops: list[str] = Field([], json_schema_extra=_or({"enum": ["telling", "all", False]}))

    @field_validator("drops", mode="before")
    @classmethod
    def _by_name(cls, value: object) -> object:
        """Names of drop reasons; `telling`: all that indicate an error."""
        match value:
            case "telling":
                return sorted(TELLING_DROPS)
            case "all":
                return list(DROP_REASONS)
            case False:
                return []
            case str():
                raise ValueError(f"is no list of reasons; write telling, all, or some of {', '.join(DROP_REASONS)}")
            case _:
                return value

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.watch and self.queues is None and not self.drops:
            raise ValueError("nothing is watched; name flows under watch, or queues, or drops")
        return self

    @classmethod
    def load(cls, path: Path) -> TelemetryConfig:
        """Read a file of its own. Raises ExperimentError."""
        try:
            written = YamlFile.read(path, "telemetry is a YAML mapping with watch, queues or drops")
        except BadFile as error:
            raise ExperimentError(str(error)) from None
        return read_section(cls, written)

    def watching(self, topology: Topology, where: str) -> IntConfig:
        """Resolve the settings in this fabric. Raises ExperimentError, with `where` in front."""
        flows = []
        place = ""
        try:
            for number, each in enumerate(self.watch):
                place = f"watch.{number}: "
                flows.append(each.flows(topology))
            place = "changes: "
            flow_steps = None if self.changes is None else self.changes.steps()
            place = "queues: "
            queue_steps = None if self.queues is None else self.queues.steps()
            place = ""
            watching = IntConfig(
                tuple(flows),
                self.mark,
                self.collector,
                self.port,
                self.dscp,
                self.mtu,
                flow_steps,
                queue_steps,
                (0,) if self.queues is None else tuple(self.queues.classes),
                frozenset(self.drops),
                None if self.reports is None else ReportLimit(self.reports.per_second, self.reports.burst),
            )
            check_int_config(topology, watching)
        except PlanError as error:
            raise ExperimentError(f"{where}: {place}{error}") from None
        return watching
