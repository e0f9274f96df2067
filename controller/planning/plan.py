"""Target state of every switch, from a fabric, its routes and its jobs (docs/design.md §4.2). Pure.

::

    Topology, Routes ─────────────────────────▶ base_state(switch)  ─┐
    JobSpec, Placement, generation, Allotments ─▶ job_plan ──────────┼─▶ fabric_state: one SwitchState per switch
                                                    └▶ WorkerPlan, ServerPlan for the hosts
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain
from typing import Final

from ...topologies.model import Endpoint, Topology, mac_number
from ...topologies.routing import Routes
from ...topologies.targets import Target
from ...wire.aggregation import GENERATIONS, HEADER_BYTES, LANES, MESSAGE_BYTES, message_bytes, present_width
from ...wire.control import Child, Pacing, ServerPlan, WorkerPlan
from ...wire.frames import BULK_PRIORITY, FRAME_HEADER_BYTES, JOB_CLASSES, TRAFFIC_CLASSES
from ..errors import PlanError
from ..p4runtime.entries import (
    CloneSession,
    Group,
    Item,
    SwitchState,
    call,
    default_action,
    entry,
)
from ..p4runtime.tables import (
    JOBS,
    MEMBERS,
    NODE_ADDRESS,
    PARENTS,
    PROBE_SINKS,
    REPLICAS,
    TELEMETRY_NODE,
    TRAFFIC_CLASS,
    WIDTHS,
)
from ..placement import Placement, PlacementError, way_up
from ..placement.model.pipes import arrivals
from .forwarding import Shares, copy_port, message_way, result_way, route_items
from .limits import check_items
from .memory import Allotment

PROBE_SESSION: Final = 1
EXPANSIONS: Final = {32: "expand", LANES: "expand_wide"}
"""Actions that expand PRESENT, by the lanes of its round."""
SCALE_ROUND_BYTES: Final = FRAME_HEADER_BYTES + HEADER_BYTES
"""Bytes of a round without lanes on a link."""
LARGEST_ROUND_BYTES: Final = FRAME_HEADER_BYTES + MESSAGE_BYTES
MAX_GRADIENT_BYTES: Final = 1 << 50
"""More than any model has, and little enough for the programs that place jobs together."""
LIGHTEST: Final = 1e-3
HEAVIEST: Final = 1e3
"""Between these are jobs' weights, lest one job's time makes all others' vanish."""
HIGHEST: Final = 7
"""The highest of jobs' priorities."""


