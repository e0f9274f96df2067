"""Counters of a switch outside its program's own counters."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from .runtime.engine import Engine
from .runtime.memory import PRIORITIES


class SwitchCounters(NamedTuple):
    """Counts since the switch was made, or joined its fabric."""

    ingress_packets: int
    egress_packets: int
    ingress_drops: int
    """Dropped by the program in ingress."""
    egress_drops: int
    no_program: int
    no_port: int
    """Lost at transmission to a port that the switch does not have; egress has run."""
    no_group: int
    """Sent to a multicast group that is not there or empty."""
    no_session: int
    """Cloned to a session that is not there or empty."""
    oversize: int
    """Longer than the fabric's longest frame."""
    too_many_passes: int
    """Resubmitted or recirculated more often than a packet may be; see `Switch`."""
    clones_refused: int
    """Clones refused because a packet had been made again too often."""
    stale_packet_ins: int
    """Made by a program that another one replaced before the control plane was handed them."""
    stale_packet_outs: int
    """Made for a program that another one replaced before they entered."""
    loopback_full: int
    """Resubmitted or recirculated while `LOOPBACK_PACKETS` waited."""
    copied_packets: int
    """Packets made by cloning and multicast, not counting their originals."""


_IN_RECORD: Final = tuple(name for name in SwitchCounters._fields if name != "loopback_full")


def read_counters(engine: Engine, record: Any) -> SwitchCounters:
    """Return a switch's counters from its record (`memory.SWITCH`)."""
    loopback = int(record["loopback"]) * PRIORITIES
    return SwitchCounters(
        loopback_full=int(engine.queues.data[loopback]["drops"]),
        **{name: int(record[name]) for name in _IN_RECORD},
    )


def clear_counters(record: Any) -> None:
    """Reset the counters; the loopback's own queue is another one in each engine."""
    for name in _IN_RECORD:
        record[name] = 0
