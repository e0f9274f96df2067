"""Background traffic of a run, as its file has it: flows at a mean rate that never yield, and flows that do.

::

    background:
      - {source: h3, destination: h6, rate: 700Mbit, stop: 70ms}                # UDP, whatever happens
      - {source: h4, destination: h6, kind: yielding, window: 16, start: 5ms}   # like a data centre's TCP
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ...controller.congestion import Uncontrolled, Windowed
from ...wire.frames import FRAME_HEADER_BYTES
from .sections import Duration, Rate, Section

BACKGROUND_PAYLOAD_BYTES: Final = 1_000
"""Payload of each datagram of background traffic."""
DISCARD_PORT: Final = 9
"""UDP port of steady background traffic's destination, on which no process listens (RFC 863)."""


class BackgroundFlow(Section):
    """Traffic of one host pair, between two instants of virtual time."""

    source: str
    destination: str
    start: Duration = 0
    stop: Duration | None = None
    """When the traffic ends; with None it lasts as long as the run."""
    port: int = Field(9, ge=1, le=65535)
    """UDP source port: another port may take another of the equal-cost paths."""

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"stop {self.stop} ns is not after start {self.start} ns; traffic begins before it ends")
        return self


class SteadyFlow(BackgroundFlow):
    """Datagrams at a mean rate that nothing changes."""

    kind: Literal["steady"] = "steady"
    rate: Rate


class YieldingFlow(BackgroundFlow):
    """Packets that are acknowledged, as many as marks and losses allow (DCTCP, RFC 8257)."""

    kind: Literal["yielding"]
    window: int = Field(64, ge=1, le=4096)
    """The receiver's: packets in the network at most, with their acknowledgements."""


def steady_unless_said(flows: object) -> object:
    """Entries of a list with their kind, where they name none."""
    if not isinstance(flows, list):
        return flows
    return [{"kind": "steady", **flow} if isinstance(flow, dict) else flow for flow in flows]


Background = Annotated[
    list[Annotated[SteadyFlow | YieldingFlow, Field(discriminator="kind")]], BeforeValidator(steady_unless_said)
]


def uncontrolled(flows: Iterable[SteadyFlow]) -> tuple[Uncontrolled, ...]:
    """Return each flow's declared traffic, with its own path and duration."""
    frame_bytes = BACKGROUND_PAYLOAD_BYTES + FRAME_HEADER_BYTES
    return tuple(
        Uncontrolled(
            flow.source,
            flow.destination,
            flow.rate,
            frame_bytes,
            ports=(flow.port, DISCARD_PORT),
            start_ns=flow.start,
            stop_ns=flow.stop,
        )
        for flow in flows
    )


def windowed(flows: Iterable[YieldingFlow]) -> tuple[Windowed, ...]:
    """Return the packets that yielding flows may have in the network, whose windows are not leased."""
    frame_bytes = BACKGROUND_PAYLOAD_BYTES + FRAME_HEADER_BYTES
    return tuple(Windowed(flow.source, flow.destination, flow.window, frame_bytes) for flow in flows)
