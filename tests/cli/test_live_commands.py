"""`weir top` and `weir telemetry` print what a live page and a history have."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("aiohttp")
pytest.importorskip("plotly")
pytest.importorskip("duckdb")

from weir.cli import top
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


NO_STATES: list[Any] = [{}, [], 1, None]
NO_NUMBERS: list[Any] = [None, "x", [], math.nan, 10**400]


@contextmanager
def page_of(content: bytes) -> Iterator[str]:
    """Address of a process that is no controller, and serves this."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):  # a reader that has refused it
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            serving.join()


def events(fabric: Any, told: Any) -> bytes:
    return b"event: fabric\ndata: %b\n\nevent: state\ndata: %b\n\n" % tuple(
        content if isinstance(content, bytes) else json.dumps(content).encode() for content in (fabric, told)
    )


def replaced(content: Any, value: Any) -> Any:
    """The content with another value in place of every number."""
    if isinstance(content, dict):
        return {key: replaced(inner, value) for key, inner in content.items()}
    if isinstance(content, list | tuple):
        return [replaced(inner, value) for inner in content]
    return content if isinstance(content, str) else value


@pytest.mark.parametrize(
    "content",
    [
        events(b"[" * 100_000, {}),
        events(b"9" * 5_000, {}),
        events(b"\xff", {}),
        *(events(fabric, told) for fabric in NO_STATES for told in NO_STATES),
        *(events(FABRIC, replaced(state(2), value)) for value in NO_NUMBERS),
    ],
)
@pytest.mark.parametrize("options", [["--once"], ["--once", "--json"], []])
def test_a_page_of_a_stranger_is_refused_or_shown(content: bytes, options: list[str]) -> None:
    with page_of(content) as url:
        if options == ["--once", "--json"] and b'"links"' in content:  # any JSON that names its fabric is passed on
            assert RUNNER.invoke(app, ["top", url, *options], catch_exceptions=False).exit_code == 0
        else:
            with raises(ExperimentError, place=url):
                RUNNER.invoke(app, ["top", url, *options], catch_exceptions=False)


def test_a_page_without_line_ends_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "_LONGEST_LINE", 1_000)
    with page_of(b"data: " + bytes(2_000)) as url, raises(ExperimentError, place=url):
        RUNNER.invoke(app, ["top", url], catch_exceptions=False)


def test_texts_of_a_page_cannot_move_the_cursor() -> None:
    told = {**state(2), "telemetry": "\x1b[2J\u202efine"}
    with page_of(events(FABRIC, told)) as url:
        shown = RUNNER.invoke(app, ["top", url, "--once"], catch_exceptions=False).stdout
    assert "\\x1b[2J\\u202efine" in shown
    assert "\x1b" not in shown


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
