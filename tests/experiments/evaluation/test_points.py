"""Points, drawn and run: the same draws for all strategies, figures to check by hand, whole records, resumption."""

from __future__ import annotations

import asyncio
import csv
import gzip
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from weir.cli.app import app
from weir.experiments.backends.virtual_time import Cluster
from weir.experiments.errors import ExperimentError
from weir.experiments.evaluation import grid, page
from weir.experiments.evaluation.comparison import conditions_of
from weir.experiments.evaluation.packet_emulator import run_config
from weir.experiments.evaluation.points import run_point
from weir.experiments.evaluation.records import COLUMNS, FOLDER, PointRecord, StrategyFigures, write_csv
from weir.experiments.evaluation.scenario import Scenario, rng_of
from weir.experiments.evaluation.suite import Grid, Point, Suite, Timing
from weir.tests.paths import ROOT
from weir.tests.processes import tcp_listeners
from weir.tests.support.errors import raises

LEAF_SPINE = {"kind": "leaf-spine", "leaves": 3, "spines": 2, "hosts_per_leaf": 4, "rate": "10Gbit"}


def point(**changed: Any) -> Point:
    told: dict[str, Any] = {
        "grid": "one",
        "engine": "flows",
        "fabric": LEAF_SPINE,
        "workers": 6,
        "spread": "random",
        "rates": "equal",
        "load": 0.4,
        "background": "static",
        "jobs": 1,
        "memory": "ample",
        "telemetry": "fresh",
        "gradient_bytes": 1_250_000,
        "timing": Timing(steps=4),
        "strategies": ("ps", "blind", "widest"),
        "seed": 1,
    }
    return Point(**{**told, **changed})


def means(record: PointRecord) -> dict[str, float]:
    assert all(own.mean_s is not None for own in record.figures)
    return {own.strategy: own.mean_s or 0.0 for own in record.figures}


def test_an_idle_fabric_by_hand() -> None:
    """A gradient of 12.5 MB takes 10 ms at 10 Gbit/s: once with sums at every level, six times at the server alone,
    and 10/6 of it around a ring of six whose neighbours share no link.
    """
    names = ("ps", "ring", "hierarchy", "blind", "widest")
    record = run_point(point(load=0.0, spread="packed", strategies=names, gradient_bytes=12_500_000))
    found = means(record)
    assert found["ps"] == pytest.approx(60e-3, rel=0.01)
    assert found["ring"] == pytest.approx(10 / 6 * 10e-3, rel=0.01)
    for name in ("hierarchy", "blind", "widest"):
        assert found[name] == pytest.approx(10e-3, rel=0.01)
    assert all(own.moves == 0 and own.background == 0 for own in record.figures)


def test_a_point_is_the_same_whatever_is_compared_there() -> None:
    many = run_point(point(strategies=("ps", "random", "blind", "widest")))
    alone = run_point(point(strategies=("widest",)))
    assert means(many)["widest"] == means(alone)["widest"]
    assert means(run_point(point(strategies=("random",))))["random"] == means(many)["random"]


def test_seeds_draw_hosts_traffic_and_rates() -> None:
    drawn = [Scenario.drawn(point(seed=seed, rates="mixed", memory="scarce")) for seed in range(1, 7)]
    assert len({one.jobs for one in drawn}) > 1
    assert len({tuple(link.rate_bps for link in one.routes.topology.links) for one in drawn}) > 1
    assert len({json.dumps(one.room) for one in drawn}) > 1
    assert len({rng_of(one.point, "background").random() for one in drawn}) == 6


def test_jobs_have_hosts_of_their_own_where_they_are_to_be() -> None:
    packed = Scenario.drawn(point(jobs=2, workers=3, spread="packed"))
    spread = Scenario.drawn(point(jobs=1, workers=2, spread="spread"))
    topology = packed.routes.topology
    racks = [{topology.attached_switch(host).name for host in (*job.workers, job.server)} for job in packed.jobs]
    assert all(len(rack) == 1 for rack in racks)
    assert racks[0] != racks[1]
    job = spread.jobs[0]
    assert len({topology.attached_switch(host).name for host in (*job.workers, job.server)}) == 3


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_absent_telemetry_is_blind_and_fresh_matches_the_oracle(seed: int) -> None:
    absent = means(run_point(point(telemetry="absent", seed=seed)))
    assert absent["widest"] == absent["blind"]
    fresh = means(run_point(point(strategies=("widest", "oracle"), seed=seed, load=0.3)))
    assert fresh["widest"] == pytest.approx(fresh["oracle"], rel=0.02)


