"""The compiled program in an emulated switch whose queues are made up: tests say what a packet finds there."""

from __future__ import annotations

import ctypes
from typing import Final, NamedTuple

import numpy as np

from weir.emulator.abi import PACKET
from weir.emulator.entries import ActionCall, CloneSession, Replica, TableEntry, Ternary
from weir.tests.p4src.emulated_node import EmulatedNode
from weir.tests.p4src.int_fabric import REPORT_SESSION
from weir.tests.p4src.node_model import Tables

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Queue(NamedTuple):
    """Queue between ingress and egress as a packet, and each of its copies, meets it."""

    depth: int
    """Packets at its enqueue"""
    wait_us: int
    left: int
    """depth behind it at its dequeue, in the switch's own unit"""


EMPTY: Final = Queue(0, 0, 0)


class QueuedNode(EmulatedNode):
    """Egress sees `queue` in its standard metadata: the runtime's call of the compiled egress is caught."""

    def __init__(self, tables: Tables, program: bytes | None = None) -> None:
        super().__init__(tables, program)
        self.queue = EMPTY
        record = self.switch._record
        self._egress = _ENTRY(int(record["egress"]))
        self._callback = _ENTRY(self._called)
        record["egress"] = ctypes.cast(self._callback, ctypes.c_void_p).value

    def write(self, table: str, key: tuple[int, ...], action: str, params: tuple[int, ...]) -> None:
        """One entry, or without a key the default."""
        if key:
            self._insert(table, key, action, *params)
        else:
            self.state.tables[table].set_default(ActionCall(action, params))

    def report_to(self, port: int) -> None:
        """Reports leave by this port."""
        self.switch.replication.set_session(REPORT_SESSION, CloneSession((Replica(port),)))

    def watch(self, match: tuple[tuple[int, int], ...], priority: int, action: str, params: tuple[int, ...]) -> None:
        """`match` is (value, mask) of the addresses, the protocol and the ports; of two the higher priority counts."""
        entry = TableEntry(tuple(Ternary(*each) for each in match), ActionCall(action, params), priority)
        self.state.tables["FabricEgress.int_source.watchlist"].insert(entry)

    def _called(self, state: int, address: int) -> None:
        memory = (ctypes.c_uint8 * PACKET.itemsize).from_address(address)
        record = np.ctypeslib.as_array(memory).view(PACKET)[0]
        record["enq_qdepth"] = self.queue.depth
        record["deq_qdepth"] = self.queue.left
        record["deq_timedelta"] += self.queue.wait_us
        record["egress_global_timestamp"] += self.queue.wait_us
        self._egress(state, address)
