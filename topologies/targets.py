"""Capabilities of the kinds of switches. A fabric names one for each switch; one fabric may have several.

The compiled program of a kind must agree with this module: `tests/p4src/test_targets.py` compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from .errors import TopologyError


@dataclass(frozen=True, slots=True)
class Pipes:
    """The pipelines of a chip, side by side: a port belongs to one, and each has tables and registers of its own."""

    count: int
    stride: int = 128
    first_port: int = 0
    """Ports p·stride + first_port … p·stride + first_port + link_ports - 1 are pipe p's."""
    link_ports: int = 64
    channel_bps: int = 25_000_000_000
    """Rate of one serial lane."""
    channels: tuple[int, ...] = (1, 2, 4)
    """Possible numbers of lanes of a port, from its own number on."""

    @property
    def last_port(self) -> int:
        """The highest number that a link's port can have."""
        return (self.count - 1) * self.stride + self.first_port + self.link_ports - 1

    def have(self, port: int) -> bool:
        """Return True if the port can have a link."""
        return 0 <= port % self.stride - self.first_port < self.link_ports

    def words(self) -> str:
        """Return the description of the ports that can have links, for messages."""
        starts = (str(pipe * self.stride + self.first_port) for pipe in range(self.count))
        return f"{self.link_ports} for each of its {self.count} pipes, from {', '.join(starts)} on"


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of switch with the program that it runs."""

    name: str
    program: str
    """Name of the program: its control plane is p4src/build/`<program>.p4info.txtpb`, with the loaded file next to
    it.
    """
    lanes: int
    """Numbers that the program sums of one message."""
    slots: int = 1024
    """Aggregation slots that the program has registers for."""
    last_port: int = 509
    """Ports of links are among 1…last_port."""
    cpu_port: int = 510
    """Port of packet-ins and packet-outs."""
    drop_port: int = 511
    pipes: Pipes | None = None
    """None: all ports share one pipeline, and each is one channel of any speed."""
    cell_bytes: int | None = None
    """Bytes per unit of a queue's depth; None: one packet of any length."""
    last_clone_session: int = 0x7FFF
    """Clone sessions are 1…last_clone_session."""
    clone_copies: int | None = None
    """The most copies of one clone session; None: any number."""
    clone_classes: bool = True
    """Its P4Runtime server takes a class of service of clone sessions; else clones have the lowest class."""
    loads: str = "json"
    """Ending of the file that the switch loads: BMv2 JSON, which is checked in, or the output of a chip's compiler,
    packed for its P4Runtime server, which the user has to make (docs/tofino.md).
    """
    one_shot: bool = True
    """Its P4Runtime server takes a route's next hops with the route; else they are members and groups apart."""
    bulk_priority: int = 1
    """Class of bulk traffic. Lower effort has a class below it, 0, or this one where that is 0."""
    job_classes: bool = True
    """The program has classes above bulk for the messages of jobs, and bounds their queues; else all jobs' messages are
    bulk traffic.
    """
    minimum_share: float = 1 / 17
    """Share of a link that each lower class of jobs is owed beside a higher one; 0: strict priority starves it."""
    meters: bool = False
    """Policers and virtual queues are meters, written beside the tables, and policers match DSCPs; else their rates and
    bursts are parameters of the tables' actions, and policers match classes."""
    reports: bool = True
    """The program reports what changes of flows and queues, and drops, and sums messages that carry INT; else it
    reports watched packets alone, each of them.
    """
    classifies: bool = True
    """The program has tables for a decision forest."""
    present_lanes: int = 32
    """Most lanes of a round in which the switch takes PRESENT, by which a worker adds nothing without sending lanes.
    0: none.
    """
    prunes: bool = True
    """The program sends DONE, a result without lanes, to children that want none."""
    report_clone_bytes: int = 0
    """Bytes of a frame that the clone session of reports takes; 0: all, which the program cuts by itself."""
    stack_clone_bytes: int = 0
    """The same for packets that reach a sink with a stack; 0: the session of reports serves these, too."""
    max_stack_words: int = 252
    """Largest INT-MD stack, in words, that the sink can remove behind the UDP header; a shim counts no more."""
    max_deep_stack_words: int = 252
    """The same behind TCP's header or a marker."""
    max_every: int = 2**32 - 2
    """Largest sampling interval of a watchlist's entry, in packets."""
    tick_ns: int = 1000
    """The unit of waits that marks compare and of INT's hop latency."""

    @property
    def is_emulated(self) -> bool:
        """True if the emulator and bmv2 can run it: they run BMv2 JSON alone."""
        return self.loads == "json"

    def refusal_of_port(self, port: int) -> str | None:
        """Return the reason why a port cannot have a link, with the allowed ports; None if it can."""
        if not 1 <= port <= self.last_port:
            return f"a switch's ports are 1…{self.last_port}"
        if self.pipes is not None and not self.pipes.have(port):
            return f"is no port of a link: {self.name} has {self.pipes.words()}"
        return None

    def pipe_of(self, port: int) -> int:
        """Return the index of the set of registers that a packet from this port uses."""
        return 0 if self.pipes is None else port // self.pipes.stride

    def channels(self, port: int, rate_bps: int) -> range:
        """Return the port numbers that a port of this rate takes, its own first. Raises TopologyError where no port
        is so fast, or none of this speed has this number.
        """
        if self.pipes is None:
            return range(port, port + 1)
        enough = [count for count in self.pipes.channels if count * self.pipes.channel_bps >= rate_bps]
        if not enough:
            raise TopologyError(
                f"{rate_bps / 1e9:g} Gbit/s is more than a port of {self.name} carries, "
                f"{self.pipes.channels[-1] * self.pipes.channel_bps / 1e9:g}",
                value=rate_bps,
            )
        if port % enough[0]:
            raise TopologyError(
                f"{rate_bps / 1e9:g} Gbit/s takes {enough[0]} channels, so its number is a multiple of {enough[0]}",
                value=rate_bps,
            )
        return range(port, port + enough[0])

    def queue_depth(self, packets: int, packet_bytes: int) -> int:
        """Return the depth of `packets` packets of this size, in the unit of the switch's depths."""
        return packets if self.cell_bytes is None else packets * -(-packet_bytes // self.cell_bytes)


BMV2: Final = Target("bmv2", "fabric", lanes=256, present_lanes=256)
"""v1model, as weir-switch and the emulator run it."""

BMV2_32: Final = Target("bmv2-32", "fabric_32", lanes=32)
"""`BMV2` with fewer lanes, as a chip of match-action stages has them, so that its jobs can be tried without one."""

SIMPLE_SWITCH: Final = replace(BMV2, name="simple-switch", clone_classes=False, minimum_share=0.0, present_lanes=32)
"""`BMV2` on a simple_switch_grpc of the user's own: its P4Runtime server refuses classes of clones, its ports have
strict priorities alone, and a packet grows by 512 bytes at most, less than 256 lanes."""

LIKE_TOFINO: Final = replace(
    BMV2_32,
    name="like-tofino",
    last_port=Pipes(count=4).last_port,
    pipes=Pipes(count=4),
    last_clone_session=1015,
    clone_copies=1,
    prunes=False,
)
"""`BMV2_32` within what a Tofino of four pipes and its P4Runtime server take, so that a plan for one can be tried
without one: ports, channels, one pipe for a node's children, clone sessions. Depths are v1model's, in packets."""

TOFINO: Final = Target(
    "tofino",
    "fabric_tofino",
    lanes=32,
    last_port=Pipes(count=4).last_port,
    cpu_port=320,
    pipes=Pipes(count=4),
    cell_bytes=80,
    last_clone_session=1015,
    clone_copies=1,
    loads="pb.bin",
    one_shot=False,
    bulk_priority=0,
    job_classes=False,
    minimum_share=0.0,
    meters=True,
    reports=False,
    classifies=False,
    prunes=False,
    report_clone_bytes=78,
    stack_clone_bytes=154,
    max_stack_words=16,
    max_deep_stack_words=11,
    max_every=1 << 16,
    tick_ns=1,
)
"""A Tofino 1 of four pipes behind Stratum: depths in cells, waits in nanoseconds. The program was compiled for the chip
and fits it; none has run it (docs/tofino.md)."""

_PIPES_OF_TOFINO_2: Final = Pipes(count=4, first_port=8, channel_bps=50_000_000_000, channels=(1, 2, 4, 8))

TOFINO_2: Final = replace(
    TOFINO,
    name="tofino2",
    program="fabric_tofino2",
    last_port=_PIPES_OF_TOFINO_2.last_port,
    cpu_port=0,
    pipes=_PIPES_OF_TOFINO_2,
    cell_bytes=176,
    last_clone_session=255,
)
"""A Tofino 2 of four pipes behind Stratum, as `TOFINO` is; ports, cells and sessions are those of its open driver."""

TARGETS: Final[Mapping[str, Target]] = {
    target.name: target for target in (BMV2, BMV2_32, SIMPLE_SWITCH, LIKE_TOFINO, TOFINO, TOFINO_2)
}


def target_named(name: str) -> Target:
    """Return the target with this name.

    Raises:
        TopologyError: There is none.
    """
    if name not in TARGETS:
        raise TopologyError(f'target "{name}" is no kind of switch', value=name, allowed=tuple(TARGETS))
    return TARGETS[name]
