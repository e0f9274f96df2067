"""The table entries that keep a promise: `marking` for every egress port, `policers` for the ports of hosts
(docs/design.md §4.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from ...topologies.model import Endpoint, Topology
from ...wire.aggregation import NO_WINDOW_LIMIT
from ..p4runtime.entries import Entry, Item, SwitchState, call, entry
from ..p4runtime.tables import MARKING, POLICERS
from ..planning.plan import BULK_PRIORITY, CONTROL_PRIORITY, JobPlan, round_bytes
from .budget import CongestionOptions, LinkBudget, Marks

TICKS_PER_US: Final = 1 << 16
"""Leaky buckets count in 2⁻¹⁶ µs."""
CONTROL_SHARE: Final = 0.02
"""Of a host's link, for what it sends in the control class."""
CONTROL_BURST_BYTES: Final = 2_048
LARGEST_CONTROL_BYTES: Final = 256
"""Of a frame of the control class that is not dropped for its rate."""
REPAIRS: Final = 8
"""Rounds that a worker may send again at once, beyond its window."""
_NEVER_US: Final = (1 << 32) - 1
_NEVER_DEPTH: Final = (1 << 19) - 1


def byte_cost(rate_bps: float) -> int:
    """What a byte adds to a leaky bucket that drains at this rate."""
    return max(1, math.floor(8e6 * TICKS_PER_US / rate_bps))


def marking_entry(topology: Topology, budget: LinkBudget, options: CongestionOptions) -> Item:
    """The entry of one egress port."""
    rate_bps = topology.link_at(budget.link).rate_bps
    frame_us = 8e6 * round_bytes(topology) / rate_bps
    depth = topology.switch(budget.link.node).target.queue_depth(budget.threshold, round_bytes(topology))
    sojourn_us, cost, backlog = math.ceil(options.bound_packets * frame_us) + 1, 0, 1
    if options.marks is not Marks.DEPTH and not options.windows_obeyed:
        depth = _NEVER_DEPTH
    if options.marks is Marks.SOJOURN:
        sojourn_us = math.ceil(budget.threshold * frame_us)
    if options.marks is Marks.VIRTUAL:
        cost = byte_cost(options.virtual_share * rate_bps)
        backlog = max(1, budget.threshold * round_bytes(topology) * cost)
    bound = call(
        "bound_queue",
        threshold=depth,
        sojourn=min(sojourn_us, _NEVER_US),
        byte_cost=cost,
        backlog=backlog,
        window=budget.window,
        congested_window=budget.congested_window,
    )
    return entry(MARKING, {"egress_port": budget.link.port}, bound)


def windows_held(tables: Mapping[str, SwitchState]) -> Mapping[Endpoint, tuple[int, int]]:
    """From what switches have in their tables: each port's window, and the one of who is marked."""
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


def policer_entries(
    topology: Topology, switch: str, plans: Iterable[JobPlan], windows: Mapping[Endpoint, int] | None
) -> list[Item]:
    """What hosts may send into a switch, in whatever DSCP: control at a small rate and never as messages, workers'
    messages at what their windows allow (None: they obey none). The host of a parameter server answers all its children
    and is not held to a window.
    """
    plans = tuple(plans)
    items: list[Item] = []
    for port, far in sorted(topology.neighbours(switch).items()):
        if not topology.is_host(far.node):
            continue
        rate_bps = topology.link_at(Endpoint(switch, port)).rate_bps
        control = byte_cost(CONTROL_SHARE * rate_bps)
        items += [
            _policer(port, 2 * port, CONTROL_PRIORITY, False, control, CONTROL_BURST_BYTES * control),
            _policer(port, 2 * port, CONTROL_PRIORITY, True, control, 0),
        ]
        mine = [plan for plan in plans if far.node in plan.workers]
        if windows is None or not mine or any(far.node in (plan.spec.server, *plan.spec.spares) for plan in plans):
            continue
        frame = round_bytes(topology)
        rounds = [min(plan.spec.window, _least_window(plan, windows)) for plan in mine]
        rate = sum(8e9 * w * frame / plan.round_trip_ns for w, plan in zip(rounds, mine, strict=True))
        cost = byte_cost(min(rate, rate_bps))
        burst = sum(2 * w + REPAIRS for w in rounds) * frame * cost
        items.append(_policer(port, 2 * port + 1, BULK_PRIORITY, True, cost, burst))
    return items


def marked_states(
    topology: Topology,
    states: Mapping[str, SwitchState],
    budgets: Mapping[Endpoint, LinkBudget],
    plans: Iterable[JobPlan],
    options: CongestionOptions,
) -> Mapping[str, SwitchState]:
    """What every switch holds, with the entries of this module added."""
    plans = tuple(plans)
    obeyed = options.windows_obeyed
    windows = {link: budget.window for link, budget in budgets.items()} if obeyed else None
    marked = {}
    for switch, state in states.items():
        own = [
            marking_entry(topology, budgets[Endpoint(switch, port)], options) for port in topology.neighbours(switch)
        ]
        items = (*state.items.values(), *own, *policer_entries(topology, switch, plans, windows))
        marked[switch] = SwitchState.of(items)
    return marked


def _policer(port: int, bucket: int, priority: int, is_message: bool, cost: int, burst: int) -> Item:
    match = {"ingress_port": port, "priority": priority, "is_message": int(is_message)}
    return entry(POLICERS, match, call("police", bucket_index=bucket, byte_cost=cost, burst=burst))


def _least_window(plan: JobPlan, windows: Mapping[Endpoint, int]) -> int:
    return min((windows.get(link, NO_WINDOW_LIMIT) for link in plan.most_streams), default=NO_WINDOW_LIMIT)
