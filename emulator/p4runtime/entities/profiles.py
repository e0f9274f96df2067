"""Action profiles and selectors: members, groups and one-shot action sets.

The switch holds members and groups. Kept here is what P4Runtime wants back unchanged (group sizes and watch ports)
and which entries program the selector in one shot: one selector is programmed by members and groups or in one shot,
never both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Final, TypeVar

from finsy.proto import p4i, p4r

from ...entries import ActionSet as OneShot
from ...entries import GroupRef, MemberRef, TableAction, WeightedAction
from ...program import ActionProfile
from .. import bytestring
from ..refusal import Code, Refusal, invalid, unimplemented
from .actions import ScopedActions
from .replication import PORT_WIDTH

_Set = p4r.ActionProfileActionSet
_Watching = p4r.ActionProfileAction | p4r.ActionProfileGroup.Member
_MAX_WEIGHT: Final = 1 << 16
_Thing = TypeVar("_Thing")


class ProfileService:
    """One action profile of the P4Info, bound to one switch's memory."""

    def __init__(
        self, info: p4i.ActionProfile, state: ActionProfile, actions: ScopedActions, is_port: Callable[[int], bool]
    ) -> None:
        """Create the service.

        Args:
            info: Action profile of the P4Info.
            state: Action profile of the switch.
            actions: Actions that its members may have.
            is_port: Returns True for ports that can be watched.
        """
        self.id = info.preamble.id
        self.name = info.preamble.name
        self.selector = info.with_selector
        self._info = info
        self._state = state
        self._actions = actions
        self._is_port = is_port
        self._references: dict[Hashable, TableAction] = {}
        self._users: Counter[TableAction] = Counter()
        self._one_shots = 0
        self._groups: dict[int, p4r.ActionProfileGroup] = {}

    # -- table entries that use the profile

    def decode_reference(self, table: str, message: p4r.TableAction) -> TableAction:
        """Return the action of an entry in an indirect table. Raises `EmulatorError`."""
        match message.WhichOneof("type"):
            case "action_profile_member_id":
                self._check_style(table, one_shot=False)
                member_id = message.action_profile_member_id
                if member_id not in self._state.members:
                    raise Refusal(Code.NOT_FOUND, f"{self.name} has no member {member_id}")
                return MemberRef(member_id)
            case "action_profile_group_id":
                self._check_selector()
                self._check_style(table, one_shot=False)
                group_id = message.action_profile_group_id
                if group_id not in self._groups:
                    raise Refusal(Code.NOT_FOUND, f"{self.name} has no group {group_id}")
                return GroupRef(group_id)
            case "action_profile_action_set":
                self._check_selector()
                self._check_style(table, one_shot=True)
                return self._decode_one_shot(message.action_profile_action_set)
            case kind:
                raise invalid(
                    f"{table} uses the action profile {self.name}: its entries need a member, a group or "
                    f"an action set, not {kind}"
                )

    def note_entry(self, table: str, key: Hashable, action: TableAction) -> None:
        """Note that a table entry uses this profile."""
        self.remove_entry(table, key)
        self._references[table, key] = action
        if isinstance(action, OneShot):
            self._one_shots += 1
        else:
            self._users[action] += 1

    def remove_entry(self, table: str, key: Hashable) -> None:
        """Note that a table entry does not use this profile any more."""
        action = self._references.pop((table, key), None)
        if isinstance(action, OneShot):
            self._one_shots -= 1
        elif action is not None:
            self._users[action] -= 1

    def encode_one_shot(self, action: OneShot) -> _Set:
        """Encode the weighted actions of a table entry as P4Runtime's action set."""
        message = _Set()
        message.action_selection_mode = _Set.ActionSelectionMode.ValueType(action.selection_mode)
        message.size_semantics = _Set.SizeSemantics.ValueType(action.size_semantics)
        for weighted in action.actions:
            item = message.action_profile_actions.add()
            call = self._actions.encode(weighted.call)
            if call is not None:
                item.action.CopyFrom(call)
            item.weight = 0 if self._info.weights_disallowed else weighted.weight
            if weighted.numeric_watch:
                item.watch = int.from_bytes(weighted.watch_port, "big")
            elif weighted.watch_port:
                item.watch_port = weighted.watch_port
        return message

    def _check_style(self, user: str, *, one_shot: bool) -> None:
        if one_shot and (self._state.members or self._groups):
            raise invalid(f"{user}: {self.name} is programmed by members and groups; one-shot sets cannot be mixed in")
        if not one_shot and self._one_shots:
            raise invalid(f"{user}: {self.name} is programmed in one shot; members and groups cannot be mixed in")

    def _check_selector(self) -> None:
        if not self.selector:
            raise invalid(f"{self.name} is an action profile without a selector: it has members, but no groups")

    def _decode_one_shot(self, message: _Set) -> OneShot:
        if message.action_selection_mode == _Set.RANDOM:
            raise unimplemented(f"{self.name}: this switch selects by hash only")
        if message.action_selection_mode not in (_Set.DEFAULT_MODE_DETERMINED_BY_ACTION_SELECTOR, _Set.HASH):
            raise invalid(f"{self.name}: there is no action selection mode {message.action_selection_mode}")
        if message.size_semantics not in _Set.SizeSemantics.values():
            raise invalid(f"{self.name}: there are no size semantics {message.size_semantics}")
        by_members = self._by_members
        if message.size_semantics != _Set.DEFAULT_SIZE_DETERMINED_BY_ACTION_SELECTOR:
            by_members = message.size_semantics == _Set.SUM_OF_MEMBERS
        actions = []
        for item in message.action_profile_actions:
            watch, numeric = self._watch(item), item.WhichOneof("watch_kind") == "watch"
            weight = self._weight(item.weight, by_members)
            kept = b"" if watch is None else bytestring.encode(watch)
            actions.append(WeightedAction(self._actions.decode(item.action), weight, kept, numeric))
        weights = [action.weight for action in actions]
        self._check_size(weights, by_members, self._info.max_group_size, Code.INVALID_ARGUMENT)
        return OneShot(tuple(actions), message.action_selection_mode, message.size_semantics)

    @property
    def _by_members(self) -> bool:
        """True if a group's size is the number of its members; else it is the sum of their weights."""
        return self._info.WhichOneof("selector_size_semantics") == "sum_of_members"

    def _watch(self, item: _Watching) -> int | None:
        """The port that a member or an action watches. Raises `Refusal`."""
        if item.watch_port:
            port = bytestring.decode(item.watch_port, PORT_WIDTH, f"{self.name}: watch port")
        elif item.watch:  # deprecated
            port = item.watch
        else:
            return None
        if not self._is_port(port):
            raise invalid(f"{self.name}: the switch has no port {port} to watch")
        return port

    def _weight(self, weight: int, by_members: bool) -> int:
        if self._info.weights_disallowed:
            if weight:
                raise invalid(f"{self.name} has no weights; weight is {weight}")
            return 1
        if not 0 < weight <= _MAX_WEIGHT:
            raise invalid(f"{self.name}: weight {weight} is not in 1 to {_MAX_WEIGHT}")
        largest = self._info.sum_of_members.max_member_weight
        if by_members and largest and weight > largest:
            raise invalid(f"{self.name}: weight {weight} is above max_member_weight {largest}")
        return weight

    def _check_size(self, weights: list[int], by_members: bool, limit: int, code: Code) -> None:
        size = len(weights) if by_members else sum(weights)
        if limit and size > limit:
            raise Refusal(code, f"{self.name}: a group of size {size} is above its limit of {limit}")

    # -- members

    def write_member(self, kind: p4r.Update.Type.ValueType, member: p4r.ActionProfileMember) -> None:
        """INSERT, MODIFY or DELETE one member. Raises `EmulatorError`."""
        member_id = member.member_id
        if not member_id:
            raise invalid(f"{self.name}: member id 0 stands for all members; it cannot be written")
        present = member_id in self._state.members
        if kind == p4r.Update.DELETE:
            self._check_present(present, "member", member_id)
            self._check_unused(MemberRef(member_id))
            for group in self._groups.values():
                if any(item.member_id == member_id for item in group.members):
                    raise Refusal(
                        Code.FAILED_PRECONDITION, f"{self.name}: member {member_id} is in group {group.group_id}"
                    )
            self._state.delete_member(member_id)
            return
        self._check_style("member", one_shot=False)
        if not member.HasField("action"):
            raise invalid(f"{self.name}: member {member_id} needs an action")
        call = self._actions.decode(member.action)
        if kind == p4r.Update.INSERT:
            self._check_absent(present, "member", member_id)
            self._state.add_member(member_id, call)
        else:
            self._check_present(present, "member", member_id)
            self._state.modify_member(member_id, call)

    def read_members(self, member_id: int) -> Iterator[p4r.Entity]:
        """Yield the member with this id, or all members for id 0."""
        for number, call in self._selected("member", member_id, self._state.members):
            entity = p4r.Entity()
            message = entity.action_profile_member
            message.action_profile_id, message.member_id = self.id, number
            action = self._actions.encode(call)
            if action is not None:
                message.action.CopyFrom(action)
            yield entity

    # -- groups

    def write_group(self, kind: p4r.Update.Type.ValueType, group: p4r.ActionProfileGroup) -> None:
        """INSERT, MODIFY or DELETE one group. Raises `EmulatorError`."""
        self._check_selector()
        group_id = group.group_id
        if not group_id:
            raise invalid(f"{self.name}: group id 0 stands for all groups; it cannot be written")
        present = group_id in self._groups
        if kind == p4r.Update.DELETE:
            self._check_present(present, "group", group_id)
            self._check_unused(GroupRef(group_id))
            self._state.delete_group(group_id)
            del self._groups[group_id]
            return
        self._check_style("group", one_shot=False)
        if kind == p4r.Update.INSERT:
            self._check_absent(present, "group", group_id)
            self._check_max_size(group)
            self._state.add_group(group_id, *self._decode_group(group))
        else:
            self._check_present(present, "group", group_id)
            if group.max_size != self._groups[group_id].max_size:
                raise invalid(
                    f"{self.name}: group {group_id} was made with max_size {self._groups[group_id].max_size}; "
                    f"it cannot become {group.max_size}"
                )
            self._state.modify_group(group_id, *self._decode_group(group))
        kept = p4r.ActionProfileGroup()
        kept.CopyFrom(group)
        self._groups[group_id] = kept

    def read_groups(self, group_id: int) -> Iterator[p4r.Entity]:
        """Yield the group with this id, or all groups for id 0."""
        for _, group in self._selected("group", group_id, self._groups):
            yield p4r.Entity(action_profile_group=group)

    def _decode_group(self, group: p4r.ActionProfileGroup) -> tuple[tuple[tuple[int, int], ...], dict[int, int]]:
        """Its members with their weights, and the ports that they watch. Raises `Refusal`."""
        members: dict[int, int] = {}
        watched: dict[int, int] = {}
        for item in group.members:
            if item.member_id in members:
                raise invalid(
                    f"{self.name}: member {item.member_id} is twice in group {group.group_id}; use its weight"
                )
            if item.member_id not in self._state.members:
                raise Refusal(Code.NOT_FOUND, f"{self.name} has no member {item.member_id}")
            members[item.member_id] = self._weight(item.weight, self._by_members)
            port = self._watch(item)
            if port is not None:
                watched[item.member_id] = port
        limit = group.max_size or self._info.max_group_size
        self._check_size(list(members.values()), self._by_members, limit, Code.RESOURCE_EXHAUSTED)
        return tuple(members.items()), watched

    def _check_max_size(self, group: p4r.ActionProfileGroup) -> None:
        largest = self._info.max_group_size
        if group.max_size < 0 or (largest and group.max_size > largest):
            raise invalid(f"{self.name}: max_size {group.max_size} is not in 0 to max_group_size {largest}")

    def _check_unused(self, reference: MemberRef | GroupRef) -> None:
        users = self._users[reference]
        if users:
            raise Refusal(Code.FAILED_PRECONDITION, f"{self.name}: {reference} is the action of {users} table entries")

    def _selected(self, kind: str, number: int, present: Mapping[int, _Thing]) -> list[tuple[int, _Thing]]:
        if not number:
            return sorted(present.items(), key=lambda item: item[0])
        self._check_present(number in present, kind, number)
        return [(number, present[number])]

    def _check_present(self, present: bool, kind: str, number: int) -> None:
        if not present:
            raise Refusal(Code.NOT_FOUND, f"{self.name} has no {kind} {number}")

    def _check_absent(self, present: bool, kind: str, number: int) -> None:
        if present:
            raise Refusal(Code.ALREADY_EXISTS, f"{self.name} already has a {kind} {number}")