class FailurePolicy(Enum):
    """Reaction of a job to the loss of a worker."""

    CONTINUE = "continue"
    """The others go on, as long as there are enough; weights keep means right."""
    WAIT = "wait"
    """The others pause until the worker is heard of again."""
    ABORT = "abort"
    """The job ends, and every host receives the reason."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """Request for one job. Raises PlanError if it is not a possible job."""

    job: int
    workers: tuple[str, ...]
    """Host names by rank, as at the job's start."""
    server: str | None = None
    """The parameter server's host; None: the root must be a switch."""
    slots: int = 64
    """S: slots that the job has in each of its nodes, a power of two."""
    window: int = 32
    """W ≤ S/2: rounds from the oldest incomplete one on that a worker may have begun."""
    gradient_bytes: int = 1 << 20
    """Bytes of one worker's stream on a link per iteration, headers included; placement weighs it against latency."""
    policy: FailurePolicy = FailurePolicy.CONTINUE
    min_workers: int = 1
    """Minimum number of workers; with fewer left, the job is aborted."""
    spares: tuple[str, ...] = ()
    """Hosts that can be the server in its stead, in this order."""
    weight: float = 1.0
    """Weight of its time in a joint placement of several jobs: LIGHTEST to HEAVIEST."""
    priority: int = 0
    """Its time counts before that of all jobs with a lower one, whatever they weigh: 0 to HIGHEST."""
    key: str = field(default="", repr=False)
    """The secret by which its hosts check sums, hexadecimal (docs/threat-model.md); "": they find damage only."""
    classes: tuple[int, ...] = (BULK_PRIORITY,)
    """Traffic class of its messages, one of `frames.JOB_CLASSES`; behind it the class before that, if it has changed:
    packets of that one may still be under way.
    """
    keeps_class: bool = False
    """True if no order changes its traffic class."""

    def __post_init__(self) -> None:
        if not 1 <= self.job <= 0xFFFF:
            raise PlanError("a job's number is 1…65535", place=f"job {self.job}", value=self.job)
        if not 2 <= self.slots <= 1 << 15 or self.slots.bit_count() != 1:
            raise self._refusal("slots", f"slots {self.slots} is not a power of two in 2…32768")
        if not 1 <= self.window <= self.slots // 2:
            raise self._refusal("window", f"window {self.window} is not in 1…{self.slots // 2}, half its slots")
        if not self.workers or len(set(self.hosts)) != len(self.hosts):
            raise self._refusal("hosts", f"hosts {', '.join(self.hosts)}: one worker at least, and every host once")
        if not 1 <= self.min_workers <= len(self.workers):
            raise self._refusal(
                "min_workers", f"min_workers {self.min_workers} is not in 1…{len(self.workers)}, its workers"
            )
        if not 1 <= self.gradient_bytes <= MAX_GRADIENT_BYTES:
            raise self._refusal(
                "gradient_bytes", f"gradient_bytes {self.gradient_bytes} is not in 1…{MAX_GRADIENT_BYTES}, a pebibyte"
            )
        if not LIGHTEST <= self.weight <= HEAVIEST:
            raise self._refusal("weight", f"weight {self.weight:g} is not in {LIGHTEST:g}…{HEAVIEST:g}")
        if not 0 <= self.priority <= HIGHEST:
            raise self._refusal("priority", f"priority {self.priority} is not in 0…{HIGHEST}")
        if not 1 <= len(self.classes) <= 2 or not set(self.classes) <= set(JOB_CLASSES):
            raise self._refusal(
                "classes", f"traffic class {self.classes} is not in {min(JOB_CLASSES)}…{max(JOB_CLASSES)}"
            )
        if self.spares and self.server is None:
            raise self._refusal("spares", f"spares {', '.join(self.spares)} without a server; name one")

    def _refusal(self, name: str, problem: str) -> PlanError:
        """Return the error about one field, with its value."""
        return PlanError(problem, place=f"job {self.job}", value=getattr(self, name))

    @property
    def traffic_class(self) -> int:
        """Priority of its messages from now on."""
        return self.classes[0]

    def in_class(self, priority: int) -> JobSpec:
        """The same job in another traffic class. Raises PlanError if it is not a class of jobs."""
        return self if priority == self.traffic_class else replace(self, classes=(priority, self.traffic_class))

    @property
    def hosts(self) -> tuple[str, ...]:
        """All members: the workers, the server if there is one, and its spares."""
        return (*self.workers, *([self.server] if self.server else []), *self.spares)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One job in one generation: its entries in each switch, and its hosts' plans."""

    spec: JobSpec
    generation: int
    placement: Placement
    switches: Mapping[str, SwitchState]
    """The job's own entries and groups, by switch; switches that it does not use are missing."""
    workers: Mapping[str, WorkerPlan]
    server: ServerPlan | None
    streams: Mapping[Endpoint, float]
    """Copies of the gradient stream that each directed link carries, up and down; where it is not known how a switch
    chooses among equal next hops, on average: 0.5 where a stream takes this link or another. Endpoints of hosts are
    links too.
    """
    max_streams: Mapping[Endpoint, int]
    """Streams that may take each directed link, each counted whole on every such link."""
    max_copies: Mapping[Endpoint, int]
    """Packets that one message sent again by a worker, or its answer, may add at once on each directed link
    (`max_copies_of`).
    """
    round_trip_ns: int
    """Round-trip time from the slowest worker to the root and back, in empty queues."""
    round_trips_ns: Mapping[Endpoint, int]
    """Round-trip time of each directed link that some stream may cross: that of the farthest worker of the stream, and
    the smallest of several streams. A stream sends a round only when all its workers have sent it, so it is no faster.
    """
    hops: int
    """The most links that a round crosses on its way to the root and back."""
    quickest_round_trip_ns: int
    """`round_trip_ns` of a round in which all messages up may be PRESENT and all down DONE, as in `round_trips_ns`."""
    pacing: Pacing = field(default_factory=Pacing, compare=False)
    """Windows sent to workers with the plan; `congestion` computes them. It may differ between two plans of the same
    layout.
    """

    def host_plans(self, first_round: int = 0) -> dict[str, WorkerPlan | ServerPlan]:
        """Return plans of all hosts, the server first: the root's part, or without children that of a mere holder of
        completed rounds.

        `first_round` is the first round of a server that takes over in mid-job.
        """
        plans: dict[str, WorkerPlan | ServerPlan] = {}
        if (host := self.spec.server) is not None:
            like = next(iter(self.workers.values()))
            holder = ServerPlan(
                self.spec.job,
                self.generation,
                self.spec.slots,
                (),
                len(self.spec.workers),
                lanes=like.lanes,
                members=like.members,
                key=like.key,
            )
            plans[host] = replace(self.server or holder, first_round=first_round, traffic_class=self.spec.traffic_class)
        priority = self.spec.traffic_class
        plans.update(
            {host: replace(plan, pacing=self.pacing, traffic_class=priority) for host, plan in self.workers.items()}
        )
        return plans


