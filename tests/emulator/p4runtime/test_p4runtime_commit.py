"""A commit under traffic: counts and written values are kept, and each program's packet-ins are its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from finsy.proto import p4r

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.program import Program, ProgramState
from weir.emulator.switch import Switch
from weir.tests.emulator.p4runtime.p4runtime_rig import INSERT, MODIFY, Client, Names, load_config

Set = p4r.SetForwardingPipelineConfigRequest


class BusySwitch(Switch):
    """Once it is busy, a packet comes just before a program is started, and one just after; paused, it lets them wait.

    Each is sent to the CPU port and matches the same entry of `exact_table`.
    """

    def __init__(self) -> None:
        self.busy = False
        self.packets = 0
        self._pauses = self._waiting = 0
        super().__init__(1, ports=[1])

    def receive(self) -> None:
        self._waiting += 1
        if not self._pauses:
            self._run_packets()

    def start(self, program: Program, state: ProgramState) -> None:
        if self.busy:
            self.receive()
        super().start(program, state)
        if self.busy:
            self.receive()

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._pauses += 1
        with super().paused():
            yield
        self._pauses -= 1
        if not self._pauses:
            self._run_packets()

    def _run_packets(self) -> None:
        while self._waiting:
            self._waiting -= 1
            self.packets += 1
            self.forward(bytes(14), 1, at_ns=1000 * self.packets)


@pytest.fixture
def busy() -> BusySwitch:
    return BusySwitch()


@pytest.fixture
def busy_client(busy: BusySwitch) -> Iterator[Client]:
    """The primary of `busy`, which runs `every_entity.p4`."""
    with P4RuntimeServer([busy]) as server, Client(server.address) as client:
        stream = client.primary()
        assert client.set_config(load_config()) == "OK"
        yield client
        stream.close()


def counted(client: Client, names: Names) -> tuple[int, int, int]:
    """Effects of `BusySwitch`'s packets: counts of a counter and of their entry, and the last one's time in µs."""
    key = names.exact_entry(b"\x00", b"\x00")
    counter = p4r.CounterEntry(counter_id=names.counter["ports"], index=p4r.Index(index=0))
    register = p4r.RegisterEntry(register_id=names.register["last_seen"], index=p4r.Index(index=0))
    packets, hits, last = client.read(counter, p4r.DirectCounterEntry(table_entry=key), register)
    return (
        packets.counter_entry.data.packet_count,
        hits.direct_counter_entry.data.packet_count,
        int.from_bytes(last.register_entry.data.bitstring, "big"),
    )


def test_packets_changes_during_a_reconcile_are_kept(busy: BusySwitch, busy_client: Client, names: Names) -> None:
    entry = names.exact_entry(b"\x00", b"\x00", names.call("forward", b"\x01"))
    assert busy_client.write((INSERT, entry)) == ["OK"]
    busy.receive()
    busy.busy = True
    assert busy_client.set_config(load_config(), Set.RECONCILE_AND_COMMIT) == "OK"
    assert busy.packets == 3
    assert counted(busy_client, names) == (3, 3, 3)


def test_packets_counts_are_added_to_writes_to_a_saved_config(
    busy: BusySwitch, busy_client: Client, names: Names
) -> None:
    entry = names.exact_entry(b"\x00", b"\x00", names.call("forward", b"\x01"))
    entry.counter_data.packet_count = 100
    counter = p4r.CounterEntry(counter_id=names.counter["ports"], index=p4r.Index(index=0))
    counter.data.packet_count = 200
    assert busy_client.set_config(load_config(), Set.VERIFY_AND_SAVE) == "OK"
    assert busy_client.write((INSERT, entry), (MODIFY, counter)) == ["OK"] * 2
    busy.busy = True
    assert busy_client.set_config(None, Set.COMMIT) == "OK"
    assert counted(busy_client, names) == (202, 102, 2)


def test_a_new_programs_packet_ins_have_its_header(busy: BusySwitch) -> None:
    """The previous program has no header for packet-ins, which arrive whole."""
    headless = load_config()
    del headless.p4info.controller_packet_metadata[:]
    with P4RuntimeServer([busy]) as server, Client(server.address) as client:
        stream = client.primary()
        assert client.set_config(headless) == "OK"
        busy.receive()
        assert len(stream.receive().packet.payload) == 10 + 14
        busy.busy = True
        assert client.set_config(load_config()) == "OK"
        told = [stream.receive().packet for _ in range(2)][-1]
        assert [item.value for item in told.metadata] == [b"\x01", b"\x00", b"\x0e"]
        assert told.payload == bytes(14)
        stream.close()
