"""Action profiles and selectors: members, groups, and the cells that table entries point to."""

from __future__ import annotations

import heapq
import struct
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from ..bmv2.schema import ActionProfileSchema, ActionSchema
from ..entries import (
    ActionCall,
    ActionSet,
    EntryExists,
    EntryNotFound,
    GroupRef,
    InvalidEntry,
    MemberRef,
    TableAction,
    TableFull,
)
from .memory import MemoryBlock, RetiredMemory, RowPool, write_word
from .rows import param_bytes

GroupMembers = tuple[tuple[int, int], ...]
"""The members of a group, each as (member id, weight)."""
Spread = list[tuple[int, int | None]]
"""(cell of a member, the port that it watches), one for each unit of weight."""
_NO_WATCH: Final[Mapping[int, int]] = MappingProxyType({})

_NO_ROW: Final = 0


def pack_params(schema: ActionSchema, call: ActionCall, where: str) -> bytes:
    """Return an action's parameters as its rows hold them. Raises `InvalidEntry`."""
    if len(call.params) != len(schema.params):
        raise InvalidEntry(
            f"action {call.name} takes {len(schema.params)} parameters, not {len(call.params)}",
            place=where,
            value=call.name,
        )
    parts = []
    for value, (name, width) in zip(call.params, schema.params, strict=True):
        if not 0 <= value < 1 << width:
            raise InvalidEntry(
                f"parameter {name} of {call.name} is {value}, which does not fit {width} bits", place=where, value=name
            )
        parts.append(value.to_bytes(param_bytes(width), "little"))
    return b"".join(parts)


def unpack_params(schema: ActionSchema, content: bytes) -> tuple[int, ...]:
    """Return an action's parameters from the words that hold them."""
    values, at = [], 0
    for _, width in schema.params:
        size = param_bytes(width)
        values.append(int.from_bytes(content[at : at + size], "little"))
        at += size
    return tuple(values)