@dataclass(frozen=True, slots=True)
class _Tree:
    """The placement with its implicit parts: children of every node, in order of their bits."""

    children: Mapping[str, tuple[str, ...]]
    parent: Mapping[str, str]


def job_plan(
    topology: Topology,
    routes: Routes,
    spec: JobSpec,
    placement: Placement,
    generation: int,
    allotments: Mapping[str, Allotment],
) -> JobPlan:
    """Lay one job on the fabric. Workers that the placement leaves out are lost and get no plan.

    Args:
        topology: Fabric.
        routes: Its IP routes.
        spec: Request for the job.
        placement: Tree over the job's hosts.
        generation: Number of the plan, 1…255.
        allotments: Slots that the job has in each switch of the tree.

    Raises:
        PlanError: The placement is no tree over the job's hosts, or asks too much of a node.
    """
    if not 0 < generation < GENERATIONS:
        raise PlanError(
            f"generation {generation} is not in 1…{GENERATIONS - 1}", place=f"job {spec.job}", value=generation
        )
    tree = _tree(topology, spec, placement)
    streams = streams_of(routes, spec.workers, placement.edges)
    switches = _switch_states(topology, routes, spec, generation, tree, allotments)
    trips = _round_trips(topology, routes, placement, tree)
    return JobPlan(
        spec,
        generation,
        placement,
        switches,
        _worker_plans(topology, spec, placement, generation, tree),
        _server_plan(topology, spec, placement, generation, tree),
        streams,
        max_streams_of(routes, placement.edges),
        max_copies_of(routes, placement.edges),
        trips.slowest_ns,
        trips.by_link_ns,
        trips.hops,
        quickest_round_trip_ns=trips.quickest_ns,
    )


def _switch_states(
    topology: Topology,
    routes: Routes,
    spec: JobSpec,
    generation: int,
    tree: _Tree,
    allotments: Mapping[str, Allotment],
) -> dict[str, SwitchState]:
    """Return the job's entries and groups in each switch that sums.

    Raises:
        PlanError: A switch has no slots for the job, or its entries exceed a limit of the switch.
    """
    switches: dict[str, SwitchState] = {}
    for node in tree.children:
        if topology.is_switch(node):
            if node not in allotments or allotments[node].slots != spec.slots:
                raise PlanError(
                    f"{node} is used but has not been allotted {spec.slots} slots", place=f"job {spec.job}", value=node
                )
            items = _node_items(topology, routes, spec, generation, node, tree, allotments[node])
            check_items(topology.switch(node), items)
            switches[node] = SwitchState.of(items)
    return switches


