"""`weir top`: a controller's live page in a terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Annotated, Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..errors.texts import printable
from ..experiments.errors import ExperimentError

_DEFAULT_URL: Final = "http://127.0.0.1:8265/"
_SILENCE_S: Final = 15.0
"""A page says something more often than this."""
_LONGEST_LINE: Final = 1 << 26
"""Maximum length of a line of a page, in bytes: a state of a million links."""
_MALFORMED: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, StopIteration, TypeError, ValueError)
"""Exceptions of a page whose content is not a live page's: any process can serve at an address."""
_RETRY_S: Final = 0.5
_BAR: Final = 16
_EVENTS: Final = 8
_COLOURS: Final = ((0.9, "red"), (0.6, "yellow"), (0.05, "green"), (0.0, "bright_black"))

_console = Console(highlight=False, markup=False)


def top(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Where --web of weir run or weir controller serves its page.")
    ] = _DEFAULT_URL,
    once: Annotated[bool, typer.Option("--once", help="Print what is there now, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each state as a line of JSON.")] = False,
) -> None:
    """Show a running fabric's links, queues, jobs and events. Until Ctrl-C."""
    try:
        if as_json:
            for fabric, state in _states(url, again=not once):
                with _read_as_page(url):
                    line = json.dumps({"fabric": fabric["name"], **state})
                typer.echo(line)
                if once:
                    return
        elif once:
            fabric, state = next(_states(url, again=False))
            with _read_as_page(url):
                shown = screen(fabric, state, rows=len(fabric["links"]))
            _console.print(shown)
        else:
            _show(url)
    except KeyboardInterrupt:
        pass


@contextmanager
def _read_as_page(url: str) -> Iterator[None]:
    """Make the errors of content that is not a live page's ExperimentErrors."""
    try:
        yield
    except _MALFORMED as error:
        what = printable(f"{type(error).__name__}: {error}", 200)
        raise ExperimentError(f"is no live page of Weir ({what})", place=url) from None


def _show(url: str) -> None:
    with Live(Text(f"waiting for {url}"), console=_console, screen=True, auto_refresh=False) as live:
        for fabric, state in _states(url, again=True):
            with _read_as_page(url):
                jobs_and_events = 10 + len(state["jobs"]) + _EVENTS
                shown = screen(fabric, state, rows=max(5, _console.height - jobs_and_events))
            live.update(shown, refresh=True)


def screen(fabric: dict[str, Any], state: dict[str, Any], rows: int) -> Group:
    """Return one state as it is printed; of the links the `rows` fullest."""
    links = Table(box=None, pad_edge=False)
    for column in ("link", "to", "load", "", "queue", "bound", "latency", "loss", "age", "confidence"):
        links.add_column(column, justify="left" if column in ("link", "to", "") else "right")
    every = zip(fabric["links"], state["links"], state["bounds"], strict=True)
    shown = [(link, view, bounds) for link, view, bounds in every if view is not None]
    for link, view, bounds in sorted(shown, key=lambda pair: (-pair[1][6], -pair[1][0]))[:rows]:
        load, queue, latency, loss, age, confidence, stale = view
        colour = "red" if stale else next(colour for least, colour in _COLOURS if load >= least)
        links.add_row(
            link["end"],
            link["to"],
            f"{100 * load:.1f} %",
            Text("█" * round(_BAR * min(load, 1)), style=colour),
            f"{queue:.1f}",
            _bounds(bounds),
            f"{latency:.0f} µs",
            f"{100 * loss:.0f} %",
            "never" if age is None else f"{age:.0f} ms",
            "stale" if stale else f"{confidence:.2f}",
            style="red" if stale else None,
        )
    drops = ", ".join(f"{reason} {count}" for reason, count in state["drops"].items() if count)
    parts: list[Any] = [
        Text(f"{fabric['title']}   {state['doing']}   {state['time_ns'] / 1e9:.2f} s", style="bold"),
        Text(state["telemetry"], style="red" if "stale" in state["telemetry"] else "bright_black"),
        links,
        Text(""),
        *(Text(f"{job['says']}; summed at {', '.join(job['sums']) or job['server']}") for job in state["jobs"]),
        Text(f"drops: {drops or 'none told'}", style="bright_black"),
        Text(f"telemetry's own: {state['overhead']['says']}", style="bright_black"),
        Text(""),
        *(
            Text.assemble(
                (f"{event['time_ns'] / 1e9:9.3f} s ", "bright_black"), (event["kind"], "cyan"), f" {event['text']}"
            )
            for event in state["events"][:_EVENTS]
        ),
    ]
    return Group(*parts)


def _bounds(bounds: dict[str, Any]) -> str:
    """Bounds of a link's queues: of bulk traffic, or –, then of jobs' traffic classes."""
    bulk = bounds["bulk"]
    classes = [f"class {name}: {packets:.0f}" for name, packets in bounds["classes"].items()]
    return ", ".join(["–" if bulk is None else f"{bulk:.0f}", *classes])


def _states(url: str, again: bool) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(fabric, state), each new one; with `again` without end, over connections that break. Raises ExperimentError
    where there is nothing.
    """
    while True:
        try:
            yield from _stream(url)
            reason: object = "the page has ended"
        except (OSError, URLError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            reason = getattr(reason, "strerror", None) or reason
        if not again:
            raise ExperimentError(f"{reason}; start one with --web PORT of weir run or weir controller", place=url)
        time.sleep(_RETRY_S)


def _stream(url: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The server-sent events of one connection."""
    fabric: dict[str, Any] | None = None
    state: dict[str, Any] = {}
    kind = ""
    if not url.startswith(("http://", "https://")):
        raise ExperimentError(f'"{url}" is no address of a live page; write it like {_DEFAULT_URL}', value=url)
    with urlopen(f"{url.rstrip('/')}/live", timeout=_SILENCE_S) as lines:
        while line := lines.readline(_LONGEST_LINE + 1):
            if len(line) > _LONGEST_LINE:
                raise ExperimentError(f"is no live page of Weir (a line of more than {_LONGEST_LINE} bytes)", place=url)
            if not line.endswith(b"\n"):
                raise ConnectionError("the page ended within a line")
            if line.startswith(b"event: "):
                kind = line[7:].strip().decode(errors="replace")
            elif line.startswith(b"data: "):
                with _read_as_page(url):
                    content = {**_printable(json.loads(line[6:]))}
                if kind == "fabric":
                    fabric = content
                elif fabric is not None:
                    state = {**state, "doing": "this run has ended"} if kind == "ended" else content
                    yield fabric, state


def _printable(content: Any) -> Any:
    """JSON whose texts are printable lines."""
    if isinstance(content, str):
        return printable(content)
    if isinstance(content, list):
        return [_printable(element) for element in content]
    if isinstance(content, dict):
        return {printable(key): _printable(value) for key, value in content.items()}
    return content
