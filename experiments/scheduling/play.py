"""Searches on one fabric of flows, under one order: mean stage completion time, and the lower bound of it.

::

    a stage begins or ends, a job ends ─▶ demands of all that run ─▶ order ─▶ classes ─▶ Simulator.classify

The order is computed again at each of these events, as a controller would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal

import numpy as np

from ...controller.placement.model.links import Links
from ...controller.placement.model.problem import Placement
from ...controller.scheduling.bound import completion_bound
from ...controller.scheduling.classes import CLASSES, leading_classes
from ...controller.scheduling.demand import Demand, Stage, stages
from ...controller.scheduling.order import Compute
from ...topologies import Routes
from ..flows.coflows import Coflow
from ..flows.simulator import FlowJob, Simulator
from .searches import Cojob, SearchJob, coflow_of, link_seconds, placed

GUARD_SHARE: Final = 0.05

Follows = Literal["nothing", "placement", "slots"]
"""Parts of placement that follow the order: a job's tree counts only jobs that are not served after it; and a job of
the lowest class leaves half of a switch's places to others.
"""


@dataclass(slots=True)
class _Running:
    spec: SearchJob
    search: str
    begun_seconds: float
    demand: Demand
    coflow: Coflow
    placement: Placement
    flow: FlowJob | None = None

    def now(self) -> Demand:
        assert self.flow is not None
        return replace(self.demand, steps_left=float(self.spec.steps - len(self.flow.durations)))


@dataclass
class Play:
    """One run of all searches."""

    routes: Routes
    searches: Sequence[Cojob]
    order: Compute
    room: dict[str, int] | None = None
    """Places of each switch; None: plenty, and trees ignore other jobs, so that all orders have the same trees."""
    follows: Follows = "nothing"
    classes: int = CLASSES
    to_classes: Callable[..., dict[str, int]] | None = None
    """Classes from (order, demands, number); None: the first tiers have a class each."""
    stage_seconds: list[float] = field(default_factory=list)
    """Completion time of each stage that has ended."""
    search_seconds: dict[str, float] = field(default_factory=dict)
    """Time of each search from its start to the end of its last stage."""
    free: dict[str, int] | None = None
    """Free places of each switch."""

    def run(self) -> float:
        """Run all searches to their end and return the mean stage completion time in s."""
        self._simulator = Simulator(Links.of(self.routes).rate_bps, guard_share=GUARD_SHARE)
        self.free = None if self.room is None else dict(self.room)
        self._running: dict[str, _Running] = {}
        self._class_of: dict[str, int] = {}
        for search in self.searches:
            self._simulator.at(search.begun_seconds, partial(self._begin_stage, search, 0))
        wanted = sum(len(search.stages) for search in self.searches)
        while len(self.stage_seconds) < wanted:
            self._simulator.run(self._simulator.now + 1.0)
        return float(np.mean(self.stage_seconds))

    def _begin_stage(self, search: Cojob, stage: int) -> None:
        jobs = [self._demanding(search, job) for job in search.stages[stage]]
        if self.room is not None:
            self._place(jobs)
        for job in jobs:
            self._running[job.spec.name] = job
            job.flow = self._simulator.add(
                job.spec.name,
                job.spec.gradient_bytes,
                [(job.coflow, 1.0)],
                job.spec.steps,
                job.spec.compute_seconds,
                after_step=partial(self._after_step, search, stage, job),
            )
        self._reorder()

    def _demanding(self, search: Cojob, job: SearchJob) -> _Running:
        """Return a job with the tree that it has without any other job."""
        placement, now = placed(self.routes, job), self._simulator.now
        return _Running(job, search.name, now, *demand_of(self.routes, search.name, job, placement, now), placement)

    def _place(self, jobs: Sequence[_Running]) -> None:
        """Place a stage's jobs on what is left of links and slots."""
        assert self.free is not None
        assert self.room is not None
        classes = self._classes([*(job.now() for job in self._running.values()), *(job.demand for job in jobs)])
        for job in jobs:
            mine = classes[job.spec.name]
            others: Counter[int] = Counter()
            for other in (*self._running.values(), *(each for each in jobs if each is not job)):
                if self.follows == "nothing" or classes[other.spec.name] >= mine:
                    size = other.spec.gradient_bytes
                    others.update(dict(zip(other.coflow.links, other.coflow.streams * size, strict=True)))
            room = self.free
            if self.follows == "slots" and mine == 0:
                room = {switch: left - self.room[switch] // 2 for switch, left in self.free.items()}
            job.placement = placed(self.routes, job.spec, room, others)  # type: ignore[arg-type]
            self._change_free(job, -1)
            job.demand, job.coflow = demand_of(self.routes, job.search, job.spec, job.placement, job.begun_seconds)

    def _change_free(self, job: _Running, places: int) -> None:
        if self.free is not None:
            for switch in job.placement.switches:
                self.free[switch] += places

    def _after_step(self, search: Cojob, stage: int, job: _Running, flow: FlowJob) -> None:
        if not flow.ended:
            return
        del self._running[job.spec.name]
        self._change_free(job, 1)
        if not any(other.search == search.name for other in self._running.values()):
            self.stage_seconds.append(self._simulator.now - job.begun_seconds)
            if stage + 1 < len(search.stages):
                self._simulator.at(self._simulator.now, partial(self._begin_stage, search, stage + 1))
                return
            self.search_seconds[search.name] = self._simulator.now - search.begun_seconds
        self._reorder()

    def _classes(self, demands: Sequence[Demand]) -> dict[str, int]:
        order = self.order(demands)
        if self.to_classes is not None:
            return self.to_classes(order, demands, self.classes)
        return leading_classes(order, self.classes)

    def _reorder(self) -> None:
        for name, traffic_class in self._classes([job.now() for job in self._running.values()]).items():
            flow = self._running[name].flow
            assert flow is not None
            if flow.traffic_class != traffic_class:
                self._simulator.classify(flow, traffic_class)


def search_bound(routes: Routes, searches: Sequence[Cojob]) -> float:
    """Return a lower bound in s on the mean stage completion time, with trees that ignore other jobs.

    A search's stages follow one another, so the times of its stages add up to that of the whole search. The bound is
    that of the whole searches, divided by the number of stages.
    """
    whole = []
    for search in searches:
        parts = [
            stages([demand_of(routes, search.name, job, placed(routes, job))[0] for job in stage])[0]
            for stage in search.stages
        ]
        seconds = np.sum([part.seconds for part in parts], axis=0)
        floor = sum(part.floor_seconds for part in parts)
        whole.append(Stage(search.name, (), seconds, floor, search.begun_seconds, 1.0))
    return completion_bound(whole) * len(searches) / sum(len(search.stages) for search in searches)


def demand_of(
    routes: Routes, search: str, job: SearchJob, placement: Placement, begun_seconds: float = 0.0
) -> tuple[Demand, Coflow]:
    """Return the demand of a whole stage of a placed job, and its streams.

    Args:
        routes: Routes of the fabric.
        search: Name of the search that the job belongs to.
        job: The job.
        placement: Its placement.
        begun_seconds: Instant at which the stage began, in s.
    """
    coflow = coflow_of(routes, job, placement)
    demand = Demand(
        job=job.name,
        cojob=search,
        link_seconds=link_seconds(routes, job, coflow),
        steps_left=job.steps,
        compute_seconds=job.compute_seconds,
        latency_seconds=coflow.lead_seconds + coflow.trail_seconds,
        begun_seconds=begun_seconds,
        workers=len(job.workers),
    )
    return demand, coflow


def wished_room(routes: Routes, searches: Sequence[Cojob], share: float = 0.5) -> dict[str, int]:
    """Return scarce places of each switch: this share of what the first stages of all searches would take."""
    wishes: Counter[str] = Counter()
    for search in searches:
        for job in search.stages[0]:
            wishes.update(placed(routes, job).switches)
    return {switch.name: int(np.ceil(share * wishes[switch.name])) for switch in routes.topology.switches}
