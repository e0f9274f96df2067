"""A P4 program ready to run, and one switch's memory of it.

`Program.load` reads BMv2 JSON, compiles it to native code (or takes that from the cache) and describes it;
`new_state` makes the registers, counters and tables that the code works on. Ten switches with the same JSON share one
`Program`.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Final, NamedTuple
from weakref import WeakValueDictionary

from ..machine_code import cache
from ..machine_code.link import link
from .bmv2.document import Document, Profile
from .bmv2.document import Table as TableNode
from .bmv2.reader import MALFORMED, read
from .bmv2.schema import (
    ActionProfileSchema,
    ActionSchema,
    CounterSchema,
    DigestSchema,
    KeyField,
    MeterSchema,
    RegisterSchema,
    TableSchema,
    UnsupportedProgram,
    ValueSetSchema,
)
from .compiler.layout import Layout, is_static, plan
from .compiler.steps import with_steps
from .entries import InvalidEntry
from .sources import compiler_digest
from .state import (
    ActionProfile,
    Counter,
    DigestQueue,
    InitialTable,
    ProgramState,
    Register,
    Table,
    ValueSetMembers,
    const_entries,
    initial_table,
)
from .tables.keys import pack_key
from .tables.meters import ColorCounts, MeterArray, MeterRates
from .tables.rows import action_codes, profile_actions, row_layout

__all__ = [
    "ActionProfile",
    "ActionProfileSchema",
    "ActionSchema",
    "ColorCounts",
    "Counter",
    "CounterSchema",
    "DigestQueue",
    "DigestSchema",
    "EntryPoints",
    "KeyField",
    "MeterArray",
    "MeterRates",
    "MeterSchema",
    "Program",
    "ProgramState",
    "Register",
    "RegisterSchema",
    "Table",
    "TableSchema",
    "UnsupportedProgram",
    "ValueSetMembers",
    "ValueSetSchema",
]


_KEPT: Final = 32


class EntryPoints(NamedTuple):
    """Addresses of the functions of `emulator.abi`: all take two addresses."""

    ingress: int
    egress: int
    deparse: int
    """0 where the program asks for no clone in egress."""
    reparse: int
    preserve: int


class Program:
    """A compiled P4 program. Switches may share it; each needs its own `new_state`."""

    name: str
    phv_bytes: int
    """Bytes of the PHV behind each packet's record; a multiple of 64."""
    entry_points: EntryPoints
    tables: Mapping[str, TableSchema]
    """Every table that a control plane may see; p4c's own wrappers around bare statements are not among them."""
    actions: Mapping[str, ActionSchema]
    registers: Mapping[str, RegisterSchema]
    counters: Mapping[str, CounterSchema]
    meters: Mapping[str, MeterSchema]
    action_profiles: Mapping[str, ActionProfileSchema]
    digests: Mapping[str, DigestSchema]
    value_sets: Mapping[str, ValueSetSchema]
    errors: Mapping[str, int]

    _loaded: ClassVar[WeakValueDictionary[str, Program]] = WeakValueDictionary()
    _recent: ClassVar[OrderedDict[str, Program]] = OrderedDict()
    """The most recently loaded programs, kept even when unused, since they are likely to be loaded again."""
    _keeping: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self, json: bytes, document: Document, layout: Layout, entry_points: EntryPoints, keep_alive: object
    ) -> None:
        """Describe a compiled program; `Program.load` makes it.

        Args:
            json: BMv2 JSON.
            document: Parsed JSON.
            layout: Layout of packets and state in memory.
            entry_points: Addresses of the compiled functions.
            keep_alive: Object that keeps the compiled code in memory.
        """
        self._json = json
        self._document = document
        self._layout = layout
        self._keep_alive = keep_alive
        self.name = document.name
        self.phv_bytes = self._layout.phv_bytes
        self.entry_points = entry_points
        self.errors = document.errors
        self.actions = _actions(document)
        self.tables = {node.name: _table_schema(document, node) for node in _tables(document) if not is_static(node)}
        self.registers = {r.name: RegisterSchema(r.name, r.size, r.width) for r in document.registers.values()}
        self.counters = {
            c.name: CounterSchema(c.name, c.size if c.table is None else self.tables[c.table].size, c.table)
            for c in document.counters.values()
        }
        self.meters = {
            m.name: MeterSchema(m.name, m.size if m.table is None else self.tables[m.table].size, m.unit, m.table)
            for m in document.meters.values()
        }
        self.digests = {
            d.name: DigestSchema(d.name, d.id, tuple(document.width(field) for field in d.fields))
            for d in document.digests.values()
        }
        self.value_sets = {v.name: ValueSetSchema(v.name, v.size, v.widths) for v in document.value_sets.values()}
        self.action_profiles = {
            profile.name: _profile_schema(document, profile)
            for pipeline in (document.ingress, document.egress)
            for profile in pipeline.profiles.values()
        }

    @classmethod
    def load(cls, json: str | os.PathLike[str] | bytes, *, traced: bool = False) -> Program:
        """Load BMv2 JSON.

        The same JSON gives the same `Program` as long as a reference to it exists, and is compiled once per machine
        (`machine_code.cache`).

        Args:
            json: Path of a file, or the file's bytes.
            traced: True for code that is slower and notes what tables do (`ProgramState.steps`).

        Raises:
            UnsupportedProgram: The program has a construct that is not supported.
            OSError: The file cannot be read.
        """
        text = json if isinstance(json, bytes) else Path(json).read_bytes()
        key = key_of(text, traced=traced)
        program = cls._loaded.get(key)
        if program is None:
            code = cache.fetch(key)
            document, layout = _planned(text, key, traced=traced)
            try:
                _check_tables(document)
                if code is None:
                    from .compiler.module import compile_program  # heavy, and not needed for cached programs

                    code = compile_program(document, layout)
                    cache.keep(key, code)
            except MALFORMED as error:
                raise _not_compiled(document, error) from error
            addresses, keep_alive = link(code, EntryPoints._fields)
            program = cls._loaded[key] = cls(text, document, layout, EntryPoints(*addresses), keep_alive)
        with cls._keeping:
            cls._recent[key] = program
            cls._recent.move_to_end(key)
            while len(cls._recent) > _KEPT:
                cls._recent.popitem(last=False)
        return program

    def traced(self) -> Program:
        """Return the same program with notes of what its parser and tables do; compiled unless the cache has it."""
        return Program.load(self._json, traced=True)

    @cached_property
    def _initial(self) -> Mapping[str, InitialTable]:
        nodes = [node for node in _tables(self._document) if not is_static(node)]
        return {node.name: initial_table(self._document, node, self.tables[node.name]) for node in nodes}

    def new_state(self) -> ProgramState:
        """Return fresh memory for one switch. Raises UnsupportedProgram if memory for it cannot be allocated."""
        try:
            return ProgramState(
                self._document, self._layout, self.tables, self.actions, self.action_profiles, self._initial
            )
        except MemoryError:
            size = self._layout.state_bytes
            raise UnsupportedProgram(
                f"its registers, counters and meters take {size} bytes", place=self.name, value=size
            ) from None


