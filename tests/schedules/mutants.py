"""Rules broken on purpose, in the compiled switch program and in the hosts: the schedules must convict each of them.

The switch's rules are the constant entries of its program, which can be replaced in an emulated switch, and its actions
on a slot's registers, which are changed in the compiled program. Rules whose breach needs a rare order of events are
broken in the exhaustive search instead (`tests.hosts.protocol.search_mutants`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final
from unittest.mock import patch

import numpy as np

from weir.controller.jobs import migration
from weir.controller.jobs.registry import JobRegistry
from weir.controller.p4runtime.loading import Loading
from weir.controller.planning import admission
from weir.controller.planning.admission import messages_by_host
from weir.controller.planning.plan import JobSpec
from weir.controller.planning.slots import NumberPool
from weir.emulator.entries import ActionCall
from weir.emulator.program import Program, ProgramState
from weir.hosts.array_types import BoolArray, IntArray
from weir.hosts.protocol import worker
from weir.hosts.protocol.authentication import SumCheck
from weir.hosts.protocol.worker import WorkerCore, WorkerOptions
from weir.tests.hosts.protocol.search_mutants import accept_plan, settle_without_fetches
from weir.tests.p4src.emulated_node import AGGREGATION
from weir.tests.p4src.program_mutants import (
    Rewrite,
    add_weights_in_31_bits,
    join_jobs_in_a_slot,
    keep_the_children_of_the_former_round,
    rewritten,
    take_a_later_chunk_for_the_same,
)
from weir.tests.schedules import direct, rig
from weir.tests.schedules.direct import StatePool
from weir.tests.schedules.schedule import Schedule
from weir.wire.control import WorkerPlan

ADD: Final = 2
"""Member of the switch's `Sum`."""
Row = tuple[str, int, str, int]
"""Table, index of its constant entry, action and parameter that it gets."""


@dataclass(frozen=True)
class Mutant:
    name: str
    rows: tuple[Row, ...] = ()
    rewrite: Rewrite | None = None
    """Change of the compiled switch program."""
    changes: tuple[tuple[object, str, object], ...] = ()
    """Modules or classes, with the name to replace in each, and the replacement."""
    shows: Callable[[Schedule], bool] = lambda schedule: True
    """Predicate of the schedules that may show it: the others need not be played."""


def pass_any_check(check: SumCheck, rounds: IntArray, *contents: object) -> BoolArray:
    """No linear check."""
    return np.ones(len(rounds), np.bool_)


def begin_with_all_slots(core: WorkerCore, plan: WorkerPlan, options: WorkerOptions) -> None:
    """A window of all slots."""
    _begin(core, replace(plan, window=plan.slots), options)


def remove_with_history(jobs: JobRegistry, number: int) -> None:
    """A number that is reassigned begins with the first generation."""
    _remove(jobs, number)
    jobs._planner.histories.pop(number, None)


_remove: Final[Callable[[JobRegistry, int], None]] = JobRegistry.remove


def comes_after(schedule: Schedule, how: str) -> bool:
    """Another job of the same number."""
    return schedule.before is not None and (schedule.before.how, schedule.before.job) == (how, schedule.job)


def take_any_registers(loading: Loading, cookie: int, program: int) -> bool:
    """Registers of another controller's jobs count as the controller's own."""
    return True


def tell_only_the_last_job(specs: Iterable[JobSpec]) -> dict[str, int]:
    """A host may send what its last job sends."""
    messages: dict[str, int] = {}
    for spec in specs:
        messages |= messages_by_host([spec])
    return messages


def allot_from_the_first(pool: NumberPool, owner: Hashable, size: int) -> int:
    """All jobs have the same slots of a switch."""
    base = _allot(pool, owner, size)
    return pool.first if pool.name.endswith("slots") else base


_allot: Final[Callable[[NumberPool, Hashable, int], int]] = NumberPool.allot


