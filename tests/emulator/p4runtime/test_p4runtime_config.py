"""The forwarding-pipeline config: its five actions, what is read back, and the check of P4Info against the program."""

from __future__ import annotations

import re
import shutil
import subprocess
import tracemalloc
from functools import partial
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4i, p4r, p4r_grpc
from google.protobuf import text_format

from weir.emulator.entries import EmulatorError
from weir.emulator.p4runtime import API_VERSION, P4RuntimeServer, ServerTls
from weir.tests.emulator.p4runtime.p4runtime_rig import (
    DEVICE_CONFIG,
    INSERT,
    MODIFY,
    Client,
    Names,
    RecordingDatapath,
    Stream,
    load_config,
    outcome,
)
from weir.tests.support.control_rig import certificates
from weir.tests.support.errors import raises

Set = p4r.SetForwardingPipelineConfigRequest
Get = p4r.GetForwardingPipelineConfigRequest


def test_config_is_read_back_in_the_parts_asked_for(loaded: Client) -> None:
    info, code = load_config().p4info, DEVICE_CONFIG.read_bytes()
    cookie = p4r.ForwardingPipelineConfig.Cookie(cookie=7)
    assert loaded.get_config(Get.ALL).config == load_config(cookie=7)
    assert loaded.get_config(Get.COOKIE_ONLY).config == p4r.ForwardingPipelineConfig(cookie=cookie)
    assert loaded.get_config(Get.P4INFO_AND_COOKIE).config == p4r.ForwardingPipelineConfig(p4info=info, cookie=cookie)
    assert loaded.get_config(Get.DEVICE_CONFIG_AND_COOKIE).config == p4r.ForwardingPipelineConfig(
        p4_device_config=code, cookie=cookie
    )
    assert loaded.set_config(load_config()) == "OK"
    assert not loaded.get_config(Get.ALL).config.HasField("cookie")
    assert outcome(lambda: loaded.get_config(9)) == "INVALID_ARGUMENT"  # type: ignore[arg-type]


def test_without_a_config_there_is_none_and_entities_are_refused(client: Client, stream: Stream) -> None:
    assert not client.get_config(Get.ALL).HasField("config")
    assert client.read_outcome(p4r.TableEntry()) == ["FAILED_PRECONDITION"]
    assert client.write((INSERT, p4r.TableEntry())) == ["FAILED_PRECONDITION"]


def test_unknown_devices_are_not_found(server: P4RuntimeServer, client: Client) -> None:
    stranger = Client(server.address, device_id=77)
    assert outcome(lambda: stranger.get_config(Get.ALL)) == "NOT_FOUND"
    assert stranger.set_config(load_config()) == "NOT_FOUND"
    assert outcome(lambda: stranger.stub.Write(stranger.write_request())) == "NOT_FOUND"
    assert outcome(lambda: stranger.read(p4r.TableEntry())) == "NOT_FOUND"
    assert outcome(lambda: stranger.stub.Capabilities(p4r.CapabilitiesRequest(device_id=77))) == "NOT_FOUND"


def test_capabilities_tell_the_version(client: Client) -> None:
    answer = client.stub.Capabilities(p4r.CapabilitiesRequest(device_id=1))
    assert answer == client.stub.Capabilities(p4r.CapabilitiesRequest())
    assert answer.p4runtime_api_version == API_VERSION


def test_only_the_primary_sets_the_config(client: Client) -> None:
    assert client.set_config(load_config()) == "PERMISSION_DENIED"


def test_verify_changes_nothing(client: Client, stream: Stream, datapath: RecordingDatapath) -> None:
    assert client.set_config(load_config(), Set.VERIFY) == "OK"
    assert datapath.program is None
    assert not client.get_config(Get.ALL).HasField("config")
    assert client.set_config(None, Set.VERIFY) == "INVALID_ARGUMENT"