@pytest.mark.parametrize(
    ("telemetry", "background"),
    [
        ("old", "shifting"),
        *(
            pytest.param(telemetry, background, marks=pytest.mark.long)
            for telemetry, background in (("old", "websearch"), ("lossy", "shifting"), ("lossy", "websearch"))
        ),
    ],
)
def test_every_strategy_ends_under_every_condition(telemetry: str, background: str) -> None:
    names = (
        *("ps", "ring", "two-level-ring", "halving-doubling", "rack", "atp", "hierarchy", "hashed-hierarchy", "root"),
        *("grid", "canary", "best-spine", "blind", "widest", "striped"),
    )
    told = point(
        telemetry=telemetry,
        background=background,
        jobs=2,
        workers=4,
        timing=Timing(steps=3, interval=2_000_000, shift=6_000_000),
        strategies=names,
    )
    found = means(run_point(told))
    assert set(found) == set(names)
    assert all(seconds >= 1e-3 for seconds in found.values())


@pytest.mark.long
def test_simulated_jobs_move_only_if_it_pays() -> None:
    """The controller's own rule decides: with pauses of ten seconds no job moves."""
    moves = dict.fromkeys((0, 10000000000), 0)
    for seed in range(1, 6):
        for pause in moves:
            timing = Timing(steps=20, interval=2_000_000, shift=30_000_000, pause=pause)
            (own,) = run_point(point(seed=seed, background="shifting", timing=timing, strategies=("widest",))).figures
            moves[pause] += own.moves
    assert moves[0] > 0
    assert moves[10_000_000_000] == 0


def test_jobs_that_know_of_each_other_keep_apart() -> None:
    """Two jobs over the same racks: each has a spine of its own from the start; fixed ones share it."""
    busy = Timing(steps=6, compute=0, interval=2_000_000)
    told = point(load=0.0, jobs=2, workers=3, spread="spread", strategies=("hierarchy", "widest"), timing=busy)
    hierarchy, widest = run_point(told).figures
    assert widest.mean_s is not None
    assert hierarchy.mean_s is not None
    assert widest.moves == 0
    assert widest.mean_s < 0.9 * hierarchy.mean_s


def test_a_placement_failure_is_recorded() -> None:
    record = run_point(point(memory="scarce", strategies=("striped",), seed=2))
    (own,) = record.figures
    if own.mean_s is None:
        assert "has no room" in own.failed
    else:
        assert own.failed == ""


def test_a_record_round_trips_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    record = run_point(point(timing=Timing(steps=1), strategies=("ps", "rack")))
    assert PointRecord.load(tmp_path, record.point).figures == ()
    record.save(tmp_path)
    assert PointRecord.load(tmp_path, record.point) == record
    made_by = record.figures[0].made_by
    assert made_by.keys() >= {"weir", "python", "numpy", "commit", "processor"}
    assert made_by["python"] == platform.python_version()
    paths = [tmp_path / FOLDER / f"{alone.key}.json" for alone in record.point.by_strategy]
    assert set((tmp_path / FOLDER).iterdir()) == set(paths)
    paths[0].write_text(paths[0].read_text()[:-20])
    assert PointRecord.load(tmp_path, record.point).point.strategies == ("rack",)
    assert PointRecord.load(tmp_path, point(seed=2)).figures == ()


def test_only_a_strategy_without_a_record_is_run(tmp_path: Path) -> None:
    """One that is added, and a user's whose file has changed."""
    mine = tmp_path / "mine.py"
    mine.write_text((ROOT / "examples" / "user_strategy.py").read_text())
    told: dict[str, Any] = {"timing": Timing(steps=1), "gradient_bytes": 10_000}
    first, more = (point(**told, strategies=names) for names in (("ps", str(mine)), ("rack", str(mine), "ps")))
    run_point(first).save(tmp_path)
    assert grid._missing(tmp_path, more).strategies == ("rack",)
    run_point(grid._missing(tmp_path, more)).save(tmp_path)
    assert PointRecord.load(tmp_path, more).point.strategies == more.strategies
    mine.write_text(mine.read_text() + "\n")
    assert grid._missing(tmp_path, more).strategies == (str(mine),)


