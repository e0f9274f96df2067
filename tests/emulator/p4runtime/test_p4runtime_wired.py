"""Digests and idle entries of a switch on network interfaces, by the wall clock."""

from __future__ import annotations

from pathlib import Path

from finsy.proto import p4r

from emulator.p4runtime import P4RuntimeServer
from emulator.ports.wired import WiredSwitch
from emulator.switch import Switch
from tests.emulator.network import needs_namespaces, network
from tests.emulator.p4runtime.p4runtime_rig import EXTERNS, INSERT, Client, externs_config, flow

pytestmark = needs_namespaces


def test_a_switch_on_interfaces_tells_digests_and_idle_entries(tmp_path: Path) -> None:
    switch = Switch(1, ports=[1, 2])
    server = P4RuntimeServer([switch], f"unix:{tmp_path}/grpc")
    server.start()
    with network([1, 2]) as net, WiredSwitch(switch, net.interfaces):
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
    server.stop()
