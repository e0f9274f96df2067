"""Rules broken on purpose, in the compiled switch program and in the hosts: the schedules must convict each of them.

The switch's rules are the constant entries of its program; in an emulated switch they can be replaced. Rules whose
breach needs a rare order of events are broken in the exhaustive search instead (`tests.hosts.protocol.search_mutants`).
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
from weir.emulator.program import ProgramState
from weir.hosts.array_types import BoolArray
from weir.hosts.protocol import worker
from weir.hosts.protocol.messages import Messages
from weir.hosts.protocol.worker import WorkerCore, WorkerOptions
from weir.tests.hosts.protocol.search_mutants import accept_plan, settle_without_fetches
from weir.tests.p4src.emulated_node import AGGREGATION
from weir.tests.schedules.direct import StatePool
from weir.wire.control import WorkerPlan

SAME: Final = 1
"""Of the switch's `Freshness`."""
Row = tuple[str, int, str, int]
"""Table, index of its constant entry, action and parameter that it gets."""


@dataclass(frozen=True)
class Mutant:
    name: str
    rows: tuple[Row, ...] = ()
    changes: tuple[tuple[object, str, object], ...] = ()
    """Modules or classes, the name of what is replaced in them, and by what."""


def pass_any_check(messages: Messages) -> BoolArray:
    """No linear check."""
    return np.ones(len(messages), np.bool_)


def begin_with_all_slots(core: WorkerCore, plan: WorkerPlan, options: WorkerOptions) -> None:
    """A window of all slots."""
    _begin(core, replace(plan, window=plan.slots), options)


_begin: Final[Callable[[WorkerCore, WorkerPlan, WorkerOptions], None]] = WorkerCore.__init__

MUTANTS: Final = (
    Mutant("no bitmap test in the switch", (("steps", 5, "add", 0),)),
    Mutant("no chunk test in the switch", (("serial", 3, "judge", SAME),)),
    Mutant("the switch adds where it should start anew", (("steps", 0, "add", 0),)),
    Mutant("the switch emits before all are there", (("steps", 3, "add", 1),)),
    Mutant(
        "a window of all slots",
        changes=((worker, "check_worker_plan", accept_plan), (WorkerCore, "__init__", begin_with_all_slots)),
    ),
    Mutant("no linear check in the hosts", changes=((Messages, "pass_check", pass_any_check),)),
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