def key_of(text: bytes, *, traced: bool = False) -> str:
    """Return the key in `machine_code.cache` of the native code of a program's BMv2 JSON."""
    return cache.key_of(compiler_digest() + text + (b" traced" if traced else b""))


def _planned(text: bytes, key: str, *, traced: bool) -> tuple[Document, Layout]:
    """Return the program as a document and its layout: as computed before on this machine, if the cache has it.

    The key covers the sources of both. Raises as `Program.load` does.
    """
    suffix = f"plan-{sys.version_info.major}{sys.version_info.minor}"
    if (kept := cache.fetch(key, suffix)) is not None:
        document, layout = pickle.loads(kept)
        assert isinstance(document, Document)
        assert isinstance(layout, Layout)
        return document, layout
    document = read(text)
    try:
        layout = plan(document)
        if traced:
            layout = with_steps(layout, document)
    except MALFORMED as error:
        raise _not_compiled(document, error) from error
    cache.keep(key, pickle.dumps((document, layout), protocol=5), suffix)
    return document, layout


def _not_compiled(document: Document, error: Exception) -> UnsupportedProgram:
    return UnsupportedProgram(f"cannot be compiled ({error!r})", place=document.name)


def _actions(document: Document) -> dict[str, ActionSchema]:
    """Actions by name. p4c gives a call with fixed arguments a copy of the action with fewer parameters."""
    actions = sorted(document.actions.values(), key=lambda action: len(action.params))
    return {action.name: ActionSchema(action.name, action.params) for action in actions}


def _tables(document: Document) -> Iterator[TableNode]:
    for pipeline in (document.ingress, document.egress):
        for node in pipeline.nodes.values():
            if isinstance(node, TableNode):
                yield node


def _check_tables(document: Document) -> None:
    """Raises `UnsupportedProgram` for an action that is not that of its name, which a control plane goes by, and for an
    entry of the program's own that its table would refuse.
    """
    actions = _actions(document)
    for node in _tables(document):
        for action in () if is_static(node) else (document.actions[number] for number in action_codes(node)):
            if action.params != actions[action.name].params:
                raise UnsupportedProgram(
                    f"{action.name} of table {node.name} has {len(action.params)} parameters, and "
                    f"elsewhere others ({len(actions[action.name].params)})",
                    place=node.where,
                    value=action.name,
                )
        schema, layout, keys = _table_schema(document, node), row_layout(document, node), set()
        for source, entry in zip(node.entries or (), const_entries(document, node), strict=True):
            try:
                key = pack_key(schema, layout, entry.match, entry.priority)
            except InvalidEntry as error:
                raise UnsupportedProgram(f"{error}", place=source.where) from None
            if key in keys:
                raise UnsupportedProgram(
                    f"an entry of {node.name} matches the same as one before it", place=source.where, value=node.name
                )
            keys.add(key)


def _table_schema(document: Document, node: TableNode) -> TableSchema:
    direct = [counter.name for counter in document.counters.values() if counter.table == node.name]
    default = node.default_action
    return TableSchema(
        name=node.name,
        egress=node.name in document.egress.nodes,
        key=tuple(KeyField(key.name, key.match_kind, document.width(key.target)) for key in node.key),
        actions=tuple(document.actions[action_id].name for action_id in action_codes(node)),
        size=node.size,
        default_action=document.actions[default].name if default is not None else None,
        default_params=node.default_params,
        const_default=node.const_default,
        const_entries=node.entries is not None,
        direct_counter=direct[0] if direct else None,
        direct_meter=node.meter,
        profile=node.profile,
        support_timeout=node.support_timeout,
    )


def _profile_schema(document: Document, profile: Profile) -> ActionProfileSchema:
    tables = tuple(node.name for node in _tables(document) if node.profile == profile.name)
    actions = profile_actions(document, profile.name)
    return ActionProfileSchema(profile.name, profile.size, profile.selector is not None, tables, actions)
