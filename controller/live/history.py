"""History of telemetry in a DuckDB file of bounded size, with one schema for queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import duckdb

from ...errors.texts import printable
from ..errors import ControllerError
from ..own_files import links_are_refused, refusal_of_file
from .seen import SeenFabric, SeenLink

SCHEMA: Final = """
CREATE SEQUENCE IF NOT EXISTS run_numbers;
CREATE TABLE IF NOT EXISTS runs (      -- one for each controller that was looked at
    run INTEGER PRIMARY KEY,
    title VARCHAR,
    fabric VARCHAR,
    began TIMESTAMP DEFAULT current_localtimestamp()
);
CREATE TABLE IF NOT EXISTS links (     -- one row for each look at each watched link
    run INTEGER,
    time_ns BIGINT,                    -- on the controller's clock
    link VARCHAR,                      -- by its sending end
    load DOUBLE,                       -- share of the link's rate
    queue_packets DOUBLE,              -- the most since the look before
    latency_us DOUBLE,                 -- average, ingress to egress
    loss DOUBLE,                       -- upper bound of the link's share
    age_ms DOUBLE,                     -- of the newest report; NULL: never measured
    confidence DOUBLE,
    stale BOOLEAN
);
CREATE TABLE IF NOT EXISTS events (
    run INTEGER,
    number INTEGER,
    time_ns BIGINT,
    kind VARCHAR,                      -- run, job, move, host, switch, link, telemetry or drop
    text VARCHAR
);
"""

MAX_ROWS: Final = 2_000_000
"""Maximum number of rows of link states, and of events; beyond it the oldest tenth is deleted."""
_ORDERS: Final = {"links": "run, time_ns", "events": "run, number"}
"""The tables of bounded size, each with the columns that order its rows by age."""
_ROWS_AT_ONCE: Final = 2_000
_LINK_COLUMNS: Final = 10
_MAX_OF_A_RUN: Final = """
SELECT link FROM links WHERE run = ? GROUP BY link HAVING max({0}) > 0
ORDER BY max({0}) DESC, avg({0}) DESC, link LIMIT ?
"""


_CONFINED: Final = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "lock_configuration": "true",
}
"""A history may come from a stranger: its views, and queries, reach no other file, no address and no extension."""


class HistoryFile:
    """One file, open for writing; a context manager."""

    def __init__(self, path: Path, *, max_rows: int = MAX_ROWS) -> None:
        """Open or create a history.

        Raises:
            ControllerError: It is another kind of file, or one that another process writes to; or other users can write
                to its folder, and could put links in the place of the file or of DuckDB's log beside it.
        """
        self._path = path
        self._max_rows = max_rows
        try:
            for own in (path, path.with_name(f"{path.name}.wal"), path.resolve()):
                if (reason := refusal_of_file(own, trusts_sticky=links_are_refused())) is not None:
                    raise ControllerError(f"cannot keep telemetry there: {reason}", place=str(path))
        except OSError as error:
            raise ControllerError(f"cannot keep telemetry there: {error.strerror}", place=str(path)) from None
        try:
            self._database = duckdb.connect(str(path), config=_CONFINED)
            self._database.execute(SCHEMA)
            self._kept = {table: self._one(f"SELECT count(*) FROM {table}") for table in _ORDERS}
        except duckdb.Error as error:
            raise ControllerError(
                f"cannot keep telemetry there: {str(error).splitlines()[0]}", place=str(path)
            ) from None
        self._run = 0
        self._runs: list[tuple[int, str]] = []
        self._links: list[str] = []
        self._rows: list[tuple[Any, ...]] = []
        self._last_event = 0
        self._failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Raises ControllerError where what is left cannot be kept."""
        try:
            with self._failing():
                self._write()
        finally:
            with suppress(duckdb.Error):
                self._database.close()

    def begin(self, fabric: Mapping[str, Any]) -> None:
        """Switch to another controller, over this fabric (`picture.fabric_picture`). Raises as `add`."""
        with self._failing():
            self._write()
            self._run = self._one("SELECT nextval('run_numbers')")
            self._runs.append((self._run, fabric["title"]))
            self._links = [link["end"] for link in fabric["links"]]
            self._database.execute(
                "INSERT INTO runs (run, title, fabric) VALUES (?, ?, ?)", [self._run, fabric["title"], fabric["name"]]
            )

    def add(self, state: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
        """Add one state (`picture.LiveView.look`) and the events until then, newest first (`events.EventLog.newest`).

        Event numbers show which of them are new.

        Raises:
            ControllerError: The first write that fails; nothing is stored from then on.
        """
        if not self._failed:
            with self._failing():
                self._add(state, events)

    def _add(self, state: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
        now_ns = state["time_ns"]
        self._rows += [
            (self._run, now_ns, link, *view)
            for link, view in zip(self._links, state["links"], strict=True)
            if view is not None
        ]
        if events := [event for event in events if event["number"] > self._last_event]:
            self._last_event = events[0]["number"]
            self._database.executemany(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
                [
                    [self._run, *(event[name] for name in ("number", "time_ns", "kind", "text"))]
                    for event in events[::-1]
                ],
            )
            self._bound("events", len(events))
        if len(self._rows) >= _ROWS_AT_ONCE:
            self._write()

    def seen(self, most: int = 3) -> list[SeenFabric]:
        """Return data stored for each controller since this file was opened, in order, with at most `most` links of
        each kind.

        Raises the exceptions of `add`.
        """
        with self._failing():
            self._write()
        return [
            SeenFabric(
                title,
                tuple(self._seen_link(run, end) for end in self._ends(run, "load", most)),
                tuple(self._seen_link(run, end) for end in self._ends(run, "queue_packets", most)),
                tuple(
                    time_ns
                    for (time_ns,) in self._database.execute(
                        "SELECT time_ns FROM events WHERE run = ? AND kind = 'move' ORDER BY number", [run]
                    ).fetchall()
                ),
            )
            for run, title in self._runs
        ]

    def _ends(self, run: int, column: str, most: int) -> list[str]:
        rows = self._database.execute(_MAX_OF_A_RUN.format(column), [run, most]).fetchall()
        return [end for (end,) in rows]

    def _seen_link(self, run: int, end: str) -> SeenLink:
        rows = self._database.execute(
            "SELECT time_ns, load, queue_packets FROM links WHERE run = ? AND link = ? ORDER BY time_ns", [run, end]
        ).fetchall()
        time_ns, load, queue_packets = (list(column) for column in zip(*rows, strict=True))
        return SeenLink(end, time_ns, load, queue_packets)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Report the first failure of DuckDB, and stop writing."""
        try:
            yield
        except duckdb.Error as error:
            self._failed = True
            self._rows = []
            raise ControllerError(
                f"{self._path}: telemetry cannot be kept there any more: {str(error).splitlines()[0]}"
            ) from None

    def _write(self) -> None:
        if not self._rows:
            return
        columns = ", ".join(["unnest(?)"] * _LINK_COLUMNS)
        self._database.execute(
            f"INSERT INTO links SELECT {columns}", [list(column) for column in zip(*self._rows, strict=True)]
        )
        self._bound("links", len(self._rows))
        self._rows = []

    def _bound(self, table: str, more: int) -> None:
        """Count `more` new rows in a table; delete the oldest if there are too many."""
        self._kept[table] += more
        if self._kept[table] > self._max_rows:
            doomed = self._kept[table] - self._max_rows * 9 // 10
            self._database.execute(
                f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} ORDER BY {_ORDERS[table]} LIMIT ?)",
                [doomed],
            )
            self._database.execute("CHECKPOINT")
            self._kept[table] -= doomed

    def _one(self, query: str) -> int:
        row = self._database.execute(query).fetchone()
        assert row is not None
        return int(row[0])


def run_query(path: Path, query: str, values: Sequence[Any] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the names of the columns and the rows that a query gives. Nothing is written to the file.

    Raises ControllerError for a file that cannot be read, and for a query that DuckDB refuses.
    """
    if not path.exists():
        raise ControllerError(
            "there is no such file; --history FILE of weir run or weir controller makes one",
            place=str(path),
            value=path,
        )
    try:
        with duckdb.connect(str(path), read_only=True, config=_CONFINED) as database:
            answer = database.execute(query, list(values))
            return [column[0] for column in answer.description], answer.fetchall()
    except duckdb.Error as error:
        raise ControllerError(printable(str(error).splitlines()[0]), place=str(path)) from None
