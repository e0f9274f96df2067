"""Validation of plans before they are applied: one clear error instead of a job that never ends."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, Generic, TypeVar

from ...wire.aggregation import FAN_IN, GENERATIONS, LANES
from ...wire.control import KEY_BYTES, Resume, ServerPlan, TrafficClass, WorkerPlan
from ...wire.frames import JOB_CLASSES, JOB_DSCPS
from ..errors import InvalidPlan

_KEY: Final = re.compile(rf"(?:[0-9a-f]{{{2 * KEY_BYTES}}})?")
_MAX_SLOTS: Final = 1 << 16
JOBS: Final = 1 << 16
"""A job's number is below it, and above 0."""
MIN_LANES: Final = 4
"""Three hold a number of 64 bits, one its counters of infinities."""
_MAX_ADDRESSES: Final = 1 << 32

Plan = TypeVar("Plan", WorkerPlan, ServerPlan)


def next_plan(who: str, resume: Resume, running: Plan, *, paused: bool) -> Plan | None:
    """Return the plan by which a host resumes, without a check of its values.

    Args:
        who: Name of the host for error messages.
        resume: Received message.
        running: Plan that the host has now.
        paused: True if the host is paused.

    Returns:
        The plan; None if it already runs, so that a repeated message has no effect.

    Raises:
        InvalidPlan: The host is not paused, or the plan is for the other kind of host.
    """
    plan = resume.plan
    if not paused and plan == running:
        return None
    if not isinstance(plan, type(running)):
        raise InvalidPlan(
            f"{who} was given a {type(plan).__name__}", place=f"job {running.job}", value=type(plan).__name__
        )
    if not paused:
        raise InvalidPlan(
            f"{who} is not paused; pause it before generation {plan.generation}", place=f"job {plan.job}", value=who
        )
    return plan


class Classified(Generic[Plan]):
    """A core whose messages have the traffic class of its plan."""

    plan: Plan

    @property
    def dscp(self) -> int:
        """Code point of its messages, by the job's traffic class."""
        return JOB_DSCPS[self.plan.traffic_class]

    def classify(self, change: TrafficClass) -> None:
        """Send in another traffic class from now on, paused or not.

        Raises:
            InvalidPlan: The change is for another job, or the class is not one of jobs. The core stays as it is.
        """
        job = self.plan.job
        if change.job != job:
            raise InvalidPlan(
                f"a change of class is for job {change.job}", place=f"job {job}: traffic_class", value=change.job
            )
        changed = replace(self.plan, traffic_class=change.priority)
        _check_class(f"job {job}", changed)
        self.plan = changed


def _check_class(who: str, plan: WorkerPlan | ServerPlan) -> None:
    if plan.traffic_class not in JOB_CLASSES:
        raise InvalidPlan(
            f"{plan.traffic_class} is not in {min(JOB_CLASSES)}…{max(JOB_CLASSES)}",
            place=f"{who}: traffic_class",
            value=plan.traffic_class,
        )


def check_worker_plan(plan: WorkerPlan, previous: WorkerPlan | None = None) -> None:
    """Raise `InvalidPlan` if a worker cannot take part by this plan, or cannot move to it from `previous`."""
    who = f"job {plan.job}, worker {plan.rank}"
    _check_common(who, plan, previous)
    if not 0 <= plan.rank < plan.workers:
        raise InvalidPlan(f"{plan.rank} is not in 0…{plan.workers - 1}", place=f"{who}: rank", value=plan.rank)
    if not 1 <= plan.window <= plan.slots // 2:
        raise InvalidPlan(
            f"{plan.window} is not in 1…{plan.slots // 2}, half of its {plan.slots} slots",
            place=f"{who}: window",
            value=plan.window,
        )
    if not _is_bit(plan.child_bit):
        raise InvalidPlan(
            f"{plan.child_bit:#x} is not one bit of {FAN_IN}", place=f"{who}: child_bit", value=plan.child_bit
        )
    if not 0 < plan.aggregator < _MAX_ADDRESSES:
        raise InvalidPlan(
            f"{plan.aggregator} is not an IPv4 address", place=f"{who}: aggregator", value=plan.aggregator
        )
    if previous is not None and plan.rank != previous.rank:
        raise InvalidPlan(
            f"{plan.rank} is not the {previous.rank} it started with", place=f"{who}: rank", value=plan.rank
        )


def check_server_plan(plan: ServerPlan, previous: ServerPlan | None = None) -> None:
    """Raise `InvalidPlan` if a parameter server cannot sum by this plan, or cannot move to it from `previous`."""
    who = f"job {plan.job}, parameter server"
    _check_common(who, plan, previous)
    if len(plan.children) > FAN_IN:
        raise InvalidPlan(
            f"{len(plan.children)} children; a node has at most {FAN_IN}",
            place=f"{who}: children",
            value=len(plan.children),
        )
    bits = [child.bit for child in plan.children]
    for child in plan.children:
        if not _is_bit(child.bit) or bits.count(child.bit) > 1:
            raise InvalidPlan(
                f"child bit {child.bit:#x} is not one bit of {FAN_IN} that no other child has",
                place=f"{who}: children",
                value=child.bit,
            )


def _check_common(who: str, plan: WorkerPlan | ServerPlan, previous: WorkerPlan | ServerPlan | None) -> None:
    if not 0 < plan.job < JOBS:
        raise InvalidPlan(f"{plan.job} is not in 1…{JOBS - 1}", place=f"{who}: job", value=plan.job)
    if not 0 < plan.generation < GENERATIONS:
        raise InvalidPlan(
            f"{plan.generation} is not in 1…{GENERATIONS - 1}", place=f"{who}: generation", value=plan.generation
        )
    if plan.workers < 1:
        raise InvalidPlan(f"{plan.workers} must be at least 1", place=f"{who}: workers", value=plan.workers)
    if not 2 <= plan.slots <= _MAX_SLOTS or plan.slots & (plan.slots - 1):
        raise InvalidPlan(
            f"{plan.slots} is not a power of two in 2…{_MAX_SLOTS}", place=f"{who}: slots", value=plan.slots
        )
    if not MIN_LANES <= plan.lanes <= LANES:
        raise InvalidPlan(f"{plan.lanes} is not in {MIN_LANES}…{LANES}", place=f"{who}: lanes", value=plan.lanes)
    if not _KEY.fullmatch(plan.key):
        raise InvalidPlan(
            f"{len(plan.key)} characters are not {KEY_BYTES} bytes in hexadecimal digits",
            place=f"{who}: key",
            value=len(plan.key),
        )
    _check_class(who, plan)
    if previous is None:
        return
    for field in ("job", "workers", "lanes"):
        if getattr(plan, field) != getattr(previous, field):
            raise InvalidPlan(
                f"{getattr(plan, field)} is not the {getattr(previous, field)} it started with",
                place=f"{who}: {field}",
                value=getattr(plan, field),
            )
    if plan.key != previous.key:
        raise InvalidPlan("is not the one it started with", place=f"{who}: key")
    if plan.generation == previous.generation:
        raise InvalidPlan(
            f"{plan.generation} is the one that was paused; a new plan needs a new one",
            place=f"{who}: generation",
            value=plan.generation,
        )


def _is_bit(value: int) -> bool:
    return 0 < value < 1 << FAN_IN and not value & (value - 1)
