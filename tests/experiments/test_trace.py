"""Background traffic from a CSV trace: equal to the flows spelled out, and errors that name file and line."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from weir.experiments.config import RunConfig
from weir.experiments.config.background import MAX_ROWS, SteadyFlow
from weir.experiments.errors import ExperimentError
from weir.tests.paths import ROOT

TRACE = """source,destination,rate,start,stop,port
h3,h6,700Mbit,,70ms,
h4,h7,20Mbit,5ms,,1234
"""


def run_file(tmp_path: Path, trace: str) -> Path:
    data = yaml.safe_load((ROOT / "experiments" / "demo.yaml").read_text())
    data["background"] = [
        {"kind": "trace", "file": "flows.csv"},
        {"source": "h3", "destination": "h9", "rate": "1Mbit"},
    ]
    (tmp_path / "flows.csv").write_text(trace)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(data))
    return tmp_path / "run.yaml"


def test_rows_are_steady_flows_behind_the_others(tmp_path: Path) -> None:
    config = RunConfig.load(run_file(tmp_path, TRACE))
    assert config.background == [
        SteadyFlow.model_validate({"source": "h3", "destination": "h9", "rate": "1Mbit"}),
        SteadyFlow.model_validate({"source": "h3", "destination": "h6", "rate": "700Mbit", "stop": "70ms"}),
        SteadyFlow.model_validate(
            {"source": "h4", "destination": "h7", "rate": "20Mbit", "start": "5ms", "port": 1234}
        ),
    ]
    assert RunConfig.model_validate(config.model_dump()) == config, "a record needs no file"


@pytest.mark.parametrize(
    ("trace", "place", "value"),
    [
        (TRACE.replace("700Mbit", "fast"), "line 2", "fast"),
        (TRACE.replace("1234", "0"), "line 3", "port"),
        (TRACE.replace("70ms,", "70ms,1,2"), "line 2", "2"),
        (TRACE.replace("5ms,,", "5ms,4ms,"), "line 3", "stop"),
        (TRACE.replace("rate", "speed"), "flows.csv", "rate, speed"),
        ("", "flows.csv", "destination, rate, source"),
        ("source,destination,rate\n" + "h3,h6,1Mbit\n" * (MAX_ROWS + 1), f"line {MAX_ROWS + 2}", str(MAX_ROWS)),
        (TRACE.replace("h4", "h400"), "run.yaml", "h400"),
    ],
)
def test_a_wrong_row_is_named_with_file_and_line(tmp_path: Path, trace: str, place: str, value: str) -> None:
    with pytest.raises(ExperimentError) as error:
        RunConfig.load(run_file(tmp_path, trace))
    assert place in str(error.value)
    assert value in str(error.value)


def test_all_traces_together_have_a_limit(tmp_path: Path) -> None:
    """A file of a few lines could name one trace a million times."""
    file = run_file(tmp_path, "source,destination,rate\n" + "h3,h6,1kbit\n" * (MAX_ROWS // 2))
    data = yaml.safe_load(file.read_text())
    data["background"] = [data["background"][0]] * 2
    file.write_text(yaml.safe_dump(data))
    assert len(RunConfig.load(file).background) == MAX_ROWS
    data["background"] = [*data["background"], data["background"][0]]
    file.write_text(yaml.safe_dump(data))
    with pytest.raises(ExperimentError, match=str(MAX_ROWS)):
        RunConfig.load(file)


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    file = run_file(tmp_path, TRACE)
    (tmp_path / "flows.csv").unlink()
    with pytest.raises(ExperimentError, match=r"flows\.csv"):
        RunConfig.load(file)


def test_the_schema_allows_a_trace(tmp_path: Path) -> None:
    data = yaml.safe_load(run_file(tmp_path, TRACE).read_text())
    jsonschema.validate(data, RunConfig.json_schema())
    data["background"][0]["rate"] = "1Mbit"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, RunConfig.json_schema())
