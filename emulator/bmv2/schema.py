"""The control-plane view of a loaded program: its tables, actions and arrays, as the BMv2 JSON names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ..entries import EmulatorError

MatchKind = Literal["exact", "lpm", "ternary", "range"]
"""Key kinds of the BMv2 JSON. P4Info's `optional` is `ternary` here: its mask is all ones or nothing."""

MATCH_KINDS: Final[tuple[MatchKind, ...]] = ("exact", "lpm", "ternary", "range")


class UnsupportedProgram(EmulatorError):
    """The BMv2 JSON has a construct that this switch does not run.

    The message names it and its place in the P4 source.
    """


@dataclass(frozen=True, slots=True)
class KeyField:
    """One field of a table's key; width in bits."""

    name: str
    match_kind: MatchKind
    width: int


@dataclass(frozen=True, slots=True)
class ActionSchema:
    """Name and parameters of an action."""

    name: str
    params: tuple[tuple[str, int], ...]
    """(name, width in bits), in the order of `ActionCall.params`."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Key, actions and resources of a table, by name."""

    name: str
    egress: bool
    """True if the table is in egress; else it is in ingress."""
    key: tuple[KeyField, ...]
    actions: tuple[str, ...]
    size: int
    default_action: str | None
    """The program's own default action; None: a miss does nothing (tables with an action profile)."""
    default_params: tuple[int, ...]
    const_default: bool
    const_entries: bool
    direct_counter: str | None
    direct_meter: str | None
    profile: str | None
    support_timeout: bool

    @property
    def needs_priority(self) -> bool:
        """Return True if entries carry a priority: some field is ternary, range or optional."""
        return any(field.match_kind in ("ternary", "range") for field in self.key)


@dataclass(frozen=True, slots=True)
class ActionProfileSchema:
    """Action profile, or action selector if `selector`."""

    name: str
    size: int
    selector: bool
    tables: tuple[str, ...]
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RegisterSchema:
    """Register array: `size` cells of `width` bits."""

    name: str
    size: int
    width: int


@dataclass(frozen=True, slots=True)
class CounterSchema:
    """Counter array, or direct counter of a table."""

    name: str
    size: int
    table: str | None
    """The table of a direct counter; its size is then the table's."""


@dataclass(frozen=True, slots=True)
class MeterSchema:
    """Meter array, or direct meter of a table."""

    name: str
    size: int
    unit: Literal["bytes", "packets"]
    table: str | None
    """The table of a direct meter; its size is then the table's."""


@dataclass(frozen=True, slots=True)
class ValueSetSchema:
    """Parser value set of at most `size` members."""

    name: str
    size: int
    widths: tuple[int, ...]
    """Widths of the fields of a member, in bits."""


@dataclass(frozen=True, slots=True)
class DigestSchema:
    """Id and fields of a digest."""

    name: str
    id: int
    fields: tuple[int, ...]
    """Widths in bits."""
