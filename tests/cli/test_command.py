"""The `weir` command: every error is one clear line with exit status 2."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from weir import __version__
from weir.cli.app import app
from weir.cli.console import NOTES
from weir.cli.runs import _table
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.records import report
from weir.imports.extras import EXTRAS
from weir.tests.paths import ROOT
from weir.tests.support.commands import WEIR, weir
from weir.topologies import TopologyError, dump_topology, leaf_spine


def write(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def content(short: RunConfig) -> dict[str, Any]:
    """A good run's YAML, to be spoilt."""
    return {**short.model_dump(mode="json"), "fabric": "leaf_spine.yaml"}


def _user_strategy(folder: Path, expression: str, name: str = "user.py") -> Path:
    """A strategy that fails in its fifth line."""
    file = folder / name
    file.write_text(
        "from weir.controller.placement.strategies import StrategyDescription\n"
        "class Mine:\n"
        "    def place(self, problem, rng):\n"
        "        odd, rank = {}, 'rank'\n"
        f"        return {expression}\n"
        "DESCRIPTION = StrategyDescription('mine', 'mine', 'a test', Mine)\n"
    )
    return file


def test_errors_reach_the_user_as_one_line(content: dict[str, Any], tmp_path: Path) -> None:
    """The whole way through the command; the cases below ask what the line says."""
    demo, fabric = ROOT / "experiments" / "demo.yaml", tmp_path / "fabric.yaml"
    dump_topology(leaf_spine(1, 1, 1), fabric)
    cases: list[tuple[list[object], str]] = [
        (["run", write(tmp_path, {**content, "job": {**content["job"], "server": "h99"}})], 'no host "h99"'),
        (["run", tmp_path / "absent.yaml"], "absent.yaml: cannot be read (No such file or directory)"),
        (["run", demo, "--seed", -1], "--seed: -1 is not right; write 0 or more"),
        (["run", demo, "--strategy", "fastest"], 'strategy "fastest" is unknown; supported: agg, atp, best-spine, '),
        (
            ["place", fabric, "--workers", "h1", "--strategy", "ring"],
            'strategy "ring" places no job: its hosts sum without switches',
        ),
        (
            ["place", fabric, "--workers", "h1", "--strategy", _user_strategy(tmp_path, "odd[rank]")],
            "weir: " + str(tmp_path / "user.py") + ":5: KeyError: 'rank' (weir -v prints the traceback)",
        ),
        (
            ["place", fabric, "--workers", "h1", "--strategy", _user_strategy(tmp_path, "odd[", "syntax.py")],
            f"weir: {tmp_path / 'syntax.py'}:5: SyntaxError: ",
        ),
        (["controller", fabric, "--listen", "127.0.0.1:9561"], "control service: 127.0.0.1:9561 is open to every user"),
        (["mininet", fabric, "--grpc-port", "50051"], "--grpc-port 50051: every user of this machine could write"),
        (["controller", fabric, "--tls", demo, demo, tmp_path / "none"], "none: cannot be read (No such file"),
        (
            ["run", demo, "--switch", "bmv2"],
            "--switch bmv2 is for Mininet, and the run is in virtual time; add --fabric",
        ),
        (
            ["torchrun", "--switch", "bmv2", "train.py"],
            "--switch bmv2 is for Mininet, and the fabric is emulated; add --fabric mininet",
        ),
        (
            ["mininet", fabric, "--captures", str(demo / "packets")],
            "demo.yaml/packets: cannot be a folder for what is seen (Not a directory)",
        ),
        (["demo", "--loss", 1.5], "--loss: 1.5 is not right; write less than 1"),
        (["replay", tmp_path], "record.json: no run record there"),
        (["replay", fabric], "fabric.yaml: not a run record: no JSON (Expecting value"),
        (["controller", fabric, "--lease", "soon"], '--lease: delay "soon" is not a delay; write it like 10us'),
    ]
    for arguments, expected in cases:
        status, out, err = weir(*arguments)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("weir: ")
        assert expected in err


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"strategies": ["fastest"]}, 'strategies: strategy "fastest" is unknown; supported: agg, atp, best-spine, '),
        ({"strategies": ["striped"]}, 'strategies: strategy "striped" places no job: it places all jobs together; '),
        ({"strategy_options": {"agg": {}}}, "strategy_options.agg: the run has no strategy of that name; name it in"),
        ({"strategies": ["agg"], "strategy_options": {"agg": {"nodes": 0}}}, "strategy_options.agg: nodes: 0; it is 1"),
        ({"fabric": "absent.yaml"}, 'fabric: no file "absent.yaml" beside it, nor one shipped in topologies/'),
        ({"los": 0.1}, 'unknown key "los", did you mean "loss"? There are name, seed, fabric'),
        ({"training": {"bach": 4}}, 'training: unknown key "bach", did you mean "batch"? There are hidden, batch'),
        ({"loss": 1.5}, "loss: 1.5 is not right; write less than 1"),
        ({"seed": True}, "seed: a number is due, which YAML's yes, on and true are not"),
        ({"heartbeats": {"to": "h3", "interval": "0s"}}, "heartbeats.interval: too short; 10us is the least"),
        ({"heartbeats": {"to": "h3", "interval": "1ns"}}, "heartbeats.interval: too short; 10us is the least"),
        ({"background": [{"source": "h3", "destination": "h6", "rate": "fast"}]}, 'rate "fast" is not a rate'),
        ({"background": [{"source": "h3", "destination": "h3", "rate": "1Mbit"}]}, "h3 sends to itself"),
        ({"job": {"workers": ["h1", "h1"], "server": "h2"}}, "a host is named twice among the workers"),
        ({"job": {"workers": ["h1"], "server": "h1"}}, "server h1 is a worker too"),
        ({"job": {"workers": ["h1"], "server": "h2", "slots": 48}}, "slots 48 is not a power of two; use 64"),
        ({"job": {"workers": ["h1"], "server": "h2", "window": 32}}, "window 32 needs at least 64 slots, not 32"),
        ({"job": {"workers": ["h1"], "servers": []}}, "job.servers: [] is not right; write a list of 1 or more"),
        ({"job": {"workers": ["h1"], "servers": ["h2", "h2"]}}, "h2 is named twice among the servers"),
        ({"job": {"workers": ["h1"], "servers": ["h2", "h1"]}}, "server h1 is a worker too"),
        ({"job": {"workers": ["h1"], "servers": ["h2", "h99"]}}, 'job.servers: fabric leaf-spine has no host "h99"'),
        ({"job": {"workers": ["h1"], "server": "h2", "servers": ["h3"]}}, "server h2 and servers h3 are both given"),
        (
            {"job": {"workers": ["h1"], "servers": ["h2", "h3"]}, "training": {"hidden": 1}},
            "job.servers: 2 servers share the chunks of a gradient, which has 1",
        ),
        (
            {"job": {"workers": ["h1", "h2"], "server": None}, "strategies": ["widest", "ps"]},
            "strategies: ps needs a parameter server and the job has none; without one go ",
        ),
        ({"fabric": {"name": "x", "hosts": {}, "switches": {}, "links": 3}}, "links: 3 is not right; write a list"),
    ],
)
def test_a_bad_run_file_is_named_with_key_and_value(
    content: dict[str, Any], tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    path = write(tmp_path, {**content, **change})
    with pytest.raises((ExperimentError, TopologyError)) as caught:
        RunConfig.load(path)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "is not YAML"),
        ("- 1", "a run is a YAML mapping with name, fabric and job; this is a list"),
        ("", "is empty; a run is a YAML mapping with name, fabric and job"),
    ],
)
def test_a_file_that_is_no_run_file_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(ExperimentError) as caught:
        RunConfig.load(path)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run", "demo.yaml", "--seed", "many"], ("--seed", '"many"', "whole number")),
        (["demo", "--loss", "2%"], ("--loss", '"2%"', "number")),
        (["launch", "-n", "0", "loop.py"], ("--workers", "0", "1 or more")),
        (["place", "leaf_spine.yaml", "--stripes", "99"], ("--stripes", "99", "16 or less")),
        (["run", "demo.yaml", "--fabric", "net"], ("--fabric", "net", "virtual", "mininet")),
        (["jobs", "end", "first"], ("JOB", '"first"', "whole number")),
        (["plan", "compression", "no.json"], ("no.json", "No such file", "vgg19")),
    ],
)
def test_refused_options_name_the_value_and_what_is_allowed(words: list[str], expected: tuple[str, ...]) -> None:
    ended = weir(*words)
    last = ended.err.splitlines()[-1]
    assert ended.status == 2
    assert all(part in last for part in expected), last
    assert "Errno" not in last


