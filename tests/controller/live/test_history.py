"""The history keeps what was seen, in a file that does not grow for ever."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")

from weir.controller.errors import ControllerError
from weir.controller.live.history import HistoryFile, run_query
from weir.controller.live.seen import SeenLink
from weir.tests.paths import ROOT
from weir.tests.support.errors import raises

FABRIC = {"title": "a run", "name": "small", "links": [{"end": "s1-p1"}, {"end": "s1-p2"}, {"end": "s2-p1"}]}


def state(number: int) -> dict[str, Any]:
    return {
        "time_ns": 1000 * number,
        "links": [[number / 100, 2.0 * number, 5.0, 0.0, 1.5, 1.0, False], None, [0.0, 0.0, 0.0, 0.5, None, 0.0, True]],
    }


def moves(newest: int) -> list[dict[str, Any]]:
    """All that have happened until then, as a log has them."""
    return [{"number": n, "time_ns": 10 * n, "kind": "move", "text": f"the {n}th"} for n in range(newest, 0, -1)]


def test_observations_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    for _ in range(2):
        with HistoryFile(path) as history:
            history.begin(FABRIC)
            for number in range(4):
                history.add(state(number), moves(number))
    columns, rows = run_query(path, "SELECT * FROM links WHERE run = 2 ORDER BY time_ns, link")
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
    assert run_query(path, "SELECT run, number, text FROM events ORDER BY ALL")[1] == [
        (run, n, f"the {n}th") for run in (1, 2) for n in (1, 2, 3)
    ]
    assert run_query(path, "SELECT run, title, fabric FROM runs ORDER BY run")[1] == [
        (1, "a run", "small"),
        (2, "a run", "small"),
    ]


def test_loads_and_queues_are_stored_per_controller_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    with HistoryFile(path) as history:  # somebody else's, before
        history.begin(FABRIC)
        history.add(state(90), [])
    with HistoryFile(path) as history:
        assert history.seen() == []
        for title in ("one", "two"):
            history.begin({**FABRIC, "title": title})
            for number in range(3):
                other = [0.5, 1.0, 5.0, 0.0, 1.5, 1.0, False]
                happened = moves(number if title == "one" else 2 + number)
                history.add(state(number) | {"links": [*state(number)["links"][:2], other]}, happened)
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
    assert (one.moves_ns, two.moves_ns) == ((10, 20), (30, 40)), "each its own, though the log goes on"
    assert fullest == one.fullest[0]


def test_the_oldest_is_forgotten_where_there_is_too_much(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    sizes = []
    for _ in range(3):
        with HistoryFile(path, max_rows=4_000) as history:
            history.begin(FABRIC)
            for number in range(4_000):
                history.add(state(number), [])
        sizes.append(path.stat().st_size)
    ((rows, runs, first),) = run_query(path, "SELECT count(*), count(DISTINCT run), min(time_ns) FROM links")[1]
    assert rows <= 4_000
    assert (runs, first) == (1, 1000 * (4_000 - rows // 2))
    assert sizes[2] <= 2 * sizes[0]


def test_the_oldest_events_are_forgotten_too(tmp_path: Path) -> None:
    """Drops that go on are one with every look; those of this run count from 1 again."""
    path = tmp_path / "history.duckdb"
    for _ in range(2):
        with HistoryFile(path, max_rows=40) as history:
            history.begin(FABRIC)
            for number in range(1, 31):
                event = {"number": number, "time_ns": 10 * number, "kind": "drop", "text": f"{number} packets: late"}
                history.add({"time_ns": 1000 * number, "links": [None] * 3}, [event])
    columns = "run, number, time_ns, kind, text"
    assert run_query(path, f"SELECT {columns} FROM events ORDER BY run, number")[1] == [
        (run, number, 10 * number, "drop", f"{number} packets: late")
        for run, first in ((1, 21), (2, 1))
        for number in range(first, 31)
    ]


WRITER = """
import resource, signal, sys
from pathlib import Path
from weir.controller.errors import ControllerError
from weir.controller.live.history import HistoryFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
said = []
with HistoryFile(Path(sys.argv[1])) as history:
    history.begin({"title": "a run", "name": "small", "links": [{"end": f"s1-p{port}"} for port in range(100)]})
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # as a disk that is full from then on
    for number in range(3_000):
        try:
            history.add({"time_ns": number, "links": [[0.1, 0.2, 0.3, 0.0, 1.0, 1.0, False]] * 100}, [])
        except ControllerError as error:
            said.append(str(error))
    history.seen()
print(said)
"""


def test_a_full_disk_is_reported_once_and_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(path)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (said,) = ast.literal_eval(done.stdout)
    assert said.startswith(f"{path}: telemetry cannot be kept there any more: ")


def test_a_file_that_is_no_history_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.duckdb"
    with raises(ControllerError, place=str(path), value=path):
        run_query(path, "SELECT 1")
    path.write_bytes(b"something else" * 1000)
    with raises(ControllerError, place=str(path)):
        HistoryFile(path)
    path.unlink()
    with HistoryFile(path) as history:
        history.begin(FABRIC)
    with pytest.raises(ControllerError, match="nonsense"):
        run_query(path, "SELECT nonsense FROM links")
    with pytest.raises(ControllerError, match="read-only"):
        run_query(path, "DELETE FROM links")


def test_a_stranger_s_history_reaches_no_other_file(tmp_path: Path) -> None:
    """Neither a view in place of a table, nor the query, reaches another file."""
    import duckdb

    path, secret, written = tmp_path / "history.duckdb", tmp_path / "secret", tmp_path / "written.csv"
    secret.write_text("nobody else is to read this")
    with duckdb.connect(str(path)) as database:
        database.execute(f"CREATE VIEW runs AS SELECT content FROM read_text('{secret}')")
        database.execute("CREATE TABLE links AS SELECT 1 AS run")
    with pytest.raises(ControllerError):
        run_query(path, "FROM runs")
    with pytest.raises(ControllerError):
        run_query(path, f"COPY (SELECT 42) TO '{written}'")
    with pytest.raises(ControllerError):
        run_query(path, "SET enable_external_access = true")
    assert not written.exists()
    assert run_query(path, "FROM links") == (["run"], [(1,)])
