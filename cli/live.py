"""`--web` and `--history` of the commands that run a controller: a live page, and a history on disk."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..experiments.errors import ExperimentError
from .console import NOTES

if TYPE_CHECKING:
    from ..controller.controller import Controller
    from ..controller.live.watch import Watch
    from ..experiments.backends.live import LiveFabric
    from ..topologies import Topology

WebOption = Annotated[
    str | None,
    typer.Option("--web", metavar="[HOST:]PORT", help="Serve a live page of the fabric, on 127.0.0.1 by default."),
]
HistoryOption = Annotated[
    Path | None,
    typer.Option("--history", metavar="FILE", help="Write the readings and events of telemetry to this DuckDB file."),
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
    from ..controller.live.history import HistoryFile
    from ..controller.live.server import LiveServer
    from ..controller.live.watch import Watch

    with ExitStack() as stack:
        server = stack.enter_context(LiveServer(*_address(web))) if web is not None else None
        kept = stack.enter_context(HistoryFile(history)) if history is not None else None
        if server is not None:
            NOTES.print(f"live page: {server.url}  (or: weir top {server.url})")
        yield Watch(server, kept)


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """Live page and history of a controller."""

    web: str | None
    """[HOST:]PORT of the live page."""
    history: Path | None
    """DuckDB file of the history."""


@asynccontextmanager
async def watched(live: LiveFabric, topology: Topology, shown: LiveOptions, doing: str) -> AsyncIterator[None]:
    """Show and keep a running fabric until the end of the block, as the options ask.

    Raises:
        ExperimentError: The page's address is malformed.
        ControllerError: The address or the file cannot be had.
    """
    with watching(shown.web, shown.history) as watch:
        if watch is None:
            yield
            return
        watch.begin(topology, topology.name, live.service.now_ns())
        looking = start_looking(watch, live.controller, live.service.now_ns, doing)
        try:
            yield
        finally:
            looking.cancel()


def start_looking(watch: Watch, keeper: Controller, clock: Callable[[], int], doing: str) -> asyncio.Task[None]:
    """Start the task that looks at a controller until it is cancelled."""
    looking = asyncio.create_task(_refresh_until_end(watch, keeper, clock, doing), name="watch")
    looking.add_done_callback(_log_end)
    return looking


async def _refresh_until_end(watch: Watch, keeper: Controller, clock: Callable[[], int], doing: str) -> None:
    """Until it is cancelled. Drops are read from a switch at a time, so that many switches are no load."""
    from ..controller.errors import ControllerError
    from ..controller.live.watch import LOOK_S
    from ..controller.p4runtime.tables import DROP_REASONS, DROPS

    drops: dict[str, list[int]] = {}
    for name in itertools.cycle(keeper.switches.sessions):
        watch.refresh(keeper, clock(), doing)
        with suppress(ControllerError):  # a switch that is lost keeps its last counts
            drops[name] = list(await keeper.switches.sessions[name].read_counter(DROPS))
        if drops and drops.keys() | keeper.switches.lost == keeper.switches.sessions.keys():
            sums = (sum(column) for column in zip(*drops.values(), strict=True))
            watch.update_drops(dict(zip(DROP_REASONS, sums, strict=True)), clock())
        await asyncio.sleep(LOOK_S)


def _log_end(looking: asyncio.Task[None]) -> None:
    """Log why the task has ended. No one awaits it, so the page would show its last picture for ever."""
    if not looking.cancelled() and (error := looking.exception()) is not None:
        logging.getLogger(__name__).error("nothing is looked at any more", exc_info=error)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ExperimentError(f'--web "{text}" is no port; write it like 8265, or like 0.0.0.0:8265')
    return host or "127.0.0.1", int(port)
