"""`weir strategies`, and global options behind a command."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from weir.cli.app import app
from weir.cli.main import with_global_options_first
from weir.controller.placement.strategies import STRATEGIES

RUNNER = CliRunner()


def test_every_strategy_has_its_summary_needs_and_advice() -> None:
    rows = json.loads(RUNNER.invoke(app, ["strategies", "--json"], catch_exceptions=False).stdout)
    assert [row["name"] for row in rows] == list(STRATEGIES)
    assert all(row["does"] and row["choose_for"] for row in rows)
    assert next(row for row in rows if row["name"] == "ps")["needs"] == ["a parameter server"]
    printed = RUNNER.invoke(app, ["strategies"], catch_exceptions=False).stdout
    assert {line.split()[0] for line in printed.splitlines() if line.strip()} >= set(STRATEGIES)


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (["run", "x.yaml", "-q"], ["-q", "run", "x.yaml"]),
        (["place", "x.yaml", "--verbose", "--json"], ["--verbose", "place", "x.yaml", "--json"]),
        (["-v", "launch", "-n", "2", "x.py", "-q"], ["-v", "launch", "-n", "2", "x.py", "-q"]),
        (["launch", "-q", "-n", "2", "x.py", "-v"], ["-q", "launch", "-n", "2", "x.py", "-v"]),
        (["launch", "-n", "2", "--", "x.py", "-v"], ["launch", "-n", "2", "--", "x.py", "-v"]),
        (["torchrun", "x.py", "-v"], ["torchrun", "x.py", "-v"]),
        ([], []),
    ],
)
def test_global_options_may_follow_a_command(words: list[str], result: list[str]) -> None:
    assert with_global_options_first(words, {"launch": {"-n", "--topology"}}) == result
