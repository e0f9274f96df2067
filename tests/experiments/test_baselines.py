"""`weir baselines`: the same run under several ways to control congestion, as a table, as JSON, and on a page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weir.cli.app import app
from weir.experiments.baselines import SCHEMES, compare
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.records.record import RunRecord
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises

BEGIN, END = "<!-- schemes -->", "<!-- end schemes -->"
QUEUES = ROOT / "experiments" / "queues"
RUN = """
name: pair
fabric:
  name: pair
  generate: {kind: leaf-spine, leaves: 1, spines: 0, hosts_per_leaf: 5, rate: 1Gbit, delay: 2us}
job: {workers: [h1, h2], server: h5, window: 32, slots: 64}
training: {hidden: 340, steps: 2, compute: 0us}
other_jobs:
  - {workers: [h3, h4], server: h5, window: 32, slots: 64}
congestion: {bound: 64, lease: 500us}
control: {warm_up: 2ms}
strategies: [ps]
"""


def test_schemes_side_by_side(tmp_path: Path) -> None:
    file, page = tmp_path / "pair.yaml", tmp_path / "page.md"
    file.write_text(RUN)
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    words = [
        "baselines",
        str(file),
        "--scheme",
        "explicit",
        "--scheme",
        "dctcp-virtual",
        "--write",
        str(page),
        "--json",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    explicit, virtual = json.loads(done.stdout.splitlines()[-1])
    assert (explicit["run"], explicit["scheme"], virtual["scheme"]) == ("pair", "explicit", "dctcp-virtual")
    assert explicit["longest_queue"] <= explicit["promised"] <= 64
    assert (explicit["broken"], explicit["resends"], explicit["dropped"]) == (0, 0, 0)
    assert virtual["promised"] is None, "nobody can promise what only marks keep"
    assert explicit["fairness"] > 0.99
    assert 0 < explicit["summed_bps"] < 1e9
    before, table, after = page.read_text().partition(BEGIN)[0], page.read_text(), page.read_text().partition(END)[2]
    assert (before, after) == ("before\n", "\nafter\n")
    assert "old" not in table
    assert f"| pair | explicit | {explicit['longest_queue']} | {explicit['promised']} |" in table


def test_impossible_comparisons_are_refused(tmp_path: Path) -> None:
    with raises(ExperimentError, place="--scheme", value="red", allowed=tuple(SCHEMES)):
        compare([], ["red"])
    with pytest.raises(ExperimentError, match='"dctpc" is unknown, did you mean "dctcp"'):
        compare([], ["dctpc"])
    file, page = tmp_path / "pair.yaml", tmp_path / "page.md"
    file.write_text(RUN)
    page.write_text("no marks")
    done = CliRunner().invoke(app, ["baselines", str(file), "--write", str(page)])
    assert isinstance(done.exception, ExperimentError)
    assert f"{page}: no place for the table of schemes: write {BEGIN} and {END}" in str(done.exception)
    assert "longest queue" not in done.output, "it is said before anything runs"


@pytest.mark.parametrize("path", sorted(QUEUES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_run_about_queues_can_be_run_under_every_scheme(path: Path) -> None:
    config = RunConfig.load(path)
    for values in SCHEMES.values():
        changed = config.replaced("a test", congestion={**config.congestion.model_dump(), **values})
        assert (changed.congestion_options.windows_obeyed) == (values["law"] == "explicit")


def test_a_broken_promise_is_said_and_tells_in_the_exit_status(tmp_path: Path) -> None:
    """One job keeps 256 rounds in the network regardless of the switches; the other's bound assumes that no job
    does.
    """
    file = tmp_path / "pair.yaml"
    lying = RUN.replace("window: 32, slots: 64}\ncongestion", "window: 256, slots: 512, obeys: false}\ncongestion")
    file.write_text(lying.replace("delay: 2us", "delay: 20us, queue: 256"))
    done = CliRunner().invoke(app, ["baselines", str(file), "--scheme", "explicit", "--scheme", "fixed"])
    assert done.exit_code == 1
    assert "(broken)" in done.stdout
    assert re.search(r"✗ pair, explicit: \d queues held more than was promised of them", done.output)
    file.write_text(file.read_text().replace("strategies: [ps]", "strategies: [ps, rack]"))
    done = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "✗ a queue exceeded its bound: ps: s1-p5 held" in done.output
    beforehand, _, _ = done.output.partition("run record")
    assert " = ΣW" not in beforehand
    for name in ("ps", "rack"):
        assert f"queue bounds, {name}: job 2: its workers ignore windows (obeys: false)" in beforehand
    [folder] = [path for path in tmp_path.iterdir() if path.is_dir()]
    result, _ = RunRecord.load(folder).results
    assert result.broken
    assert result.broken[0].startswith("s1-p5 held")
    texts = [promise.text for promise in result.promises if promise.text.startswith("s1-p5: ")]
    assert len(texts) == len(set(texts)) > 2, "without a job, with one, with two"
    assert all(promise.time_ns < 5_000_000 for promise in result.promises)