class _Numbers:
    """Hands out the lowest free number."""

    def __init__(self) -> None:
        self._next = 0
        self._free: list[int] = []

    def allocate(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def free(self, number: int) -> None:
        heapq.heappush(self._free, number)


class ActionProfile:
    """Members by id, and groups of members by id if the profile is a selector.

    Among a group's members bmv2's rule chooses: hash modulo the sum of the weights, in the order of bmv2's own numbers.
    A member of weight n has n numbers, the first since it was made, the others since a group first wanted that many; a
    new number is the lowest free one. So members of weight 1 stand in the order in which they were made.
    """

    def __init__(
        self, schema: ActionProfileSchema, actions: Mapping[str, ActionSchema], retired: RetiredMemory
    ) -> None:
        self.schema = schema
        self._actions = actions
        self._retired = retired
        self._codes = {name: code for code, name in enumerate(schema.actions)}
        sizes = [sum(param_bytes(width) for _, width in actions[name].params) for name in schema.actions]
        self._rows = RowPool(8 + max(sizes, default=0), retired)
        self._cells = RowPool(16, retired)
        self._members: dict[int, ActionCall] = {}
        self._groups: dict[int, GroupMembers] = {}
        self._member_cells: dict[int, int] = {}
        self._member_rows: dict[int, int] = {}
        self._member_numbers: dict[int, list[int]] = {}
        self._numbers = _Numbers()
        self._group_cells: dict[int, int] = {}
        self._blocks: dict[int, MemoryBlock] = {}
        """The memory that holds each group's places, by the group's cell."""
        self._spreads: dict[int, Spread] = {}
        """All places of each group by its cell, those of members whose port is down among them."""
        self._ports_down: frozenset[int] = frozenset()
        self._lock = threading.RLock()
        """Guards what `set_ports_down` changes, for links go down while a control plane writes."""
        self._sets: dict[int, list[int]] = {}
        """Cells of the members of one-shot sets, by the set's cell."""
        self._set_rows: dict[int, int] = {}
        self._uses: Counter[MemberRef | GroupRef] = Counter()

    def reset(self) -> None:
        """Forget everything; the tables that refer here must be cleared first."""
        for group_id in list(self._groups):
            self.delete_group(group_id)
        for member_id in list(self._members):
            self.delete_member(member_id)

    @property
    def members(self) -> Mapping[int, ActionCall]:
        """Members by id; read-only."""
        return MappingProxyType(self._members)

    @property
    def groups(self) -> Mapping[int, GroupMembers]:
        """Groups by id; read-only, empty unless the profile is a selector."""
        return MappingProxyType(self._groups)

    # ---- members

    def add_member(self, member_id: int, call: ActionCall) -> None:
        """Add a member that calls an action.

        Raises:
            EntryExists: The id is taken.
            TableFull: The profile has no free place.
            InvalidEntry: The call is invalid.
        """
        if member_id in self._members:
            raise EntryExists(f"member {member_id} exists", place=self.schema.name, value=member_id)
        if len(self._members) >= self.schema.size:
            raise TableFull(
                f"holds {self.schema.size} members, its size", place=self.schema.name, value=self.schema.size
            )
        row = self._make_row(call)
        self._member_cells[member_id] = self._make_cell(row)
        self._member_rows[member_id] = row
        self._member_numbers[member_id] = [self._numbers.allocate()]
        self._members[member_id] = call

    def modify_member(self, member_id: int, call: ActionCall) -> None:
        """Set the action that a member calls.

        Raises:
            EntryNotFound: There is no such member.
            InvalidEntry: The call is invalid.
        """
        self._need_member(member_id)
        row = self._make_row(call)
        write_word(self._member_cells[member_id], row)
        self._rows.free(self._member_rows[member_id])
        self._member_rows[member_id] = row
        self._members[member_id] = call

    def delete_member(self, member_id: int) -> None:
        """Delete a member.

        Raises:
            EntryNotFound: There is no such member.
            InvalidEntry: An entry or a group still refers to it.
        """
        self._need_member(member_id)
        self._need_unused(MemberRef(member_id), f"member {member_id}")
        self._rows.free(self._member_rows.pop(member_id))
        self._cells.free(self._member_cells.pop(member_id))
        for number in self._member_numbers.pop(member_id):
            self._numbers.free(number)
        del self._members[member_id]

    # ---- groups

    def add_group(self, group_id: int, members: GroupMembers = (), watch: Mapping[int, int] = _NO_WATCH) -> None:
        """Add a group. `watch` gives members' ids the port whose state decides whether they are chosen from in this
        group.

        Raises `EntryExists`, `InvalidEntry`, `EntryNotFound` for an unknown member.
        """
        if not self.schema.selector:
            raise InvalidEntry("is an action profile without selector, it has no groups", place=self.schema.name)
        if group_id in self._groups:
            raise EntryExists(f"group {group_id} exists", place=self.schema.name, value=group_id)
        cell = self._make_cell(_NO_ROW)
        self._group_cells[group_id] = cell
        try:
            self._fill_group(group_id, members, watch)
        except Exception:
            self._cells.free(self._group_cells.pop(group_id))
            raise

    def modify_group(self, group_id: int, members: GroupMembers, watch: Mapping[int, int] = _NO_WATCH) -> None:
        """Set the members of a group and the ports that they watch.

        Raises:
            EntryNotFound: There is no such group.
            InvalidEntry: The members are invalid.
        """
        self._need_group(group_id)
        self._fill_group(group_id, members, watch)

    def delete_group(self, group_id: int) -> None:
        """Delete a group.

        Raises:
            EntryNotFound: There is no such group.
            InvalidEntry: An entry still refers to it.
        """
        self._need_group(group_id)
        self._need_unused(GroupRef(group_id), f"group {group_id}")
        for member_id, _ in self._groups.pop(group_id):
            self._uses[MemberRef(member_id)] -= 1
            self._free_numbers(member_id)
        cell = self._group_cells.pop(group_id)
        self._unpoint(cell)

    def set_ports_down(self, ports: Collection[int]) -> None:
        """Stop choosing members that watch one of these ports, and choose all others."""
        with self._lock:
            self._ports_down = frozenset(ports)
            for cell, spread in self._spreads.items():
                if any(port is not None for _, port in spread):
                    self._point(cell, spread)

    def _fill_group(self, group_id: int, members: GroupMembers, watch: Mapping[int, int]) -> None:
        ids = [member_id for member_id, _ in members]
        if len(set(ids)) != len(ids):
            raise InvalidEntry(f"group {group_id} names a member twice", place=self.schema.name, value=group_id)
        for member_id, weight in members:
            self._need_member(member_id)
            if weight < 1:
                raise InvalidEntry(
                    f"weight {weight} of member {member_id} is not positive", place=self.schema.name, value=weight
                )
        numbered: list[tuple[int, tuple[int, int | None]]] = []
        for member_id, weight in sorted(members):
            numbers = self._member_numbers[member_id]
            numbers += [self._numbers.allocate() for _ in range(weight - len(numbers))]
            place = (self._member_cells[member_id], watch.get(member_id))
            numbered += [(number, place) for number in numbers[:weight]]
        numbered.sort(key=lambda item: item[0])
        self._point(self._group_cells[group_id], [place for _, place in numbered])
        before = self._groups.get(group_id, ())
        for member_id, _ in before:
            self._uses[MemberRef(member_id)] -= 1
        for member_id in ids:
            self._uses[MemberRef(member_id)] += 1
        self._groups[group_id] = members
        for member_id, _ in sorted({*before, *members}):
            self._free_numbers(member_id)

    def _free_numbers(self, member_id: int) -> None:
        """Free the numbers beyond the largest weight that any group still gives this member."""
        numbers = self._member_numbers[member_id]
        if len(numbers) > 1:
            needed = max((w for group in self._groups.values() for m, w in group if m == member_id), default=1)
            while len(numbers) > needed:
                self._numbers.free(numbers.pop())

    # ---- contents of table entries

    def attach(self, action: TableAction) -> int:
        """Return the cell for an entry's action, counted as used. Raises `EntryNotFound`, `InvalidEntry`,
        `TableFull`.
        """
        match action:
            case MemberRef(member_id):
                self._need_member(member_id)
                cell = self._member_cells[member_id]
            case GroupRef(group_id):
                self._need_group(group_id)
                cell = self._group_cells[group_id]
            case ActionSet():
                return self._attach_set(action)
            case _:
                raise InvalidEntry(
                    f"entries refer to a member, a group or an action set, not {action}",
                    place=self.schema.name,
                    value=action,
                )
        self._uses[action] += 1
        return cell

    def detach(self, action: TableAction, cell: int) -> None:
        """Release a cell whose entry is gone."""
        if not isinstance(action, ActionSet):
            assert isinstance(action, (MemberRef, GroupRef))
            self._uses[action] -= 1
            return
        for member in self._sets.pop(cell):
            self._rows.free(self._set_rows.pop(member))
            self._cells.free(member)
        self._unpoint(cell)

    def _attach_set(self, action: ActionSet) -> int:
        if not self.schema.selector:
            raise InvalidEntry("is an action profile without selector, it takes no action sets", place=self.schema.name)
        if any(choice.weight < 1 for choice in action.actions):
            raise InvalidEntry("an action set's weights must be positive", place=self.schema.name)
        if sum(choice.weight for choice in action.actions) > self.schema.size:
            raise TableFull(
                f"an action set weighs more than {self.schema.size}, the profile's size",
                place=self.schema.name,
                value=self.schema.size,
            )
        for choice in action.actions:
            self._check(choice.call)
        members = []
        spread: Spread = []
        for choice in action.actions:
            row = self._make_row(choice.call)
            member = self._make_cell(row)
            self._set_rows[member] = row
            members.append(member)
            port = int.from_bytes(choice.watch_port, "big") if choice.watch_port else None
            spread += [(member, port)] * choice.weight
        cell = self._make_cell(_NO_ROW)
        self._sets[cell] = members
        self._point(cell, spread)
        return cell

    # ---- memory

    def _check(self, call: ActionCall) -> bytes:
        if call.name not in self._codes:
            allowed = ", ".join(self.schema.actions)
            raise InvalidEntry(f"has no action {call.name}; it has {allowed}", place=self.schema.name, value=call.name)
        return pack_params(self._actions[call.name], call, self.schema.name)

    def _make_row(self, call: ActionCall) -> int:
        content = struct.pack("<Q", self._codes.get(call.name, 0)) + self._check(call)
        row = self._rows.allocate()
        self._rows.write(row, content)
        return row

    def _make_cell(self, value: int) -> int:
        cell = self._cells.allocate()
        write_word(cell, value)
        return cell

    def _point(self, cell: int, spread: Spread) -> None:
        """Publish a group: the cells of its members' places, without those whose port is down."""
        with self._lock:
            self._spreads[cell] = spread
            members = [member for member, port in spread if port not in self._ports_down]
            block = MemoryBlock(8 * (len(members) + 1))
            block.bytes.view(np.uint64)[:] = [len(members), *members]
            write_word(cell, block.address + 1)
            old = self._blocks.get(cell)
            if old is not None:
                self._retired.bury(old)
            self._blocks[cell] = block

    def _unpoint(self, cell: int) -> None:
        """A group's cell is free again."""
        with self._lock:
            del self._spreads[cell]
            self._retired.bury(self._blocks.pop(cell))
            self._cells.free(cell)

    def _need_member(self, member_id: int) -> None:
        if member_id not in self._members:
            raise EntryNotFound(f"no member {member_id}", place=self.schema.name, value=member_id)

    def _need_group(self, group_id: int) -> None:
        if group_id not in self._groups:
            raise EntryNotFound(f"no group {group_id}", place=self.schema.name, value=group_id)

    def _need_unused(self, reference: MemberRef | GroupRef, what: str) -> None:
        if self._uses[reference] > 0:
            raise InvalidEntry(f"{what} is still referred to", place=self.schema.name)
