"""Telemetry configuration as values. Each refuses settings that the switch program does not support.

Units are the program's: queues in packets, times in µs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from ipaddress import IPv4Network
from typing import Final

from ...wire.frames import BULK_PRIORITY, FRAME_HEADER_BYTES, UDP_BYTES
from ...wire.int_md import INT_HEADER_BYTES, MAX_HOP_WORDS, DomainInstruction, Instruction, hop_words
from ...wire.int_report import GROUP_BYTES, INDIVIDUAL_BYTES, INT_MAIN_BYTES, REPORT_PORT
from ...wire.int_shim import DSCP_BIT, MARKER_BYTES, Presence
from ..errors import PlanError
from ..p4runtime.tables import DROP_REASONS

NEVER: Final = 2**32 - 1
"""A step or period that nothing reaches."""
LARGEST: Final = NEVER - 1

COMMON_INSTRUCTIONS: Final = (
    Instruction.NODE_ID | Instruction.PORTS | Instruction.HOP_LATENCY | Instruction.QUEUE | Instruction.EGRESS_TIMESTAMP
)
"""Items of a link's state, with the bytes that the port has sent."""

TELLING_DROPS: Final = frozenset(DROP_REASONS) - {"duplicate", "late"}
"""Those by which something is wrong: the other two belong to how lost rounds are repaired."""


class WatchMode(Enum):
    """Way in which nodes report a watched packet; the value is its name in files."""

    MD = "md"
    """Nodes put their metadata into the packet, and the sink reports them all."""
    MX = "mx"
    """The packet carries the instructions, and every node reports."""
    XD = "xd"
    """The packet is left as it is; every node has the watchlist, and reports."""


_IN_BAND: Final = frozenset({WatchMode.MD, WatchMode.MX})
_IN_BAND_BYTES: Final = MARKER_BYTES + UDP_BYTES + INT_HEADER_BYTES
"""Room for what INT adds to a packet except the words of hops: marker or UDP header, shim, and header."""
_METADATA_BYTES: Final = 80
"""Room for every item of a report's metadata."""
_INNER_BYTES: Final = 64
"""Room for the headers of a report's inner packet, without INT."""
_REPORT_BYTES: Final = (
    FRAME_HEADER_BYTES + GROUP_BYTES + INDIVIDUAL_BYTES + INT_MAIN_BYTES + _METADATA_BYTES + _INNER_BYTES
)
"""Longest report on a link without INT in the inner packet."""


@dataclass(frozen=True, slots=True)
class WatchedFlows:
    """Packets of one watchlist entry: a 5-tuple with optional parts, and the requested items."""

    mode: WatchMode = WatchMode.XD
    source: IPv4Network | None = None
    """Hosts' and switches' addresses; None: anybody's."""
    destination: IPv4Network | None = None
    protocol: int | None = None
    source_port: tuple[int, int] | None = None
    """Its value, and a mask of the bits that count; None: any port."""
    destination_port: tuple[int, int] | None = None
    """Its value, and a mask of the bits that count; None: any port."""
    every: int = 1
    """Sampling interval: the first packet and then every n-th, counted by each node for each source."""
    instructions: Instruction = COMMON_INSTRUCTIONS
    domain_instructions: DomainInstruction = DomainInstruction.BYTES_SENT
    hops: int = 8
    """Mode MD: the most nodes that put something in."""

    def __post_init__(self) -> None:
        if not 1 <= self.every <= LARGEST:
            raise PlanError(f"one packet in {self.every} is no rate; write every: 1 for all, 100 for one in a hundred")
        if not 0 <= self.hops <= 255:
            raise PlanError(f"hops {self.hops} is not in 0…255")
        if not 1 <= self.words <= MAX_HOP_WORDS:
            raise PlanError(
                f"what is collected takes {self.words} words of a node, and INT allows 1…{MAX_HOP_WORDS}; "
                f"{'collect something' if self.words < 1 else 'collect less'}"
            )
        if self.protocol is not None and not 0 <= self.protocol <= 255:
            raise PlanError(f"protocol {self.protocol} is not in 0…255; tcp is 6, udp 17")
        for name, port in (("source_port", self.source_port), ("destination_port", self.destination_port)):
            if port is not None and not (0 <= port[0] <= 0xFFFF and 0 < port[1] <= 0xFFFF and port[0] & ~port[1] == 0):
                raise PlanError(
                    f"{name} {port[0]:#x}/{port[1]:#x}: a port is 0…65535, with a mask that covers its bits; "
                    "write it like 9, or 0x1000/0xf000"
                )

    @property
    def words(self) -> int:
        """Number of 32-bit words that a node adds."""
        return hop_words(self.instructions, self.domain_instructions)


