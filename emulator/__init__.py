"""A software P4 switch: BMv2 JSON compiled to native code, in virtual time or on network interfaces.

`Program` is a compiled program, `ProgramState` one switch's tables, registers, counters, meters, value sets and
digests; `entries` has the words that a control plane writes into them. A `Switch` gives a program ports with queues and
rates and the replication engine; a `Fabric` joins switches, links and hosts in deterministic virtual time. `ports` puts
a switch on network interfaces, `p4runtime` serves its control plane, `stf` runs p4c's test files on it.

The semantics are simple_switch's, for any v1model program: this package knows nothing of aggregation or of topologies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .abi import DROP_PORT
from .entries import (
    ActionCall,
    ActionSet,
    CloneSession,
    EmulatorError,
    EntryExists,
    EntryNotFound,
    Exact,
    GroupRef,
    InvalidEntry,
    Lpm,
    MemberRef,
    Optional,
    Range,
    Replica,
    TableEntry,
    TableFull,
    Ternary,
    WeightedAction,
)

if TYPE_CHECKING:
    from .fabric import Fabric
    from .port import PortConfig, SwitchValueError
    from .program import MeterRates, Program, ProgramState, UnsupportedProgram
    from .switch import CPU_PORT, Switch
else:
    from ..imports.extras import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "fabric": ("Fabric",),
            "port": ("PortConfig", "SwitchValueError"),
            "program": ("MeterRates", "Program", "ProgramState", "UnsupportedProgram"),
            "switch": ("CPU_PORT", "Switch"),
        },
    )

__all__ = [
    "CPU_PORT",
    "DROP_PORT",
    "ActionCall",
    "ActionSet",
    "CloneSession",
    "EmulatorError",
    "EntryExists",
    "EntryNotFound",
    "Exact",
    "Fabric",
    "GroupRef",
    "InvalidEntry",
    "Lpm",
    "MemberRef",
    "MeterRates",
    "Optional",
    "PortConfig",
    "Program",
    "ProgramState",
    "Range",
    "Replica",
    "Switch",
    "SwitchValueError",
    "TableEntry",
    "TableFull",
    "Ternary",
    "UnsupportedProgram",
    "WeightedAction",
]
