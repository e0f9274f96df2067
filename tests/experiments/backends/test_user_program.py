"""Program and P4Info of each switch of a fabric, if the user supplies them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weir.emulator.p4runtime.server import P4RuntimeServer
from weir.emulator.switch import Switch
from weir.experiments.backends.user_program import UserProgram, load_program, user_programs
from weir.experiments.errors import ExperimentError
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises
from weir.topologies.runtime_json import RuntimeFile

BUILD = ROOT / "examples" / "exercise" / "build"


def test_the_command_line_precedes_a_switchs_own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples" / "exercise")
    file = RuntimeFile.read(Path("pod/s1-runtime.json"))
    firewall = ROOT / "examples" / "p4_program" / "firewall.json"
    info = firewall.with_name("firewall.p4info.txtpb")
    by_file = UserProgram(Path("build/router.json"), Path("build/router.p4info.txtpb"), [file])
    assert user_programs(["s1"], None, None, {"s1": [file]}, {}) == {"s1": by_file}
    assert user_programs(["s1"], firewall, None, {"s1": [file]}, {}) == {"s1": UserProgram(firewall, info, [file])}
    assert user_programs(["s1"], firewall, by_file.p4info, {}, {}) == {"s1": UserProgram(firewall, by_file.p4info)}


def test_missing_files_are_reported_before_a_fabric_is_built(tmp_path: Path) -> None:
    with raises(ExperimentError, place="s2"):
        user_programs(["s1", "s2"], None, None, {}, {"s1": BUILD / "router.json"})
    with raises(ExperimentError, place="s1: mine.json", value=Path("mine.json")):
        user_programs(["s1"], Path("mine.json"), None, {}, {})
    with raises(ExperimentError, place=f"s1: {tmp_path}", value=tmp_path):
        user_programs(["s1"], tmp_path, None, {}, {})
    alone = tmp_path / "alone.json"
    alone.write_bytes((BUILD / "router.json").read_bytes())
    absent = tmp_path / "alone.p4info.txtpb"
    with raises(ExperimentError, place=f"s1: {absent}", value=absent):
        user_programs(["s1"], alone, None, {}, {})


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"action_name": "RouterIngress.fly"}, "RouterIngress.fly"),
        ({"action_params": {"dst_addr": "08:00:00:00:01:11", "port": 70000}}, "70000"),
        ({"match": {"hdr.ipv4.dst_addr": [1 << 40, 32]}}, "1099511627776"),
        ({"match": {"hdr.ipv4.src_addr": [1, 32]}}, "hdr.ipv4.src_addr"),
    ],
)
async def test_an_entry_that_the_program_cannot_have_is_named(
    row: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    good = {
        "table": "RouterIngress.routes",
        "match": {"hdr.ipv4.dst_addr": ["10.0.1.1", 32]},
        "action_name": "RouterIngress.forward",
        "action_params": {"dst_addr": "08:00:00:00:01:11", "port": 1},
    }
    path = tmp_path / "s1.json"
    own = UserProgram(BUILD / "router.json", BUILD / "router.p4info.txtpb", [])
    server = P4RuntimeServer([Switch(1, ports=range(4))])
    server.start()
    try:
        for rows, refused in (([good], False), ([good, {**good, **row}], True)):
            path.write_text(json.dumps({"table_entries": rows}))
            loading = load_program("s1", server.address, 1, replace(own, entries=[RuntimeFile.read(path)]))
            if refused:
                with pytest.raises(ExperimentError) as error:
                    await loading
                assert f"{path}: table_entries[1]: " in str(error.value)
                assert complaint in str(error.value)
            else:
                assert await loading == 1
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"multicast_group_entries": [{"multicast_group_id": 1 << 40}]}, f"multicast_group_id {1 << 40}"),
        ({"multicast_group_entries": [{"multicast_group_id": 1, "replicas": [{"egress_port": 1 << 40}]}]}, "id 1"),
        ({"clone_session_entries": [{"clone_session_id": 5, "packet_length_bytes": 1 << 40}]}, "clone_session_id 5"),
    ],
)
async def test_replication_that_p4runtime_cannot_have_is_named(
    content: dict[str, Any], place: str, tmp_path: Path
) -> None:
    path = tmp_path / "s1.json"
    path.write_text(json.dumps(content))
    own = UserProgram(BUILD / "router.json", BUILD / "router.p4info.txtpb", [RuntimeFile.read(path)])
    with P4RuntimeServer([Switch(1, ports=range(4))]) as server, pytest.raises(ExperimentError) as error:
        await load_program("s1", server.address, 1, own)
    assert str(error.value).startswith(f"{path}: ")
    assert f"{place}: " in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe\x00",
        b"garbage {",
        b"{not JSON",
        b"tables { preamble { id: 1 } } tables { preamble { id: 1 } }",
        b"tables { preamble { id: 1 } action_refs { id: 2 } }",
        b'type_info { structs { key: "a" value { members { type_spec {' + b"tuple { members { " * 3000,
    ],
)
async def test_a_file_that_is_no_p4info_is_named(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "router.p4info.txtpb"
    path.write_bytes(text)
    with raises(ExperimentError, place=f"s1: {path}"):
        await load_program("s1", "unix:absent", 1, UserProgram(BUILD / "router.json", path))
