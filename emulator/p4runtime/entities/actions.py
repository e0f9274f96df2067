"""Actions between their P4Runtime form (ids and byte strings) and the switch's (names and integers)."""

from __future__ import annotations

from finsy.proto import p4i, p4r

from ...bmv2.schema import ActionSchema
from ...entries import ActionCall
from .. import bytestring
from ..refusal import Refusal, invalid


class ActionInfo:
    """One action of the P4Info."""

    def __init__(self, info: p4i.Action, schema: ActionSchema) -> None:
        """Raises `Refusal` when P4Info and program disagree on the parameters."""
        self.id = info.preamble.id
        self.name = info.preamble.name
        if len(info.params) != len(schema.params):
            raise invalid(
                f"P4Info: action {self.name} has {len(info.params)} parameters, in the program {len(schema.params)}"
            )
        self._slots: dict[int, tuple[int, int, str]] = {}
        for index, (param, (_, width)) in enumerate(zip(info.params, schema.params, strict=True)):
            if param.bitwidth != width and not param.HasField("type_name"):
                raise invalid(
                    f"P4Info: {self.name}.{param.name} has {param.bitwidth} bits, in the program {width}: "
                    "P4Info and device config come from different programs"
                )
            self._slots[param.id] = (index, width, f"{self.name}.{param.name}")
        self._ids = tuple(param.id for param in info.params)

    @property
    def params(self) -> tuple[tuple[int, int], ...]:
        """Id and width in bits of each parameter."""
        return tuple((param_id, width) for param_id, (_, width, _) in self._slots.items())

    def decode(self, action: p4r.Action) -> ActionCall:
        """Return the call that a message asks for; every parameter exactly once. Raises `Refusal`."""
        values: list[int | None] = [None] * len(self._ids)
        for param in action.params:
            slot = self._slots.get(param.param_id)
            if slot is None:
                raise invalid(f"action {self.name} has no parameter id {param.param_id}; it has {list(self._ids)}")
            index, width, label = slot
            if values[index] is not None:
                raise invalid(f"{label} is given twice")
            data = param.value
            value = int.from_bytes(data, "big")
            if value >> width or not data:
                raise bytestring.refuse(data, width, label)
            values[index] = value
        if None in values:
            missing = next(label for index, _, label in self._slots.values() if values[index] is None)
            raise invalid(f"{missing} is missing")
        return ActionCall(self.name, tuple(values))  # type: ignore[arg-type]  # no None is left

    def encode(self, call: ActionCall) -> p4r.Action:
        """Return the canonical message of a call."""
        action = p4r.Action(action_id=self.id)
        for param_id, value in zip(self._ids, call.params, strict=True):
            action.params.add(param_id=param_id, value=bytestring.encode(value))
        return action


class ScopedActions:
    """The actions that a table or an action profile may run, with their scopes."""

    def __init__(
        self, owner: str, actions: dict[int, ActionInfo], scopes: dict[int, p4i.ActionRef.Scope.ValueType]
    ) -> None:
        self._owner = owner
        self._by_id = actions
        self._by_name = {action.name: action for action in actions.values()}
        self._scopes = scopes

    def decode(self, message: p4r.Action) -> ActionCall:
        """Return the call that a message asks for. Raises `Refusal`."""
        action = self._by_id.get(message.action_id)
        if action is None:
            raise self._unknown(message.action_id)
        return action.decode(message)

    def encode(self, call: ActionCall) -> p4r.Action | None:
        """Return the message of a call; None for an action that P4Info hides."""
        action = self._by_name.get(call.name)
        return None if action is None else action.encode(call)

    def name_of(self, action_id: int) -> str:
        """Return the name of an action by its id.

        Raises:
            Refusal: The id is not in the set.
        """
        action = self._by_id.get(action_id)
        if action is None:
            raise self._unknown(action_id)
        return action.name

    def scope(self, action_id: int) -> p4i.ActionRef.Scope.ValueType:
        """Return the places where an action may be used; both if the P4Info states none."""
        return self._scopes.get(action_id, p4i.ActionRef.TABLE_AND_DEFAULT)

    def of_entries(self) -> list[tuple[str, int, tuple[tuple[int, int], ...]]]:
        """Return the actions that entries may have: name, id, and each parameter's id and width in bits."""
        chosen = (action for number, action in self._by_id.items() if self.scope(number) != p4i.ActionRef.DEFAULT_ONLY)
        return [(action.name, action.id, action.params) for action in chosen]

    def _unknown(self, action_id: int) -> Refusal:
        known = ", ".join(f"{action.id} ({action.name})" for action in self._by_id.values()) or "none"
        return invalid(f"{self._owner} has no action id {action_id}; it has {known}")