def test_a_run_folder_that_cannot_be_written_is_named(content: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, out, err = weir("run", write(tmp_path, content), "--out", tmp_path / "file")
    assert (status, out) == (2, "")
    assert err == f"weir: {tmp_path}/file: cannot make a run folder there (Not a directory)\n"


def test_run_prints_json_and_replays(content: dict[str, Any], tmp_path: Path) -> None:
    content["training"]["steps"] = 2
    status, out, err = weir("run", write(tmp_path, content), "--strategy", "widest", "--json", folder=tmp_path)
    assert status == 0, err
    printed = json.loads(out)
    assert [result["strategy"] for result in printed["results"]] == ["widest"]
    folder = tmp_path / printed["folder"]
    assert (folder / "index.html").exists()
    status, out, err = weir("replay", folder)
    assert status == 0, err
    assert "the replay reproduced every figure" in out


def test_a_fabric_is_written_checked_and_drawn(tmp_path: Path) -> None:
    fabric = tmp_path / "fabric.yaml"
    assert weir("topology", "leaf-spine", fabric, "--leaves", 2).status == 0
    assert weir("topology", "check", fabric).out == "leaf-spine: 4 switches, 6 hosts, 10 links\n"
    assert weir("topology", "draw", fabric, tmp_path / "fabric.svg").status == 0
    assert (tmp_path / "fabric.svg").read_text().lstrip().startswith(("<?xml", "<svg"))
    refused = weir("topology", "draw", fabric, tmp_path / "fabric.bmp")
    assert (refused.status, refused.err.count("\n")) == (2, 1)


def test_help_and_version_load_nothing_that_is_slow_to_load(tmp_path: Path) -> None:
    """The command loads only typer and rich of the installed packages, so that the answer is immediate."""
    code = (
        "import sys; sys.argv[0] = 'weir'; from weir.cli.main import main\n"
        "try: main()\n"
        "finally: print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    slow = {name for packages in EXTRAS.values() for name in packages} | {"google", "grpc", "numpy", "rich", "typer"}
    for words, expected in (["--help"], "Usage: weir"), (["--version"], f"weir {__version__}\n"):
        done = subprocess.run([sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0
        assert expected in done.stdout
        assert set(done.stderr.split()) & slow == {"rich", "typer"}


@pytest.mark.parametrize(
    ("option", "level", "quiet"), [("-v", "INFO", False), ("-q", "ERROR", True), ("--quiet", "ERROR", True)]
)
def test_verbose_logs_what_goes_on_and_quiet_only_errors(
    option: str, level: str, quiet: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(NOTES, "quiet", False)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's, with which a level would not be set
    app([option, "topology", "check", "leaf_spine.yaml"], standalone_mode=False)
    NOTES.print("a note")
    printed = capsys.readouterr()
    assert logging.getLevelName(logging.getLogger().level) == level
    assert printed.out.startswith("leaf-spine: 6 switches")
    assert ("a note" in printed.err) == (not quiet)


@pytest.mark.long
def test_a_quiet_torchrun_says_nothing_of_its_own(tmp_path: Path) -> None:
    """A stand-in for PyTorch prints its arguments."""
    there = tmp_path / "torch" / "distributed"
    there.mkdir(parents=True)
    for package in (there, there.parent):
        (package / "__init__.py").touch()
    (there / "run.py").write_text("import os, sys\nprint(os.environ['WEIR_HOST'], sys.argv[1:3], sys.argv[-1])\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for options, noted in ("", "ranks on h1, h2; jobs are served at "), ("-q", ""):
        words = [str(WEIR), *options.split(), "torchrun", "-n", "2", "s.py"]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == "h1,h2 ['--nproc-per-node', '2'] s.py\n"
        assert noted in done.stderr
        assert bool(done.stderr) == bool(noted)


def test_the_command_is_there_before_grpc_is() -> None:
    """The command quietens grpc by a variable that grpc reads once, at its import."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys, weir.cli.main; sys.exit('grpc' in sys.modules)"], cwd=ROOT
    )
    assert done.returncode == 0


def test_the_command_finds_its_files_from_any_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from weir import p4src; print(p4src.FABRIC_JSON.exists())"],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"


@pytest.mark.parametrize("job", [{}, {"server": None}])
def test_without_a_server_default_strategies_need_none(
    content: dict[str, Any], tmp_path: Path, job: dict[str, Any]
) -> None:
    del content["strategies"]
    assert "ps" in RunConfig.load(write(tmp_path, content)).strategies
    content["job"] = {"workers": ["h1", "h2"], **job}
    config = RunConfig.load(write(tmp_path, content))
    assert config.job.roots == (None,)
    assert "widest" in config.strategies
    assert "ps" not in config.strategies
    with pytest.raises(ExperimentError, match="--strategy: ps needs a parameter server"):
        config.replaced("--strategy", strategies=["ps"])


def test_the_table_of_a_run_fits_eighty_columns() -> None:
    row = ("fixed hierarchy", "123.456", "234.567", "-100 %", "1234.5", "1234/1234", "123456", "1234.5", "100.0 %")
    assert len(row) == len(report.COLUMNS)
    with (console := Console(width=80, file=io.StringIO())).capture() as capture:
        console.print(_table("a title", report.COLUMNS, [row]))
    assert all(cell in capture.get() for cell in row)


def test_a_key_that_is_there_twice_is_refused(content: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path, content)
    lines = path.read_text().count("\n")
    path.write_text(path.read_text() + "seed: 7\nseed: 8\n")
    with pytest.raises(ExperimentError) as caught:
        RunConfig.load(path)
    twice = '"seed" is given twice; give every key and node its own name'
    assert str(caught.value).split("\n") == [
        f"{path}: 2 things are wrong:",
        f"  line {lines + 1}: {twice}",
        f"  line {lines + 2}: {twice}",
    ]
