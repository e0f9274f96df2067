"""The JSON schemas of users' files: they accept shipped files, and refuse nothing that the commands accept.

Keys are the models' own by construction; the schemas' hand-written parts are the notations of rates, delays, ports and
names, which are compared with their parsers.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from weir.cli.app import app
from weir.experiments.config import RunConfig
from weir.experiments.config.torchrun import TorchrunFile
from weir.experiments.errors import ExperimentError
from weir.experiments.evaluation.suite import Suite
from weir.experiments.scheduling.scheduling_file import SchedulingFile
from weir.experiments.search.search_file import SearchFile
from weir.tests.paths import ROOT
from weir.topologies import Endpoint, TopologyError, load_topology
from weir.topologies.model import ENDPOINT_PATTERN
from weir.topologies.schema import parse_topology
from weir.topologies.units import DELAY_PATTERN, RATE_PATTERN, parse_delay, parse_rate

PAGES = [ROOT / "docs" / name for name in ("fabrics.md", "runs.md")]
FILES = [
    *ROOT.glob("topologies/*.yaml"),
    *(path for path in ROOT.glob("examples/**/*.yaml")),
    *(path for path in ROOT.glob("experiments/**/*.yaml")),
]


def documents() -> list[tuple[str, dict[str, Any]]]:
    """Every fabric, run and evaluation that ships or stands in the guides, by where it is."""
    found = [(str(path.relative_to(ROOT)), path.read_text()) for path in FILES]
    for page in PAGES:
        texts = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        found += [(f"{page.name} {number}", text) for number, text in enumerate(texts)]
    return [(where, yaml.safe_load(text)) for where, text in found]


DOCUMENTS = documents()
RUNS = [(where, data) for where, data in DOCUMENTS if "job" in data]
SUITES = [(where, data) for where, data in DOCUMENTS if "grids" in data]
SEARCHES = [(where, data) for where, data in DOCUMENTS if "searches" in data]
SCHEDULED = [(where, data) for where, data in DOCUMENTS if "scheduling" in data]
SCRIPTS = [(where, data) for where, data in DOCUMENTS if "torchrun" in data]
FABRICS = [each for each in DOCUMENTS if each not in [*RUNS, *SUITES, *SEARCHES, *SCHEDULED, *SCRIPTS]]


def printed(kind: str) -> jsonschema.Draft202012Validator:
    done = CliRunner().invoke(app, ["schema", kind])
    assert done.exit_code == 0
    schema = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


FABRIC, RUN, SUITE, SEARCH = printed("fabric"), printed("run"), printed("suite"), printed("search")
SCHEDULING, TORCHRUN = printed("scheduling"), printed("torchrun")


def test_there_are_files_of_all_kinds() -> None:
    assert len(FABRICS) >= 6
    assert len(RUNS) >= 4
    assert len(SUITES) >= 1
    assert len(SEARCHES) >= 1
    assert len(SCHEDULED) >= 3
    assert len(SCRIPTS) >= 2


@pytest.mark.parametrize(("where", "data"), DOCUMENTS, ids=[where for where, _ in DOCUMENTS])
def test_shipped_files_match_their_schemas(where: str, data: dict[str, Any]) -> None:
    kinds = {"job": RUN, "grids": SUITE, "searches": SEARCH, "scheduling": SCHEDULING, "torchrun": TORCHRUN}
    next((kind for key, kind in kinds.items() if key in data), FABRIC).validate(data)


def refused(validator: jsonschema.Draft202012Validator, data: object) -> bool:
    return not validator.is_valid(data)


@pytest.mark.parametrize(("where", "data"), FABRICS, ids=[where for where, _ in FABRICS])
def test_a_key_too_many_is_refused_everywhere_in_a_fabric(where: str, data: dict[str, Any]) -> None:
    for changed in with_a_strange_key(data, {"hosts", "switches"}):
        assert refused(FABRIC, changed), changed
        with pytest.raises(TopologyError):
            parse_topology(changed, where)


@pytest.mark.parametrize(("where", "data"), RUNS, ids=[where for where, _ in RUNS])
def test_a_key_too_many_is_refused_everywhere_in_a_run(where: str, data: dict[str, Any], tmp_path: Path) -> None:
    """But among the options of a workload, whose keys are its script's."""
    (tmp_path / "user_workload.py").symlink_to(ROOT / "examples" / "user_workload.py")
    for changed in with_a_strange_key({**data, "fabric": "leaf_spine.yaml"}, {"options"}):
        assert refused(RUN, changed), changed
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(changed))
        with pytest.raises(ExperimentError, match="strange"):
            RunConfig.load(tmp_path / "run.yaml")


