"""The history keeps what was seen, in a file that does not grow for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")

from weir.controller.errors import ControllerError
from weir.controller.live.history import History, ask
from weir.controller.live.seen import SeenLink

FABRIC = {"title": "a run", "name": "small", "links": [{"end": "s1-p1"}, {"end": "s1-p2"}, {"end": "s2-p1"}]}


def state(number: int, events: int = 0) -> dict[str, Any]:
    return {
        "time_ns": 1000 * number,
        "links": [[number / 100, 2.0 * number, 5.0, 0.0, 1.5, 1.0, False], None, [0.0, 0.0, 0.0, 0.5, None, 0.0, True]],
        "events": [
            {"number": n, "time_ns": 10 * n, "kind": "move", "text": f"the {n}th"} for n in range(events, 0, -1)
        ],
    }


def test_what_was_seen_is_there(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    for _ in range(2):
        with History(path) as history:
            history.begin(FABRIC)
            for number in range(4):
                history.add(state(number, events=number))
    columns, rows = ask(path, "SELECT * FROM links WHERE run = 2 ORDER BY time_ns, link")
    assert columns == [
        "run", "time_ns", "link", "load", "queue_packets", "latency_us", "loss", "age_ms", "confidence", "stale",
    ]  # fmt: skip
    assert rows == [
        row
        for number in range(4)
        for row in (
            (2, 1000 * number, "s1-p1", number / 100, 2.0 * number, 5.0, 0.0, 1.5, 1.0, False),
            (2, 1000 * number, "s2-p1", 0.0, 0.0, 0.0, 0.5, None, 0.0, True),
        )
    ]
    assert ask(path, "SELECT run, number, text FROM events ORDER BY ALL")[1] == [
        (run, n, f"the {n}th") for run in (1, 2) for n in (1, 2, 3)
    ]
    assert ask(path, "SELECT run, title, fabric FROM runs ORDER BY run")[1] == [
        (1, "a run", "small"),
        (2, "a run", "small"),
    ]


def test_the_fullest_links_and_longest_queues_are_told_of_each_controller_of_this_run(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    with History(path) as history:  # somebody else's, before
        history.begin(FABRIC)
        history.add(state(90))
    with History(path) as history:
        assert history.seen() == []
        for title in ("one", "two"):
            history.begin({**FABRIC, "title": title})
            for number in range(3):
                other = [0.5, 1.0, 5.0, 0.0, 1.5, 1.0, False]
                history.add(state(number, events=number) | {"links": [*state(number)["links"][:2], other]})
        one, two = history.seen(most=2)
        (fullest,) = history.seen(most=1)[0].fullest
    assert (one.title, two.title) == ("one", "two")
    assert (
        one.fullest
        == two.fullest
        == (
            SeenLink("s2-p1", [0, 1000, 2000], [0.5] * 3, [1.0] * 3),
            SeenLink("s1-p1", [0, 1000, 2000], [0.0, 0.01, 0.02], [0.0, 2.0, 4.0]),
        )
    )
    assert one.longest == one.fullest[::-1]
    assert one.moves_ns == (10, 20)
    assert fullest == one.fullest[0]


def test_the_oldest_is_forgotten_where_there_is_too_much(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    sizes = []
    for _ in range(3):
        with History(path, most_rows=4_000) as history:
            history.begin(FABRIC)
            for number in range(4_000):
                history.add(state(number))
        sizes.append(path.stat().st_size)
    ((rows, runs, first),) = ask(path, "SELECT count(*), count(DISTINCT run), min(time_ns) FROM links")[1]
    assert rows <= 4_000
    assert (runs, first) == (1, 1000 * (4_000 - rows // 2))
    assert sizes[2] <= 2 * sizes[0]


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    with pytest.raises(ControllerError, match=f"{path}: there is no such file"):
        ask(path, "SELECT 1")
    path.write_bytes(b"something else" * 1000)
    with pytest.raises(ControllerError, match=f"{path}: cannot keep telemetry there"):
        History(path)
    path.unlink()
    with History(path) as history:
        history.begin(FABRIC)
    with pytest.raises(ControllerError, match="nonsense"):
        ask(path, "SELECT nonsense FROM links")
    with pytest.raises(ControllerError, match="read-only"):
        ask(path, "DELETE FROM links")
