"""Files that people write, spoilt in every place: each is refused in people's words, with the place and the value."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from weir.cli.place_files import read_jobs, read_loads
from weir.emulator.entries import EmulatorError
from weir.emulator.program import Program
from weir.experiments.config import RunConfig
from weir.experiments.config.congestion import ControllerCongestion
from weir.experiments.config.telemetry import TelemetryConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.evaluation.suite import Suite
from weir.hosts.congestion import LAWS
from weir.topologies import TopologyError, leaf_spine, load_topology
from weir.topologies.exercise import read_exercise
from weir.topologies.runtime_json import RuntimeFile

RAW = re.compile(
    r"Input should|Extra inputs|Field required|pydantic|https?://|(List|String|Dictionary|Value) should|Value error|"
    r"validation error|unable to parse|object at 0x|Error\(|attribute|NoneType|<class|unicode string|truncated to"
)
"""Words of libraries and of Python, which mean nothing to the author of the file."""

SPELLED_OUT: dict[str, Any] = {
    "name": "two",
    "defaults": {"rate": "1Gbit", "delay": "2us", "loss": 0.0, "queue": 64},
    "hosts": {"h1": {"address": "10.0.1.1"}, "h2": None},
    "switches": {"s1": {"device_id": 1, "slots": 512, "tier": "leaf"}},
    "links": [{"ends": ["h1", "s1-p1"], "mtu": 1500}, {"ends": ["h2", "s1-p2"]}],
}
RUN: dict[str, Any] = {
    "name": "x",
    "seed": 3,
    "fabric": "leaf_spine.yaml",
    "job": {"workers": ["h1", "h4"], "server": "h12", "window": 16},
    "training": {"hidden": 16, "learning_rate": 0.1, "compute": "1ms"},
    "background": [
        {"source": "h3", "destination": "h6", "rate": "10Mbit", "port": 9},
        {"source": "h2", "destination": "h6", "kind": "yielding", "window": 8, "stop": "1ms"},
    ],
    "congestion": {"bound": 64, "law": "explicit"},
    "synchronisation": {"modes": ["bsp"], "machines": {"speeds": [1000, 900]}, "target": 0.3},
    "strategies": ["ps", "widest"],
}
SUITE: dict[str, Any] = {
    "name": "small",
    "seeds": 2,
    "strategies": ["ps", "widest"],
    "grids": [
        {
            "name": "one",
            "fabrics": [{"kind": "leaf-spine", "leaves": 2, "spines": 2, "hosts_per_leaf": 3}],
            "workers": [3],
            "load": [0.3],
            "timing": {"steps": 3, "compute": "1ms"},
        }
    ],
}
TELEMETRY: dict[str, Any] = {
    "mark": "dscp",
    "watch": [{"mode": "xd", "source": "h1", "protocol": "udp", "destination_port": 9, "collect": ["node"]}],
    "queues": {"depth": 20, "classes": [0]},
    "drops": ["no_route"],
}
CONGESTION: dict[str, Any] = {
    "bound": 64,
    "lease": "50ms",
    "marks": "virtual",
    "virtual_share": 0.9,
    "background": [
        {"source": "h3", "destination": "h6", "rate": "10Mbit", "packet_bytes": 1514, "burst": 9},
        {"source": "h2", "destination": "h6", "kind": "yielding", "window": 8, "packet_bytes": 1514},
    ],
}
LOADS: dict[str, Any] = {
    "s1-p3": "300Mbit",
    "s2-p3": {"rate": "1Mbit", "queue": 3, "loss": 0.01, "latency": "40us"},
}
JOBS: dict[str, Any] = {
    "jobs": [
        {"name": "one", "workers": ["h1", "h2"], "server": "h3", "bytes": 1_000_000, "weight": 2},
        {"name": "two", "workers": ["h2"]},
    ]
}
EXERCISE: dict[str, Any] = {
    "hosts": {
        "h1": {"ip": "10.0.1.1/24", "mac": "08:00:00:00:01:11", "commands": ["true"]},
        "h2": {"ip": "10.0.2.2/24"},
    },
    "switches": {"s1": {"program": "own.json"}},
    "links": [["h1", "s1-p1"], ["h2", "s1-p2", "5ms", 0.5]],
}
RUNTIME: dict[str, Any] = {
    "target": "bmv2",
    "table_entries": [
        {
            "table": "MyIngress.acl",
            "match": {"hdr.ipv4.dstAddr": ["10.0.1.1", 32]},
            "action_name": "MyIngress.forward",
            "action_params": {"port": 1},
            "priority": 1,
            "default_action": False,
        }
    ],
    "multicast_group_entries": [{"multicast_group_id": 1, "replicas": [{"egress_port": 1, "instance": 1}]}],
    "clone_session_entries": [{"clone_session_id": 5, "replicas": [{"egress_port": 1}], "packet_length_bytes": 64}],
}

KINDS: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "fabric.yaml": (load_topology, SPELLED_OUT),
    "run.yaml": (RunConfig.load, RUN),
    "suite.yaml": (Suite.load, SUITE),
    "telemetry.yaml": (TelemetryConfig.load, TELEMETRY),
    "congestion.yaml": (lambda path: ControllerCongestion.load(path, leaf_spine(2, 2, 3)), CONGESTION),
    "loads.yaml": (lambda path: read_loads(path, leaf_spine(2, 2, 2)), LOADS),
    "jobs.yaml": (lambda path: read_jobs(path, leaf_spine(2, 2, 2)), JOBS),
    "topology.json": (read_exercise, EXERCISE),
    "s1-runtime.json": (RuntimeFile.read, RUNTIME),
}
OWN_NAMES = {("hosts",), ("switches",), ("table_entries", 0, "match"), ("table_entries", 0, "action_params")}
"""Mappings whose keys are the user's, as are those of a file of loads."""