@pytest.mark.parametrize(("where", "data"), SEARCHES, ids=[where for where, _ in SEARCHES])
def test_a_key_too_many_is_refused_everywhere_in_a_search(where: str, data: dict[str, Any], tmp_path: Path) -> None:
    for changed in with_a_strange_key({**data, "fabric": "leaf_spine.yaml"}, {"space"}):
        assert refused(SEARCH, changed), changed
        (tmp_path / "search.yaml").write_text(yaml.safe_dump(changed))
        with pytest.raises(ExperimentError, match="strange"):
            SearchFile.load(tmp_path / "search.yaml")


@pytest.mark.parametrize(("where", "data"), SCHEDULED, ids=[where for where, _ in SCHEDULED])
def test_unknown_key_is_refused_everywhere_in_a_scheduling_run(
    where: str, data: dict[str, Any], tmp_path: Path
) -> None:
    for changed in with_a_strange_key({**data, "fabric": "leaf_spine.yaml"}, set()):
        assert refused(SCHEDULING, changed), changed
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(changed))
        with pytest.raises(ExperimentError, match="strange"):
            SchedulingFile.load(tmp_path / "run.yaml")


@pytest.mark.parametrize(("where", "data"), SCRIPTS, ids=[where for where, _ in SCRIPTS])
def test_unknown_key_is_refused_everywhere_in_a_run_of_a_script(
    where: str, data: dict[str, Any], tmp_path: Path
) -> None:
    for changed in with_a_strange_key({**data, "fabric": "live.yaml"}, set()):
        assert refused(TORCHRUN, changed), changed
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(changed))
        with pytest.raises(ExperimentError, match="strange"):
            TorchrunFile.load(tmp_path / "run.yaml")


@pytest.mark.parametrize(("where", "data"), SUITES, ids=[where for where, _ in SUITES])
def test_a_key_too_many_is_refused_everywhere_in_an_evaluation(
    where: str, data: dict[str, Any], tmp_path: Path
) -> None:
    data = {**data, "grids": data["grids"][:2]}
    for changed in with_a_strange_key(data, set()):
        assert refused(SUITE, changed), changed
        (tmp_path / "suite.yaml").write_text(yaml.safe_dump(changed))
        with pytest.raises(ExperimentError, match="strange"):
            Suite.load(tmp_path / "suite.yaml")


def with_a_strange_key(data: dict[str, Any], names: set[str]) -> list[dict[str, Any]]:
    """The document with one key too many, in each of its mappings in turn but those called `names`."""
    changed = []
    for path in mappings(data, ()):
        if not path or path[-1] not in names:
            copy = deepcopy(data)
            inner: Any = copy
            for part in path:
                inner = inner[part]
            inner["strange"] = 1
            changed.append(copy)
    return changed


