"""The table entries that enforce bounds: `marking` for every egress port, `policers` for the ports of hosts
(docs/design.md §4.2).

A leaky bucket is a rate and a burst in bytes. The program for bmv2 has them as parameters of its tables' actions, in
costs of bytes; if they are meters (`Target.meters`) they are written separately, in the multiples that Stratum keeps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ...topologies.model import Endpoint, Topology
from ...wire.aggregation import NO_WINDOW_LIMIT
from ...wire.frames import (
    BULK_PRIORITY,
    CONTROL_CODE_POINTS,
    CONTROL_PRIORITY,
    JOB_CLASSES,
    LOWER_EFFORT_PRIORITY,
)
from ...wire.int_shim import DSCP_BIT
from ..p4runtime.entries import Entry, FieldValue, Item, MeterRate, SwitchState, call, entry
from ..p4runtime.tables import BUCKET_RATES, EDGES, MARKING, POLICERS, VIRTUAL_QUEUE_RATES
from ..planning.plan import JobPlan, round_bytes
from .options import CongestionOptions, Marks
from .queue_budget import LinkBudget

TICKS_PER_US: Final = 1 << 16
"""Leaky buckets count in 2⁻¹⁶ µs."""
CONTROL_SHARE: Final = 0.02
"""Maximum share of a host's link for its control-class traffic."""
CONTROL_SHARE_OF_ALL: Final = 0.5
"""Maximum share of one link that all other hosts' control-class traffic takes together."""
CONTROL_BURST_BYTES: Final = 2_048
LARGEST_CONTROL_BYTES: Final = 256
"""Largest frame of the control class that is not dropped for its rate."""
REPAIRS: Final = 8
"""Rounds that a worker may send again at once, beyond its window."""
METER_GRAIN_BYTES: Final = 125
"""Stratum for Tofino keeps rates in kbit/s and bursts in kbit, cut off."""
NO_BUCKET: Final = 0
"""Meter index for traffic that is not allowed, on targets with meters: its burst is empty. Port 0 has no link, so its
buckets are free.
"""
_NEVER_TICKS: Final = (1 << 32) - 1
_NEVER_DEPTH: Final = (1 << 19) - 1
_DSCPS: Final = 0x3F


def byte_cost(rate_bps: float) -> int:
    """Return the amount, of 32 bits, that a byte adds to a leaky bucket that drains at this rate."""
    return max(1, min(math.floor(8e6 * TICKS_PER_US / rate_bps), (1 << 32) - 1))


