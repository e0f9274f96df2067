"""Digests, idle entries and atomic batches of a switch on network interfaces, by the wall clock."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from finsy.proto import p4r

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.ports.wired import WiredSwitch
from weir.emulator.switch import Switch
from weir.tests.emulator.network import needs_namespaces, network
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    EXTERNS,
    INSERT,
    MODIFY,
    Client,
    externs_config,
    flow,
    stage,
    stage_entry,
    stages_config,
)

pytestmark = needs_namespaces


def test_a_switch_on_interfaces_tells_digests_and_idle_entries(tmp_path: Path) -> None:
    switch = Switch(1, ports=[1, 2])
    server = P4RuntimeServer([switch], f"unix:{tmp_path}/grpc")
    with server, network([1, 2]) as net, WiredSwitch(switch, net.interfaces):
        client = Client(server.address)
        stream = client.primary()
        assert client.set_config(externs_config()) == "OK"
        digest = p4r.DigestEntry(digest_id=EXTERNS.digests[0].preamble.id)
        digest.config.max_timeout_ns, digest.config.ack_timeout_ns = 1_000_000, 1 << 60
        assert client.write((INSERT, digest)) == ["OK"]
        net.send(2, bytes((3, 0, 0, 9)) + bytes(56))
        [record] = stream.receive().digest.data
        assert [member.bitstring for member in record.struct.members][:3] == [b"\x03", b"\x09", b"\x02"]
        entry = flow(7)
        entry.idle_timeout_ns = 30_000_000
        assert client.write((INSERT, entry)) == ["OK"]
        first, second = (stream.receive().idle_timeout_notification for _ in range(2))
        assert [told.table_entry[0].match for told in (first, second)] == [entry.match] * 2
        assert second.timestamp - first.timestamp >= entry.idle_timeout_ns
        stream.close()
        client.channel.close()


def test_atomic_batches_are_whole_for_packets_on_interfaces(tmp_path: Path) -> None:
    """Two tables give each packet one number each; a packet that finds them different is counted as torn."""
    switch = Switch(1, ports=[1, 2])
    server = P4RuntimeServer([switch], f"unix:{tmp_path}/grpc")
    with server, network([1, 2]) as net, WiredSwitch(switch, net.interfaces), ThreadPoolExecutor(1) as pool:
        client = Client(server.address)
        stream = client.primary()
        assert client.set_config(stages_config()) == "OK"
        tables = ("firsts", "set_first"), ("seconds", "set_second")
        entries = [stage_entry(table, key, action, 0) for table, action in tables for key in range(64)]
        assert client.write(*((INSERT, entry) for entry in entries)) == ["OK"] * len(entries)
        stop = threading.Event()

        def traffic() -> int:
            sent = 0
            while not stop.is_set():
                net.send(2, bytes((sent % 64,)) + bytes(59))
                sent += 1
            return sent

        sending = pool.submit(traffic)
        try:
            for value in range(1, 30):
                request = client.write_request()
                request.atomicity = p4r.WriteRequest.DATAPLANE_ATOMIC
                for entry in entries:
                    entry.action.action.params[0].value = bytes((value,))
                    request.updates.add(type=MODIFY).entity.table_entry.CopyFrom(entry)
                client.stub.Write(request)
        finally:
            stop.set()
        assert sending.result() > 0
        [torn] = client.read(p4r.CounterEntry(counter_id=stage("torn")))
        assert torn.counter_entry.data.packet_count == 0
        assert switch.counters.ingress_packets > 0
        stream.close()
        client.channel.close()
