"""Fabrics and switches as p4lang/tutorials write them are read in full, and errors are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weir.topologies.errors import TopologyError
from weir.topologies.exercise import ExerciseHost, read_exercise
from weir.topologies.model import Endpoint, Link
from weir.topologies.runtime_json import RuntimeFile, RuntimeReplica, RuntimeRow, RuntimeSession, value_number
from weir.topologies.schema import load_topology

ROW: dict[str, Any] = {"table": "MyIngress.acl", "action_name": "MyIngress.drop", "action_params": {}}
TOPOLOGY: dict[str, Any] = {
    "hosts": {
        "h1": {"ip": "10.0.1.1/24", "mac": "08:00:00:00:01:1A", "commands": ["route add x"]},
        "h2": {"ip": "10.0.2.2/31"},
    },
    "switches": {"s1": {"runtime_json": "pod/s1.json"}, "s2": {"cli_input": "s2-commands.txt", "program": "b.json"}},
    "links": [["h1", "s1-p1"], ["s1-p2", "s2-p2", "5ms", 0.5], ["h2", "s2-p1", 0]],
}


def written(path: Path, data: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


def test_an_exercise_is_read_whole(tmp_path: Path) -> None:
    runtime = written(tmp_path / "pod" / "s1.json", {"target": "bmv2", "table_entries": [ROW]})
    found = read_exercise(written(tmp_path / "pod" / "topology.json", TOPOLOGY))
    assert [(host.name, str(host.address), host.mac) for host in found.topology.hosts] == [
        ("h1", "10.0.1.1", "08:00:00:00:01:1a"),
        ("h2", "10.0.2.2", "02:00:0a:00:02:02"),
    ]
    assert found.hosts == {"h1": ExerciseHost(24, ("route add x",)), "h2": ExerciseHost(31)}
    assert found.topology.links == (
        Link(Endpoint("h1", 0), Endpoint("s1", 1), 10**9, 0),
        Link(Endpoint("s1", 2), Endpoint("s2", 2), 500_000, 5_000_000),
        Link(Endpoint("h2", 0), Endpoint("s2", 1), 10**9, 0),
    )
    assert found.device_ids == {"s1": 0, "s2": 1}
    assert [file.path for file in found.runtime.values()] == [runtime]
    assert found.programs == {"s2": Path("b.json")}
    assert found.notes == ["s2: s2-commands.txt is left out, for it speaks to a Thrift server (simple_switch_CLI)"]


def test_an_exercise_is_read_in_the_folder_of_its_topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "build" / "basic.json", {})
    written(tmp_path / "pod" / "s1.json", {"bmv2_json": "build/basic.json"})
    written(tmp_path / "pod" / "topology.json", TOPOLOGY)
    monkeypatch.chdir(tmp_path / "pod")
    found = read_exercise(Path("topology.json"))
    assert found.runtime["s1"].program == tmp_path / "build" / "basic.json"
    assert load_topology("topology.json") == found.topology


def with_switches(switches: dict[str, Any], delay: object = 0) -> dict[str, Any]:
    """An exercise with these keys of its switches, and this delay of its only link."""
    return {**TOPOLOGY, "switches": switches, "links": [["h1", "s1-p1", delay], *TOPOLOGY["links"][1:]]}


@pytest.mark.parametrize(("given", "port"), [({"cpu_port": "255"}, 255), ({"cpu_port": 64}, 64), ({}, 510)])
def test_a_cpu_port_is_the_switchs(tmp_path: Path, given: dict[str, Any], port: int) -> None:
    found = read_exercise(written(tmp_path / "topology.json", with_switches({"s1": given, "s2": {}})))
    assert [switch.target.cpu_port for switch in found.topology.switches] == [port, 510]


def test_other_priority_queues_than_there_are_are_noted(tmp_path: Path) -> None:
    queues = {"s1": {"priority_queues": 3}, "s2": {"priority_queues": 8}}
    found = read_exercise(written(tmp_path / "topology.json", with_switches(queues)))
    assert [note.split(":")[0] for note in found.notes] == ["s1"]


@pytest.mark.parametrize(
    ("delay", "delay_ns"), [("10", 10_000), ("0", 0), ("2.5", 2_500), ("3ms", 3_000_000), (2, 2_000_000)]
)
def test_a_delay_in_text_without_a_unit_is_in_microseconds(tmp_path: Path, delay: object, delay_ns: int) -> None:
    path = written(tmp_path / "topology.json", with_switches({"s1": {}, "s2": {}}, delay))
    assert read_exercise(path).topology.links[0].delay_ns == delay_ns


def test_a_topology_is_loaded_from_an_exercise(tmp_path: Path) -> None:
    path = written(tmp_path / "topology.json", with_switches({"s1": {}, "s2": {}}))
    assert load_topology(path) == read_exercise(path).topology


def test_a_file_of_p4_utils_is_recognised(tmp_path: Path) -> None:
    application = {
        "program": "a.p4",
        "switch": "simple_switch",
        "topology": {"links": [["h1", "s1"]], "hosts": {"h1": {}}},
    }
    with pytest.raises(TopologyError, match=r"p4app\.json"):
        read_exercise(written(tmp_path / "p4app.json", application))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"switches": {"s1": {"cpu_port": 511}}}, "cpu_port"),
        ({"switches": {"s1": {"cpu_port": "first"}}}, "cpu_port"),
        ({"switches": {"s1": {"cpu_port": "9" * 5000}}}, "cpu_port"),
        ({"switches": {"s1": {"priority_queues": True}}}, "priority_queues"),
        ({"switches": {"s1": {"priority_queues": "9" * 5000}}}, "priority_queues"),
        (
            {"hosts": {"h1": {"mac": "08:00:00:00:01:11"}}},
            'hosts.h1: key "ip" is missing; beside it there may be mac, commands',
        ),
        (
            {"hosts": {"h1": {"ip": "10.0.1/24"}}},
            """hosts.h1: ip "10.0.1/24" is no address; write it like 10.0.1.1/24""",
        ),
        ({"hosts": {"h1": {"ipp": "10.0.1.1/24"}}}, 'h1: unknown key "ipp", did you mean "ip"'),
        ({"switches": {"s1": {"runtime": "x"}}}, 's1: unknown key "runtime", did you mean "runtime_json"'),
        ({"links": [["h1"]]}, r"links\[0\]: \['h1'\] is not two ports"),
        ({"links": [["h1-p1", "s1-p1"]]}, r"links\[0\]: h1-p1: a host has one port; write h1"),
        ({"links": [["h1", "s1-p1", "fast"]]}, "fast"),
        ({"links": 7}, "links: 7 is not right; write a list"),
    ],
)
def test_errors_in_a_topology_are_reported(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    written(tmp_path / "pod" / "s1.json", {})
    path = written(tmp_path / "topology.json", {**TOPOLOGY, **change})
    with pytest.raises(TopologyError, match=f"(?s){path}: .*{complaint}"):
        read_exercise(path)


def test_a_switchs_runtime_is_read_whole(tmp_path: Path) -> None:
    written(tmp_path / "build" / "basic.json", {})
    path = written(
        tmp_path / "pod" / "s1-runtime.json",
        {
            "target": "bmv2",
            "p4info": "build/basic.p4info.txt",
            "bmv2_json": "build/basic.json",
            "table_entries": [
                {**ROW, "default_action": True},
                {**ROW, "match": {"hdr.ipv4.dstAddr": ["10.0.1.1", 32]}, "priority": 7, "action_params": {"port": 1}},
            ],
            "multicast_group_entries": [
                {"multicast_group_id": 1, "replicas": [{"egress_port": 1, "instance": 2}, {"egress_port": 3}]}
            ],
            "clone_session_entries": [
                {"clone_session_id": 5, "packet_length_bytes": 64, "replicas": [{"egress_port": 2, "instance": 1}]}
            ],
        },
    )
    read = RuntimeFile.read(path)
    assert read.program == tmp_path / "build" / "basic.json"  # as named from the exercise's folder
    assert read.rows == (
        RuntimeRow("MyIngress.acl", {}, "MyIngress.drop", {}, 0, True),
        RuntimeRow("MyIngress.acl", {"hdr.ipv4.dstAddr": ["10.0.1.1", 32]}, "MyIngress.drop", {"port": 1}, 7, False),
    )
    assert read.groups == {1: (RuntimeReplica(1, 2), RuntimeReplica(3, 0))}
    assert read.sessions == {5: RuntimeSession((RuntimeReplica(2, 1),), 64)}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"table_entries": [{"table": "t", "table": "u"}]}', 'key "table" is there twice'),
        ('{"table_entrys": []}', 'unknown key "table_entrys", did you mean "table_entries"'),
        ('{"table_entries": [{"table": "t", "action": "a"}]}', 'unknown key "action", did you mean "action_'),
        ('{"table_entries": [{"table": "t"}]}', r'table_entries\[0\]: key "action_name" is missing'),
        (
            '{"table_entries": [{"table": "t", "action_name": "a", "match": [1]}]}',
            r"table_entries\[0\].match: \[1\] is not right; write a mapping, by names",
        ),
        (
            '{"multicast_group_entries": [{"replicas": []}]}',
            r'multicast_group_entries\[0\]: key "multicast_group_id" is missing',
        ),
        (
            '{"multicast_group_entries": [{"multicast_group_id": 1, "replicas": []}, {"multicast_group_id": 1, '
            '"replicas": []}]}',
            r"multicast_group_entries\[1\]: multicast_group_id 1 is that of multicast_group_entries\[0\] as well",
        ),
        (
            '{"clone_session_entries": [{"clone_session_id": 7, "replicas": []}, {"clone_session_id": 7, '
            '"replicas": []}]}',
            r"clone_session_entries\[1\]: clone_session_id 7 is that of clone_session_entries\[0\] as well",
        ),
        ('{"table_entries": 3}', "table_entries: 3 is not right; write a list"),
        ("[]", "the runtime of a switch is a JSON object with keys; this is a list"),
        ("{", "is not JSON"),
    ],
)
def test_errors_in_a_runtime_are_reported(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "s1.json"
    path.write_text(text)
    with pytest.raises(TopologyError, match=f"(?s){path}: .*{complaint}"):
        RuntimeFile.read(path)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        ("7", 7),
        ("0x1f", 31),
        (True, 1),
        ("10.0.1.1", 0x0A000101),
        ("fe80::1", 0xFE80 << 112 | 1),
        ("08:00:00:00:01:11", 0x080000000111),
    ],
)
def test_values_as_people_write_them(value: object, number: int) -> None:
    assert value_number(value) == number


@pytest.mark.parametrize("value", ["", "10.0.1", "08:00:00:00:01", None, 1.5, [1]])
def test_invalid_values_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is neither a number nor an address"):
        value_number(value)