def _member_addresses(topology: Topology, placement: Placement) -> tuple[int, ...]:
    """Return the IPv4 addresses of the workers that take part."""
    return tuple(int(topology.node(name).address) for name in placement.aggregators)


def _worker_plans(
    topology: Topology, spec: JobSpec, placement: Placement, generation: int, tree: _Tree
) -> dict[str, WorkerPlan]:
    """Return the plan of each worker that takes part, without its pacing."""
    lanes, presents, prunes = lanes_of(topology), support_present(topology), prune_results(topology, placement)
    members = _member_addresses(topology, placement)
    return {
        name: WorkerPlan(
            job=spec.job,
            generation=generation,
            rank=spec.workers.index(name),
            workers=len(spec.workers),
            aggregator=int(topology.node(node).address),
            child_bit=1 << tree.children[node].index(name),
            slots=spec.slots,
            window=spec.window,
            lanes=lanes,
            members=members,
            key=spec.key,
            presents=presents,
            prunes=prunes,
        )
        for name, node in placement.aggregators.items()
    }


def _server_plan(
    topology: Topology, spec: JobSpec, placement: Placement, generation: int, tree: _Tree
) -> ServerPlan | None:
    """Return the plan of the parameter server; None if a switch is the root."""
    if spec.server is None or placement.root != spec.server:
        return None
    return ServerPlan(
        job=spec.job,
        generation=generation,
        slots=spec.slots,
        children=tuple(
            Child(1 << bit, int(topology.node(name).address), _workers_below(tree, name))
            for bit, name in enumerate(tree.children[spec.server])
        ),
        workers=len(spec.workers),
        lanes=lanes_of(topology),
        members=_member_addresses(topology, placement),
        key=spec.key,
    )


@dataclass(frozen=True, slots=True)
class _RoundTrips:
    """Round trips of a job's workers to the root and back, in empty queues."""

    slowest_ns: int
    """Maximum over the workers, of a round with lanes."""
    quickest_ns: int
    """The same if all messages up may be PRESENT and all down DONE."""
    by_link_ns: dict[Endpoint, int]
    """`JobPlan.round_trips_ns`."""
    hops: int
    """Maximum number of links on the way to the root and back."""


def _round_trips(topology: Topology, routes: Routes, placement: Placement, tree: _Tree) -> _RoundTrips:
    """Return the round trips of all workers that take part."""
    each = round_bytes(topology)
    workers = list(placement.aggregators)
    trips = {worker: round_trip(topology, routes, tree.parent, worker, each) for worker in workers}
    # small messages: a round returns earlier than one that all workers add lanes to, and whose lanes all want
    up = SCALE_ROUND_BYTES if support_present(topology) else each
    down = SCALE_ROUND_BYTES if prune_results(topology, placement) else each
    quickest = {worker: round_trip(topology, routes, tree.parent, worker, down, up)[0] for worker in workers}
    farthest: dict[str, int] = {}
    for worker, ns in quickest.items():
        for node, _ in way_up(worker, tree.parent):
            farthest[node] = max(farthest.get(node, ns), ns)
    by_link: dict[Endpoint, int] = {}
    for child, parent in placement.edges:
        for link in _links_of(routes, child, parent):
            by_link[link] = min(farthest[child], by_link.get(link, farthest[child]))
    return _RoundTrips(
        max(ns for ns, _ in trips.values()), max(quickest.values()), by_link, max(hops for _, hops in trips.values())
    )


def streams_of(routes: Routes, workers: Sequence[str], edges: Sequence[tuple[str, str]]) -> Mapping[Endpoint, float]:
    """Return the number of streams of these hops, and of returning results, on each directed link.

    Raises:
        TopologyError: There is no path.
    """
    streams: dict[Endpoint, float] = {}
    for way in chain.from_iterable(hop_ways(routes, workers, edges)):
        for link, share in way.items():
            streams[link] = streams.get(link, 0.0) + share
    return streams


