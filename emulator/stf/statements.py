"""Statements of an STF file as plain values. `line` is the statement's line in its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ..entries import EmulatorError

Comparison = Literal["==", "!=", "<", "<=", ">", ">="]
CounterUnit = Literal["packets", "bytes"]

SWITCH_COMMANDS: Final[Mapping[str, str]] = {
    "counter_read": "NAME INDEX",
    "counter_write": "NAME INDEX PACKETS BYTES",
    "mc_mgrp_create": "GROUP",
    "mc_node_associate": "GROUP NODE",
    "mc_node_create": "RID PORT...",
    "mc_node_update": "NODE PORT...",
    "meter_array_set_rates": "NAME RATE...",
    "meter_get_rates": "NAME INDEX",
    "meter_set_rates": "NAME INDEX RATE...",
    "mirroring_add": "SESSION PORT",
    "mirroring_add_mc": "SESSION GROUP",
    "mirroring_delete": "SESSION",
    "mirroring_get": "SESSION",
    "register_read": "NAME INDEX",
    "register_reset": "NAME",
    "register_write": "NAME INDEX VALUE",
}
"""Commands of simple_switch's command line that are statements too, with their arguments.

A RATE is `per_microsecond:burst`.
"""


class StfError(EmulatorError):
    """A test that cannot be read or run: the message begins with `file:line`."""


@dataclass(frozen=True, slots=True)
class Packet:
    """`packet PORT DATA`: a frame that enters."""

    line: int
    port: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class Expect:
    """`expect PORT DATA`: a frame that must leave."""

    line: int
    port: int
    pattern: str | None
    """Upper-case hex digits, `*` for any; None: any frame."""
    whole: bool
    """True if the frame ends where the pattern does (`$`)."""


@dataclass(frozen=True, slots=True)
class NoPacket:
    """The packet before it leaves no frame on any port."""

    line: int


@dataclass(frozen=True, slots=True)
class Wait:
    """`wait`: frames so far are processed before the next statement."""

    line: int


@dataclass(frozen=True, slots=True)
class Call:
    """An action with its arguments (name, value)."""

    name: str
    arguments: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Add:
    """`add TABLE …`: a table entry."""

    line: int
    table: str
    priority: int | None
    key: tuple[tuple[str, str], ...]
    """Each field of the key with its value as written."""
    calls: tuple[Call, ...]
    """The action called, or several of equal weight in a table with an action selector."""
    label: str | None


@dataclass(frozen=True, slots=True)
class SetDefault:
    """`setdefault TABLE ACTION(…)`: a table's default action."""

    line: int
    table: str
    call: Call


@dataclass(frozen=True, slots=True)
class RemoveAll:
    """`remove all`: deletes all table entries."""

    line: int


@dataclass(frozen=True, slots=True)
class CheckCounter:
    """`check_counter NAME(INDEX) …`: compares a counter."""

    line: int
    name: str
    index: int | str
    """A cell, or the label of the entry whose direct counter is meant."""
    unit: CounterUnit | None
    """Unit to compare; None for both packets and bytes."""
    comparison: Comparison
    value: int


@dataclass(frozen=True, slots=True)
class CheckRegister:
    """`check_register NAME(INDEX) …`: compares a register's cell."""

    line: int
    name: str
    index: int
    comparison: Comparison
    value: int


@dataclass(frozen=True, slots=True)
class SwitchCommand:
    """One of `SWITCH_COMMANDS`."""

    line: int
    command: str
    name: str
    """Name of the register, counter or meter; empty for commands that take none."""
    numbers: tuple[int, ...]
    rates: tuple[tuple[float, int], ...]


Statement = (
    Packet | Expect | NoPacket | Wait | Add | SetDefault | RemoveAll | CheckCounter | CheckRegister | SwitchCommand
)


@dataclass(frozen=True, slots=True)
class StfTest:
    """Statements of one file, in order."""

    path: Path
    statements: tuple[Statement, ...]
