"""The command `weir plan compression`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weir.cli.app import app


def test_a_plan_is_printed_for_each_gradient(tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.json"
    sizes.write_text("[1000, 4000000]")
    words = ["plan", "compression", str(sizes), "--rate", "10Mbit", "--workers", "4", "--codec", "vote"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [row["size"] for row in found["gradients"]] == [1000, 4_000_000]
    assert found["schedules_ms"].keys() == {"plan", "SeCoPa", "all raw", "all compressed"}
    assert found["schedules_ms"]["plan"] == min(found["schedules_ms"].values())
    assert CliRunner().invoke(app, words).exit_code == 0


def test_the_schedule_is_written_as_a_trace(tmp_path: Path) -> None:
    sizes, trace = tmp_path / "sizes.json", tmp_path / "plan.json"
    sizes.write_text("[1000, 4000000]")
    words = ["plan", "compression", str(sizes), "--rate", "10Mbit", "--codec", "vote", "--trace"]
    assert CliRunner().invoke(app, [*words, str(trace)]).exit_code == 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["tid"] for event in events} == {"compute", "network"}
    assert {event["args"]["gradient"] for event in events} == {0, 1}
    assert CliRunner().invoke(app, [*words, str(tmp_path / "none" / "plan.json")]).exit_code == 2


def test_a_model_is_named() -> None:
    done = CliRunner().invoke(app, ["plan", "compression", "bert-base", "--codec", "vote", "--workers", "2", "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["gradients"]) == 199


@pytest.mark.parametrize("text", ["{}", "[0]", "x", f"[{10**400}]", f"[{'1, ' * 10_000}1]"])
def test_a_file_without_sizes_is_refused(text: str, tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.json"
    sizes.write_text(text)
    assert CliRunner().invoke(app, ["plan", "compression", str(sizes)]).exit_code == 2


@pytest.mark.parametrize(
    ("text", "value"), [("[]", "[]"), ("[7, true]", "size 1 is True"), ("[1.5]", "1.5"), ("null", "None")]
)
def test_what_is_no_size_is_named(text: str, value: str, tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.json"
    sizes.write_text(text)
    done = CliRunner().invoke(app, ["plan", "compression", str(sizes)], env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 2
    assert value in done.output
