"""`weir top` and `weir telemetry` print what a live page and a history have."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

pytest.importorskip("aiohttp")
pytest.importorskip("plotly")
pytest.importorskip("duckdb")

from weir.cli.app import app
from weir.cli.top import _stream
from weir.controller.live.history import HistoryFile
from weir.controller.live.server import LiveServer
from weir.experiments.errors import ExperimentError
from weir.tests.controller.live.test_page import FABRIC, state
from weir.tests.support.errors import raises

RUNNER = CliRunner()


def test_top_prints_the_newest_state_once(tmp_path: Path) -> None:
    with LiveServer(port=0) as server:
        server.show_fabric(FABRIC)
        server.show_state(state(2, sums="s3", stale=True, event="off it went"))
        seen = json.loads(RUNNER.invoke(app, ["top", server.url, "--once", "--json"], catch_exceptions=False).stdout)
        text = RUNNER.invoke(app, ["top", server.url, "--once"], catch_exceptions=False).stdout
    assert seen == {"fabric": FABRIC["name"], **state(2, sums="s3", stale=True, event="off it went")}
    ends = [link["end"] for link in FABRIC["links"]]
    for word in ("a test", "1 stale", "90.0 %", "summed at s3", "no_route 3", "off it went", *ends):
        assert word in text
    with raises(ExperimentError, place=server.url):
        RUNNER.invoke(app, ["top", server.url, "--once"], catch_exceptions=False)
    with raises(ExperimentError, value="here"):
        RUNNER.invoke(app, ["top", "here", "--once"], catch_exceptions=False)


def test_a_watcher_is_told_that_the_run_has_ended() -> None:
    server = LiveServer(port=0)
    with ExitStack() as running:
        running.enter_context(server)
        server.show_fabric(FABRIC)
        server.show_state(state(2, event="off it went"))
        states = _stream(server.url)
        assert next(states)[1]["doing"] != "this run has ended"
        ending = Thread(target=running.close)
        ending.start()
        *_, (fabric, last) = states
        ending.join()
    assert (fabric["name"], last) == (FABRIC["name"], {**state(2, event="off it went"), "doing": "this run has ended"})


def test_telemetry_answers_from_a_history(tmp_path: Path) -> None:
    path = tmp_path / "seen.duckdb"
    with HistoryFile(path) as history:
        history.begin(FABRIC)
        for number in range(1, 4):
            seen = state(number, event=f"generation {number}")
            history.add(seen, seen["events"])

    def told(*words: str) -> list[dict[str, object]]:
        answer = RUNNER.invoke(app, ["telemetry", *words, "--json"], catch_exceptions=False).stdout
        return [dict(row) for row in json.loads(answer)]

    end = FABRIC["links"][5]["end"]
    assert [row["title"] for row in told("runs", str(path))] == ["a test"]
    assert [row["time ms"] for row in told("link", str(path), end)] == [100, 200, 300]
    (row,) = [row for row in told("links", str(path)) if row["link"] == end]
    assert (row["mean load %"], row["longest queue"], row["looks"]) == (50, 15, 3)
    assert [row["text"] for row in told("events", str(path))] == [f"generation {n}" for n in (1, 2, 3)]
    assert told("sql", str(path), "SELECT count(*) AS n FROM links") == [{"n": 3 * len(FABRIC["links"])}]
    printed = RUNNER.invoke(app, ["telemetry", "links", str(path)], catch_exceptions=False).stdout
    assert end in printed
    with raises(ExperimentError, place=str(path), value="s9-p9"):
        told("link", str(path), "s9-p9")
    with raises(ExperimentError, place=str(path), value=5):
        told("events", str(path), "--run", "5")
