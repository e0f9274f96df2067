"""Placement of a job in the present fabric: its memory, its routes without lost parts, and fallbacks if the strategy
finds no placement.

    request ─▶ the strategy's placement ─┬─▶ accepted
                                         └─ no room ─▶ fewer slots ─▶ the server with as few switches as its
                                                         fan-in allows, or any switch as root
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ...topologies.errors import TopologyError
from ...topologies.model import Endpoint, Topology
from ...topologies.routing import Routes
from ...wire.aggregation import FAN_IN
from ..errors import ControllerError, OutOfMemory, PlanError
from ..placement import Placement, PlacementError, Problem, fitted
from ..placement.model.loads import LinkLoad
from ..placement.model.pipes import place_by_pipes, summing_by_pipes
from ..placement.multi_job.joint import RunningAggregation
from ..placement.multi_job.multi_tree import shares
from ..placement.multi_job.new_jobs import JointMoves, place_jointly
from ..placement.strategies import Strategy
from ..placement.strategies.widest import WidestTree
from ..telemetry.snapshot import LinkView, Snapshot
from .completion import Expected, Step, expected_step
from .default_slots import HOST_TURN_NS, default_slots
from .generations import GenerationHistory
from .improvement import Improvement, better_alone, better_jointly
from .memory import Allotment, FabricMemory
from .plan import JobPlan, JobSpec, job_plan, with_window

FULL: Final = LinkLoad(background_bps=1e15)
"""More than any link carries: no more is left of it than the model always leaves."""
MIN_SHARE: Final = 8
"""A job may be given this fraction of the slots that it asked for, and no less."""


def loads_of(links: Snapshot) -> Mapping[Endpoint, LinkLoad]:
    """Load of each link for placement: FULL if a reading is not a number."""
    return {link: _load(view) for link, view in links.links.items()}


@dataclass(frozen=True, slots=True)
class LinkConditions:
    """Other traffic on the links that a job may use."""

    loads: Mapping[Endpoint, LinkLoad]
    """Measured load of each link that is neither this job's nor another's."""
    others: Mapping[Endpoint, float]
    """Bytes that other jobs bring onto each in a step, as planned."""
    persistence: float = 1.0
    """Share of the loads that is expected to last for a step."""

    @classmethod
    def of(cls, links: Snapshot, others: Mapping[Endpoint, float]) -> LinkConditions:
        """Build conditions from the latest measurements; a link never measured gets the mean load of the others.

        A link whose reading is not a number is assumed to be full.
        """
        return cls(loads_of(links), others)

    def discard_untrusted(self, links: Iterable[Endpoint], own_links: Collection[Endpoint]) -> LinkConditions:
        """Replace readings of these links so that they support no move: a job's `own_links` are idle, and others
        full.
        """
        untrusted = [*links, *(link for link, load in self.loads.items() if load is FULL)]
        if not untrusted:
            return self  # the same loads for all jobs, whose changes are then found once
        loads = dict(self.loads)
        for link in untrusted:
            loads[link] = LinkLoad() if link in own_links else FULL
        return replace(self, loads=loads)


@dataclass(frozen=True, slots=True)
class Grant:
    """Resources granted to a job."""

    spec: JobSpec
    """The job as it was asked for, but perhaps with fewer slots and a smaller window."""
    placement: Placement
    note: str = ""
    """Parts of the request that were not granted, and why; empty if all were."""


class Planner:
    """The fabric as jobs may use it now."""

    def __init__(
        self,
        topology: Topology,
        routes: Routes,
        strategy: Strategy,
        seed: int,
        slack: float = 0.0,
        bound: int | None = None,
        host_turn_ns: int = HOST_TURN_NS,
    ) -> None:
        """Create the planner of a fabric without jobs.

        Args:
            topology: Fabric.
            routes: Its IP routes.
            strategy: Placement strategy.
            seed: Seed of strategies that draw.
            slack: Share by which a new job's tree may be slower than the best one if it is simpler, for noise.
            bound: Limit of every queue in packets; None: no limit.
            host_turn_ns: Time of a host's turn in ns, for the default number of slots.
        """
        self.topology = topology
        self.memory = FabricMemory(topology)
        self.routes = routes
        self.strategy = strategy
        self.slack = slack
        self._bound = bound
        self._host_turn_ns = host_turn_ns
        self.histories: dict[int, GenerationHistory] = {}
        """The generations of every number that a job has or had, by that number."""
        self.out_of_reach: frozenset[str] = frozenset()
        """Switches that cannot be written to now: jobs that are placed do not use them, those that do stay."""
        self._lost: frozenset[str] = frozenset()
        self._rng = random.Random(seed)

    def update_topology(self, down: Collection[Endpoint], lost: Collection[str]) -> None:
        """Do without these links and switches from now on."""
        self._lost = frozenset(lost)
        dead = {Endpoint(name, port) for name in self._lost for port in self.topology.neighbours(name)}
        self.routes = Routes(self.topology, down=frozenset(down) | dead)

    # --- placing ---

    def grant(self, spec: JobSpec, links: LinkConditions) -> Grant:
        """Place a new job: as asked for if possible, else with fewer slots in the switches, else without them.

        Raises PlanError or PlacementError when no way is left.
        """
        placement = self._attempt(spec, spec.workers, links)
        if isinstance(placement, Placement) and (_switches(placement, spec) or not self._is_full(spec.slots)):
            return Grant(spec, placement, placement.note)
        tight = (
            str(placement)
            if isinstance(placement, ControllerError)
            else (f"no switch that could help has {spec.slots} slots free in one piece")
        )
        ideal = self._attempt(spec, spec.workers, links, everywhere=True)
        if isinstance(ideal, Placement) and not _switches(ideal, spec):
            return Grant(spec, ideal, ideal.note)
        slots = spec.slots // 2
        while slots >= max(2, spec.slots // MIN_SHARE):
            smaller = replace(with_window(spec, min(spec.window, slots // 2), self.topology), slots=slots)
            placement = self._attempt(smaller, spec.workers, links)
            if isinstance(placement, Placement) and _switches(placement, spec):
                short = f"{slots} slots and a window of {smaller.window} instead of {spec.slots} and {spec.window}"
                return Grant(smaller, placement, placement.noted(f"{short}: {tight}").note)
            slots //= 2
        placement, note = self._fall_back(spec, spec.workers, links, tight)
        return Grant(spec, placement, note)

    def default_slots(self, workers: Sequence[str], *, jobs: int = 1, sharing: int = 1) -> int:
        """Return the slots of a new job that asks for no number of them.

        Args:
            workers: Hosts of its workers.
            jobs: Number of jobs of its family, which are placed together.
            sharing: Maximum number of them with one worker in common.
        """
        return default_slots(
            self.topology,
            self.routes,
            workers,
            self._bound,
            self.memory.free_slots,
            self._host_turn_ns,
            jobs=jobs,
            sharing=sharing,
        )

    def shares(self, spec: JobSpec, links: LinkConditions, most: int) -> tuple[int, ...]:
        """Return the best division of a new job among at most `most` trees: parts in proportion, the largest first.

        A single part if no switches have room for more. Each part is then placed as a job of its own.
        """
        try:
            return shares(self.problem(spec, spec.workers, links), most)
        except PlacementError:
            return (1,)

    def place_anew(self, spec: JobSpec, workers: tuple[str, ...], links: LinkConditions) -> tuple[Placement, str]:
        """Return a placement with which a running job can continue with these workers, and its shortcomings in words.

        Raises:
            PlacementError: There is none.
        """
        placement = self._attempt(spec, workers, links)
        if isinstance(placement, Placement):
            return placement, placement.note
        return self._fall_back(spec, workers, links, str(placement))

    def better(
        self,
        plan: JobPlan,
        workers: tuple[str, ...],
        readings: Sequence[LinkConditions],
        gain: float,
        beside: Sequence[tuple[JobPlan, tuple[str, ...]]] = (),
    ) -> Callable[[], Improvement | None]:
        """Return a function that looks for a better placement of a job; it may run in another thread.

        Its result is the strategy's placement by the last reading, if that is predicted to be faster than the plan's by
        more than the share `gain`, and acceptable for the jobs beside it that can stay; otherwise None. It says how
        many earlier readings agree. The function raises PlacementError if the strategy finds no placement.

        Args:
            plan: Plan of the job.
            workers: Hosts of its workers that take part.
            readings: Conditions of the links by telemetry, oldest first.
            gain: Share of the predicted time of a step that the move must save, 0…1.
            beside: Plans and workers of the other running jobs.
        """
        problems = self._problems(plan.spec, workers, readings)
        expected = partial(self.expected, plan.spec)
        routes, lost, loads = self.routes, self._lost, readings[-1].loads

        def scene() -> list[RunningAggregation]:
            standing = [other for other in beside if _stands(routes, lost, other[0].placement, other[0].spec, other[1])]
            return [
                RunningAggregation(
                    Problem(routes, active, each.spec.server, each.spec.gradient_bytes, loads),
                    each.placement,
                    each.spec.weight,
                    each.spec.priority,
                )
                for each, active in [(plan, workers), *standing]
            ]

        return partial(better_alone, self._place, plan.placement, problems, gain, expected, scene if beside else None)

    def saving(
        self, plan: JobPlan, workers: tuple[str, ...], reading: LinkConditions, home: Placement
    ) -> Callable[[], float]:
        """Return a function that computes the seconds per step that the plan's placement saves, compared with the job's
        home.

        Args:
            plan: Plan of the job.
            workers: Hosts of its workers that take part.
            reading: Conditions of the links by telemetry.
            home: Placement that the job returns to.
        """
        problem, here = self.problem(plan.spec, workers, reading), plan.placement

        def saving() -> float:
            return self.expected(plan.spec, problem, home).seconds - self.expected(plan.spec, problem, here).seconds

        return saving

    def expected(self, spec: JobSpec, problem: Problem, placement: Placement) -> Expected:
        """Return the predicted time of a step."""
        return expected_step(problem, placement, Step.of(spec, self.topology), self._bound)

    def better_together(
        self,
        plans: Sequence[tuple[JobPlan, tuple[str, ...]]],
        movable: Sequence[bool],
        readings: Sequence[LinkConditions],
        gain: float,
    ) -> Callable[[], dict[int, Improvement]]:
        """Return a function that looks for better placements of all running jobs together, as `better` does for one.

        Its result is each job's improvement, by index in `plans`; empty if all should stay. It raises PlacementError if
        some cannot be evaluated together.

        Args:
            plans: Plan of each job, with the hosts of its workers that take part.
            movable: True for each job that may move, in the same order.
            readings: Conditions of the links by telemetry, oldest first.
            gain: Share of the predicted time that a move must save, 0…1.
        """
        return partial(better_jointly, self._place, self._scenes(plans, movable, readings), gain)

    def place_jointly(
        self, plans: Sequence[tuple[JobPlan, tuple[str, ...]]], new: Sequence[bool], links: LinkConditions
    ) -> Callable[[], JointMoves]:
        """Return a function that looks for better placements of new jobs together, around the running ones.

        Args:
            plans: Plan of each job, with the hosts of its workers that take part.
            new: True for each job that does not run yet, in the same order; the others stay.
            links: Conditions of the links by telemetry.
        """
        (jobs,) = self._scenes(plans, new, [links])
        return partial(place_jointly, jobs, self._place)

    def _scenes(
        self,
        plans: Sequence[tuple[JobPlan, tuple[str, ...]]],
        movable: Sequence[bool],
        readings: Sequence[LinkConditions],
    ) -> list[list[RunningAggregation]]:
        """All jobs by each reading."""
        problems = [self._problems(plan.spec, workers, readings) for plan, workers in plans]
        return [
            [
                RunningAggregation(problem, plan.placement, plan.spec.weight, plan.spec.priority, is_movable)
                for problem, (plan, _), is_movable in zip(by_plan, plans, movable, strict=True)
            ]
            for by_plan in zip(*problems, strict=True)
        ]

    def problem(
        self, spec: JobSpec, workers: tuple[str, ...], links: LinkConditions, everywhere: bool = False
    ) -> Problem:
        """Return the placement problem of a job.

        Args:
            spec: Specification of the job.
            workers: Hosts of its workers that take part.
            links: Conditions of the links by telemetry.
            everywhere: True to treat all switches that the job may use as empty.
        """
        room = self.memory.jobs_that_fit(spec.slots, job=spec.job)
        unreachable = self._lost | self.out_of_reach
        barred = unreachable | {name for name in room if not self.history(spec.job).may_use(name)}
        return Problem(
            routes=self.routes,
            workers=workers,
            server=spec.server,
            gradient_bytes=spec.gradient_bytes,
            loads=links.loads,
            others=links.others,
            persistence=links.persistence,
            unreachable=unreachable,
            room={name: 0 if name in barred else 1 if everywhere else count for name, count in room.items()},
        )

    def _problems(self, spec: JobSpec, workers: tuple[str, ...], readings: Sequence[LinkConditions]) -> list[Problem]:
        """One for each reading; the fabric's memory and the loads' persistence are the same in all."""
        first = self.problem(spec, workers, readings[0])
        return [first, *(replace(first, loads=reading.loads, others=reading.others) for reading in readings[1:])]

    def history(self, job: int) -> GenerationHistory:
        """Return the generations of this job's number; a new number's are empty."""
        return self.histories.setdefault(job, GenerationHistory())

    def cut_off(self, spec: JobSpec, workers: Sequence[str]) -> tuple[str, ...]:
        """Return the workers that no route leads to from the server; without one, from the largest group of workers."""
        if spec.server is not None:
            return tuple(w for w in workers if not self.routes.reaches(w, spec.server))
        groups = [tuple(w for w in workers if self.routes.reaches(w, start)) for start in workers]
        largest = max(groups, key=len, default=())
        return tuple(w for w in workers if w not in largest)

    def stands(self, placement: Placement, spec: JobSpec, workers: Collection[str]) -> bool:
        """Return True if a placement can still be used, by these workers."""
        return _stands(self.routes, self._lost, placement, spec, workers)

    def plan(self, spec: JobSpec, placement: Placement, generation: int) -> JobPlan:
        """Lay a job on the fabric, in memory that it gets, or has already.

        Raises PlanError (OutOfMemory when a switch is full) where it cannot be.
        """
        used = {*placement.aggregators.values(), *placement.parents, placement.root}
        switches = [s.name for s in self.topology.switches if s.name in used]
        if old := [name for name in switches if not self.history(spec.job).may_use(name)]:
            raise PlanError(
                f"{', '.join(old)} may still hold rounds of so long ago that they would pass for present ones; use "
                "other switches",
                place=f"job {spec.job}",
                value=tuple(old),
            )
        return self.lay(spec, placement, generation, self.memory.allot(spec.job, switches, spec.slots))

    def lay(self, spec: JobSpec, placement: Placement, generation: int, allotments: Mapping[str, Allotment]) -> JobPlan:
        """Lay a job on the fabric in memory that it has.

        Args:
            spec: Specification of the job.
            placement: Its placement.
            generation: Generation of the plan.
            allotments: Memory of the job in each switch, by name.

        Raises:
            PlanError: The placement is not possible.
        """
        try:
            return job_plan(self.topology, self.routes, spec, placement, generation, allotments)
        except TopologyError as error:
            raise PlanError(f"job {spec.job}: {error}") from None

    def _place(self, problem: Problem) -> Placement:
        return place_by_pipes(partial(self.strategy.place, rng=self._rng), problem)

    def _attempt(
        self, spec: JobSpec, workers: tuple[str, ...], links: LinkConditions, everywhere: bool = False
    ) -> Placement | ControllerError:
        if cut_off := self.cut_off(spec, workers):
            return PlacementError(
                f"job {spec.job}: no way to {', '.join(cut_off)} without the links and switches that are down"
            )
        problem = replace(self.problem(spec, workers, links, everywhere), slack=self.slack)
        try:
            placement = self._place(problem)
        except ControllerError as error:
            return error
        except TopologyError as error:
            return PlacementError.of(error).within(f"job {spec.job}")
        used = {*placement.aggregators.values(), *placement.parents, placement.root}
        full = [name for name in sorted(used) if self.topology.is_switch(name) and not problem.takes(name)]
        if full:
            return OutOfMemory(
                f"{', '.join(full)} have no {spec.slots} slots free in one piece",
                place=f"job {spec.job}",
                value=tuple(full),
            )
        return placement

    def _is_full(self, slots: int) -> bool:
        """Return True if some switch that has memory has none for so many slots."""
        room = self.memory.jobs_that_fit(slots)
        return any(not room[s.name] for s in self.topology.switches if s.slots and s.name not in self._lost)

    def _fall_back(
        self, spec: JobSpec, workers: tuple[str, ...], links: LinkConditions, tight: str
    ) -> tuple[Placement, str]:
        try:
            if self.cut_off(spec, workers):
                raise PlacementError(tight)
            problem = self.problem(spec, workers, links)
            place = partial(WidestTree().place, rng=self._rng) if spec.server is None else partial(fitted, wanted={})
            placement = place_by_pipes(place, problem)
        except ControllerError as error:
            raise PlacementError(tight if str(error) in tight else f"{tight}; and otherwise {error}") from None
        except TopologyError as error:
            raise PlacementError.of(error).within(f"job {spec.job}") from None
        if spec.server is None:
            where = f"with {placement.root} as root"
        elif placement.parents:
            where = (
                f"at its server {spec.server} and in {', '.join(placement.parents)}, since it takes {FAN_IN} children"
            )
        else:
            where = f"at its server {spec.server} alone"
        return placement, placement.noted(f"summed {where}: {tight}").note


def _stands(
    routes: Routes, lost: Collection[str], placement: Placement, spec: JobSpec, workers: Collection[str]
) -> bool:
    nodes = {*placement.aggregators.values(), *placement.parents, placement.root}
    return (
        placement.aggregators.keys() == set(workers)
        and (placement.root == spec.server or routes.topology.is_switch(placement.root))
        and not nodes.intersection(lost)
        and all(routes.reaches(a, b) and routes.reaches(b, a) for a, b in placement.edges)
        and not summing_by_pipes(placement, routes)
    )


def _load(view: LinkView) -> LinkLoad:
    """A queue is others' as far as the traffic is: a job does not flee from its own."""
    figures = (view.background_bps, view.rate_bps, view.queue_packets, view.latency_us, view.loss)
    if not all(math.isfinite(figure) and figure >= 0 for figure in figures) or view.loss > 1:
        return FULL
    others = view.background_bps / view.rate_bps if view.rate_bps > 0 else 1.0
    latency = None if view.age_ns is None else min(others, 1.0) * view.latency_us * 1e-6
    return LinkLoad(view.background_bps, others * view.queue_packets, view.loss, latency)


def _switches(placement: Placement, spec: JobSpec) -> bool:
    """Return True if any switch aggregates."""
    return placement.root != spec.server or bool(placement.parents)
