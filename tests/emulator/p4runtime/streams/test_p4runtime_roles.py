"""Roles: permissions to write, read and receive, by a role's config and by annotations in the P4 source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from finsy.proto import U128, p4r, stratum

from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.p4runtime.refusal import Refusal
from weir.emulator.p4runtime.roles import MAX_ROLES, Roles
from weir.emulator.switch import Switch
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    EXTERNS,
    FLOWS,
    INSERT,
    MODIFY,
    Client,
    Names,
    RecordingDatapath,
    Stream,
    entity,
    externs_config,
    flow,
    grpc_code,
    load_config,
    outcome,
    stage,
    stage_entry,
    text,
)

Config = stratum.P4RoleConfig


def update(role: str, election_id: int = 1, config: Config | None = None) -> p4r.StreamMessageRequest:
    request = p4r.StreamMessageRequest()
    request.arbitration.device_id = 1
    request.arbitration.role.name = role
    request.arbitration.election_id.CopyFrom(U128.encode(election_id))
    if config is not None:
        request.arbitration.role.config.Pack(config)
    return request


class Roled:
    """A client with a role, whose stream has asked to be primary."""

    def __init__(self, address: str, role: str, config: Config | None = None, election_id: int = 1) -> None:
        self.role = role
        self.client = Client(address, election_id=election_id)
        self.stream: Stream = self.client.stream()
        self.stream.send(update(role, election_id, config))

    def primary(self) -> Roled:
        assert self.stream.receive().arbitration.status.code == 0
        return self

    def write(self, *updates: tuple[p4r.Update.Type.ValueType, object]) -> list[str]:
        return self.client.write(*updates, role=self.role)

    def read(self, *queries: object) -> set[str]:
        request = p4r.ReadRequest(device_id=1, role=self.role, entities=[entity(query) for query in queries])
        return {text(found) for response in self.client.stub.Read(request) for found in response.entities}

    def set_config(self, config: p4r.ForwardingPipelineConfig) -> str:
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=1,
            role=self.role,
            election_id=self.client.election_id,
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=config,
        )
        return outcome(lambda: self.client.stub.SetForwardingPipelineConfig(request))

    def close(self) -> None:
        self.stream.close()
        self.client.channel.close()


@pytest.fixture
def roled() -> Iterator[list[Roled]]:
    """Closed at the end."""
    opened: list[Roled] = []
    yield opened
    for each in opened:
        each.close()


def texts(*messages: object) -> set[str]:
    return {text(entity(message)) for message in messages}


def test_a_role_writes_and_reads_what_its_config_lists(
    loaded: Client, names: Names, server: P4RuntimeServer, roled: list[Roled]
) -> None:
    exact, ports, levels = names.table["exact_table"], names.counter["ports"], names.register["levels"]
    one = Roled(server.address, "one", Config(exclusive_p4_ids=[exact], shared_p4_ids=[ports])).primary()
    two = Roled(server.address, "two", Config(shared_p4_ids=[ports, levels])).primary()
    free = Roled(server.address, "free").primary()
    roled += [one, two, free]
    forward = names.call("forward", b"\x01")
    entries = [names.exact_entry(bytes([i]), b"\x01", forward) for i in range(4)]
    keyless = p4r.TableEntry(table_id=names.table["keyless_table"], is_default_action=True)
    counter = p4r.CounterEntry(counter_id=ports, index=p4r.Index(index=1), data=p4r.CounterData(packet_count=5))
    register = p4r.RegisterEntry(register_id=levels, index=p4r.Index(index=1))
    register.data.bitstring = b"\x07"
    group = p4r.MulticastGroupEntry(multicast_group_id=1)
    denied, done = "PERMISSION_DENIED", "OK"
    assert one.write((INSERT, entries[0]), (MODIFY, counter), (MODIFY, register), (MODIFY, keyless)) == [
        *(done, done, denied, denied)
    ]
    direct = p4r.DirectCounterEntry(table_entry=names.exact_entry(bytes([0]), b"\x01"))
    assert one.write((MODIFY, direct)) == [done]
    assert two.write((INSERT, entries[1]), (MODIFY, counter), (MODIFY, register), (MODIFY, direct)) == [
        *(denied, done, done, denied)
    ]
    assert free.write((INSERT, entries[1]), (MODIFY, counter), (MODIFY, register), (MODIFY, keyless)) == [
        *(denied, done, done, done)
    ]
    assert loaded.write((INSERT, entries[1])) == [done], "the default role may do everything"
    assert two.write((INSERT, group)) == [done], "what has no id is everybody's"
    queries = (p4r.TableEntry(table_id=exact), p4r.RegisterEntry(register_id=levels, index=p4r.Index(index=1)), group)
    assert one.read(*queries) == texts(*entries[:2], group)
    assert two.read(*queries) == texts(register, group)
    assert loaded.dump(*queries) == texts(*entries[:2], register, group)
    assert one.read(p4r.TableEntry()) == texts(*entries[:2])
    assert two.read(p4r.TableEntry()) == set()
    assert free.read(p4r.TableEntry()) == loaded.dump(p4r.TableEntry()) - texts(*entries)
    stranger = p4r.ReadRequest(device_id=1, role="nobody", entities=[entity(p4r.TableEntry())])
    assert outcome(lambda: list(loaded.stub.Read(stranger))) == "NOT_FOUND"
    atomic = one.client.write_request((INSERT, entries[2]), (MODIFY, register))
    atomic.role, atomic.atomicity = "one", p4r.WriteRequest.ROLLBACK_ON_ERROR
    assert outcome(lambda: one.client.stub.Write(atomic)) == "UNKNOWN"
    assert one.read(p4r.TableEntry()) == texts(*entries[:2])


def test_a_role_sets_the_pipeline_only_if_its_config_says_so(
    loaded: Client, server: P4RuntimeServer, roled: list[Roled]
) -> None:
    one = Roled(server.address, "one", Config()).primary()
    two = Roled(server.address, "two", Config(can_push_pipeline=True)).primary()
    three = Roled(server.address, "three").primary()
    roled += [one, two, three]
    assert [each.set_config(load_config()) for each in roled] == ["PERMISSION_DENIED", "OK", "OK"]


def test_bad_role_configs_end_the_stream(server: P4RuntimeServer, client: Client, roled: list[Roled]) -> None:
    roled.append(Roled(server.address, "one", Config(exclusive_p4_ids=[5], shared_p4_ids=[6])).primary())
    bad = [
        ("two", Config(exclusive_p4_ids=[5])),
        ("two", Config(shared_p4_ids=[5])),
        ("two", Config(exclusive_p4_ids=[6])),
        ("two", Config(shared_p4_ids=[0])),
        ("two", Config(shared_p4_ids=[7, 7])),
        ("", Config()),
    ]
    for role, config in bad:
        stream = client.stream()
        stream.send(update(role, 9, config))
        assert stream.ended() == "INVALID_ARGUMENT"
    for type_url, value in (("example.com/other", b""), ("type.googleapis.com/stratum.P4RoleConfig", b"\xff")):
        foreign = update("two")
        foreign.arbitration.role.config.type_url, foreign.arbitration.role.config.value = type_url, value
        stream = client.stream()
        stream.send(foreign)
        assert stream.ended() == "INVALID_ARGUMENT"
    assert client.write(role="two") == ["NOT_FOUND"], "who was refused has made no role"


def test_the_config_is_the_primarys_and_told_to_all_of_the_role(server: P4RuntimeServer, roled: list[Roled]) -> None:
    first, second = Config(shared_p4_ids=[1]), Config(shared_p4_ids=[2])
    one = Roled(server.address, "r", first, 5).primary()
    backup = Roled(server.address, "r", second, 3)
    roled += [one, backup]

    def told(stream: Stream) -> tuple[str, Config]:
        message, config = stream.receive().arbitration, Config()
        assert message.role.config.Unpack(config)
        return grpc_code(message.status.code), config

    assert told(backup.stream) == ("ALREADY_EXISTS", first)
    backup.stream.send(update("r", 7, second))
    assert told(one.stream) == ("ALREADY_EXISTS", second)
    assert told(backup.stream) == ("OK", second)
    backup.stream.send(update("r", 7, first))
    assert [told(one.stream), told(backup.stream)] == [("ALREADY_EXISTS", first), ("OK", first)]


def test_packet_ins_go_to_the_roles_that_receive_them(
    loaded: Client, stream: Stream, server: P4RuntimeServer, datapath: RecordingDatapath, roled: list[Roled]
) -> None:
    """`packet_in` of `every_entity.p4` begins with the ingress port, 9 bits."""
    filtered = Config(
        receives_packet_ins=True, packet_in_filter=Config.PacketFilter(metadata_id=1, value=b"\x00\x00\x05")
    )
    configs = {"none": Config(), "all": Config(receives_packet_ins=True), "five": filtered, "free": None}
    roled += [Roled(server.address, role, config).primary() for role, config in configs.items()]
    assert datapath.on_packet_in is not None
    for port in (5, 6):
        datapath.on_packet_in((port << 71).to_bytes(10, "big") + bytes((port,)))
    assert [stream.receive().packet.payload for _ in range(2)] == [b"\x05", b"\x06"]
    every, five, free = roled[1:]
    assert [every.stream.receive().packet.payload for _ in range(2)] == [b"\x05", b"\x06"]
    assert [free.stream.receive().packet.payload for _ in range(2)] == [b"\x05", b"\x06"]
    assert five.stream.receive().packet.payload == b"\x05"
    assert server.packet_ins(1) == 2 + 2 + 2 + 1
    for each in (roled[0], five):
        each.stream.send(update(each.role, 1, configs[each.role]))
        assert each.stream.receive().WhichOneof("update") == "arbitration", "nothing was waiting"


def test_digests_and_idle_entries_go_to_roles_that_may_use_them(
    externs: Client, externs_stream: Stream, externs_server: P4RuntimeServer, switch: Switch, roled: list[Roled]
) -> None:
    digest_id = EXTERNS.digests[0].preamble.id
    learner = Roled(externs_server.address, "learner", Config(shared_p4_ids=[digest_id])).primary()
    ager = Roled(externs_server.address, "ager", Config(shared_p4_ids=[FLOWS])).primary()
    roled += [learner, ager]
    entry = flow(7)
    entry.idle_timeout_ns = 1_000_000
    assert ager.write((INSERT, p4r.DigestEntry(digest_id=digest_id)), (INSERT, entry)) == ["PERMISSION_DENIED", "OK"]
    assert learner.write((INSERT, p4r.DigestEntry(digest_id=digest_id))) == ["OK"]
    switch.forward(bytes((3, 0, 0, 9, 0, 0, 0, 0)), 0, at_ns=500_000)
    switch.forward(bytes(8), 0, at_ns=2_000_000)
    told = {each.role: each.stream.receive().WhichOneof("update") for each in roled}
    assert told == {"learner": "digest", "ager": "idle_timeout_notification"}
    assert [externs_stream.receive().WhichOneof("update") for _ in range(2)] == ["digest", "idle_timeout_notification"]
    ager.stream.send(p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=digest_id, list_id=1)))
    assert grpc_code(ager.stream.receive().error.canonical_code) == "PERMISSION_DENIED"


def test_a_primary_without_digest_rights_causes_no_repetition(
    externs: Client, externs_stream: Stream, externs_server: P4RuntimeServer, switch: Switch, roled: list[Roled]
) -> None:
    digest = p4r.DigestEntry(digest_id=EXTERNS.digests[0].preamble.id)
    digest.config.ack_timeout_ns = 1 << 60
    assert externs.write((INSERT, digest)) == ["OK"]
    switch.forward(bytes((3, 0, 0, 9, 0, 0, 0, 0)), 0)
    roled.append(Roled(externs_server.address, "ager", Config(shared_p4_ids=[FLOWS])).primary())
    for value in (9, 8):
        switch.forward(bytes((3, 0, 0, value, 0, 0, 0, 0)), 0)
    records = [record.struct for _ in range(2) for record in externs_stream.receive().digest.data]
    assert [record.members[1].bitstring for record in records] == [b"\x09", b"\x08"]


def test_annotations_give_objects_to_roles(stages: Client, externs_server: P4RuntimeServer, roled: list[Roled]) -> None:
    """The table `seconds` of `stages.p4` belongs to the role second, the meter `paced` to the role meterer."""
    second, meterer = Roled(externs_server.address, "second").primary(), Roled(externs_server.address, "meterer")
    greedy = Roled(externs_server.address, "greedy", Config(shared_p4_ids=[stage("seconds")])).primary()
    roled += [second, meterer.primary(), greedy]
    entry, other = stage_entry("seconds", 1, "set_second", 2), stage_entry("firsts", 1, "set_first", 2)
    meter = p4r.MeterEntry(meter_id=stage("paced"), index=p4r.Index(index=1))
    assert second.write((INSERT, entry), (INSERT, other), (MODIFY, meter)) == ["OK", "OK", "PERMISSION_DENIED"]
    assert meterer.write((MODIFY, entry), (MODIFY, other), (MODIFY, meter)) == ["PERMISSION_DENIED", "OK", "OK"]
    assert greedy.write((MODIFY, entry)) == ["PERMISSION_DENIED"]
    assert stages.write((MODIFY, entry), (MODIFY, meter)) == ["OK"] * 2
    queries = p4r.TableEntry(table_id=stage("seconds")), p4r.TableEntry(table_id=stage("firsts"))
    assert [each.read(*queries) for each in roled] == [texts(entry, other), texts(other), set()]
    assert second.read(p4r.MeterEntry()) == set()
    assert len(meterer.read(p4r.MeterEntry())) == 2


def test_roles_are_not_remembered_without_end() -> None:
    roles = Roles()
    for number in range(MAX_ROLES - 1):
        roles.register(str(number))
    with pytest.raises(Refusal, match=f"{MAX_ROLES} roles"):
        roles.check(p4r.Role(name="one more"))
    assert roles.check(p4r.Role(name="5")) is None


def test_a_new_config_of_another_program_keeps_the_roles(
    externs: Client, externs_server: P4RuntimeServer, roled: list[Roled]
) -> None:
    one = Roled(externs_server.address, "one", Config(shared_p4_ids=[FLOWS])).primary()
    roled.append(one)
    assert externs.set_config(externs_config()) == "OK"
    assert one.write((INSERT, flow(1)), (MODIFY, p4r.MeterEntry(meter_id=EXTERNS.meters[0].preamble.id))) == [
        *("OK", "PERMISSION_DENIED")
    ]