def max_streams_of(routes: Routes, edges: Iterable[tuple[str, str]]) -> Mapping[Endpoint, int]:
    """Return the maximum number of streams of these hops, and of returning results, on each directed link."""
    most: dict[Endpoint, int] = {}
    for child, parent in edges:
        for link in _links_of(routes, child, parent):
            most[link] = most.get(link, 0) + 1
    return most


def max_copies_of(routes: Routes, edges: Iterable[tuple[str, str]]) -> Mapping[Endpoint, int]:
    """Return the maximum number of packets by which a message that a worker sends again lengthens each directed
    link's queue.

    On its way to the worker's first node it takes the place of the original. A node that has its own sum sends it up,
    one packet. The answer of the root is one packet to the child that asked; inner nodes replicate it to all children.
    """
    parents = dict(edges)
    inner = set(parents.values()) & parents.keys()
    copies: dict[Endpoint, int] = {}
    for child, parent in parents.items():
        if child in inner:
            copies |= {link: max(copies.get(link, 0), 1) for link in routes.shares(child, parent)}
        if parent not in inner:
            copies |= {link: max(copies.get(link, 0), 1) for link in routes.shares(parent, child)}
    replicated: dict[Endpoint, int] = {}
    for child, parent in parents.items():
        if parent in inner:
            for link in routes.shares(parent, child):
                replicated[link] = replicated.get(link, 0) + 1
    return {link: max(copies.get(link, 0), replicated.get(link, 0)) for link in copies.keys() | replicated.keys()}


def _links_of(routes: Routes, child: str, parent: str) -> tuple[Endpoint, ...]:
    """Those that a stream between two nodes, and its results on their way back, may take."""
    return (*routes.shares(child, parent), *routes.shares(parent, child))


def lanes_of(topology: Topology) -> int:
    """Return lanes of all jobs' messages: those of the narrowest switch that may sum, so that a job can move
    anywhere.
    """
    return min((switch.target.lanes for switch in topology.switches if switch.slots), default=LANES)


def support_present(topology: Topology) -> bool:
    """Return True if all switches that may sum take PRESENT in rounds of the jobs' lanes."""
    lanes = lanes_of(topology)
    return all(switch.target.present_lanes >= lanes for switch in topology.switches if switch.slots)


def prune_results(topology: Topology, placement: Placement) -> bool:
    """Return True if all switches that may sum send DONE to children that want no lanes, and the root is a switch: a
    parameter server sends all results.
    """
    return topology.is_switch(placement.root) and all(
        switch.target.prunes for switch in topology.switches if switch.slots
    )


def round_bytes(topology: Topology) -> int:
    """Return bytes of a round with lanes on a link, headers included."""
    return FRAME_HEADER_BYTES + message_bytes(lanes_of(topology))


def rounds_of_step(spec: JobSpec, topology: Topology) -> tuple[int, int]:
    """Return (P, C): the scale rounds and the rounds with lanes of a step of one tensor with the job's bytes."""
    each = round_bytes(topology)
    chunks = spec.gradient_bytes / (each + SCALE_ROUND_BYTES)
    if chunks > spec.window:
        chunks = (spec.gradient_bytes - spec.window * SCALE_ROUND_BYTES) / each
    whole = max(round(chunks), 1)
    return min(spec.window, whole), whole


def with_window(spec: JobSpec, window: int, topology: Topology) -> JobSpec:
    """Return the same job, of as many chunks, with this window, and so as many rounds of exponents before them."""
    _, chunks = rounds_of_step(spec, topology)
    bytes_ = chunks * round_bytes(topology) + min(window, chunks) * SCALE_ROUND_BYTES
    return spec if window == spec.window else replace(spec, window=window, gradient_bytes=bytes_)


def mean_round_bytes(spec: JobSpec, topology: Topology) -> float:
    """Return the mean bytes of one of these rounds on a link."""
    return spec.gradient_bytes / sum(rounds_of_step(spec, topology))


