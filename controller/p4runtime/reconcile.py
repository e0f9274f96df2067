"""Replacement of a switch's contents by its target state, with the fewest updates, in an order that is safe under
traffic.

An entry may refer to another: a member leads to its job, a job and a parent to a multicast group, a group to its
replicas. A route leads to a choice of next hops, a choice to each of them. A model's number leads to its trees, and
trees to its features. So referring entries are deleted first and inserted last::

    delete members, parents │ delete jobs │ write next hops, then choices, routes and the rest, then groups │ write jobs
    │ write members, parents │ write, then delete models' numbers │ delete trees
    │ delete groups, the rest, choices, next hops

At no moment does a member lead to a missing job, nor a job to a missing group, nor a sample to another class than a
model's. The actual state is read back each time: applying a plan twice writes nothing the second time, and changes by
others are corrected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import ControllerError
from .entries import ActionGroup, Entry, Group, Item, ProfileMember, SwitchState
from .session import SwitchSession
from .tables import JOBS, MEMBERS, MODELS, PARENTS, TREE


@dataclass(frozen=True, slots=True)
class Diff:
    """Updates that one switch needs. Empty (false) when it has its target state."""

    inserts: tuple[Item, ...] = ()
    modifies: tuple[tuple[Item, Item], ...] = ()
    """(is, should be)."""
    deletes: tuple[Item, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.inserts or self.modifies or self.deletes)

    def __len__(self) -> int:
        """Number of updates."""
        return len(self.inserts) + len(self.modifies) + len(self.deletes)

    def __str__(self) -> str:
        """One line per difference: `-` is there and should not be, `+` the reverse, `~` is there otherwise."""
        lines = [f"- {item}" for item in self.deletes] + [f"+ {item}" for item in self.inserts]
        lines += [f"~ {new}   (is: {str(old).split(' -> ', 1)[1]})" for old, new in self.modifies]
        return "\n".join(lines)


def difference(actual: SwitchState, desired: SwitchState) -> Diff:
    """Return the least set of updates from one state to another. Default actions can only be modified."""
    inserts: list[Item] = []
    modifies: list[tuple[Item, Item]] = []
    for key, item in desired.items.items():
        old = actual.items.get(key)
        if old is None and isinstance(item, Entry) and item.default:
            old = Entry(item.table, (), (), default=True)
        if old is None:
            inserts.append(item)
        elif old != item:
            modifies.append((old, item))
    deletes = [
        item
        for key, item in actual.items.items()
        if key not in desired.items and not (isinstance(item, Entry) and item.default)
    ]
    return Diff(tuple(inserts), tuple(modifies), tuple(deletes))


async def reconcile(session: SwitchSession, desired: SwitchState) -> Diff:
    """Make the switch hold exactly `desired`; return the changes.

    Raises:
        ControllerError: The switch failed or refused; a repeated call continues from there.
    """
    diff = await verify(session, desired)
    await write_difference(session, diff)
    return diff


async def write_difference(session: SwitchSession, diff: Diff) -> None:
    """Write the updates in the safe order.

    Raises:
        ControllerError: The switch failed or refused; earlier updates are not undone.
    """
    for stage in in_order(diff):
        if stage:
            await session.write_updates(
                deletes=stage.deletes, modifies=[new for _, new in stage.modifies], inserts=stage.inserts
            )


async def verify(session: SwitchSession, desired: SwitchState) -> Diff:
    """Read the whole state back; return the differences from `desired`."""
    return difference(await _read(session, desired), desired)


async def reconcile_all(
    sessions: Mapping[str, SwitchSession], desired: Mapping[str, SwitchState]
) -> Mapping[str, Diff]:
    """Reconcile every switch of the plan at once. All are tried; then the first error is raised, if any."""
    if missing := desired.keys() - sessions.keys():
        raise ControllerError(
            f"no session with {', '.join(sorted(missing))}, which the plan writes to", value=tuple(sorted(missing))
        )
    names = sorted(desired)
    results = await asyncio.gather(*(reconcile(sessions[n], desired[n]) for n in names), return_exceptions=True)
    diffs: dict[str, Diff] = {}
    for name, result in zip(names, results, strict=True):
        if isinstance(result, BaseException):
            raise result
        diffs[name] = result
    return diffs


async def _read(session: SwitchSession, desired: SwitchState) -> SwitchState:
    defaults = [item.table for item in desired.items.values() if isinstance(item, Entry) and item.default]
    profiles = sorted({item.profile for item in desired.items.values() if isinstance(item, ProfileMember)})
    return await session.read(defaults, profiles)


def in_order(diff: Diff) -> list[Diff]:
    """Return the updates in parts, in the safe order; parts may be empty."""

    def of(*tables: str) -> Callable[[Item], bool]:
        return lambda item: isinstance(item, Entry) and item.table in tables

    def is_a(kind: type[Item]) -> Callable[[Item], bool]:
        return lambda item: isinstance(item, kind)

    leads, jobs, models, trees = of(MEMBERS, PARENTS), of(JOBS), of(MODELS), of(*TREE)
    later = of(MEMBERS, PARENTS, JOBS, MODELS)

    def rest(item: Item) -> bool:
        return not (later(item) or isinstance(item, Group | ActionGroup | ProfileMember))

    def rest_without_trees(item: Item) -> bool:
        return rest(item) and not trees(item)

    def writes(wanted: Callable[[Item], bool]) -> Diff:
        return Diff(tuple(filter(wanted, diff.inserts)), tuple(m for m in diff.modifies if wanted(m[1])))

    def removes(wanted: Callable[[Item], bool]) -> Diff:
        return Diff(deletes=tuple(filter(wanted, diff.deletes)))

    return [
        removes(leads),
        removes(jobs),
        writes(is_a(ProfileMember)),
        writes(is_a(ActionGroup)),
        writes(rest),
        writes(is_a(Group)),
        writes(jobs),
        writes(leads),
        writes(models),
        removes(models),
        removes(trees),
        removes(is_a(Group)),
        removes(rest_without_trees),
        removes(is_a(ActionGroup)),
        removes(is_a(ProfileMember)),
    ]
