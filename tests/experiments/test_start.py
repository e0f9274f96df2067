"""Runs from Python: the figures as rows, CSV and data frame, also inside a running event loop."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import weir
from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.records.figures import COLUMNS
from weir.imports.extras import MissingExtra
from weir.tests.support.errors import raises


async def test_run_in_an_event_loop_has_figures_as_csv_and_frame(
    short: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.yaml"
    content = {**short.model_dump(mode="json"), "fabric": "leaf_spine.yaml", "background": []}
    file.write_text(yaml.safe_dump({**content, "training": {**content["training"], "steps": 2}}))
    record = weir.run(file, seed=3, strategies=["root"], out=tmp_path, progress=False)
    assert (record.config.seed, [result.strategy for result in record.results]) == (3, ["root"])
    record.save_csv(tmp_path / "figures.csv")
    with (tmp_path / "figures.csv").open(newline="") as written:
        (row,) = csv.DictReader(written)
    assert tuple(row) == COLUMNS
    assert (row["strategy"], row["seed"], row["steps"]) == ("root", "3", "2")
    assert float(row["mean_ms"]) == record.results[0].mean_ms
    with raises(ExperimentError, place=str(tmp_path / "none" / "figures.csv")):
        record.save_csv(tmp_path / "none" / "figures.csv")

    def frame(rows: list[dict[str, Any]], columns: list[str]) -> Any:
        return rows, columns

    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=frame))
    rows, columns = record.to_frame()
    assert (columns, [each["strategy"] for each in rows]) == (list(COLUMNS), ["root"])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with raises(MissingExtra, name="pandas"):
        record.to_frame()


def test_a_run_with_a_wrong_option_is_refused(short: RunConfig, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({**short.model_dump(mode="json"), "fabric": "leaf_spine.yaml"}))
    with pytest.raises(ExperimentError):
        weir.run(file, seed=-1, out=tmp_path)