def marking_entries(topology: Topology, budget: LinkBudget, options: CongestionOptions) -> list[Item]:
    """Return entries that bound the queue of one egress port."""
    target = topology.switch(budget.link.node).target
    rate_bps, frame_bytes = topology.link_at(budget.link).rate_bps, round_bytes(topology)
    frame_us = 8e6 * frame_bytes / rate_bps
    depth = target.queue_depth(budget.threshold, frame_bytes)
    sojourn_us = math.ceil(options.bound_packets * frame_us) + 1
    if options.marks is not Marks.DEPTH and not options.windows_obeyed:
        depth = _NEVER_DEPTH
    if options.marks is Marks.SOJOURN:
        sojourn_us = math.ceil(budget.threshold * frame_us)
    bound = {
        "threshold": depth,
        "sojourn": min(sojourn_us * 1000 // target.tick_ns, _NEVER_TICKS),
        "window": budget.window,
        "congested_window": budget.congested_window,
    }
    match, drains_bps = {"egress_port": budget.link.port}, options.virtual_share * rate_bps
    if target.meters:
        items: list[Item] = [entry(MARKING, match, call("bound_queue", **bound))]
        if options.marks is Marks.VIRTUAL:
            # cut off: a virtual queue that is a little shorter marks a little earlier
            burst, rate = (_in_grains(each) for each in (budget.threshold * frame_bytes, drains_bps / 8))
            items.append(MeterRate(VIRTUAL_QUEUE_RATES, budget.link.port, rate, burst))
        return items
    cost, backlog = 0, 1
    if options.marks is Marks.VIRTUAL:
        cost = byte_cost(drains_bps)
        backlog = max(1, budget.threshold * frame_bytes * cost)
    return [entry(MARKING, match, call("bound_queue", **bound, byte_cost=cost, backlog=backlog))]


def windows_held(tables: Mapping[str, SwitchState]) -> Mapping[Endpoint, tuple[int, int]]:
    """Read each port's window, and its window after a mark, from the switches' tables."""
    held = {}
    for switch, state in tables.items():
        for item in state.items.values():
            if not isinstance(item, Entry) or item.table != MARKING:
                continue
            if isinstance(port := dict(item.match)["egress_port"], int):
                [bound] = item.calls
                arguments = dict(bound.args)
                held[Endpoint(switch, port)] = (arguments["window"], arguments["congested_window"])
    return held


def control_share(topology: Topology) -> float:
    """Share of each host's link for control-class traffic, 0 to 0.02.

    Hosts may all send to one of them, and their class goes first in strict priority: together they leave half of a
    link with the rate of a host's to the others.
    """
    return min(CONTROL_SHARE, CONTROL_SHARE_OF_ALL / max(1, len(topology.hosts) - 1))


def policer_entries(
    topology: Topology,
    switch: str,
    plans: Iterable[JobPlan],
    windows: Mapping[Endpoint, int] | None,
    cleared: Collection[int] = (),
    fetches: Mapping[int, Mapping[Endpoint, int]] = MappingProxyType({}),
) -> list[Item]:
    """Return entries that limit the traffic of hosts into a switch, for any DSCP.

    Control traffic gets a small rate and no messages; workers' messages get the rate of their windows. The host of a
    parameter server answers all its children and has no window. Messages in a class that no job of the host has are
    dropped.

    Args:
        topology: The fabric.
        switch: Name of the switch.
        plans: Plans of the running jobs.
        windows: Window of each link, in rounds; None: no windows.
        cleared: Ports whose incoming packets lose INT's mark.
        fetches: Packets of rounds that hosts of moved jobs fetch from each other, by job and link; workers may send
            them at once.
    """
    plans = tuple(plans)
    write = _metered if topology.switch(switch).target.meters else _priced
    items: list[Item] = []
    for port, far in sorted(topology.neighbours(switch).items()):
        if not topology.is_host(far.node):
            continue
        rate_bps = topology.link_at(Endpoint(switch, port)).rate_bps
        control_bps = control_share(topology) * rate_bps
        buckets = [
            _Bucket(port, CONTROL_PRIORITY, False, control_bps, CONTROL_BURST_BYTES),
            _Bucket(port, CONTROL_PRIORITY, True, control_bps, 0),
        ]
        mine = [plan for plan in plans if far.node in plan.workers]
        serves = any(far.node in (plan.spec.server, *plan.spec.spares) for plan in plans)
        if windows is not None and mine and not serves:
            frame = round_bytes(topology)
            rounds = [min(plan.spec.window, _min_window(plan, windows)) for plan in mine]
            rate = sum(8e9 * w * frame / plan.quickest_round_trip_ns for w, plan in zip(rounds, mine, strict=True))
            fetched = sum(each.get(far, 0) for each in fetches.values())
            burst = (sum(2 * w + REPAIRS for w in rounds) + fetched) * frame
            classes = {LOWER_EFFORT_PRIORITY, *(priority for plan in mine for priority in plan.spec.classes)}
            also = tuple(sorted(classes - {BULK_PRIORITY}))
            buckets.append(_Bucket(port, BULK_PRIORITY, True, min(rate, rate_bps), burst, also))
        allowed = {priority for plan in plans if far.node in plan.spec.hosts for priority in plan.spec.classes}
        if allowed and topology.switch(switch).target.job_classes:  # other hosts' messages are not admitted
            foreign = [priority for priority in JOB_CLASSES if priority != BULK_PRIORITY and priority not in allowed]
            buckets += [_Bucket(port, priority, True, control_bps, 0) for priority in foreign]
        for bucket in buckets:
            items += write(bucket, port in cleared)
    return items


def marked_states(
    topology: Topology,
    states: Mapping[str, SwitchState],
    budgets: Mapping[Endpoint, LinkBudget],
    plans: Iterable[JobPlan],
    options: CongestionOptions,
    fetches: Mapping[int, Mapping[Endpoint, int]] = MappingProxyType({}),
) -> Mapping[str, SwitchState]:
    """Return every switch's state, with the entries of this module added.

    Args:
        topology: The fabric.
        states: State of each switch, by name.
        budgets: Budget of each switch port's queue.
        plans: Plans of the running jobs.
        options: Options of congestion control.
        fetches: Packets of rounds that hosts fetch from each other, by job and link.
    """
    plans = tuple(plans)
    obeyed = options.windows_obeyed
    windows = {link: budget.window for link, budget in budgets.items()} if obeyed else None
    marked = {}
    for switch, state in states.items():
        budgeted = [budgets[Endpoint(switch, port)] for port in topology.neighbours(switch)]
        own = [item for budget in budgeted for item in marking_entries(topology, budget, options)]
        cleared = _cleared_ports(state)
        items = (*state.items.values(), *own, *policer_entries(topology, switch, plans, windows, cleared, fetches))
        marked[switch] = SwitchState.of(items)
    return marked


@dataclass(frozen=True, slots=True)
class _Bucket:
    """Limit of a port's incoming traffic in a class, for messages or for everything else."""

    port: int
    priority: int
    is_message: bool
    rate_bps: float
    burst_bytes: int
    """0: nothing passes."""
    also: tuple[int, ...] = ()
    """Further classes whose messages it limits."""

    @property
    def index(self) -> int:
        return 2 * self.port + (self.priority == BULK_PRIORITY)


def _priced(bucket: _Bucket, cleared: bool) -> list[Item]:
    """Entries for bmv2, which match the class assigned to a packet, whatever its mark was.

    Messages of lower effort, which no host of a job sends, share the bucket of bulk messages, and so do messages of the
    classes that the host's jobs have or had.
    """
    cost = byte_cost(bucket.rate_bps)
    police = call("police", bucket_index=bucket.index, byte_cost=cost, burst=bucket.burst_bytes * cost)
    match: dict[str, FieldValue] = {"ingress_port": bucket.port, "is_message": int(bucket.is_message)}
    return [entry(POLICERS, {**match, "priority": priority}, police) for priority in (bucket.priority, *bucket.also)]


def _metered(bucket: _Bucket, cleared: bool) -> list[Item]:
    """Entries for a chip, which match DSCPs as received, before INT's mark is removed.

    Each code point of the control class has an entry; all others share one below these.
    """
    index = bucket.index if bucket.burst_bytes else NO_BUCKET
    rate, burst = (_in_grains(each + METER_GRAIN_BYTES - 1) for each in (bucket.rate_bps / 8, bucket.burst_bytes))
    items: list[Item] = [MeterRate(BUCKET_RATES, index, *((rate, burst) if bucket.burst_bytes else (0, 0)))]
    police = call("police", bucket_index=index)
    match: dict[str, FieldValue] = {"ingress_port": bucket.port, "is_message": int(bucket.is_message)}
    if bucket.priority == BULK_PRIORITY:
        return [*items, entry(POLICERS, match, police, priority=1)]
    mask = _DSCPS ^ DSCP_BIT if cleared else _DSCPS
    return [*items, *(entry(POLICERS, {**match, "dscp": (c, mask)}, police, priority=2) for c in CONTROL_CODE_POINTS)]


def _in_grains(count: float) -> int:
    """Round down to the multiples that Stratum keeps."""
    return int(count // METER_GRAIN_BYTES) * METER_GRAIN_BYTES


def _cleared_ports(state: SwitchState) -> frozenset[int]:
    """Those whose packets lose INT's mark as they come in."""
    edges = [item for item in state.items.values() if isinstance(item, Entry) and item.table == EDGES]
    ports = (dict(item.match)["ingress_port"] for item in edges)
    return frozenset(port for port in ports if isinstance(port, int))


def _min_window(plan: JobPlan, windows: Mapping[Endpoint, int]) -> int:
    return min((windows.get(link, NO_WINDOW_LIMIT) for link in plan.max_streams), default=NO_WINDOW_LIMIT)
