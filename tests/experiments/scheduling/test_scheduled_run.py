"""`weir run` of files with a section `scheduling`: the shipped ones, their records, and wrong files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from weir.tests.paths import ROOT
from weir.tests.support.commands import weir

FILES = ROOT / "experiments" / "scheduling"


def test_searches_are_compared_under_each_order(tmp_path: Path) -> None:
    data = yaml.safe_load((FILES / "searches.yaml").read_text())
    data["scheduling"] = {"searches": {"count": 3}, "orders": ["fair", "grouper"], "seeds": 2}
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(data))
    ended = weir("run", file, "--out", tmp_path / "runs", "--json", "--seed", "4")
    assert ended.status == 0, ended.err
    shown = json.loads(ended.out)
    record = json.loads((Path(shown.pop("folder")) / "scheduling.json").read_text())
    assert record.pop("versions")
    assert record.pop("seed") == 4
    assert record == shown
    for (fair,), (grouper,), bound in zip(
        record["rows"]["fair"]["draws"], record["rows"]["grouper"]["draws"], record["bound"], strict=True
    ):
        assert bound <= grouper <= 1.05 * fair


def test_turns_have_the_period_of_the_formula(tmp_path: Path) -> None:
    ended = weir("run", FILES / "turns.yaml", "--out", tmp_path, "--json")
    assert ended.status == 0, ended.err
    shown = json.loads(ended.out)
    assert shown["rows"]["turns"]["mean"] == pytest.approx([shown["formula"]], rel=0.01)
    assert shown["rows"]["one after the other"]["mean"] == pytest.approx([0.06])


def test_shipped_files_are_valid() -> None:
    for file in sorted(FILES.glob("*.yaml")):
        ended = weir("run", file, "--check")
        assert (ended.status, ended.err) == (0, ""), file


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({}, "searches"),
        ({"searches": {}, "learners": {}}, "searches and learners"),
        ({"searches": {}, "orders": ["jpas"]}, "jpas"),
        ({"learners": {}, "orders": ["jpsa"]}, "jpsa"),
        ({"turns": {"compute": ["1ms"], "exposed": ["1ms", "2ms"]}}, "2 of exposed"),
        ({"turns": {"compute": ["1ms"], "exposed": ["1ms"]}, "orders": ["fair"]}, "orders"),
        ({"learners": {}, "seeds": 0}, "seeds"),
    ],
)
def test_wrong_sections_are_refused_in_a_line(tmp_path: Path, section: dict[str, Any], named: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({"name": "wrong", "fabric": "leaf_spine.yaml", "scheduling": section}))
    ended = weir("run", file)
    assert ended.status == 2
    assert named in ended.err
    assert "Traceback" not in ended.err


def test_a_seed_that_no_file_may_have_is_refused(tmp_path: Path) -> None:
    ended = weir("run", FILES / "turns.yaml", "--out", tmp_path, "--seed", "-1")
    assert ended.status == 2
    assert "--seed: -1 is not right" in ended.err


def test_options_of_other_runs_are_refused() -> None:
    ended = weir("run", FILES / "turns.yaml", "--strategy", "widest")
    assert ended.status == 2
    assert "--strategy" in ended.err
