"""Run records: whole or not there, and never read as something else than was written."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from weir.controller.int_config.cost import TelemetryCost
from weir.experiments import run
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError, Interrupted
from weir.experiments.records import page, report
from weir.experiments.records.record import RECORD_FILE, QueueUse, RunRecord, StrategyResult
from weir.experiments.run import execute
from weir.tests.support.errors import raises
from weir.topologies.errors import TopologyError
from weir.training.workloads.digits import load_digits

WEIR = Path(sys.executable).with_name("weir")
RESULT = StrategyResult(
    strategy="ps",
    iteration_ns=[1_000, 2_500],
    sums=["ab", "cd"],
    busiest_link="s1-p1",
    busiest_link_bytes=1,
    largest_queue="s1-p2",
    largest_queue_packets=3,
    promised={"s1-p2": 9, "s1-p1": None},
    broken=[],
    resends=0,
    drops={"late": 2},
    accuracy=0.1,
    weights="ef",
    fabric="01",
    trees=[{"h1": "h2"}],
    moves=[],
    link_load={"s1-p1": 0.25},
    queues=[],
    solver_ms=[0.5],
    wall_s=1.5,
)


def a_record(short: RunConfig) -> RunRecord:
    record = RunRecord.begin(short, "23", 0.5)
    record.results.append(RESULT)
    return record


@pytest.mark.parametrize(
    ("seed", "changes"),
    [(1, 1_500), *(pytest.param(seed, 25_000, marks=pytest.mark.long) for seed in range(100, 140))],
)
def test_a_changed_record_is_refused_or_means_the_same(
    seed: int, changes: int, short: RunConfig, tmp_path: Path
) -> None:
    """One-bit flips, truncations and doubled pieces."""
    rng = random.Random(seed)
    record = a_record(short)
    data = record.save(tmp_path).read_bytes()
    assert RunRecord.load(tmp_path) == record
    other = tmp_path / "other.json"
    refused = 0
    for _ in range(changes):
        at, changed = rng.randrange(len(data)), bytearray(data)
        match rng.randrange(4):
            case 0:
                del changed[at:]
            case 1:
                changed[at:at] = data[at : at + rng.randrange(1, 40)]
            case _:
                changed[at] ^= 1 << rng.randrange(8)
        other.write_bytes(changed)
        try:
            read = RunRecord.load(other)
        except (ExperimentError, TopologyError):  # errors that the command prints in one line
            refused += 1
        else:
            assert read == record
    assert refused > changes * 2 // 3


@pytest.mark.parametrize(
    ("blind_ns", "claim"),
    [
        (2_000, (True, "it takes 50 % less time than under blind")),
        (1_004, (True, "it takes as long as under blind")),
        (1_000, (True, "it takes as long as under blind")),
        (997, (True, "it takes as long as under blind")),
        (800, (False, "it takes 25 % more time than under blind")),
    ],
)
def test_a_tie_is_said_to_be_one(blind_ns: int, claim: tuple[bool, str], short: RunConfig) -> None:
    record = RunRecord.begin(short, "ef", 0.5)
    times = {"ps": 4_000, "blind": blind_ns, "widest": 1_000}
    record.results += [
        RESULT.model_copy(update={"strategy": strategy, "iteration_ns": [ns] * 2}) for strategy, ns in times.items()
    ]
    claims = report.claims(record)
    assert (True, "the aggregation phase under widest takes 75 % less time than under ps") in claims
    assert claim in claims


def test_the_claim_on_bounds_has_counts_and_the_tightest_queue(short: RunConfig) -> None:
    record = RunRecord.begin(short, "ef", 0.5)
    uses = {"ps": QueueUse(port="s1-p1", packets=10, bound=20), "rack": QueueUse(port="s1-p3", packets=9, bound=10)}
    for strategy, use in uses.items():
        promised = {"s1-p1": 20, "s1-p2": None, "s1-p3": 10}
        changed = {
            "strategy": strategy,
            "promised": promised,
            "class_promised": {"s1-p1, class 4": 6} if strategy == "rack" else {},
            "fullest_queue": use,
            "queue_uses": [use, use.model_copy(update={"packets": 2})],
            "broken": [],
        }
        record.results.append(RESULT.model_copy(update=changed))
    [(holds, text)] = [(holds, text) for holds, text in report.claims(record) if "bound" in text]
    assert holds
    assert "3 bounds computed before the run, closest s1-p3 under rack with 9 of 10 packets" in text
    assert "; median of the 4 queues in use: 35 %; 1 more have no" in text
    assert [row[5] for row in report.rows(record.results)] == ["10/20", "9/10"]


def test_cost_of_telemetry_takes_one_line(short: RunConfig) -> None:
    record = RunRecord.begin(short, "ef", 0.5)
    for strategy, megabytes in (("ps", 3), ("widest", 1)):
        cost = TelemetryCost(packets=9, bytes=megabytes * 10**6, largest_share=megabytes / 1000, where="s1-p3")
        record.results.append(RESULT.model_copy(update={"strategy": strategy, "telemetry": cost}))
    [line] = report.telemetry_summary(record)
    assert line == "telemetry: 1.00 to 3.00 MB on links per strategy, at most 0.3 % of a link (s1-p3 under ps)"
    assert len(report.telemetry_lines(record)) == 2


@pytest.mark.parametrize(("passes", "reached", "marks"), [(2.9, 0.5, []), (3.1, 0.5, [False]), (3.1, 0.96, [True])])
def test_few_passes_over_the_digits_require_no_accuracy(
    passes: float, reached: float, marks: list[bool], short: RunConfig
) -> None:
    a_step = short.training.batch * len(short.job.workers) / len(load_digits(short.seed).train_images)
    training = short.training.model_copy(update={"steps": round(passes / a_step)})
    record = RunRecord.begin(short.model_copy(update={"training": training}), "ef", reached)
    assert [holds for holds, text in report.claims(record) if "held-out digits" in text] == marks


def test_a_record_without_a_digest_is_refused(short: RunConfig, tmp_path: Path) -> None:
    path = a_record(short).save(tmp_path)
    values = json.loads(path.read_text())
    del values["digest"]
    path.write_text(json.dumps(values))
    with raises(ExperimentError, place=str(path)):
        RunRecord.load(tmp_path)


def test_a_full_disk_leaves_no_torn_record(short: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(config: RunConfig, strategy: str, *_: Any) -> StrategyResult:
        return RESULT.model_copy(update={"strategy": strategy})

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(run, "run_strategy", at_once)
    monkeypatch.setattr(os, "fsync", full)
    with raises(ExperimentError, value=errno.ENOSPC):
        execute(short, tmp_path / "runs", Console(quiet=True))
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_disk_that_fills_up_leaves_no_half_page(short: RunConfig, tmp_path: Path) -> None:
    write_text = Path.write_text

    def half(path: Path, text: str) -> int:
        written = write_text(path, text[: len(text) // 2])
        if path.name == "queues.svg":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_text", half)
        with pytest.raises(OSError, match="No space"):
            page.write(a_record(short), tmp_path, lambda *_, upright: "<svg/>")
    assert (tmp_path / "iterations.svg").exists()
    assert not (tmp_path / "queues.svg").exists()


@pytest.mark.parametrize("how", [KeyboardInterrupt, pytest.param(SystemExit, marks=pytest.mark.long)])
def test_an_interrupted_run_keeps_what_is_complete(
    short: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: type[BaseException]
) -> None:
    done: list[str] = []

    async def once(config: RunConfig, strategy: str, *others: Any) -> StrategyResult:
        if done:
            raise how
        done.append(strategy)
        return await real(config, strategy, *others)

    real = run.run_strategy
    monkeypatch.setattr(run, "run_strategy", once)
    few = short.model_copy(update={"training": short.training.model_copy(update={"steps": 2})})
    with pytest.raises(Interrupted, match="interrupted; what was complete") as caught:
        execute(few, tmp_path, Console(quiet=True))
    (folder,) = tmp_path.iterdir()
    assert str(folder) in str(caught.value)
    record = RunRecord.load(folder)
    assert [result.strategy for result in record.results] == list(record.config.strategies) == done
    assert (folder / "index.html").is_file()
    assert not (folder / f"{RECORD_FILE}.new").exists()


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(each, marks=pytest.mark.long) for each in (signal.SIGINT, signal.SIGTERM))],
)
def test_a_signal_leaves_no_folder(number: signal.Signals, tmp_path: Path) -> None:
    """One that was killed leaves its folder to the next, which removes it."""
    demo = (resources.files("weir.experiments") / "demo.yaml").read_text()
    (tmp_path / "long.yaml").write_text(demo.replace("steps: 100,", "steps: 100000,"))
    out = tmp_path / "runs"

    def begin() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [WEIR, "run", str(tmp_path / "long.yaml"), "--out", str(out)],
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if any((folder / ".alive").exists() for folder in out.glob("*") if f"{folder}" not in seen):
                break
            time.sleep(0.05)
        return process

    seen: set[str] = set()
    process = begin()
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    if number is not signal.SIGKILL:
        assert process.returncode == 130, said
        assert said.rstrip().splitlines()[-1] == "weir: interrupted; no strategy was complete, so nothing is kept"
        assert "Traceback" not in said
        assert list(out.iterdir()) == []
        return
    (left,) = out.iterdir()
    seen.add(str(left))
    process = begin()
    process.terminate()
    process.communicate(timeout=120)
    assert list(out.iterdir()) == []


def test_reading_a_record_executes_none_of_its_code(tmp_path: Path) -> None:
    """The record is not read without trust; with it the digest is checked before the file is run."""
    marker, strategy = tmp_path / "executed", tmp_path / "evil.py"
    strategy.write_text(f"open({str(marker)!r}, 'w')")
    values: dict[str, Any] = {"digest": "none", "config": {"name": "harmless", "strategies": [str(strategy)]}}
    path = tmp_path / RECORD_FILE
    for trust, code in ((False, {}), (True, {}), (True, {str(strategy): "0" * 64})):
        path.write_text(json.dumps({**values, "code": code}))
        with pytest.raises(ExperimentError):
            RunRecord.load(tmp_path, trust=trust)
        assert not marker.exists()
    path.write_text(json.dumps({"digest": "none", "config": {"workload": {"script": str(strategy)}}}))
    with pytest.raises(ExperimentError, match="--trust"):
        RunRecord.load(tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize(
    "section",
    [
        lambda file: {"training": {"optimiser": file}},
        lambda file: {"synchronisation": {"modes": [file]}},
        lambda file: {"synchronisation": {"modes": [{"name": file}]}},
        lambda file: {"synchronisation": {"modes": ["bsp", {"name": "gossip", "policy": file}]}},
        lambda file: {"synchronisation": {"modes": [{"name": "lb-bsp", "predictor": file}]}},
        lambda file: {"synchronisation": {"workload": file}},
    ],
    ids=["optimiser", "mode", "mode with options", "policy", "predictor", "workload"],
)
def test_files_of_training_are_executed_with_trust_alone(section: Any, tmp_path: Path) -> None:
    marker, file = tmp_path / "executed", tmp_path / "evil.py"
    file.write_text(f"open({str(marker)!r}, 'w')")
    values = {"digest": "none", "config": {"name": "harmless", **section(str(file))}}
    for trust, code in ((False, {}), (True, {}), (True, {str(file): "0" * 64})):
        (tmp_path / RECORD_FILE).write_text(json.dumps({**values, "code": code}))
        with pytest.raises(ExperimentError):
            RunRecord.load(tmp_path, trust=trust)
        assert not marker.exists()


@pytest.mark.parametrize(
    "section",
    [
        lambda file: {"strategies": [file, "widest"]},
        lambda file: {"strategies": [file], "strategy_options": {file: {"any": 1}}},
        lambda file: {"congestion": {"law": file}, "telemetry": {"drops": "all"}},
        lambda file: {"training": {"optimiser": file, "optimiser_options": {"any": 1}}},
        lambda file: _modes([file, {"name": file, "any": 1}]),
        lambda file: _modes([{"name": "lb-bsp", "predictor": file}]),
        lambda file: {**_modes(["bsp"]), "synchronisation": {**_modes(["bsp"])["synchronisation"], "workload": file}},
        lambda file: {"workload": {"script": file}, "job": {"workers": ["h1"], "servers": ["h2", "h3"]}},
    ],
    ids=["strategy", "strategy with options", "law", "optimiser", "modes", "predictor", "workload of modes", "script"],
)
def test_checking_a_run_file_executes_nothing(section: Any, tmp_path: Path) -> None:
    """Nor does reading one with an error elsewhere; only a file that is right otherwise executes what it names."""
    marker = tmp_path / "executed"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')")
    run = tmp_path / "run.yaml"
    right = {"name": "stranger", "fabric": "leaf_spine.yaml", "job": {"workers": ["h1", "h4"]}, **section("evil.py")}
    run.write_text(json.dumps(right))
    assert RunConfig.check(run).python_files == [str(tmp_path / "evil.py")]
    for wrong in ({"seed": -1}, {"host_poll": "long"}, {"other_jobs": [{"workers": ["h99"]}]}):
        run.write_text(json.dumps({**right, **wrong}))
        with pytest.raises(ExperimentError):
            RunConfig.load(run)
    assert not marker.exists()
    run.write_text(json.dumps(right))
    with pytest.raises(ExperimentError):  # the file describes nothing
        RunConfig.load(run)
    assert marker.exists()


def test_a_file_that_a_mode_s_option_names_is_found_beside_the_run_file(tmp_path: Path) -> None:
    run, policy = tmp_path / "run.yaml", tmp_path / "own.py"
    section = _modes([{"name": "gossip", "policy": "own.py"}])
    run.write_text(
        json.dumps({"name": "own", "fabric": "leaf_spine.yaml", "job": {"workers": ["h1", "h4"]}, **section})
    )
    with pytest.raises(ExperimentError, match=r"own\.py: no such file"):
        RunConfig.check(run)
    policy.write_text("")
    assert RunConfig.check(run).python_files == [str(policy)]


def _modes(modes: list[Any]) -> dict[str, Any]:
    return {"synchronisation": {"modes": modes, "machines": {"speeds": [1, 1]}, "target": 1}}


def test_a_record_has_the_digest_of_a_strategy_of_one_s_own(short: RunConfig, tmp_path: Path) -> None:
    strategy = tmp_path / "own.py"
    strategy.write_text("")
    own = short.model_copy(update={"strategies": ["ps", str(strategy)]})
    record = RunRecord.begin(own, "0", None)
    assert record.code == {str(strategy): hashlib.sha256(b"").hexdigest()}