def test_commit_clears_the_forwarding_state(loaded: Client, names: Names) -> None:
    entry = names.exact_entry(b"\x01", b"\x02", names.call("forward", b"\x03"))
    group = p4r.MulticastGroupEntry(multicast_group_id=1)
    assert loaded.write((INSERT, entry), (INSERT, group)) == ["OK", "OK"]
    assert loaded.set_config(load_config()) == "OK"
    query = p4r.TableEntry(table_id=names.table["exact_table"])
    assert loaded.read(query, p4r.MulticastGroupEntry()) == []


def test_saved_config_takes_writes_and_commit_realises_them(
    loaded: Client, names: Names, datapath: RecordingDatapath
) -> None:
    old = names.exact_entry(b"\x01", b"\x02", names.call("forward", b"\x03"))
    new = names.exact_entry(b"\x04", b"\x05", names.call("forward", b"\x06"))
    group = p4r.MulticastGroupEntry(multicast_group_id=1, replicas=[p4r.Replica(port=b"\x01")])
    query = p4r.TableEntry(table_id=names.table["exact_table"])
    assert loaded.write((INSERT, old)) == ["OK"]
    running = datapath.state
    assert loaded.set_config(load_config(cookie=8), Set.VERIFY_AND_SAVE) == "OK"
    assert loaded.read(query) == []
    assert loaded.write((INSERT, new), (INSERT, new), (INSERT, group)) == ["OK", "ALREADY_EXISTS", "OK"]
    assert datapath.state is running
    assert dict(datapath.replication.groups) == {}
    assert loaded.get_config(Get.COOKIE_ONLY).config.cookie.cookie == 8
    assert loaded.set_config(load_config(), Set.COMMIT) == "INVALID_ARGUMENT"
    assert loaded.set_config(None, Set.COMMIT) == "OK"
    assert datapath.state is not running
    assert [found.table_entry for found in loaded.read(query)] == [new]
    assert list(datapath.replication.groups) == [1]
    assert loaded.set_config(None, Set.COMMIT) == "NOT_FOUND"


@pytest.mark.parametrize("saved", [False, True])
def test_reconcile_keeps_state_and_commit_that_of_a_saved_config(
    loaded: Client, names: Names, datapath: RecordingDatapath, saved: bool
) -> None:
    if saved:
        assert loaded.set_config(load_config(cookie=9), Set.VERIFY_AND_SAVE) == "OK"
    counted = names.exact_entry(b"\x01", b"\x02", names.call("forward", b"\x03"))
    counted.counter_data.packet_count, counted.metadata = 9, b"mine"
    member = p4r.ActionProfileMember(action_profile_id=names.profile["paths"], member_id=5)
    member.action.CopyFrom(names.call("forward", b"\x01"))
    group = p4r.ActionProfileGroup(action_profile_id=names.profile["paths"], group_id=6, max_size=4)
    group.members.add(member_id=5, weight=2)
    selected = p4r.TableEntry(table_id=names.table["selector_table"])
    selected.match.add(field_id=1).exact.value = b"\x01"
    selected.action.action_profile_group_id = 6
    default = p4r.TableEntry(table_id=names.table["keyless_table"], is_default_action=True)
    default.action.action.CopyFrom(names.call("forward", b"\x04"))
    multicast = p4r.MulticastGroupEntry(multicast_group_id=1, metadata=b"mine")
    clone = p4r.CloneSessionEntry(session_id=2, replicas=[p4r.Replica(port=b"\x05")])
    counter = p4r.CounterEntry(counter_id=names.counter["ports"])
    counter.index.index, counter.data.byte_count = 3, 33
    register = p4r.RegisterEntry(register_id=names.register["levels"])
    register.index.index, register.data.bitstring = 2, b"\xfe"
    assert loaded.write((INSERT, counted), (INSERT, member)) == ["OK"] * 2
    assert loaded.write((INSERT, group), (INSERT, multicast), (INSERT, clone), (MODIFY, default)) == ["OK"] * 4
    assert loaded.write((INSERT, selected), (MODIFY, counter), (MODIFY, register)) == ["OK"] * 3
    everything = (
        p4r.TableEntry(counter_data=p4r.CounterData()),
        p4r.TableEntry(is_default_action=True),
        p4r.ActionProfileMember(),
        p4r.ActionProfileGroup(),
        p4r.CounterEntry(),
        p4r.RegisterEntry(),
        p4r.MulticastGroupEntry(),
        p4r.CloneSessionEntry(),
    )
    before, state = loaded.dump(*everything), datapath.state
    commit = (None, Set.COMMIT) if saved else (load_config(cookie=9), Set.RECONCILE_AND_COMMIT)
    assert loaded.set_config(*commit) == "OK"
    assert datapath.state is not state
    assert loaded.dump(*everything) == before
    assert loaded.get_config(Get.COOKIE_ONLY).config.cookie.cookie == 9