@dataclass(frozen=True, slots=True)
class EventThresholds:
    """Thresholds of events that cause a report, compared with the last reported value. None: never."""

    depth_threshold: int | None = None
    """Packets: the queue's depth crosses this, up or down."""
    depth_step: int | None = None
    """Packets: the depth has moved by so much."""
    latency_threshold_us: int | None = None
    """Microseconds: the time from ingress to egress crosses this, up or down."""
    latency_step_us: int | None = None
    """Microseconds: that time has moved by so much."""
    period_us: int | None = None
    """Microseconds: so much time has passed since these steps were last the reason for a report."""

    def __post_init__(self) -> None:
        values = asdict(self)
        for name, value in values.items():
            if value is not None and not 1 <= value <= LARGEST:
                raise PlanError(f"{name} {value} is not in 1…{LARGEST}; leave it out where it is to be no event")
        if not any(values.values()):
            raise PlanError("no threshold, step or period: nothing would ever be reported; name one at least")


@dataclass(frozen=True, slots=True)
class ReportLimit:
    """Declared maximum of each switch's own reports: a token bucket."""

    per_second: float
    burst: int = 1
    """Reports that may leave a switch at once."""

    def __post_init__(self) -> None:
        if not 0 < self.per_second <= LARGEST:
            raise PlanError(f"per_second {self.per_second:g} is not above 0 and at most {LARGEST}")
        if not 1 <= self.burst <= LARGEST:
            raise PlanError(f"burst {self.burst} is not in 1…{LARGEST}")


@dataclass(frozen=True, slots=True)
class IntConfig:
    """Everything that is watched in a fabric."""

    flows: tuple[WatchedFlows, ...] = ()
    """The first one that matches a packet counts."""
    presence: Presence = Presence.UDP_PORT
    """Mark of packets that carry INT; the same in a whole fabric. Probes use the UDP port in any case."""
    collector: str | None = None
    """The host that reports are sent to; None: the controller, by P4Runtime packet-ins."""
    port: int = REPORT_PORT
    """The UDP port there."""
    dscp: int = 0
    """The DSCP of reports on their way."""
    mtu: int | None = None
    """Maximum IPv4 packet with INT in bytes, whatever links take; None: the limit of each link between switches."""
    flow_steps: EventThresholds | None = None
    """Change detection for watched packets; None: each of them is reported."""
    queue_steps: EventThresholds | None = None
    """Change detection for all queues, whatever the packets; None: off."""
    queue_classes: tuple[int, ...] = (BULK_PRIORITY,)
    """The queues of a port that this is about, by priority."""
    drops: frozenset[str] = frozenset()
    """Reasons (docs/design.md §4.3) for which drops of IPv4 packets are reported."""
    report_limit: ReportLimit | None = None
    """Declared maximum of each switch's reports; None: their number depends on events alone."""

    def __post_init__(self) -> None:
        if unknown := sorted(self.drops - set(DROP_REASONS)):
            raise PlanError(f"drop reason {unknown[0]} is unknown; there are {', '.join(DROP_REASONS)}")
        if not 1 <= self.port <= 0xFFFF:
            raise PlanError(f"port {self.port} is not in 1…65535")
        if not 0 <= self.dscp <= 63 or (self.presence is Presence.DSCP and self.dscp & DSCP_BIT):
            raise PlanError(f"dscp {self.dscp} is not in 0…63, or has the bit {DSCP_BIT} that marks INT in this fabric")
        if self.mtu is not None and not 576 <= self.mtu <= 9216:
            raise PlanError(f"mtu {self.mtu} is not in 576…9216")
        if not self.queue_classes or not all(0 <= queue_class <= 7 for queue_class in self.queue_classes):
            raise PlanError(f"queue classes {self.queue_classes}: some of 0…7")

    @property
    def puts_headers(self) -> bool:
        """True if watched packets carry INT headers."""
        return any(flow.mode in _IN_BAND for flow in self.flows)

    @property
    def largest_header_bytes(self) -> int:
        """Most bytes that INT adds to a watched packet: marker, shim, header, and each hop's words; 0 without INT."""
        if not self.puts_headers:
            return 0
        words = max((flow.words * flow.hops for flow in self.flows if flow.mode is WatchMode.MD), default=0)
        return _IN_BAND_BYTES + 4 * words

    @property
    def largest_report_bytes(self) -> int:
        """Length of the longest report on a link, with Ethernet header."""
        return _REPORT_BYTES + self.largest_header_bytes

    @property
    def reports_anything(self) -> bool:
        """True if switches send reports of their own, in addition to probes."""
        return bool(self.flows or self.queue_steps or self.drops)

    @property
    def sink_period_us(self) -> int:
        """Time for which a sink suppresses reports of a flow without events; 0: it reports each packet."""
        if self.flow_steps is None:
            return 0
        return self.flow_steps.period_us or NEVER