def base_state(topology: Topology, routes: Routes, switch: str) -> SwitchState:
    """Return the state of a switch without any job and without its queue bounds: routes to all, its own address,
    classes, telemetry.
    """
    this_switch = topology.switch(switch)
    items: list[Item] = [
        entry(NODE_ADDRESS, {"dst_addr": int(this_switch.address)}, call("to_node")),
        *class_entries(this_switch.target),
        *(_widths_taken(this_switch.target) if this_switch.slots else ()),
        default_action(TELEMETRY_NODE, call("identify", node_id=this_switch.device_id)),
        CloneSession(PROBE_SESSION, ((this_switch.target.cpu_port, 0),)),
    ]
    for port, far in topology.neighbours(switch).items():
        if topology.is_host(far.node):
            items.append(entry(PROBE_SINKS, {"egress_port": port}, call("report", session=PROBE_SESSION)))
    for node in topology.nodes:
        if node.name != switch and routes.reaches(switch, node.name):
            items += route_items(topology, switch, node, routes.next_hops(switch, node.name))
    state = SwitchState.of(items)
    check_items(this_switch, state.items.values())
    return state


def _widths_taken(target: Target) -> Iterator[Item]:
    """Yield the entries of the widths of rounds in which a switch takes PRESENT. A chip's parser has the only one."""
    for lanes, action in EXPANSIONS.items():
        if target.is_emulated and lanes <= min(target.lanes, target.present_lanes):
            yield entry(WIDTHS, {"reserved": present_width(lanes)}, call(action))


def class_entries(target: Target, mark: int = 0) -> Iterator[Item]:
    """Yield the entries that put code points, with `mark` added to them, into classes; all others are bulk traffic."""
    for dscp, priority in TRAFFIC_CLASSES.items():
        if target.job_classes or priority not in JOB_CLASSES:
            yield entry(TRAFFIC_CLASS, {"dscp": dscp | mark}, call("set_class", priority=priority))


def fabric_state(bases: Mapping[str, SwitchState], jobs: Iterable[JobPlan]) -> Mapping[str, SwitchState]:
    """Return the state of every switch without queue bounds. `bases` are the states without jobs, such as
    `base_state`.
    """
    jobs = tuple(jobs)
    states: dict[str, SwitchState] = {}
    for switch, base in bases.items():
        parts = [base, *(job.switches[switch] for job in jobs if switch in job.switches)]
        states[switch] = SwitchState.of(item for part in parts for item in part.items.values())
    return states


def _tree(topology: Topology, spec: JobSpec, placement: Placement) -> _Tree:
    unknown = placement.aggregators.keys() - set(spec.workers)
    if unknown or not placement.aggregators:
        raise PlanError(
            f"is for {', '.join(sorted(unknown)) or 'no worker'}; the workers are {', '.join(spec.workers)}",
            place=f"job {spec.job}: placement.aggregators",
            value=tuple(sorted(unknown)),
        )
    try:
        placement.check_tree(topology, spec.server)
    except PlacementError as error:
        raise PlanError.of(error).within(f"job {spec.job}") from error
    children = children_by_bit(topology, spec.workers, placement.edges)
    return _Tree(children, dict(placement.edges))


def children_by_bit(
    topology: Topology, workers: Sequence[str], edges: Iterable[tuple[str, str]]
) -> Mapping[str, tuple[str, ...]]:
    """Return the children of every node of a tree of (child, parent), in the order of their bits: workers by rank,
    and then switches.
    """
    parent = dict(edges)
    rank = {name: index for index, name in enumerate(workers)}
    children: dict[str, list[str]] = {}
    for name in sorted(parent, key=lambda n: (0, rank[n]) if n in rank else (1, topology.switch(n).device_id)):
        children.setdefault(parent[name], []).append(name)
    return {node: tuple(mine) for node, mine in children.items()}