def test_repeated_writes_to_a_saved_config_take_no_more_memory(loaded: Client, names: Names) -> None:
    """It remembered each update for the commit."""
    entry = names.exact_entry(b"\x01", b"\x02", names.call("forward", b"\x03"))
    again = [(MODIFY, entry)] * 1000
    assert loaded.set_config(load_config(), Set.VERIFY_AND_SAVE) == "OK"
    assert loaded.write((INSERT, entry), *again) == ["OK"] * 1001
    tracemalloc.start()
    try:
        for _ in range(5):
            assert loaded.write(*again) == ["OK"] * 1000
        assert tracemalloc.get_traced_memory()[0] < 250_000, "of 5,000 updates, a hundred bytes each at the least"
    finally:
        tracemalloc.stop()


def test_reconcile_refuses_what_it_cannot_keep(loaded: Client, names: Names, datapath: RecordingDatapath) -> None:
    entry = names.exact_entry(b"\x01", b"\x02", names.call("forward", b"\x03"))
    assert loaded.write((INSERT, entry)) == ["OK"]
    state, config = datapath.state, load_config()
    del config.p4info.tables[0]
    assert config.p4info.tables[0].preamble.alias != "exact_table"
    assert loaded.set_config(config, Set.RECONCILE_AND_COMMIT) == "INVALID_ARGUMENT"
    assert datapath.state is state
    assert len(loaded.read(p4r.TableEntry(table_id=names.table["exact_table"]))) == 1


def test_reconcile_takes_a_program_without_what_holds_nothing(loaded: Client, names: Names) -> None:
    """A table that the new P4Info does not have is no obstacle while nothing was written to it."""
    config = load_config()
    gone = {"exact_table", "const_table", "keyless_table"}
    kept = [table for table in config.p4info.tables if table.preamble.alias not in gone]
    del config.p4info.tables[:]
    config.p4info.tables.extend(kept)
    del config.p4info.direct_counters[:]
    assert loaded.set_config(config, Set.RECONCILE_AND_COMMIT) == "OK"
    assert loaded.read_outcome(p4r.TableEntry(table_id=names.table["exact_table"])) == ["INVALID_ARGUMENT"]


def _rename_table(info: p4i.P4Info) -> None:
    info.tables[0].preamble.name = "MainIngress.elsewhere"


def _drop_match_field(info: p4i.P4Info) -> None:
    del info.tables[0].match_fields[1]


def _widen_match_field(info: p4i.P4Info) -> None:
    info.tables[0].match_fields[0].bitwidth = 49


def _change_match_kind(info: p4i.P4Info) -> None:
    info.tables[0].match_fields[0].match_type = p4i.MatchField.LPM


def _forget_action(info: p4i.P4Info) -> None:
    del info.actions[:]


def _widen_param(info: p4i.P4Info) -> None:
    next(action for action in info.actions if action.preamble.alias == "forward").params[0].bitwidth = 10


def _grow_counter(info: p4i.P4Info) -> None:
    info.counters[0].size = 7


def _grow_register(info: p4i.P4Info) -> None:
    info.registers[0].size = 9


def _widen_register(info: p4i.P4Info) -> None:
    info.registers[0].type_spec.bitstring.bit.bitwidth = 47


def _type_register_by_itself(info: p4i.P4Info) -> None:
    info.type_info.new_types["loop"].original_type.new_type.name = "loop"
    info.registers[0].type_spec.new_type.name = "loop"


def _share_an_id(info: p4i.P4Info) -> None:
    info.tables[1].preamble.id = info.tables[0].preamble.id