def mappings(value: object, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    here = [path] if isinstance(value, dict) else []
    return here + [found for key, each in inner for found in mappings(each, (*path, key))]


@pytest.mark.parametrize(
    "change",
    [
        {"links": [{"ends": ["h1"]}]},
        {"links": [{"ends": ["h1", "s1:p1"]}]},
        {"links": [{"ends": ["h1", "s1-p1"], "rate": "fast"}]},
        {"links": [{"ends": ["h1", "s1-p1"], "loss": 1}]},
        {"switches": {"switch-1": None}},
        {"switches": {"s1": {"target": "tofino9"}}},
        {"defaults": {"delay": 3}},
        {"defaults": {"slots": True}},
        {"defaults": {"loss": False}},
        {"links": [{"ends": ["h1", "s1-p1"], "queue": True}]},
        {"name": 7},
    ],
)
def test_a_fabric_that_cannot_be_read_is_refused(change: dict[str, Any]) -> None:
    whole = {"name": "x", "hosts": {"h1": None}, "switches": {"s1": None}, "links": [{"ends": ["h1", "s1-p1"]}]}
    assert not refused(FABRIC, whole)
    assert refused(FABRIC, {**whole, **change})
    with pytest.raises(TopologyError):
        parse_topology({**whole, **change}, "x")


@pytest.mark.parametrize(
    "change",
    [
        {"job": {"workers": []}},
        {"job": {"server": "h2"}},
        {"strategies": ["fastest"]},
        {"strategies": []},
        {"host_poll": "soon"},
        {"background": [{"source": "h1", "destination": "h2", "rate": 0}]},
        {"control": {"interval": 0}},
        {"fabric": 3},
        {"name": "a/b"},
        {"loss": 1},
        {"loss": False},
        {"seed": True},
        {"job": {"workers": ["h1", "h4"], "server": "h12", "window": True}},
        {"training": {"compute": True}},
    ],
)
def test_a_run_that_cannot_be_read_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    whole = {"name": "x", "fabric": "leaf_spine.yaml", "job": {"workers": ["h1", "h4"], "server": "h12"}}
    assert not refused(RUN, whole)
    assert refused(RUN, {**whole, **change})
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**whole, **change}))
    with pytest.raises((ExperimentError, TopologyError)):
        RunConfig.load(tmp_path / "run.yaml")


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": 0},
        {"strategies": ["fastest"]},
        {"strategies": []},
        {"grids": []},
        {"grids": [{"name": "one"}]},
        {"fabrics": [{"kind": "ring"}]},
        {"workers": []},
        {"workers": 8},
        {"spread": ["wide"]},
        {"load": [0.9]},
        {"engine": "real"},
        {"timing": {"compute": "soon"}},
    ],
)
def test_an_evaluation_that_cannot_be_read_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    """Changed in the suite, or in its grid."""
    grid = {"name": "one", "fabrics": [{"kind": "fat-tree", "k": 4}]}
    whole = {"name": "x", "strategies": ["widest", "ring", "own.py"], "grids": [grid]}
    assert not refused(SUITE, whole)
    changed = whole | change if change.keys() & {"seeds", "strategies", "grids"} else whole | {"grids": [grid | change]}
    assert refused(SUITE, changed)
    strategies = [name for name in changed["strategies"] if name != "own.py"]
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump({**changed, "strategies": strategies}))
    with pytest.raises(ExperimentError):
        Suite.load(tmp_path / "suite.yaml")


quantities = st.builds(
    "{}{}{}".format,
    st.one_of(st.integers(0, 10**6), st.decimals(0, 1000, places=3, allow_nan=False), st.sampled_from(["", "-1", "."])),
    st.sampled_from(["", " ", "\t"]),
    st.sampled_from(["bit", "kbit", "Kbit", "Mbit", "Gbit", "Tbit", "ns", "us", "ms", "s", "MBit", "b", ""]),
)


@given(quantities)
def test_the_patterns_of_rates_and_delays_take_what_is_read(text: str) -> None:
    """They may take more: parts of a bit or a nanosecond, and a rate of 0."""
    for pattern, parse in ((RATE_PATTERN, parse_rate), (DELAY_PATTERN, parse_delay)):
        try:
            parse(text)
        except TopologyError:
            number = re.match(r"[\d.]+", text)
            in_part = number is not None and ("." in number[0] or float(number[0]) == 0)
            assert in_part or not re.search(pattern, text)
        else:
            assert re.search(pattern, text)


@given(st.text("hs1_-p.", max_size=14))
def test_the_pattern_of_ports_takes_what_is_read(text: str) -> None:
    try:
        Endpoint.parse(text)
    except TopologyError:
        assert not re.search(ENDPOINT_PATTERN, text)
    else:
        assert re.search(ENDPOINT_PATTERN, text)


def test_optional_keys_have_defaults_in_written_form(tmp_path: Path) -> None:
    """A fabric in which all defaults of the schema are written is the one without them."""
    plain = {"name": "x", "hosts": {"h1": None}, "switches": {"s1": None}, "links": [{"ends": ["h1", "s1-p1"]}]}
    keys = FABRIC.schema["$defs"]["DefaultsKeys"]["properties"]
    written = {**plain, "defaults": {key: shape["default"] for key, shape in keys.items()}}
    assert not refused(FABRIC, written)
    fabrics = []
    for number, data in enumerate((plain, written)):
        (tmp_path / f"{number}.yaml").write_text(yaml.safe_dump(data))
        fabrics.append(load_topology(tmp_path / f"{number}.yaml"))
    assert fabrics[0] == fabrics[1]


def test_a_key_given_twice_in_the_fabric_of_a_run_is_refused(tmp_path: Path) -> None:
    """The same applies to a fabric in a file of its own."""
    (tmp_path / "twice.yaml").write_text("name: x\nhosts: {h1:, h1:}\nswitches: {s1:}\nlinks: [{ends: [h1, s1-p1]}]\n")
    (tmp_path / "run.yaml").write_text("name: x\nfabric: twice.yaml\njob: {workers: [h1]}\n")
    with pytest.raises(ExperimentError, match='"h1" is given twice'):
        RunConfig.load(tmp_path / "run.yaml")
