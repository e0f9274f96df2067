"""A port of a switch or a host: configuration and counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from .entries import EmulatorError
from .runtime.engine import Engine
from .runtime.memory import PRIORITIES, SHARE_SHIFT, UNLIMITED

QUEUE_PACKETS: Final = 64
"""Default depth of a queue, which is simple_switch's."""


class SwitchValueError(EmulatorError):
    """A switch was asked for a port, rate or frame that it cannot have."""


@dataclass(frozen=True, slots=True)
class MinimumShare:
    """Exception from strict priority: queues from `first` to `last` never starve behind higher ones of them.

    While such a queue waits, it is owed share/(1 − share) bytes for each byte that a higher one of them sends. It sends
    the packet at its head as soon as it is owed that much. Of several the lowest goes first. Queues above `last`
    always precede all others.
    """

    first: int
    last: int
    share: float
    """Share of the bytes of one queue and one higher one, in 0 … 0.5."""


@dataclass(frozen=True, slots=True)
class PortConfig:
    """Settings of one port. Rates are in bit/s."""

    rate_bps: float | None = None
    """The rate that all priorities of the port share; None for an infinite one."""
    queue_packets: int | None = QUEUE_PACKETS
    """Depth of each priority's queue; the frame being sent does not count. None: unlimited."""
    queue_bytes: int | None = None
    """Bytes of received frames that each priority's queue holds. None: unlimited."""
    overhead_bytes: int = 0
    """Added to every frame's serialisation time (Ethernet's preamble, gap and FCS are 24)."""
    minimum_share: MinimumShare | None = None
    """None: strict priority alone."""


class PortCounters(NamedTuple):
    """Counts since the port was made; the depths since the maxima were last reset."""

    rx_packets: int
    rx_bytes: int
    tx_packets: int
    tx_bytes: int
    flow_bytes: int
    """The part of `tx_bytes` that belongs to flows (`Fabric.add_flow`, `Fabric.new_flow`)."""
    metered_packets: int
    """Frames sent of which the fabric's meter (`Fabric.meter`) made more than 0."""
    metered_bytes: int
    """Sum of the meter function's results."""
    drops: tuple[int, ...]
    """Packets that found a full queue, by priority."""
    lost_packets: int
    """Lost by the link on the way out, or sent without one."""
    oversized_packets: int
    """Beyond the link's MTU (`Fabric.add_link`): dropped at the transmitter, and not among those sent."""
    depth_packets: int
    depth_bytes: int
    max_depth_packets: int
    """The most packets that all priorities' queues held together."""
    max_depth_bytes: int
    max_queue_packets: tuple[int, ...]
    """The most packets that each priority's queue held, noted at every enqueue."""


class Queue(NamedTuple):
    """One priority's queue of a port: limits, present and maximum depth, drops. A limit of None means unlimited."""

    limit_packets: int | None
    limit_bytes: int | None
    depth_packets: int
    depth_bytes: int
    max_depth_packets: int
    drops: int


_OF_QUEUES: Final = ("drops", "max_queue_packets")


def read_port(engine: Engine, index: int) -> PortCounters:
    """Return the counters of one port of an engine."""
    port = engine.ports.data[index]
    queues = engine.queues.data[index * PRIORITIES : (index + 1) * PRIORITIES]
    values: dict[str, Any] = {name: int(port[name]) for name in PortCounters._fields if name not in _OF_QUEUES}
    return PortCounters(
        drops=tuple(queues["drops"].tolist()), max_queue_packets=tuple(queues["max_depth_packets"].tolist()), **values
    )


def read_queues(engine: Engine, index: int) -> list[Queue]:
    """Return the queues of one port of an engine, by priority."""
    records = engine.queues.data[index * PRIORITIES : (index + 1) * PRIORITIES]
    queues = (Queue(*(int(record[name]) for name in Queue._fields)) for record in records)
    return [
        queue._replace(
            limit_packets=None if queue.limit_packets == UNLIMITED else queue.limit_packets,
            limit_bytes=None if queue.limit_bytes == UNLIMITED else queue.limit_bytes,
        )
        for queue in queues
    ]


def set_rate(engine: Engine, index: int, rate_bps: float | None) -> None:
    """Set the rate at which one port of an engine serialises; None means infinitely fast."""
    port = engine.ports.data[index]
    port["rate_bps"] = 0 if rate_bps is None else round(rate_bps)
    port["early"] = 0  # it counts in units of the rate


def set_minimum_share(engine: Engine, index: int, minimum: MinimumShare | None) -> None:
    """Set what queues of one port are owed before higher ones; None: nothing."""
    port = engine.ports.data[index]
    port["share_weight"] = 0 if minimum is None else round(minimum.share / (1 - minimum.share) * (1 << SHARE_SHIFT))
    port["share_first"], port["share_last"] = (0, 0) if minimum is None else (minimum.first, minimum.last)
    engine.queues.data[index * PRIORITIES : (index + 1) * PRIORITIES]["credit"] = 0


def check_config(where: str, config: PortConfig) -> None:
    """Check the settings of a port.

    Raises:
        SwitchValueError: A value is out of range; `where` is its place.
    """
    if config.rate_bps is not None and not 1 <= config.rate_bps <= 1e13:
        raise SwitchValueError(
            f"rate {config.rate_bps} bit/s is not between 1 and 10 Tbit/s; None means infinite",
            place=where,
            value=config.rate_bps,
        )
    for name in ("queue_packets", "queue_bytes"):
        depth = getattr(config, name)
        if depth is not None and not 1 <= depth <= UNLIMITED:
            raise SwitchValueError(
                f"{name} is {depth}; it must be 1 … {UNLIMITED}, or None for unlimited", place=where, value=name
            )
    if not 0 <= config.overhead_bytes <= 1024:
        raise SwitchValueError(
            f"overhead of {config.overhead_bytes} bytes is not one of 0 … 1024",
            place=where,
            value=config.overhead_bytes,
        )
    if (minimum := config.minimum_share) is not None:
        if not 0 <= minimum.first < minimum.last < PRIORITIES:
            raise SwitchValueError(
                f"priorities {minimum.first} to {minimum.last} are not two or more of 0 … {PRIORITIES - 1}, in order",
                place=f"{where}: minimum_share",
                value=(minimum.first, minimum.last),
            )
        if not 0 < minimum.share <= 0.5:
            raise SwitchValueError(
                f"share {minimum.share} is not above 0 and at most 0.5",
                place=f"{where}: minimum_share",
                value=minimum.share,
            )