def _zero_id(info: p4i.P4Info) -> None:
    info.tables[0].preamble.id = 0


def _forget_profile(info: p4i.P4Info) -> None:
    del info.action_profiles[:]


def _flatten_header(info: p4i.P4Info) -> None:
    info.controller_packet_metadata[0].metadata[0].bitwidth = 0


@pytest.mark.parametrize(
    "damage",
    [
        _rename_table,
        _drop_match_field,
        _widen_match_field,
        _change_match_kind,
        _forget_action,
        _widen_param,
        _grow_counter,
        _grow_register,
        _widen_register,
        _type_register_by_itself,
        _share_an_id,
        _zero_id,
        _forget_profile,
        _flatten_header,
    ],
)
def test_a_p4info_of_another_program_is_refused(loaded: Client, datapath: RecordingDatapath, damage: object) -> None:
    state, config = datapath.state, load_config()
    assert callable(damage)
    damage(config.p4info)
    request = Set(device_id=1, election_id=loaded.election_id, action=Set.VERIFY_AND_COMMIT, config=config)
    with pytest.raises(grpc.RpcError) as error:
        loaded.stub.SetForwardingPipelineConfig(request)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "P4Info" in (error.value.details() or "")
    assert datapath.state is state
    assert loaded.get_config(Get.COOKIE_ONLY).config.cookie.cookie == 7


def test_p4info_of_another_program_without_dots_is_refused(loaded: Client) -> None:
    config = load_config()
    config.p4_device_config = re.sub(rb'"Main(In|E)gress\.', b'"', config.p4_device_config)
    text = re.sub(r'"Main(In|E)gress\.', '"', text_format.MessageToString(config.p4info))
    config.p4info.CopyFrom(text_format.Parse(text, p4i.P4Info()))
    assert loaded.set_config(config) == "OK"
    config.p4info.tables[0].preamble.name = "of_another_program"
    assert loaded.set_config(config) == "INVALID_ARGUMENT"


def test_a_table_that_p4c_has_left_out_is_in_p4info_alone(loaded: Client, names: Names) -> None:
    """No packet comes to it, so the program is without it, and bmv2 takes both: an entry is UNKNOWN there, too."""
    config = load_config()
    info = config.p4info
    table, counter, action = info.tables.add(), info.direct_counters.add(), info.actions.add()
    table.CopyFrom(info.tables[0])
    table.preamble.id, table.preamble.name = 0x02FFFFFF, "MainIngress.never"
    action.preamble.id, action.preamble.name = 0x01FFFFFF, "MainIngress.nobody"
    counter.preamble.id, counter.preamble.name = 0x13FFFFFF, "MainIngress.uncounted"
    counter.direct_table_id = table.preamble.id
    table.action_refs.add(id=action.preamble.id)
    info.action_profiles[0].table_ids.insert(0, table.preamble.id)  # which another table has as well
    assert loaded.set_config(config) == "OK"
    assert loaded.read_outcome(p4r.TableEntry()) == ["OK"]
    assert loaded.read_outcome(p4r.DirectCounterEntry(table_entry=p4r.TableEntry())) == ["OK"]
    assert loaded.write((INSERT, p4r.TableEntry(table_id=table.preamble.id))) == ["UNKNOWN"]
    assert loaded.read_outcome(p4r.TableEntry(table_id=table.preamble.id)) == ["UNKNOWN"]
    entry = names.exact_entry(b"\x01", b"\x02", names.call("forward", b"\x03"))
    assert loaded.write((INSERT, entry)) == ["OK"]


@pytest.mark.parametrize("code", [b"", b"no json", b"{}", b"[1]", b"\xff\xfe\x00", b'{"pipelines": 3}'])
def test_a_device_config_that_is_no_program_is_refused(client: Client, stream: Stream, code: bytes) -> None:
    config = load_config()
    config.p4_device_config = code
    assert client.set_config(config) == "INVALID_ARGUMENT"


def test_unspecified_and_unknown_actions_are_refused(client: Client, stream: Stream) -> None:
    assert client.set_config(load_config(), Set.UNSPECIFIED) == "INVALID_ARGUMENT"


