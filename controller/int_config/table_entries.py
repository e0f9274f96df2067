"""Entries of each switch for a telemetry configuration (docs/design.md §4.4). Pure.

::

    flows ─▶ watchlist: MD, MX at a packet's source's switch (a switch is its own source), XD everywhere
         └─▶ sinks: at its destination's switch;  marks, edges: how INT is recognised;  classes of marked DSCPs
    steps ─▶ flow_steps, queue_watch;  drops ─▶ drop_watch
    collector ─▶ clone session and destination of reports; reports on their way are ignored by all of these
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from typing import Final

from ...topologies.model import Endpoint, Host, Node, Switch, Topology, mac_number
from ...topologies.routing import Routes
from ...topologies.targets import Target
from ...wire.frames import PROTOCOL_UDP
from ...wire.int_shim import DSCP_BIT, Presence
from ..errors import PlanError
from ..p4runtime.entries import ActionSpec, CloneSession, FieldValue, Item, SwitchState, call, default_action, entry
from ..p4runtime.tables import (
    DROP_REASONS,
    DROP_WATCH,
    EDGES,
    FLOW_STEPS,
    INGRESS_NAMES,
    INT_SINKS,
    LINK_NAMES,
    MARKS,
    QUEUE_WATCH,
    REPORT_DESTINATION,
    TELEMETRY_SLOTS,
    WATCHLIST,
)
from ..planning.limits import check_items
from ..planning.plan import JobPlan, class_entries
from .settings import NEVER, EventThresholds, IntConfig, WatchedFlows, WatchMode

REPORT_SESSION: Final = 250
"""The clone session that the program sends what is to be reported to."""
STACK_SESSION: Final = 249
"""That of packets with a stack, as they came to a sink, on targets that have another one for these."""
WATCHLIST_ENTRIES: Final = 1024
"""Entries that a switch takes, and counters for sampling them."""

_IGNORED: Final = 60_000
"""The priority of entries for reports, above all flows'."""
_NOT_ON_CHIPS: Final = 0x00FF
"""Instructions that a chip's program does not support (docs/tofino.md)."""
_PRESENCE: Final = {Presence.UDP_PORT: 1, Presence.DSCP: 2, Presence.PROBE_MARKER: 3}
_ALL_ONES: Final = {"protocol": 0xFF, "reason": 0xFF, "dst_port": 0xFFFF, "dst_addr": 0xFFFFFFFF}


def check_int_config(topology: Topology, watching: IntConfig) -> None:
    """Check that the fabric has the nodes and ports that are watched and reported to, and can watch them.

    Raises:
        PlanError: It has not, or cannot.
    """
    if watching.collector is not None and not topology.is_host(watching.collector):
        raise PlanError(
            f'collector "{watching.collector}" is no host of {topology.name}',
            value=watching.collector,
            allowed=[host.name for host in topology.hosts],
        )
    if chips := [each for each in topology.switches if not each.target.reports]:
        _check_chips(chips, watching, alone=len(chips) == len(topology.switches))
    for number, flows in enumerate(watching.flows):
        for end, network in (("source", flows.source), ("destination", flows.destination)):
            if network is not None and not any(node.address in network for node in topology.nodes):
                raise PlanError(
                    f"watch.{number}.{end}: {network} has no host or switch of {topology.name} in it, "
                    "so nothing would be watched"
                )
    for switch in topology.switches:
        count = sum(1 for _ in _watched(topology, switch.name, watching))
        if count >= WATCHLIST_ENTRIES:
            raise PlanError(
                f"{switch.name} would have {count} entries in its watchlist, which has room for "
                f"{WATCHLIST_ENTRIES - 1}; MD and MX take one for each source that hangs there: watch fewer flows"
            )


