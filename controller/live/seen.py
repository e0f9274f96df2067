"""Time series of a controller's most relevant links: input of plots."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SeenLink:
    """One link at every look at it; the lists have one length."""

    end: str
    """Its sending end."""
    time_ns: list[int]
    """Times on the controller's clock."""
    load: list[float]
    """Share of the link's rate."""
    queue_packets: list[float]
    """The most since the look before."""


@dataclass(frozen=True, slots=True)
class SeenFabric:
    """Everything that was seen of one controller."""

    title: str
    fullest: tuple[SeenLink, ...]
    """The links that were loaded most at any look, the first most of all."""
    longest: tuple[SeenLink, ...]
    """Those with the longest queues."""
    moves_ns: tuple[int, ...]
    """When jobs moved."""
