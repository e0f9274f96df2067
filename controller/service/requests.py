"""Operators' requests and their answers: conversion between the control service's messages and the controller's state.
Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ...errors.texts import printable
from ...topologies.model import Host, Topology
from ...wire import control_pb2 as pb
from ...wire.control_messages import report_message, to_host
from ...wire.frames import BULK_PRIORITY
from ..errors import PlanError
from ..inference.models import Models
from ..jobs.job import RunningJob
from ..jobs.job_order import Ranking
from ..jobs.queue import Needs, QueueEntry, Wanted
from ..placement.multi_job.multi_tree import MAX_STRIPES
from ..planning.default_slots import MIN_SLOTS
from ..planning.plan import FailurePolicy, JobPlan, JobSpec
from .seats import JobSeats

_DEFAULT_GRADIENT_BYTES: Final = 1 << 20

_POLICIES: Final = {
    pb.CONTINUE: FailurePolicy.CONTINUE,
    pb.WAIT: FailurePolicy.WAIT,
    pb.ABORT: FailurePolicy.ABORT,
}
_POLICY_NUMBERS: Final = {policy: number for number, policy in _POLICIES.items()}


def job_spec(
    request: pb.RegisterRequest,
    number: int,
    topology: Topology,
    default_slots: Callable[[Sequence[str]], int],
    key: str = "",
) -> JobSpec:
    """Return the requested job, whose hosts check sums by this key.

    Args:
        request: The request.
        number: The job's number.
        topology: The fabric.
        default_slots: Returns the slots of a job that asks for none, given its workers.
        key: The hosts' secret, hexadecimal.

    Raises:
        PlanError, TopologyError: The job is impossible.
    """
    if request.policy not in _POLICIES:
        raise PlanError(f"job {number}: policy {request.policy} is unknown; supported: {', '.join(pb.Policy.keys())}")
    if request.stripes > MAX_STRIPES:
        raise PlanError(f"job {number}: stripes {request.stripes} is not in 1…{MAX_STRIPES}")
    if request.stripes > 1 and request.server:
        raise PlanError(f"job {number}: stripes have switches as roots; leave out server {request.server}, or stripes")
    if request.traffic_class > BULK_PRIORITY:
        _check_classes(request.traffic_class, number, topology)
    for host in [*request.workers, *([request.server] if request.server else []), *request.spares]:
        topology.host(host)
    slots = request.slots or (default_slots(request.workers) if request.workers else MIN_SLOTS)
    return JobSpec(
        number,
        tuple(request.workers),
        request.server or None,
        slots,
        request.window or slots // 2,
        request.gradient_bytes or _DEFAULT_GRADIENT_BYTES,
        policy=_POLICIES[request.policy],
        min_workers=request.min_workers or 1,
        spares=tuple(request.spares),
        weight=request.weight or 1.0,
        priority=request.priority,
        key=key,
        classes=(request.traffic_class or BULK_PRIORITY,),
        keeps_class=request.traffic_class > 0,
    )


def _check_classes(traffic_class: int, number: int, topology: Topology) -> None:
    """Raise PlanError if some switch has no class but that of bulk traffic for jobs."""
    for switch in topology.switches:
        if not switch.target.job_classes:
            raise PlanError(
                f"traffic class {traffic_class} is not on switch {switch.name}, which has one class for all jobs",
                place=f"job {number}",
                value=traffic_class,
                allowed=(BULK_PRIORITY,),
            )


def group_specs(
    request: pb.RegisterRequest,
    first: JobSpec,
    numbers: Sequence[int],
    default_slots: Callable[..., int],
    new_key: Callable[[], str],
) -> list[JobSpec]:
    """Return a job with its groups, one family whose jobs divide slots among them.

    Args:
        request: The request.
        first: The job.
        numbers: Numbers of the groups' jobs.
        default_slots: `Planner.default_slots`, for a request that names no number of slots.
        new_key: Returns a new secret for the hosts of one job.

    Raises:
        PlanError: A group is impossible.
    """
    for name, value in (("parent", request.parent), ("stripes", request.stripes > 1), ("server", request.server)):
        if value:
            given = getattr(request, name)
            raise PlanError(
                f"groups and {name} {given} exclude each other; register groups by their parent's number",
                place=f"job {first.job}",
                value=given,
            )
    members: list[tuple[str, ...]] = []
    for index, group in enumerate(request.groups):
        ranks = list(group.ranks)
        if not ranks or len({*ranks}) < len(ranks) or max(ranks) >= len(first.workers):
            raise PlanError(
                f"group {index} has ranks {', '.join(map(str, ranks)) or 'none'}; give distinct ones of "
                f"0…{len(first.workers) - 1}",
                place=f"job {first.job}",
                value=tuple(ranks),
            )
        members.append(tuple(first.workers[rank] for rank in ranks))
    together = [first.workers, *members]
    sharing = max(Counter(worker for workers in together for worker in workers).values())
    specs = []
    for number, workers in zip((first.job, *numbers), together, strict=True):
        slots = request.slots or default_slots(workers, jobs=len(together), sharing=sharing)
        spec = replace(first, workers=workers, slots=slots, window=request.window or slots // 2)
        specs.append(spec if number == first.job else replace(spec, job=number, key=new_key(), min_workers=1))
    return specs


def needs_of(request: pb.RegisterRequest) -> Needs:
    """Return the resources that each requested worker takes."""
    return Needs(request.accelerators or 1, request.memory_bytes)


def is_queued(request: pb.RegisterRequest) -> bool:
    """Return True if a job may have to wait for room: it says what its workers need."""
    return bool(request.worker_count or request.accelerators or request.memory_bytes)


def wanted_of(request: pb.RegisterRequest) -> Wanted:
    """Return the hosts that a job asks for."""
    others = [*([request.server] if request.server else []), *request.spares]
    count = request.worker_count or len(request.workers)
    return Wanted(count, needs_of(request), tuple(request.workers), tuple(others))


def queued_job(entry: QueueEntry[Any], position: int, now_ns: int) -> pb.QueuedJob:
    """Return the state of one waiting job in a list of jobs."""
    return pb.QueuedJob(
        job=entry.job,
        position=position,
        reason=printable(entry.reason),
        waited_seconds=(now_ns - entry.since_ns) / 1e9,
        worker_count=entry.wanted.count,
        accelerators=entry.wanted.needs.accelerators,
        memory_bytes=entry.wanted.needs.memory_bytes,
        priority=entry.priority,
    )


def stripe_of(spec: JobSpec, shares: Sequence[int], index: int) -> JobSpec:
    """Return the job of one stripe, whose gradient has the stripe's share of the bytes.

    Args:
        spec: The whole job.
        shares: Relative share of the chunks per stripe.
        index: Index of the stripe.
    """
    return replace(spec, gradient_bytes=max(1, round(spec.gradient_bytes * shares[index] / sum(shares))))


def _stripes(shares: Mapping[int, int]) -> list[pb.Stripe]:
    return [pb.Stripe(job=job, share=share) for job, share in shares.items()]


def registration(plan: JobPlan, seats: JobSeats, note: str) -> pb.Registration:
    """Answer to the registration of a job."""
    return pb.Registration(
        job=seats.job,
        seats=[pb.Seat(host=seat.host, rank=seat.rank, token=seat.token) for seat in seats.seats.values()],
        slots=plan.spec.slots,
        window=plan.spec.window,
        note=note,
        stripes=_stripes(seats.stripes),
    )


def job_state(
    running: RunningJob, seats: JobSeats, waiting_for: str, ranking: pb.Ranking | None, turns: str, now_ns: int
) -> pb.JobState:
    """Return the state of one job in a list of jobs.

    Args:
        running: The job.
        seats: Its seats.
        waiting_for: Description of what the job waits for, for people; empty if it waits for nothing.
        ranking: Place of the job in the order of jobs; None: it has none.
        turns: Description of its turns on shared devices, for people.
        now_ns: Present time, in ns.
    """
    plan, newest = running.plan, running.reports.newest
    hosts = [
        pb.HostState(
            host=seat.host,
            rank=seat.rank,
            attending=seat.stream is not None,
            rounds=seat.rounds,
            silent_seconds=-1.0 if seat.heard_ns is None else (now_ns - seat.heard_ns) / 1e9,
        )
        for seat in seats.seats.values()
    ]
    return pb.JobState(
        job=seats.job,
        generation=plan.generation,
        hosts=hosts,
        switches=sorted(plan.switches),
        slots=plan.spec.slots,
        window=plan.spec.window,
        policy=_POLICY_NUMBERS[plan.spec.policy],
        rounds=min((seats.seats[host].rounds for host in plan.workers), default=0),
        waiting_for=waiting_for,
        stripes=_stripes(seats.stripes),
        report=None if newest is None else report_message(newest),
        parent=seats.parent,
        accelerators=seats.needs.accelerators,
        memory_bytes=seats.needs.memory_bytes,
        ranking=ranking,
        turns=turns,
        traffic_class=plan.spec.traffic_class,
        keeps_class=plan.spec.keeps_class,
    )


def ranking_message(order: str, ranking: Ranking | None) -> pb.Ranking | None:
    """Place of one job in a list of jobs; None for a job that has none yet."""
    if ranking is None:
        return None
    return pb.Ranking(
        order=order,
        place=ranking.place,
        places=ranking.tiers,
        traffic_class=ranking.traffic_class,
        why=printable(ranking.why),
    )


def joined(host: Host, seats: JobSeats, heartbeat_ns: int, heartbeats_to: int) -> pb.Joined:
    """Return the answer to a host that takes a seat.

    Args:
        host: The host.
        seats: Seats of the job.
        heartbeat_ns: Time between two heartbeats that the host should send, in ns.
        heartbeats_to: IPv4 address that receives heartbeats through the fabric, as a number; 0: the stream carries
            them.
    """
    seat = seats.seats[host.name]
    first = next(iter(seats.stripes), None) == seats.job
    return pb.Joined(
        host=seat.host,
        address=int(host.address),
        heartbeat_ns=heartbeat_ns,
        spare=seat.spare,
        heartbeats_to=heartbeats_to,
        stripes=_stripes(seats.stripes) if first else (),
    )


def first_messages(running: RunningJob) -> dict[str, pb.ToHost]:
    """Return the initial messages per host that has no plan yet."""
    return {host: to_host(part) for host, part in running.plan.host_plans(running.first_round).items()}


def model_list(models: Models, topology: Topology) -> pb.ModelList:
    """Return the model of each switch, in the order of names."""
    return pb.ModelList(
        models=[
            pb.ModelState(
                switch_name=name,
                number=loaded.forest.number,
                trees=len(loaded.forest.trees),
                classes=len(loaded.forest.classes),
                features=loaded.forest.n_features,
                rows=sum(1 for tree in loaded.forest.trees for _ in tree.leaves()),
                numbers=loaded.forest.edges is not None,
                address=int(topology.switch(name).address),
            )
            for name, loaded in sorted(models.held.items())
        ]
    )