def test_weights_and_priorities_decide_which_steps_count() -> None:
    """Draws are the same; only the jobs of the highest priority count, and the others by their weights."""
    told: dict[str, Any] = {"jobs": 3, "workers": 3, "timing": Timing(steps=2), "strategies": ("rack",)}
    drawn = [Scenario.drawn(point(**told, importance=each, seed=5)) for each in ("equal", "weights", "priorities")]
    assert len({tuple((job.workers, job.server) for job in one.jobs) for one in drawn}) == 1
    assert {job.weight for job in drawn[0].jobs} == {1.0}
    assert len({job.weight for job in drawn[1].jobs}) > 1
    assert len({job.priority for job in drawn[2].jobs}) > 1
    found = [means(run_point(one.point))["rack"] for one in drawn]
    assert len(set(found)) == 3


def test_data_have_a_row_per_point_and_strategy_and_are_stable(tmp_path: Path) -> None:
    records = [run_point(point(seed=seed, timing=Timing(steps=1), strategies=("ps", "widest"))) for seed in (1, 2)]
    write_csv(records, tmp_path / "a.csv.gz")
    write_csv(records, tmp_path / "b.csv.gz")
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    rows = list(csv.DictReader(gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).decode().splitlines()))
    assert [(row["seed"], row["strategy"]) for row in rows] == [
        ("1", "ps"),
        ("1", "widest"),
        ("2", "ps"),
        ("2", "widest"),
    ]
    assert tuple(rows[0]) == COLUMNS
    first = records[0].figures[0]
    assert float(rows[0]["mean_ms"]) == pytest.approx(1e3 * (first.mean_s or 0), rel=1e-3)


SUITE = {
    "name": "small",
    "seeds": 3,
    "strategies": ["ps", "blind", "widest"],
    "grids": [
        {
            "name": "one",
            "about": "Small.",
            "fabrics": [LEAF_SPINE],
            "workers": [6],
            "load": [0.0, 0.3],
            "background": ["shifting"],
            "gradient_bytes": 1_250_000,
            "timing": {"steps": 3},
        }
    ],
}


def predicted(background: str, seed: int, errors: dict[str, tuple[float, ...]], load: float = 0.3) -> PointRecord:
    """A point with these errors of the model in each strategy's steps; empty if it was not evaluated."""
    figures = tuple(
        StrategyFigures(
            strategy=name,
            mean_s=0.002,
            p95_s=0.002,
            max_link_load=0.5,
            decision_ms=1.0,
            moves=0,
            background=load,
            predicted_s=0.002 if mine else None,
            errors=mine,
        )
        for name, mine in errors.items()
    )
    told = {"background": background, "load": load, "seed": seed, "strategies": tuple(errors)}
    return PointRecord(point=point(grid="packets", **told), figures=figures)


def test_the_page_counts_steps_with_an_accurate_model() -> None:
    """Accuracy is within a tenth, over all strategies and seeds, by background traffic."""
    grid = Grid(name="packets", fabrics=[LEAF_SPINE])
    records = [
        predicted("static", 1, {"ps": (0.1, -0.1, 0.11), "widest": (-0.2,)}),
        predicted("static", 2, {"ps": (0.0, 0.05, -0.01), "widest": (0.09,)}),
        predicted("shifting", 1, {"ps": (), "widest": (-0.3, 0.02)}),
        predicted("static", 1, {"ps": (0.4,), "widest": ()}, load=0.0),
    ]
    last = page._section(grid, list(conditions_of(records)), "packets.svg").splitlines()[-1]
    assert last == (
        "Share of steps without a move whose time the controller's model predicts within 10 %, over all "
        "strategies and seeds: static 75 % (6 of 8), shifting 50 % (1 of 2), idle 0 % (0 of 1)."
    )
    unasked = [predicted("static", 1, {"ps": (), "widest": ()})]
    assert "model" not in page._section(grid, list(conditions_of(unasked)), "flows.svg")


def test_the_page_says_what_in_its_tables_is_no_strategy() -> None:
    assert page._beside([predicted("static", 1, {"ps": (), "ring": ()})]) == [
        "Reference schemes that are not strategies:\n",
        "- *ring*: workers pass parts of the sum on from one to the next, rack by rack; no switch sums.",
        "",
    ]
    assert page._beside([predicted("static", 1, {"ps": (), "widest": ()})]) == []