def _check_chips(chips: Sequence[Switch], watching: IntConfig, *, alone: bool) -> None:
    """Raises PlanError where switches that report watched packets alone cannot do what is wanted. `alone`: no other
    kind is there, whose sources would put INT into messages that a chip is to sum.
    """
    judges = bool(watching.flows) and watching.flow_steps is not None
    names, kind = ", ".join(switch.name for switch in chips), chips[0].target
    if (watching.puts_headers and not alone) or judges or watching.queue_steps is not None or watching.drops:
        raise PlanError(
            f"watch: {names}: the program of {kind.name} sums no messages with INT, and tells neither of drops nor of "
            "what changes in flows and queues; in this fabric watch flows by mode xd, or md and mx where all switches "
            "are such chips, with changes: off, and neither queues nor drops"
        )
    for number, flows in enumerate(watching.flows):
        if flows.mode is WatchMode.MD:
            lacking, most = flows.instructions & _NOT_ON_CHIPS, _max_stack_words(flows, watching.presence, kind)
            if lacking:
                raise PlanError(
                    f"watch.{number}.collect: {names}: the program of {kind.name} puts nothing into packets where "
                    f"{', '.join(str(bit.name).lower() for bit in lacking)} is asked for: leave that out"
                )
            if flows.words * flows.hops > most:
                raise PlanError(
                    f"watch.{number}: {names}: {flows.words} words of each of {flows.hops} hops are "
                    f"{flows.words * flows.hops} in a stack, of which a sink of {kind.name} takes out {most} where INT "
                    f"is marked by {watching.presence.value}: collect less, or let fewer hops push"
                )
        if flows.every > kind.max_every:
            raise PlanError(
                f"watch.{number}.every: {names}: the program of {kind.name} counts to {kind.max_every}, "
                f"not {flows.every}"
            )


def _max_stack_words(flows: WatchedFlows, presence: Presence, kind: Target) -> int:
    """TCP segments are not marked by a UDP port here."""
    right_behind_udp = presence is Presence.UDP_PORT or (presence is Presence.DSCP and flows.protocol == PROTOCOL_UDP)
    return kind.max_stack_words if right_behind_udp else kind.max_deep_stack_words


def watch_state(topology: Topology, routes: Routes, switch: str, watching: IntConfig) -> SwitchState:
    """Return a switch's telemetry entries, which do not depend on its jobs.

    Args:
        topology: The fabric.
        routes: Its routes.
        switch: Name of the switch.
        watching: Configuration of INT.

    Raises:
        PlanError: The switch's target does not support them.
    """
    node = topology.switch(switch)
    items = [*_link_items(topology, switch, watching)]
    items += _flow_items(topology, switch, watching)
    if node.target.reports:
        items += _event_items(topology, switch, watching)
    items += _report_items(topology, routes, switch, watching)
    check_items(node, items)
    return SwitchState.of(items)


def report_port(topology: Topology, routes: Routes, switch: str, collector: str) -> int:
    """Return the port through which a switch sends its own reports; each of several equally near ones serves some
    switches.

    Args:
        topology: The fabric.
        routes: Its routes.
        switch: Name of the switch.
        collector: Host that collects the reports.
    """
    nearest = routes.next_hops(switch, collector)
    return nearest[topology.switch(switch).device_id % len(nearest)]


def report_shares(topology: Topology, routes: Routes, switch: str, collector: str) -> Mapping[Endpoint, float]:
    """Return the share of a switch's own reports on each link; empty without a path to the collector.

    Args:
        topology: The fabric.
        routes: Its routes.
        switch: Name of the switch.
        collector: Host that collects the reports.
    """
    if not routes.reaches(switch, collector):
        return {}
    first = Endpoint(switch, report_port(topology, routes, switch, collector))
    behind = topology.peer(first).node
    return {first: 1.0, **({} if behind == collector else routes.shares(behind, collector))}


def report_links(topology: Topology, routes: Routes, watching: IntConfig) -> frozenset[Endpoint]:
    """Return the links that reports may cross on their way to a collector among the hosts."""
    collector = watching.collector
    if collector is None or not watching.reports_anything:
        return frozenset()
    ways = (report_shares(topology, routes, switch.name, collector) for switch in topology.switches)
    return frozenset(link for way in ways for link in way)


