"""`--web` and `--history` of the commands that run a controller: a live page, and a history on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..experiments.errors import ExperimentError
from .console import NOTES

if TYPE_CHECKING:
    from ..controller.live.watch import Watch

WebOption = Annotated[
    str | None,
    typer.Option("--web", metavar="[HOST:]PORT", help="Serve a live page of the fabric, on 127.0.0.1 by default."),
]
HistoryOption = Annotated[
    Path | None, typer.Option("--history", metavar="FILE", help="Keep what telemetry sees in this DuckDB file.")
]


@contextmanager
def watching(web: str | None, history: Path | None) -> Iterator[Watch | None]:
    """Watch controllers for the page and the history; None if neither is requested. Prints the page's address on
    stderr.

    Raises:
        ExperimentError: the address is malformed.
        ControllerError: the address cannot be bound.
    """
    if web is None and history is None:
        yield None
        return
    from ..controller.live.history import History
    from ..controller.live.server import LiveServer
    from ..controller.live.watch import Watch

    with ExitStack() as stack:
        server = stack.enter_context(LiveServer(*_address(web))) if web is not None else None
        kept = stack.enter_context(History(history)) if history is not None else None
        if server is not None:
            NOTES.print(f"live page: {server.url}  (or: weir top {server.url})")
        yield Watch(server, kept)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ExperimentError(f'--web "{text}" is no port; write it like 8265, or like 0.0.0.0:8265')
    return host or "127.0.0.1", int(port)