def test_joint_placement_without_telemetry_uses_own_streams_only() -> None:
    """One job alone stays where it was placed blindly. Of four one moves, whatever becomes of telemetry on its way."""
    timing = Timing(steps=6, interval=10_000_000, compute=1_000_000)
    told: dict[str, Any] = {"fabric": {**LEAF_SPINE, "spines": 3}, "gradient_bytes": 12_500_000, "timing": timing}
    told |= {"workers": 2, "load": 0.3, "strategies": ("blind", "blind-together")}
    one, four, lossy = (
        run_point(point(jobs=jobs, telemetry=telemetry, **told))
        for jobs, telemetry in ((1, "fresh"), (4, "fresh"), (4, "lossy"))
    )
    assert means(one)["blind"] == pytest.approx(means(one)["blind-together"])
    assert means(four) == pytest.approx(means(lossy))
    assert means(four)["blind-together"] < 0.9 * means(four)["blind"]
    assert [[own.moves for own in each.figures] for each in (one, four, lossy)] == [[0, 0], [0, 1], [0, 1]]


def several_jobs(seed: int, seconds: dict[str, float], **told: Any) -> PointRecord:
    figures = tuple(
        StrategyFigures(
            strategy=name, mean_s=each, p95_s=each, max_link_load=0.5, decision_ms=1.0, moves=0, background=0.3
        )
        for name, each in seconds.items()
    )
    return PointRecord(point=point(**told, seed=seed, strategies=tuple(seconds)), figures=figures)


def test_several_jobs_separate_depth_re_placement_and_telemetry() -> None:
    seconds = {"ps": 1.0, "blind": 0.5, "blind-together": 0.3, "widest": 0.18}
    records = [several_jobs(seed, seconds, jobs=jobs) for jobs in (1, 4) for seed in (1, 2)]
    told = page._several_jobs(list(conditions_of(records)))
    rows = [line for line in "\n".join(told).splitlines() if line.startswith("| 6 workers")]
    assert rows == [
        "| 6 workers, load 0.4 static, 4 jobs | 61 % (61 to 61) | 24 % (24 to 24) | 15 % (15 to 15) | 40 % (40 to 40) |"
    ]
    without = {name: each for name, each in seconds.items() if name != "blind-together"}
    assert page._several_jobs(list(conditions_of([several_jobs(1, without, jobs=4)]))) == []


def test_aggs_comparison_names_the_best_one_level_and_best_tree() -> None:
    seconds = {
        "ps": 1.0,
        "rack": 0.8,
        "atp": 0.5,
        "grid": 0.6,
        "hierarchy": 0.2,
        "canary": 0.3,
        "agg": 0.4,
        "widest": 0.1,
    }
    told = page._agg(list(conditions_of([several_jobs(seed, seconds) for seed in (1, 2)])))
    assert told[-2] == (
        "| 6 workers, load 0.4 static | 400 | 29 % (29 to 29) | 20 % (20 to 20) (atp) "
        "| -100 % (-100 to -100) (hierarchy) | 75 % (75 to 75) |"
    )
    assert page._agg(list(conditions_of([several_jobs(1, {"ps": 1.0, "agg": 0.5, "widest": 0.1})]))) == []


@pytest.mark.long
def test_a_killed_evaluation_continues_and_writes_its_page(tmp_path: Path) -> None:
    """The command is killed once some points are there; the next run does the others alone, and all have the figures
    that they have without processes.
    """
    file, out, written = tmp_path / "suite.yaml", tmp_path / "out", tmp_path / "page.md"
    file.write_text(yaml.safe_dump(SUITE))
    command = "from weir.cli.main import main; main()"
    words = [sys.executable, "-c", command, "evaluate", str(file), "--out", str(out), "--workers", "1"]
    first = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    until = time.monotonic() + 120
    while not (done := list(out.glob(f"{FOLDER}/*.json"))) and time.monotonic() < until and first.poll() is None:
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    told = first.communicate()[1]
    assert done, told
    before = {path: path.stat().st_mtime_ns for path in out.glob(f"{FOLDER}/*.json")}
    again = subprocess.run([*words, "--write", str(written), "--json"], capture_output=True, text=True, check=True)
    suite = Suite.load(file)
    points = list(suite.points())
    assert len(points) == 6
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for each in points:
        record = PointRecord.load(out, each)
        assert means(record) == means(run_point(each))
    conditions = json.loads(again.stdout)["conditions"]
    assert [condition["told"]["load"] for condition in conditions] == [0.0, 0.3]
    assert [row["strategy"] for row in conditions[0]["rows"]] == ["ps", "blind", "widest"]
    text = written.read_text()
    assert "| server only |" in text
    assert (tmp_path / "page" / "one.svg").read_text().startswith("<?xml")
    assert (tmp_path / "page" / page.DATA).exists()