def telling_slots(
    topology: Topology, bases: Mapping[str, SwitchState], jobs: Collection[JobPlan]
) -> Mapping[str, SwitchState]:
    """Return these states, in which each switch knows how many of its slots none of these jobs has."""
    free = {switch.name: switch.slots for switch in topology.switches}
    for job in jobs:
        for name in job.switches:
            free[name] -= job.spec.slots
    told = {name: default_action(TELEMETRY_SLOTS, call("tell_free_slots", slots=count)) for name, count in free.items()}
    return {name: SwitchState({**base.items, told[name].key: told[name]}) for name, base in bases.items()}


def interface_name(topology: Topology, end: Endpoint) -> int:
    """Return the level-2 interface id of a switch's port: the device's id, then the port."""
    return topology.switch(end.node).device_id << 16 | end.port


# --- links ---


def _link_items(topology: Topology, switch: str, watching: IntConfig) -> Iterator[Item]:
    for port, far in topology.neighbours(switch).items():
        name = interface_name(topology, Endpoint(switch, port))
        to_host = int(topology.is_host(far.node))
        # no switch knows what comes behind its own link, and a packet that INT made too long there would be lost
        mtu = topology.link_at(Endpoint(switch, port)).mtu if to_host else topology.mtu_between_switches
        if watching.mtu is not None:
            mtu = min(mtu, watching.mtu)
        yield entry(LINK_NAMES, {"egress_port": port}, call("name_link", mtu=mtu, interface=name, host=to_host))
        yield entry(INGRESS_NAMES, {"ingress_port": port}, call("name_ingress", interface=name))
        if watching.presence is Presence.DSCP and to_host:
            yield entry(EDGES, {"ingress_port": port}, call("clear_mark"))
    if watching.presence is not Presence.UDP_PORT:
        yield entry(MARKS, {"presence": _PRESENCE[watching.presence]}, call("recognise"))
    if watching.presence is Presence.DSCP:
        yield from class_entries(topology.switch(switch).target, DSCP_BIT)


# --- flows ---


def _flow_items(topology: Topology, switch: str, watching: IntConfig) -> Iterator[Item]:
    for sampler, (rank, match, flows) in enumerate(_watched(topology, switch, watching)):
        action = _action(flows, sampler, watching)
        yield entry(WATCHLIST, match, action, priority=_IGNORED - 1 - rank)
    if any(flows.mode is not WatchMode.XD for flows in watching.flows):
        own = topology.switch(switch)
        for node in _local(topology, switch):
            if node is not own or own.target.reports:  # a chip sums no messages with INT, so none is sent to it
                strip = call("strip", period=watching.sink_period_us)
                yield entry(INT_SINKS, {"dst_addr": int(node.address)}, strip)


def _watched(
    topology: Topology, switch: str, watching: IntConfig
) -> Iterator[tuple[int, dict[str, FieldValue], WatchedFlows]]:
    """The switch's watchlist: (rank, match, what is wanted)."""
    rank = 0
    for flows in watching.flows:
        sources: list[IPv4Network | None] = [flows.source]
        if flows.mode is not WatchMode.XD:
            local = (node.address for node in _local(topology, switch))
            sources = [IPv4Network(address) for address in local if flows.source is None or address in flows.source]
        for source in sources:
            match: dict[str, FieldValue] = {}
            for name, network in (("src_addr", source), ("dst_addr", flows.destination)):
                if network is not None and network.prefixlen:
                    match[name] = int(network.network_address), int(network.netmask)
            if flows.protocol is not None:
                match["protocol"] = flows.protocol, _ALL_ONES["protocol"]
            for name, port in (("src_port", flows.source_port), ("dst_port", flows.destination_port)):
                if port is not None:
                    match[name] = port
            yield rank, match, flows
            rank += 1


def _local(topology: Topology, switch: str) -> Iterator[Node]:
    """Nodes whose packets enter and leave the fabric here: the hosts at this switch, and the switch, if it
    aggregates.
    """
    yield topology.switch(switch)
    for far in topology.neighbours(switch).values():
        node = topology.node(far.node)
        if isinstance(node, Host):
            yield node


