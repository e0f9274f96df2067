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
    assert found["total_ms"]["plan"] <= min(found["total_ms"].values())
    assert CliRunner().invoke(app, words).exit_code == 0


@pytest.mark.parametrize("text", ["{}", "[0]", "x"])
def test_a_file_without_sizes_is_refused(text: str, tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.json"
    sizes.write_text(text)
    assert CliRunner().invoke(app, ["plan", "compression", str(sizes)]).exit_code == 2