VALUES: list[Any] = [None, "many", -1.5, 10**30, [[7]], {"strange": 1}, float("nan")]


EXTREMES: list[Any] = [
    *(0, -1, (1 << 63) - 1, 1 << 63, 1 << 64, int("9" * 4000)),
    *(0.0, 5e-324, 1e308, float("inf"), float("-inf"), float("nan")),
    *("", "0us", "0bit", f"1{'0' * 30}s", "9223372036854775808ns", "9223372036854775808bit", "-1us", "1e300s"),
    *("\x1b[2J\r\n\u202e[/x]", "a\0b", "\0.py", "x" * 100_000, f"{'x' * 5_000}.py", f"{'../' * 2_000}x.csv"),
    *([], {}, True),
]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def written(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data) if path.suffix == ".json" else yaml.safe_dump(data, sort_keys=False))
    return path


def refusal(path: Path) -> str | None:
    """Error message about a file; None if it is accepted."""
    read, _ = KINDS[path.name]
    try:
        read(path)
    except (TopologyError, ExperimentError) as error:
        return str(error)
    return None


def places(data: Any, above: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The keys and indexes of everything in a file's data."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for part, inner in items:
        yield (*above, part)
        yield from places(inner, (*above, part))


def changed(data: Any, place: tuple[str | int, ...], change: Callable[[Any, str | int], None]) -> Any:
    """A copy, in which what has `place` in it was changed."""
    made = copy.deepcopy(data)
    around = made
    for part in place[:-1]:
        around = around[part]
    change(around, place[-1])
    return made


def set_to(value: Any) -> Callable[[Any, str | int], None]:
    def change(around: Any, part: str | int) -> None:
        around[part] = value

    return change


def called(name: str) -> Callable[[Any, str | int], None]:
    def change(around: Any, part: str | int) -> None:
        around[name] = around.pop(part)

    return change


def left_out(around: Any, part: str | int) -> None:
    del around[part]


def assert_in_words(said: str | None, path: Path) -> None:
    if said is not None:
        assert said.startswith(f"{path}: "), said
        assert not RAW.search(said), said


def test_a_sound_file_is_taken(kind: str, tmp_path: Path) -> None:
    assert refusal(written(tmp_path / kind, KINDS[kind][1])) is None


def test_a_wrong_value_in_any_place_is_told_in_words(kind: str, tmp_path: Path) -> None:
    path, sound = tmp_path / kind, KINDS[kind][1]
    refused = 0
    for place in places(sound):
        for value in VALUES:
            said = refusal(written(path, changed(sound, place, set_to(value))))
            assert_in_words(said, path)
            refused += said is not None
    assert refused > 3 * len(list(places(sound)))  # of seven values, most are wrong in most places


@pytest.mark.parametrize("values", [3, pytest.param(len(EXTREMES), marks=pytest.mark.long)], ids=["few", "all"])
def test_extreme_value_in_any_place_is_refused_briefly_or_used(kind: str, values: int, tmp_path: Path) -> None:
    path, sound = tmp_path / kind, KINDS[kind][1]
    rng = Random(1)
    for place in places(sound):
        for value in rng.sample(EXTREMES, values):
            said = refusal(written(path, changed(sound, place, set_to(value))))
            assert_in_words(said, path)
            lines = (said or "").split("\n")
            assert all(line.isprintable() and len(line) < 4_100 for line in lines), (place, value)


def test_a_key_that_is_missing_is_named(kind: str, tmp_path: Path) -> None:
    path, sound = tmp_path / kind, KINDS[kind][1]
    for place in places(sound):
        said = refusal(written(path, changed(sound, place, left_out)))
        assert_in_words(said, path)


def test_a_misspelt_key_is_reported_with_the_likely_one(kind: str, tmp_path: Path) -> None:
    path, sound = tmp_path / kind, KINDS[kind][1]
    for place in places(sound):
        key = place[-1]
        if kind == "loads.yaml" and len(place) == 1:
            continue  # a port
        if isinstance(key, int) or place[:-1] in OWN_NAMES or "fabrics" in place or "modes" in place:
            continue
        slip = f"{key}x"
        said = refusal(written(path, changed(sound, place, called(slip))))
        assert said is not None
        assert f'unknown key "{slip}", did you mean "{key}"? There are ' in said
        assert_in_words(said, path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty; "),
        (b"\n\n", "is empty; "),
        (b"[1, 2]", "; this is a list"),
        (b'"text"', "; this is text"),
        (b"\x7fELF\x02\x01\x00\xff\xfe", "is not text"),
        (b'{"name": [1, 2', "line 1: is not "),
        (b"[" * 100_000, "is nested too deeply"),
    ],
    ids=["empty", "blank", "list", "text", "binary", "torn", "deep"],
)
def test_a_file_of_another_kind_is_refused(kind: str, tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / kind
    path.write_bytes(content if path.suffix == ".json" else content[:500])  # PyYAML takes the square of a depth's time
    said = refusal(path)
    assert said is not None
    assert said.startswith(f"{path}: ")
    assert why in said
    assert not RAW.search(said)
    assert "\n" not in said


def test_a_file_that_is_not_there_or_is_a_folder_is_said_to_be(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    assert_in_words(said := refusal(path), path)
    assert said is not None
    path.mkdir()
    assert refusal(path) == f"{path}: cannot be read (Is a directory)"


def test_a_key_given_twice_is_told_beside_all_else_that_is_wrong(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path / kind, KINDS[kind][1])
    first = next(iter(KINDS[kind][1]))
    if path.suffix == ".json":
        path.write_text(f'{path.read_text()[:-1]}, "{first}": 7, "strange": 1}}')
        twice = f'key "{first}" is there twice in one object'
    else:
        last = path.read_text().count("\n") + 1
        path.write_text(f"{path.read_text()}{first}: [7]\nstrange: 1\n")
        twice = f'line {last}: "{first}" is given twice; give every key and node its own name'
    said = refusal(path)
    assert said is not None
    head, *lines = said.split("\n")
    assert re.fullmatch(rf"{re.escape(str(path))}: \d+ things are wrong:", head)
    assert f"  {twice}" in lines
    assert any("strange" in line for line in lines)
    assert_in_words(said, path)


def test_all_that_is_wrong_with_a_run_is_told_by_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "name: a b\nfabric: leaf_spine.yaml\nseed: many\njob:\n  workers: [h1]\n  window: 0\n  servr: h2\n"
        "congestion: {law: dcctp}\nbackground:\n- {source: h1, destination: h2, rate: fast}\n"
    )
    keys = "workers, server, window, slots, traffic_class, servers, stripes"
    assert refusal(path) == "\n".join(
        [
            f"{path}: 6 things are wrong:",
            '  line 1: name "a b" is not right; write up to 64 letters, digits, dots, dashes and underscores, '
            "first a letter or digit",
            '  line 3: seed: "many" is not right; write a whole number',
            "  line 6: job.window: 0 is not right; write 1 or more",
            f'  line 7: job: unknown key "servr", did you mean "server"? There are {keys}',
            '  line 8: congestion.law: unknown window law "dcctp", did you mean "dctcp"?; supported: '
            f"{', '.join(LAWS)}, the path of a Python file",
            '  line 10: background.0: rate "fast" is not a rate; write it like 200Mbit',
        ]
    )


def test_a_runs_fabric_has_errors_with_its_own_file_and_lines(tmp_path: Path) -> None:
    fabric = written(tmp_path / "fabric.yaml", {**SPELLED_OUT, "links": [{"ends": ["h1", "s1-p1"], "quee": 3}]})
    path = written(tmp_path / "run.yaml", {**RUN, "fabric": "fabric.yaml"})
    line = 1 + fabric.read_text().split("\n").index("  quee: 3")
    keys = "ends, rate, delay, loss, queue, mtu"
    assert refusal(path) == (
        f'{path}: fabric: {fabric}: line {line}: link s1-p1: unknown key "quee", did you mean "queue"? There are {keys}'
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda program: program.pop("actions"), '"actions" is missing'),
        (lambda program: program.update(actions=7), "a value is not of the kind that belongs there"),
        (lambda program: program["pipelines"][0].pop("tables"), '"tables" is missing'),
    ],
)
def test_a_damaged_program_is_refused_in_words(change: Callable[[dict[str, Any]], object], why: str) -> None:
    program = json.loads((Path(__file__).parents[2] / "p4src" / "build" / "fabric.json").read_text())
    change(program)
    with pytest.raises(EmulatorError, match=why) as caught:
        Program.load(json.dumps(program).encode())
    assert not RAW.search(str(caught.value))


@pytest.mark.parametrize(
    ("text", "why"),
    [(b"", "it is empty"), (b"\x7fELF\xff\xfe", "byte 4 is no text"), (b'{"a": ', "line 1, column 7: expecting")],
)
def test_a_file_that_is_no_program_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(EmulatorError, match=f"^not a BMv2 JSON program: {why}"):
        Program.load(text)
