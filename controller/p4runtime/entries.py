"""Contents of one switch, as plain frozen values: table entries, multicast groups, clone sessions. For switches that
keep them apart from the tables, also next hops and the rates of meters.

These types are shared by `planning.plan` (target), `reconcile` (difference) and `session` (actual state, by P4Runtime).
Names are P4Info's: tables by their full name, fields and parameters by the last part of theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

FieldValue = int | tuple[int, int]
"""An exact value, (value, prefix length), or (value, mask) in a table that is looked up by masks."""


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """An action with its parameters, in the order of their names."""

    action: str
    args: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.action}({', '.join(f'{name}={_show(name, value)}' for name, value in self.args)})"


def call(action: str, **args: int) -> ActionSpec:
    """Make an action call by keyword: `call("forward", port=1)`."""
    return ActionSpec(action, tuple(sorted(args.items())))


@dataclass(frozen=True, slots=True)
class Entry:
    """One table entry, or a table's default action (no match, `default`).

    Several calls are a one-shot action set of equal weights, in a canonical order. One call of `member` or `choice` is
    no action: it names what stands apart (`ProfileMember`, `ActionGroup`).
    """

    table: str
    match: tuple[tuple[str, FieldValue], ...]
    calls: tuple[ActionSpec, ...]
    default: bool = False
    priority: int = 0
    """Priority of an entry with masks: the highest that matches wins. Other tables have none, 0."""

    @property
    def key(self) -> tuple[str, object]:
        """Identity for updates; two entries of one switch never share it."""
        return self.table, "default" if self.default else (self.match, self.priority)

    def __str__(self) -> str:
        fields = "default" if self.default else " ".join(f"{name}={_show(name, value)}" for name, value in self.match)
        if self.priority:
            fields = f"{fields} [{self.priority}]".lstrip()
        return f"{self.table.rsplit('.', 1)[-1]} {fields} -> {' | '.join(map(str, self.calls))}"


def entry(table: str, match: Mapping[str, FieldValue], *calls: ActionSpec, priority: int = 0) -> Entry:
    """Return a table entry; fields and calls are put in their canonical order.

    Args:
        table: Name of the table.
        match: Value of each matched field, by name.
        *calls: Action of the entry; several for an action selector's one-shot group.
        priority: Priority, larger first; 0 in tables without priorities.
    """
    ordered = tuple(sorted(calls, key=lambda c: (c.action, c.args)))
    return Entry(table, tuple(sorted(match.items())), ordered, priority=priority)


def default_action(table: str, action: ActionSpec) -> Entry:
    """Return the entry that sets a table's default action."""
    return Entry(table, (), (action,), default=True)


@dataclass(frozen=True, slots=True)
class Group:
    """A multicast group: (egress port, rid) per copy, in a canonical order."""

    group_id: int
    replicas: tuple[tuple[int, int], ...]

    @property
    def key(self) -> tuple[str, object]:
        """Identity among a switch's entries."""
        return "multicast group", self.group_id

    def __str__(self) -> str:
        return f"multicast group {self.group_id} -> {' '.join(f'{port}#{rid}' for port, rid in self.replicas)}"


@dataclass(frozen=True, slots=True)
class CloneSession:
    """A clone session that copies packets to ports."""

    session_id: int
    replicas: tuple[tuple[int, int], ...]
    packet_bytes: int = 0
    """Bytes of a packet that are copied at most; 0: all."""
    class_of_service: int = 0
    """Priority in which the copies queue, 0 to 7."""

    @property
    def key(self) -> tuple[str, object]:
        """Identity among a switch's entries."""
        return "clone session", self.session_id

    def __str__(self) -> str:
        cut = f"({self.packet_bytes} bytes)" if self.packet_bytes else ""
        cut += f" class {self.class_of_service}" if self.class_of_service else ""
        return f"clone session {self.session_id}{cut} -> {' '.join(f'{port}#{rid}' for port, rid in self.replicas)}"


@dataclass(frozen=True, slots=True)
class ProfileMember:
    """An action of a profile, which entries and choices name."""

    profile: str
    member_id: int
    call: ActionSpec

    @property
    def key(self) -> tuple[str, object]:
        """Identity among a switch's entries."""
        return f"member of {self.profile}", self.member_id

    def __str__(self) -> str:
        return f"member {self.member_id} -> {self.call}"


@dataclass(frozen=True, slots=True)
class ActionGroup:
    """A group of an action profile: a packet gets one of these members, each as likely as the others."""

    profile: str
    group_id: int
    members: tuple[int, ...]

    @property
    def key(self) -> tuple[str, object]:
        """Identity among a switch's entries."""
        return f"choice of {self.profile}", self.group_id

    def __str__(self) -> str:
        return f"choice {self.group_id} -> {' | '.join(map(str, self.members))}"


@dataclass(frozen=True, slots=True)
class MeterRate:
    """Rate of one cell of a meter; a cell without a rate passes everything."""

    meter: str
    index: int
    bytes_per_s: int
    burst_bytes: int

    @property
    def key(self) -> tuple[str, object]:
        """Identity among a switch's entries."""
        return self.meter, self.index

    def __str__(self) -> str:
        return f"{self.meter.rsplit('.', 1)[-1]} {self.index} -> {self.bytes_per_s} B/s, {self.burst_bytes} B"


Item = Entry | Group | CloneSession | ProfileMember | ActionGroup | MeterRate


@dataclass(frozen=True)
class SwitchState:
    """Everything that one switch holds, by key."""

    items: Mapping[tuple[str, object], Item] = field(default_factory=dict)

    @classmethod
    def of(cls, items: Iterable[Item]) -> SwitchState:
        """Make the state that these items add up to.

        Raises:
            ValueError: Two items have one key but differ.
        """
        by_key: dict[tuple[str, object], Item] = {}
        for item in items:
            if by_key.setdefault(item.key, item) != item:
                raise ValueError(f"two different items for one key: {by_key[item.key]}  and  {item}")
        return cls(by_key)

    def lines(self) -> frozenset[str]:
        """Return the whole state as text, one line per item."""
        return frozenset(map(str, self.items.values()))


def _show(name: str, value: FieldValue) -> str:
    if isinstance(value, tuple):
        length = value[1] if value[1] < 1 << 7 else f"{value[1]:#x}"  # a prefix's, or a mask
        return f"{_show(name, value[0])}/{length}"
    if name in ("dst_addr", "src_addr", "parent", "address"):
        return str(IPv4Address(value))
    if name.endswith("_mac"):
        return ":".join(f"{value:012x}"[i : i + 2] for i in range(0, 12, 2))
    if name in ("children", "contributors", "parent_bit", "child_bit"):
        return f"{value:#x}"
    return str(value)