def _action(flows: WatchedFlows, sampler: int, watching: IntConfig) -> ActionSpec:
    asked = {
        "entry": sampler,
        "every": flows.every,
        "instructions": int(flows.instructions),
        "domain_instructions": int(flows.domain_instructions),
    }
    presence = _PRESENCE[watching.presence]
    match flows.mode:
        case WatchMode.MD:
            return call("embed_md", **asked, words=flows.words, hops=flows.hops, presence=presence)
        case WatchMode.MX:
            return call("embed_mx", **asked, presence=presence)
        case WatchMode.XD:
            return call("export_xd", **asked)


# --- events ---


def _event_items(topology: Topology, switch: str, watching: IntConfig) -> Iterator[Item]:
    steps = watching.flow_steps
    yield default_action(FLOW_STEPS, call("NoAction") if steps is None else _steps("set_steps", steps))
    if watching.queue_steps is not None:
        for port in topology.neighbours(switch):
            for priority in watching.queue_classes:
                queue = {"egress_port": port, "priority": priority}
                yield entry(QUEUE_WATCH, queue, _steps("watch_queue", watching.queue_steps))
    for reason in watching.drops:
        match: dict[str, FieldValue] = {"reason": (DROP_REASONS.index(reason), _ALL_ONES["reason"])}
        yield entry(DROP_WATCH, match, call("report_drop"), priority=1)


def _steps(action: str, steps: EventThresholds) -> ActionSpec:
    """A threshold of 0 is never crossed, for no depth is below it."""
    return call(
        action,
        depth_threshold=steps.depth_threshold or 0,
        depth_step=steps.depth_step or NEVER,
        latency_threshold=steps.latency_threshold_us or 0,
        latency_step=steps.latency_step_us or NEVER,
        period=steps.period_us or NEVER,
    )


# --- reports ---


def _report_items(topology: Topology, routes: Routes, switch: str, watching: IntConfig) -> Iterator[Item]:
    """Entries for the output of the switch's reports. Without a path to the collector there are none."""
    node = topology.switch(switch)
    source = {"node_id": node.device_id, "source": int(node.address), "src_mac": mac_number(node.mac)}
    ports = {"src_port": watching.port, "dst_port": watching.port, "dscp": watching.dscp}
    if watching.collector is None:
        to = {"collector": int(node.address), "dst_mac": mac_number(node.mac)}
        yield from _sessions(node, node.target.cpu_port)
        yield default_action(REPORT_DESTINATION, call("address", **source, **ports, **to))
        return
    collector = topology.host(watching.collector)
    if not routes.reaches(switch, collector.name):
        yield default_action(REPORT_DESTINATION, call("NoAction"))
    else:
        port = report_port(topology, routes, switch, collector.name)
        next_node = topology.node(topology.peer(Endpoint(switch, port)).node)
        to = {"collector": int(collector.address), "dst_mac": mac_number(next_node.mac)}
        yield from _sessions(node, port)
        yield default_action(REPORT_DESTINATION, call("address", **source, **ports, **to))
    match: dict[str, FieldValue] = {
        "dst_addr": (int(collector.address), _ALL_ONES["dst_addr"]),
        "protocol": (PROTOCOL_UDP, _ALL_ONES["protocol"]),
        "dst_port": (watching.port, _ALL_ONES["dst_port"]),
    }
    yield entry(WATCHLIST, match, call("ignore"), priority=_IGNORED)
    if node.target.reports:
        yield entry(DROP_WATCH, match, call("ignore_drop"), priority=_IGNORED)


def _sessions(switch: Switch, port: int) -> Iterator[Item]:
    """Clone sessions whose reports leave by this port."""
    target = switch.target
    priority = target.bulk_priority if target.clone_classes else 0
    yield CloneSession(REPORT_SESSION, ((port, 0),), target.report_clone_bytes, priority)
    if target.stack_clone_bytes:
        yield CloneSession(STACK_SESSION, ((port, 0),), target.stack_clone_bytes, priority)