def test_a_port_in_use_is_an_error_that_names_it(server: P4RuntimeServer) -> None:
    second = P4RuntimeServer([RecordingDatapath()], server.address)
    with raises(EmulatorError, place="P4Runtime", value=server.address):
        second.start()


@pytest.mark.parametrize("address", ["127.0.0.1", "9559", "127.0.0.1:99999", "127.0.0.1:http"])
def test_an_address_without_a_port_is_an_error_that_names_it(address: str) -> None:
    with pytest.raises(EmulatorError, match=f"'{address}' is not ADDRESS:PORT with a port up to 65535"):
        P4RuntimeServer([], address).start()


def test_two_switches_with_one_id_are_an_error() -> None:
    with raises(EmulatorError, value=4):
        P4RuntimeServer([RecordingDatapath(4), RecordingDatapath(4)])


def test_a_stopped_server_can_be_replaced(datapath: RecordingDatapath) -> None:
    with P4RuntimeServer([datapath]) as first:
        stream = Client(first.address).primary()
        first.stop()
    assert stream.ended() in ("CANCELLED", "UNAVAILABLE")
    with P4RuntimeServer([datapath], first.address) as second:
        assert second.address == first.address
        assert second.port == first.port


def test_a_stopped_server_can_be_started_again(datapath: RecordingDatapath) -> None:
    server = P4RuntimeServer([datapath])
    for election_id in (1, 2):
        with server, Client(server.address, election_id=election_id) as client:
            stream = client.primary()
            assert client.set_config(load_config()) == "OK"
            assert client.write((INSERT, p4r.MulticastGroupEntry(multicast_group_id=1))) == ["OK"]
            stream.close()


def test_a_unix_socket(datapath: RecordingDatapath, tmp_path: Path) -> None:
    with P4RuntimeServer([datapath], f"unix:{tmp_path}/p4runtime.sock") as server:
        assert Client(server.address).set_config(load_config()) == "PERMISSION_DENIED"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes the certificate, is not installed")
def test_tls(datapath: RecordingDatapath, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost"
    files = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    roots = certificate.read_bytes()
    with P4RuntimeServer([datapath], tls=ServerTls(key.read_bytes(), roots)) as server:
        with grpc.secure_channel(f"localhost:{server.port}", grpc.ssl_channel_credentials(roots)) as channel:
            answer = p4r_grpc.P4RuntimeStub(channel).Capabilities(p4r.CapabilitiesRequest(), timeout=60)
        assert answer.p4runtime_api_version == API_VERSION
        plain = Client(server.address)
        assert outcome(lambda: plain.stub.Capabilities(p4r.CapabilitiesRequest(), timeout=60)) == "UNAVAILABLE"
    with raises(EmulatorError, place="P4Runtime", value="127.0.0.1:0"):
        P4RuntimeServer([datapath], tls=ServerTls(b"key", roots)).start()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes the certificate, is not installed")
def test_with_client_roots_only_their_certificates_are_served(datapath: RecordingDatapath, tmp_path: Path) -> None:
    ours, others = certificates(tmp_path, "ours"), certificates(tmp_path, "others")
    roots, key = Path(ours.certificate).read_bytes(), Path(ours.key).read_bytes()
    shown = {
        "none": (None, None),
        "a stranger's": (Path(others.key).read_bytes(), Path(others.certificate).read_bytes()),
        "ours": (key, roots),
    }
    answers = {}
    with P4RuntimeServer([datapath], tls=ServerTls(key, roots, client_roots=roots)) as server:
        for name, pair in shown.items():
            credentials = grpc.ssl_channel_credentials(roots, *pair)
            with grpc.secure_channel(f"localhost:{server.port}", credentials) as channel:
                capabilities = p4r_grpc.P4RuntimeStub(channel).Capabilities
                answers[name] = outcome(partial(capabilities, p4r.CapabilitiesRequest(), timeout=60))
    assert answers == {"none": "UNAVAILABLE", "a stranger's": "UNAVAILABLE", "ours": "OK"}