@pytest.mark.long
def test_a_quiet_evaluation_says_its_results_alone(tmp_path: Path) -> None:
    """Its processes have handlers of their own."""
    file = tmp_path / "suite.yaml"
    file.write_text(yaml.safe_dump({**SUITE, "seeds": 1}))
    command = "from weir.cli.main import main; main()"
    words = [sys.executable, "-c", command, "-q", "evaluate", str(file), "--out", str(tmp_path / "out"), "--workers"]
    done = subprocess.run([*words, "1"], capture_output=True, text=True, check=True)
    assert "widest" in done.stdout
    assert done.stderr == ""


def test_processes_open_no_port_and_end_with_the_evaluation(tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(yaml.safe_dump({**SUITE, "seeds": 1, "strategies": ["ps"]}))
    before, found, children = tcp_listeners(os.getpid()), set[str](), set[int]()

    def done(count: int, total: int) -> None:
        now = {child.pid for child in multiprocessing.active_children() if child.pid is not None}
        children.update(now)
        found.update(*map(tcp_listeners, [os.getpid(), *now]))

    grid.evaluate(Suite.load(file), tmp_path / "out", 1, None, done)
    assert len(children) == 1
    assert found == before
    # the executor's thread waits for them, too, and whoever is second does not learn at once that they have ended
    deadline = time.monotonic() + 60
    while (left := {child.pid for child in multiprocessing.active_children()} & children) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.01)
    assert not left


def test_a_strategy_of_ones_own_goes_by_its_label(tmp_path: Path) -> None:
    """The label is in the terminal, on the page and in its plot; a missing file appears by its path."""
    mine, gone = tmp_path / "mine.py", str(tmp_path / "gone.py")
    mine.write_text((ROOT / "examples" / "user_strategy.py").read_text())
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump({**SUITE, "seeds": 1, "strategies": ["ps", "mine.py"]}))
    suite = Suite.load(tmp_path / "suite.yaml")
    records = [run_point(point) for point in suite.points()]
    assert "quietest hub" in page.printed(suite, records, as_json=False)
    page.written(suite, records, tmp_path / "suite.yaml", tmp_path / "page.md")
    assert "| quietest hub |" in (tmp_path / "page.md").read_text()
    assert "quietest hub" in (tmp_path / "page" / "one.svg").read_text()
    (ps, own) = records[0].figures
    lost = records[0].model_copy(update={"figures": (ps, own.model_copy(update={"strategy": gone}))})
    lost = lost.model_copy(update={"point": lost.point.model_copy(update={"strategies": ("ps", gone)})})
    assert gone in page.printed(suite, [lost], as_json=False)


def test_non_finite_numbers_are_null_in_json() -> None:
    """A ring takes no decision, so its time is not a number: JSON has no NaN."""
    suite = Suite.model_validate({**SUITE, "seeds": 1, "strategies": ["ring", "widest"]})
    records = [run_point(point) for point in suite.points()]
    printed = page.printed(suite, records, as_json=True)
    told = json.loads(printed, parse_constant=lambda name: pytest.fail(name))
    rings = [row for condition in told["conditions"] for row in condition["rows"] if row["strategy"] == "ring"]
    assert rings
    assert all(row["decision_ms"] is None for row in rings)


@pytest.mark.parametrize("where", ["page", "suite.yaml/page.md", "folder.md"])
def test_an_unwritable_page_is_refused_before_any_point(where: str, tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    file.write_text(yaml.safe_dump(SUITE))
    (tmp_path / "folder.md").mkdir()
    words = ["evaluate", str(file), "--out", str(tmp_path / "out"), "--write", str(tmp_path / where)]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, ExperimentError)
    assert str(done.exception).startswith(f"--write {tmp_path / where}: ")
    assert not (tmp_path / "out").exists()


