"""Control-plane writes as plain values: matches, action calls, table entries, replication lists.

The native tables (`emulator.tables`), the replication engine and the P4Runtime server share these types. Names are
those of the BMv2 JSON, which are P4Info's fully qualified names; integers are Python integers of any width.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import PlacedError


class EmulatorError(PlacedError):
    """Root of this package's errors."""


class EntryExists(EmulatorError):
    """An insert found an entry with the same match (and priority)."""


class EntryNotFound(EmulatorError):
    """A modify, delete or read named an entry, member or group that is not there."""


class TableFull(EmulatorError):
    """The table, profile or group already holds as many entries as the program gives it."""


class InvalidEntry(EmulatorError):
    """The entry does not fit the table: unknown action, wrong match kind, value too wide, constant table."""


@dataclass(frozen=True, slots=True)
class Exact:
    """Match of one value."""

    value: int


@dataclass(frozen=True, slots=True)
class Lpm:
    """Match of the first `prefix_length` bits; of matching entries the longest prefix wins."""

    value: int
    prefix_length: int


@dataclass(frozen=True, slots=True)
class Ternary:
    """Match of the bits that are set in `mask`."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Range:
    """Match of `low` … `high`."""

    low: int
    high: int
    """The highest value that matches."""


@dataclass(frozen=True, slots=True)
class Optional:
    """Match of one value, or of any."""

    value: int | None
    """None matches anything."""


Match = Exact | Lpm | Ternary | Range | Optional


@dataclass(frozen=True, slots=True)
class ActionCall:
    """One action with its run-time data, in the order of the action's parameters."""

    name: str
    params: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberRef:
    """An action profile's member, by the id that the control plane gave it."""

    member_id: int


@dataclass(frozen=True, slots=True)
class GroupRef:
    """An action selector's group, by the id that the control plane gave it."""

    group_id: int


@dataclass(frozen=True, slots=True)
class WeightedAction:
    """Action of a selector; it is chosen for `weight` of all weights' sum."""

    call: ActionCall
    weight: int = 1
    watch_port: bytes = b""
    """The port that the member depends on; empty for none."""
    numeric_watch: bool = False
    """True if P4Runtime's deprecated, numeric field gave the port."""


@dataclass(frozen=True, slots=True)
class ActionSet:
    """P4Runtime's one-shot selector programming: the set lives and dies with its entry."""

    actions: tuple[WeightedAction, ...]
    selection_mode: int = 0
    size_semantics: int = 0
    """P4Runtime's, told back as they were given: nothing here selects by them."""


TableAction = ActionCall | MemberRef | GroupRef | ActionSet


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One entry. `match` has one element per key field, in the table's order (don't-care fields included).

    `priority` is P4Runtime's: larger wins; 0 for tables without ternary, range or optional fields.
    """

    match: tuple[Match, ...]
    action: TableAction
    priority: int = 0
    idle_timeout_ns: int = 0
    """0: never idle. Other times need a table with `support_timeout`."""


@dataclass(frozen=True, slots=True)
class Replica:
    """Copy of a packet: its egress port and its replication id (`egress_rid`)."""

    port: int
    instance: int = 0
    backups: tuple[tuple[int, int], ...] = ()
    """Fallback replicas as (port, instance) for the time that the port is down; the first whose port is up is used."""


@dataclass(frozen=True, slots=True)
class CloneSession:
    """Copies that a clone of this session becomes."""

    replicas: tuple[Replica, ...]
    packet_length_bytes: int = 0
    """The length that packets are cut to; with 0 they are not."""
    class_of_service: int = 0
