"""Rules broken on purpose, in the compiled switch program and in the hosts: the schedules must convict each of them.

The switch's rules are the constant entries of its program, which can be replaced in an emulated switch, and what its
actions make of a slot's registers, which is changed in the compiled program. Rules whose breach needs a rare order of
events are broken in the exhaustive search instead (`tests.hosts.protocol.search_mutants`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final
from unittest.mock import patch

import numpy as np

from weir.controller.jobs import moves
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
    keep_the_children_of_the_former_round,
    rewritten,
    take_a_later_chunk_for_the_same,
)
from weir.tests.schedules import direct, rig
from weir.tests.schedules.direct import StatePool
from weir.wire.control import WorkerPlan

ADD: Final = 2
"""Of the switch's `Sum`."""
Row = tuple[str, int, str, int]
"""Table, index of its constant entry, action and parameter that it gets."""


@dataclass(frozen=True)
class Mutant:
    name: str
    rows: tuple[Row, ...] = ()
    rewrite: Rewrite | None = None
    """Of the compiled switch program."""
    changes: tuple[tuple[object, str, object], ...] = ()
    """Modules or classes, the name of what is replaced in them, and by what."""


def pass_any_check(check: SumCheck, rounds: IntArray, *contents: object) -> BoolArray:
    """No linear check."""
    return np.ones(len(rounds), np.bool_)


def begin_with_all_slots(core: WorkerCore, plan: WorkerPlan, options: WorkerOptions) -> None:
    """A window of all slots."""
    _begin(core, replace(plan, window=plan.slots), options)


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
    Mutant("final rounds are not fetched", changes=((moves, "settle", settle_without_fetches),)),
)


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """Everything that is made meanwhile is broken."""
    with ExitStack() as stack:
        for owner, name, new in mutant.changes:
            stack.enter_context(patch.object(owner, name, new))
        if mutant.rows:
            stack.enter_context(patch.object(StatePool, "take", lambda pool: _broken(_take(pool), mutant.rows)))
            stack.enter_context(patch.object(StatePool, "give_back", lambda pool, states: None))
        if mutant.rewrite:
            program = Program.load(rewritten(mutant.rewrite))
            for module in (direct, rig):
                stack.enter_context(patch.object(module, "fabric_program", lambda: program))
            stack.enter_context(patch.object(StatePool, "take", lambda pool: program.new_state()))
            stack.enter_context(patch.object(StatePool, "give_back", lambda pool, states: None))
        yield


_take: Final = StatePool.take


def _broken(state: ProgramState, rows: tuple[Row, ...]) -> ProgramState:
    for name, index, action, param in rows:
        table = state.tables[f"{AGGREGATION}.{name}"]
        table.constant = False
        entry = list(table.entries())[index]
        table.modify(replace(entry, action=ActionCall(f"{AGGREGATION}.{action}", (param,))))
        table.constant = True
    return state