def test_a_cluster_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "_CONNECT_SECONDS", 1)
    file = tmp_path / "suite.yaml"
    file.write_text(yaml.safe_dump(SUITE))
    with raises(ExperimentError, place="--cluster tcp://127.0.0.1:1"):
        grid.evaluate(Suite.load(file), tmp_path / "out", 1, "tcp://127.0.0.1:1", lambda done, total: None)


def test_a_load_that_no_idle_hosts_can_bring_is_a_reason() -> None:
    told = point(engine="packets", workers=10, gradient_bytes=100_000, strategies=("ps",))
    (own,) = run_point(told).figures
    assert own.mean_s is None
    assert "load 0.4 needs two hosts" in own.failed


@pytest.mark.long
def test_a_point_in_packets() -> None:
    """The compiled P4 on an idle fabric: at the server alone, six streams where sums at every level leave one."""
    told = point(
        engine="packets",
        fabric={**LEAF_SPINE, "rate": "1Gbit"},
        load=0.0,
        spread="packed",
        gradient_bytes=200_000,
        timing=Timing(steps=2, compute=500_000, interval=4_000_000, shift=12_000_000),
        strategies=("ps", "blind"),
    )
    record = run_point(told)
    assert [own.broken for own in record.figures] == [(), ()], "queues kept what was promised of them"
    found = means(record)
    sent = 8 * 200_000 * 1094 / 1024 / 1e9
    assert found["ps"] == pytest.approx(6 * sent, rel=0.1)
    assert sent < found["blind"] < 1.3 * sent


@pytest.mark.long
def test_steps_in_packets_take_as_long_as_the_model_says() -> None:
    """Only steps without a move count; the page has both times side by side."""
    told = point(
        engine="packets",
        fabric={**LEAF_SPINE, "rate": "1Gbit"},
        load=0.2,
        background="shifting",
        gradient_bytes=60_000,
        timing=Timing(steps=5, compute=500_000, interval=4_000_000, shift=6_000_000),
        strategies=("rack", "widest"),
    )
    record = run_point(told)
    for own in record.figures:
        assert own.mean_s is not None
        assert own.predicted_s == pytest.approx(own.mean_s, rel=0.10)
        assert own.moves == 0
        assert own.broken == ()
        assert len(own.errors) == 5
        assert all(abs(error) < 0.10 for error in own.errors)
    (condition,) = conditions_of([record])
    table = page._table(condition).splitlines()
    assert table[0].endswith("| predicted, ms | off by, median (most) |")
    assert len({line.count("|") for line in table}) == 1
    assert condition.rows[0].errors[-1] == max(map(abs, record.figures[0].errors))
    most = 100 * max(map(abs, record.figures[0].errors))
    assert table[2].endswith(f" ({most:.0f} %) |")
    assert f" | {1e3 * (record.figures[0].predicted_s or 0):.3g} | " in table[2]
    rack, ours = record.figures
    moved = record.model_copy(update={"figures": (rack.model_copy(update={"predicted_s": None, "errors": ()}), ours)})
    (condition,) = conditions_of([moved])
    assert page._table(condition).splitlines()[2].endswith(" | – | – |")


@pytest.mark.long
@pytest.mark.parametrize(("bound", "min_ms", "max_ms"), [(64, 1.29, 1.34), (1_000, 1.23, 1.25)])
def test_a_small_bound_costs_little_on_the_links_of_a_deep_tree(bound: int, min_ms: float, max_ms: float) -> None:
    """Others have nearly half of three links in a row, each of which waits for the one before."""
    suite = Suite.load(ROOT / "experiments" / "evaluation.yaml")
    (drawn,) = [p for p in suite.points() if (p.grid, p.background, p.seed) == ("packets", "static", 13)]
    config = run_config(Scenario.drawn(drawn), "hierarchy")
    config = config.model_copy(update={"congestion": config.congestion.model_copy(update={"bound": bound})})
    gradients = [np.ones(config.training.options.parameters, np.float32)] * drawn.workers

    async def run() -> list[float]:
        async with Cluster(config, "hierarchy") as cluster:
            times_ms = []
            for _ in range(5):
                await cluster.compute(config.training.compute)
                times_ms.append((await cluster.allreduce(gradients, 1))[1] * 1e-6)
            assert not cluster.figures.broken_promises
            return times_ms

    assert all(min_ms <= each <= max_ms for each in asyncio.run(run()))
