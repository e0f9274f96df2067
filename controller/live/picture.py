"""JSON views of a controller: its fabric, once, and its state, repeatedly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from ...topologies.drawing import LOADS, Drawing
from ...topologies.model import Endpoint, Topology
from ...wire.control import JobReport
from ..controller import Controller
from ..gossip.policy import GossipPolicy
from ..jobs.job import RunningJob
from .events import EventLog

EVENTS_SHOWN = 50


def fabric_picture(topology: Topology, title: str) -> dict[str, Any]:
    """Return the constant part: positions of the nodes, and the directed links that telemetry can see, in the order
    of `LinkState.links`.
    """
    places = Drawing(topology).places
    return {
        "title": title,
        "name": topology.name,
        "colours": LOADS,
        "nodes": [
            {
                "name": node.name,
                "switch": topology.is_switch(node.name),
                "x": places[node.name][0],
                "y": places[node.name][1],
            }
            for node in topology.nodes
        ],
        "links": [
            {
                "end": str(link),
                "from": link.node,
                "to": topology.peer(link).node,
                "rate_bps": topology.link_at(link).rate_bps,
            }
            for link in topology.directed_links
            if topology.is_switch(link.node)
        ],
    }


class LiveView:
    """Views of a controller's state, one per snapshot."""

    def __init__(self, now_ns: int = 0) -> None:
        """Create the view of a controller that began at `now_ns`."""
        self._began_ns = now_ns
        self.events = EventLog()
        self._drops: dict[str, int] = {}
        self._gossip: dict[str, Any] | None = None

    def begin_anew(self, now_ns: int = 0, title: str = "") -> None:
        """Switch to another controller, which began at `now_ns`."""
        self._began_ns = now_ns
        self.events.begin_anew(title, now_ns)
        self._drops = {}
        self._gossip = None

    def update_drops(self, drops: Mapping[str, int], now_ns: int) -> None:
        """Set the packets dropped so far, by reason."""
        self._drops = dict(drops)
        self.events.update_drops(drops, now_ns)

    def update_gossip(self, name: str, workers: Sequence[str], policy: GossipPolicy) -> None:
        """Set the gossip policy that workers use; rows of its matrix are in the order of `workers`."""
        self._gossip = {
            "policy": name,
            "version": policy.version,
            "workers": list(workers),
            "probabilities": policy.probabilities.round(4).tolist(),
        }

    def snapshot(self, controller: Controller, now_ns: int, doing: str = "") -> dict[str, Any]:
        """Return the present state; changes become events. `doing`: present use of the fabric, for people."""
        snapshot = controller.links.snapshot(now_ns)
        self.events.update(controller, snapshot, now_ns)
        views = [snapshot.links.get(link) for link in controller.links.links]
        rates = [controller.topology.link_at(link).rate_bps for link in controller.links.links]
        peaks = controller.links.pop_peaks().max(axis=1).tolist()
        cost = controller.telemetry_cost(now_ns - self._began_ns)
        free = controller.planner.memory.free_slots
        return {
            "time_ns": now_ns,
            "doing": doing,
            "telemetry": str(snapshot),
            "links": [
                None
                if view is None
                else [
                    round(view.rate_bps / rate, 4),
                    round(max(peak, view.queue_packets), 2),
                    round(view.latency_us, 1),
                    round(view.loss, 3),
                    None if view.age_ns is None else round(view.age_ns / 1e6, 1),
                    round(view.confidence, 2),
                    link in snapshot.stale,
                ]
                for view, rate, peak, link in zip(views, rates, peaks, controller.links.links, strict=True)
            ],
            "bounds": _bounds(controller),
            "jobs": [_job(controller, number, job, now_ns) for number, job in controller.jobs.items()],
            "switches": [
                {"name": name, "lost": name in controller.switches.lost, "free_slots": free.get(name, 0)}
                for name in controller.switches.sessions
            ],
            "gossip": self._gossip,
            "drops": self._drops,
            "overhead": asdict(cost) | {"says": str(cost)},
            "events": self.events.newest(EVENTS_SHOWN),
        }


def _bounds(controller: Controller) -> list[dict[str, Any]]:
    """Bounds of each link's queues in packets: of bulk traffic, None without one, and of traffic classes that have one.

    Classes are texts, as keys of JSON are.
    """
    budgets = controller.windows.budgets
    classes: dict[Endpoint, dict[str, int]] = {}
    for (link, priority), packets in sorted(controller.windows.class_bounds.items()):
        classes.setdefault(link, {})[str(priority)] = packets
    bulk = {link: int(budget.bound) for link, budget in budgets.items() if not budget.refusal}
    return [{"bulk": bulk.get(link), "classes": classes.get(link, {})} for link in controller.links.links]


def _job(controller: Controller, number: int, job: RunningJob, now_ns: int) -> dict[str, Any]:
    placement = job.plan.placement
    return {
        "number": number,
        "generation": job.plan.generation,
        "moving": job.move is not None,
        "workers": list(job.active),
        "server": job.spec.server,
        "tree": {**placement.aggregators, **placement.parents},
        "sums": sorted({*placement.switches, *({placement.root} - {job.spec.server})}),
        "rounds_per_s": round(job.rounds_per_second, 1),
        "says": controller.jobs.waiting_for(number, now_ns),
        "report": None if job.reports.newest is None else _report(job.reports.newest),
        "phases": asdict(job.reports.phases),
        "traffic_class": job.spec.traffic_class,
    }


def _report(report: JobReport) -> dict[str, Any]:
    """The newest report of a job's program; JSON has no NaN, so that a loss that is none becomes null."""
    values = asdict(report)
    return {name: None if isinstance(value, float) and not isfinite(value) else value for name, value in values.items()}