def hop_ways(
    routes: Routes, workers: Sequence[str], edges: Sequence[tuple[str, str]]
) -> Iterator[tuple[Shares, Shares]]:
    """Yield links of each (child, parent) hop: those of its contributions, and those of returning results.

    Raises:
        TopologyError: There is no path.
    """
    children = children_by_bit(routes.topology, workers, edges)
    turns = {child: turn for mine in children.values() for turn, child in enumerate(mine)}
    for child, parent in edges:
        yield message_way(routes, child, parent), result_way(routes, parent, child, turns[child])


def _workers_below(tree: _Tree, node: str) -> int:
    """Number of workers whose numbers are in this node's contribution."""
    return sum(_workers_below(tree, child) for child in tree.children[node]) if node in tree.children else 1


def _node_items(
    topology: Topology,
    routes: Routes,
    spec: JobSpec,
    generation: int,
    node: str,
    tree: _Tree,
    allotment: Allotment,
) -> list[Item]:
    """One switch's entries for one job."""
    children = tree.children[node]
    switch = topology.switch(node)
    now = {"job": spec.job, "generation": generation}
    room = {
        "slot_base": allotment.slot_base,
        "slots": allotment.slots,
        "children": (1 << len(children)) - 1,
    }
    items: list[Item] = []
    copies: list[tuple[int, int]] = []
    for index, name in enumerate(children):
        child = topology.node(name)
        for port in arrivals(topology, routes, name, node):
            match = {**now, "contributors": 1 << index, "ingress_port": port, "src_addr": int(child.address)}
            items.append(entry(MEMBERS, match, call("accept")))
        port, rid = copy_port(routes, node, name, index), allotment.first_rid + index
        copies.append((port, rid))
        next_mac = mac_number(topology.node(topology.peer(Endpoint(node, port)).node).mac)
        delivery = {"dst_addr": int(child.address), "src_mac": mac_number(switch.mac), "dst_mac": next_mac}
        if switch.target.is_emulated:  # the programs for chips send no DONE
            delivery["child_bit"] = 1 << index
        items.append(entry(REPLICAS, {"egress_rid": rid}, call("deliver", **delivery)))
    items.append(Group(allotment.group, tuple(sorted(copies))))
    if (above := tree.parent.get(node)) is None:
        items.append(entry(JOBS, now, call("switch_root", **room, group=allotment.group)))
        return items
    parent = topology.node(above)
    bit = 1 << tree.children[above].index(node)
    items.append(entry(JOBS, now, call("inner_node", **room, parent=int(parent.address), parent_bit=bit)))
    for port in arrivals(topology, routes, above, node):
        match = {**now, "ingress_port": port, "src_addr": int(parent.address)}
        items.append(entry(PARENTS, match, call("replicate", group=allotment.group)))
    return items


def round_trip(
    topology: Topology,
    routes: Routes,
    parents: Mapping[str, str],
    worker: str,
    frame_bytes: int,
    up_bytes: int | None = None,
) -> tuple[int, int]:
    """Return the propagation and store-and-forward of one round from a worker to the root and back, in empty queues.

    Of equal next hops the first is taken.

    Args:
        topology: Fabric.
        routes: Its IP routes.
        parents: Parent of each node of the job's tree.
        worker: Host of the worker.
        frame_bytes: Bytes of a frame.
        up_bytes: Bytes of a frame on the way up; None: `frame_bytes`.

    Returns:
        Time in ns, and number of links that the round crosses.
    """
    total, hops = 0, 0
    sizes = (frame_bytes if up_bytes is None else up_bytes, frame_bytes)
    for child, parent in way_up(worker, parents):
        for (start, end), size in zip(((child, parent), (parent, child)), sizes, strict=True):
            while start != end:
                link = Endpoint(start, 0 if topology.is_host(start) else routes.next_hops(start, end)[0])
                cable = topology.link_at(link)
                total += cable.delay_ns + 8 * size * 1_000_000_000 // cable.rate_bps
                start = topology.peer(link).node
                hops += 1
    return total, hops
