"""Queue bounds in YAML: under `congestion` in a run's file, and in a controller's own file, which also declares
background traffic.

::

    bound: 64                       # Q*: packets that no queue of the data class is to exceed
    marks: depth
    background:
      - {source: h3, destination: h6, rate: 700Mbit, packet_bytes: 1514, burst: 20}
      - {source: h4, destination: h6, kind: yielding, window: 16, packet_bytes: 1514}
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from ...controller.congestion import WALL_CLOCK_LEASE_NS, CongestionOptions, Marks, Uncontrolled, Windowed
from ...hosts.congestion import LAWS
from ...topologies import Topology
from ...topologies.problems import BadFile, FileProblem, listed
from ...topologies.yaml_file import YamlFile
from ..errors import ExperimentError
from .background import steady_unless_said
from .sections import (
    Duration,
    LongDuration,
    Rate,
    Section,
    described,
    one_of_or_user_file,
    read_section,
    strange_hosts,
)

_LARGEST_BOUND: Final = (1 << 19) - 1
"""Largest queue depth that switches can compare with."""
_LARGEST_BURST: Final = 1 << 20


class CongestionConfig(Section):
    """Queue bound of the fabric's egress queues."""

    bound: int = Field(64, ge=1, le=_LARGEST_BOUND)
    """Q*: packets that no queue of the data class is to exceed."""
    lease: Duration = 20_000_000
    """Time without a result after which a worker's window is one round."""
    law: Annotated[str, one_of_or_user_file(LAWS)] = "explicit"
    """Law of the workers' windows, by name or by the path of a Python file. Queues have bounds only with laws that
    apply the switches' allowance.
    """
    marks: Marks = Marks.DEPTH
    """Measure that switches mark by: packets in the queue, time that a packet has waited, or a virtual queue that is
    drained more slowly than the link sends. With `explicit` the depth counts in any case.
    """
    virtual_share: float = Field(0.95, gt=0, le=1)
    """Drain rate of the virtual queue, as a share of the link's."""

    @field_validator("law")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        described(LAWS, name, info)
        return name


class _Declared(Section):
    """Traffic of one host pair that no window of ours limits."""

    source: str
    destination: str
    packet_bytes: int = Field(ge=64, le=9_234)
    """Bytes of each frame; flows of several sizes are declared once per size."""


class DeclaredSteady(_Declared):
    """Packets that come whatever the network says, in a leaky bucket."""

    kind: Literal["steady"] = "steady"
    rate: Rate
    """The mean that they never exceed for long: in a time t come no more than `burst` packets and rate·t bits."""
    burst: int = Field(1, ge=1, le=_LARGEST_BURST)
    """Packets that may come at once."""


class DeclaredYielding(_Declared):
    """Packets that are all acknowledged, as TCP's are."""

    kind: Literal["yielding"]
    window: int = Field(ge=1, le=_LARGEST_BURST)
    """The receiver's: packets in the network at most, with their acknowledgements."""


class ControllerCongestion(CongestionConfig):
    """The same for a controller whose hosts are processes, with the traffic that others may send."""

    lease: LongDuration = WALL_CLOCK_LEASE_NS
    background: Annotated[
        list[Annotated[DeclaredSteady | DeclaredYielding, Field(discriminator="kind")]],
        BeforeValidator(steady_unless_said),
    ] = Field([])
    """Upper bound of background traffic; undeclared traffic is not included in any bound."""

    @field_validator("law")
    @classmethod
    def _known_to_processes(cls, law: str) -> str:
        if law != "explicit":
            raise ValueError(
                f"law {law} is available in virtual time only; hosts that are processes use explicit windows: "
                "write explicit, or omit it"
            )
        return law

    @classmethod
    def load(cls, path: Path, topology: Topology) -> CongestionOptions:
        """Load a controller's own file for this fabric. Raises ExperimentError."""
        try:
            written = YamlFile.read(path, "congestion is a YAML mapping with bound, marks or background")
        except BadFile as error:
            raise ExperimentError(str(error)) from None
        config = read_section(cls, written)
        if problems := list(config._unlike(topology, written)):
            raise ExperimentError(listed(str(path), problems))
        steady = [traffic for traffic in config.background if isinstance(traffic, DeclaredSteady)]
        yielding = [traffic for traffic in config.background if isinstance(traffic, DeclaredYielding)]
        return CongestionOptions(
            config.bound,
            tuple(Uncontrolled(e.source, e.destination, e.rate, e.packet_bytes, e.burst) for e in steady),
            config.lease,
            marks=config.marks,
            virtual_share=config.virtual_share,
            windowed=tuple(Windowed(e.source, e.destination, e.window, e.packet_bytes) for e in yielding),
        )

    def _unlike(self, topology: Topology, written: YamlFile) -> list[FileProblem]:
        """Problems of declared traffic that does not fit this fabric."""
        named, themselves = [], []
        for index, traffic in enumerate(self.background):
            place = f"background.{index}"
            named += [(f"{place}.source", traffic.source), (f"{place}.destination", traffic.destination)]
            if traffic.source == traffic.destination:
                line = written.line(["background", index])
                themselves.append(FileProblem(f"{place}: {traffic.source} sends to itself; name two hosts", line))
        return [*strange_hosts(topology, named, written), *themselves]
