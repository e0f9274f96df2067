"""Several controllers that write and read at once while packets run."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from finsy.proto import U128, p4r

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.switch import Switch
from weir.tests.emulator.p4runtime.p4runtime_rig import DELETE, INSERT, MODIFY, Client, stage, stage_entry

ROUNDS = 12
KEYS = range(10, 42)
WRITERS = {"first": ("firsts", "set_first"), "second": ("seconds", "set_second"), "third": ("thirds", "set_third")}
"""One role each, with a table of its own in `stages.p4`."""


class Writer:
    """The primary of one role, which fills and empties its table again and again."""

    def __init__(self, address: str, role: str) -> None:
        self.role = role
        self.table, self.action = WRITERS[role]
        self.client = Client(address)
        self.stream = self.client.stream()
        self.stream.arbitrate(1, role=role)
        assert self.stream.notice() == "OK/1"

    def run(self) -> None:
        for number in range(ROUNDS):
            self._write(number, *((INSERT, stage_entry(self.table, key, self.action, number)) for key in KEYS))
            self._write(number, *((MODIFY, stage_entry(self.table, key, self.action, number + 1)) for key in KEYS))
            if number < ROUNDS - 1:
                self._write(number, *((DELETE, stage_entry(self.table, key, self.action, 0)) for key in KEYS))

    def _write(self, number: int, *updates: tuple[p4r.Update.Type.ValueType, object]) -> None:
        request = self.client.write_request(*updates)
        request.role, request.election_id.low = self.role, U128.encode(1).low
        request.atomicity = p4r.WriteRequest.Atomicity.ValueType(number % 3)
        self.client.stub.Write(request)

    def close(self) -> None:
        self.stream.close()
        self.client.channel.close()


def test_writers_readers_and_packets_at_once(stages: Client, externs_server: P4RuntimeServer, switch: Switch) -> None:
    """Each batch is whole for every reader, packets run on, and in the end every table holds what its writer wrote."""
    writers = [Writer(externs_server.address, role) for role in WRITERS]
    frames = np.zeros((len(KEYS), 5), np.uint8)
    frames[:, 0] = KEYS
    stop = threading.Event()
    packets = reads = 0

    def traffic() -> None:
        nonlocal packets
        while not stop.is_set():
            assert len(switch.process(frames, repeat=20).lengths) == len(frames)
            packets += 20 * len(frames)

    def read() -> None:
        nonlocal reads
        client = Client(externs_server.address)
        while not stop.is_set():
            for table, _ in WRITERS.values():
                found = client.read(p4r.TableEntry(table_id=stage(table)))
                values = {each.table_entry.action.action.params[0].value for each in found}
                assert len(found) in (0, len(KEYS)), "half a batch"
                assert len(values) <= 1, "a batch half done"
                reads += 1
        client.channel.close()

    with ThreadPoolExecutor(6) as pool:
        busy = [pool.submit(work) for work in (traffic, read, read)]
        try:
            for done in [pool.submit(writer.run) for writer in writers]:
                done.result()
        finally:
            stop.set()
        for each in busy:
            each.result()
    for writer in writers:
        writer.close()
    assert packets > 0
    assert reads > 0
    for table, action in WRITERS.values():
        found = {
            each.SerializeToString(deterministic=True) for each in stages.read(p4r.TableEntry(table_id=stage(table)))
        }
        assert found == {
            p4r.Entity(table_entry=stage_entry(table, key, action, ROUNDS)).SerializeToString(deterministic=True)
            for key in KEYS
        }
    sent = switch.process(frames)
    assert sent.data.reshape(len(KEYS), 5)[:, 1:4].tolist() == [[ROUNDS] * 3] * len(KEYS)