def check_without_key(check: SumCheck, key: str, workers: int) -> None:
    """All jobs are checked as everybody can."""
    _make_check(check, "", workers)


_make_check: Final[Callable[[SumCheck, str, int], None]] = SumCheck.__init__

_begin: Final[Callable[[WorkerCore, WorkerPlan, WorkerOptions], None]] = WorkerCore.__init__

MUTANTS: Final = (
    Mutant("no bitmap test in the switch", (("steps", 8, "keep", ADD),)),
    Mutant("no chunk test in the switch", rewrite=take_a_later_chunk_for_the_same),
    Mutant("a round begins with the children of the former", rewrite=keep_the_children_of_the_former_round),
    Mutant("the switch adds where it should start anew", (("steps", 2, "keep", ADD),)),
    Mutant("an inner switch emits before all are there", (("steps", 5, "to_parent", ADD),)),
    Mutant("a root emits before all are there", (("steps", 5, "to_children", ADD),)),
    Mutant(
        "a window of all slots",
        changes=((worker, "check_worker_plan", accept_plan), (WorkerCore, "__init__", begin_with_all_slots)),
    ),
    Mutant(
        "no linear check in the hosts",
        changes=((SumCheck, "passes", pass_any_check), (SumCheck, "may_pass", pass_any_check)),
    ),
    Mutant("final rounds are not fetched", changes=((migration, "settle", settle_without_fetches),)),
    Mutant(
        "the switch does not ask whose round a slot holds",
        rewrite=join_jobs_in_a_slot,
        shows=lambda schedule: schedule.before is not None,
    ),
    Mutant(
        "a number that is used again begins anew",
        changes=((JobRegistry, "remove", remove_with_history),),
        shows=lambda schedule: comes_after(schedule, "ended"),
    ),
    Mutant(
        "a controller that forgot takes switches as they are",
        changes=((Loading, "accepts", take_any_registers),),
        shows=lambda schedule: comes_after(schedule, "forgotten"),
    ),
    Mutant(
        "a host may send what one of its jobs sends",
        changes=((admission, "messages_by_host", tell_only_the_last_job),),
        shows=lambda schedule: schedule.beside is not None,
    ),
    Mutant(
        "jobs overlap in a switch's memory",
        changes=((NumberPool, "allot", allot_from_the_first),),
        shows=lambda schedule: schedule.beside is not None,
    ),
    Mutant(
        "the switch adds weights in 31 bits",
        rewrite=add_weights_in_31_bits,
        shows=lambda schedule: schedule.heavy,
    ),
    Mutant(
        "keyed jobs have the public check",
        changes=((SumCheck, "__init__", check_without_key),),
        shows=lambda schedule: schedule.paired_flips > 0,
    ),
)


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """Everything that is made meanwhile is broken."""
    with ExitStack() as stack:
        for owner, name, new in mutant.changes:
            stack.enter_context(patch.object(owner, name, new))
        if mutant.rows:
            stack.enter_context(patch.object(StatePool, "acquire", lambda pool: _broken(_acquire(pool), mutant.rows)))
            stack.enter_context(patch.object(StatePool, "release", lambda pool, states: None))
        if mutant.rewrite:
            program = Program.load(rewritten(mutant.rewrite))
            for module in (direct, rig):
                stack.enter_context(patch.object(module, "fabric_program", lambda: program))
            stack.enter_context(patch.object(StatePool, "acquire", lambda pool: program.new_state()))
            stack.enter_context(patch.object(StatePool, "release", lambda pool, states: None))
        yield


_acquire: Final = StatePool.acquire


def _broken(state: ProgramState, rows: tuple[Row, ...]) -> ProgramState:
    for name, index, action, param in rows:
        table = state.tables[f"{AGGREGATION}.{name}"]
        table.constant = False
        entry = list(table.entries())[index]
        table.modify(replace(entry, action=ActionCall(f"{AGGREGATION}.{action}", (param,))))
        table.constant = True
    return state
