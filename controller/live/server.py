"""Serves pictures to browsers and terminals, in a thread of its own: a page, Plotly's script, a stream of states.

::

    controller's loop ──publish──▶ the newest picture ──/live (server-sent events)──▶ page, page, `weir top`

A picture is written down once, whoever watches; a watcher that is slow misses pictures, not events, and holds up
nobody. A page that is cut off comes back by itself and gets the newest picture at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Mapping
from importlib import resources
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import plotly
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from ..errors import ControllerError
from ..listener import Listener

DEFAULT_PORT: Final = 8265
_RETRY_MS: Final = 500
_SILENCE_S: Final = 5.0
"""A stream that has nothing to say says so this often, so that a watcher that is gone is found."""
_PLOTLY: Final = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def _is_a_fault(record: logging.LogRecord) -> bool:
    """Return False for a request that is no HTTP: its sender is answered 400, and may send any number of them."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_log = logging.getLogger(__name__)
_log.addFilter(_is_a_fault)


def _is_here(host: str | None) -> bool:
    """Return True if a name or address refers to this machine itself."""
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False


async def _close_after(_: web.Request, response: web.StreamResponse) -> None:
    """One request per connection: the listener limits the time of its head alone."""
    response.force_close()


class LiveServer:
    """Web page of the published state; a context manager."""

    def __init__(self, host: str = "127.0.0.1", port: int = DEFAULT_PORT) -> None:
        """Port 0: any that is free."""
        self.watchers = 0
        """Streams that are open."""
        self._host, self.port = host, port
        self._fabric = self._state = b""
        self._number = 0
        """Number of the newest picture; streams wait for a higher one."""
        self._news = asyncio.Event()
        self._stopping = False
        self._page = (resources.files(__package__) / "page.html").read_bytes()

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{self._host}:{self.port}/"

    def __enter__(self) -> Self:
        """Raises ControllerError for an address that cannot be had."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="live page", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        except OSError as error:
            self._end_thread()
            raise ControllerError(
                f"cannot listen on {self._host}:{self.port}: {error.strerror}; choose another port",
                place="live page",
                value=f"{self._host}:{self.port}",
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._end_thread()

    def show_fabric(self, fabric: Mapping[str, Any]) -> None:
        """Publish the first message of every watcher (`picture.fabric_picture`); connected watchers get it now."""
        self._publish(json.dumps(fabric, separators=(",", ":")).encode(), b"")

    def show_state(self, state: Mapping[str, Any]) -> None:
        """Show a state, as `picture.LiveView.look` returns it, from now on."""
        self._publish(None, json.dumps(state, separators=(",", ":")).encode())

    # --- in the thread ---

    def _publish(self, fabric: bytes | None, state: bytes) -> None:
        def adopt() -> None:
            if fabric is not None:
                self._fabric = fabric
            self._state = state
            self._number += 1
            self._news.set()
            self._news = asyncio.Event()

        self._loop.call_soon_threadsafe(adopt)

    async def _start(self) -> None:
        application = web.Application()
        application.router.add_get("/", self._by_its_name(self._answer_page))
        application.router.add_get("/plotly.min.js", self._by_its_name(self._answer_plotly))
        application.router.add_get("/live", self._by_its_name(self._answer_live))
        application.on_response_prepare.append(_close_after)
        self._runner = web.AppRunner(application, access_log=None, logger=_log, shutdown_timeout=0.5)
        await self._runner.setup()
        assert self._runner.server is not None
        self._listener = Listener("live page", self._runner.server)
        self.port = await self._listener.start(self._host, self.port)

    async def _stop(self) -> None:
        self._stopping = True
        self._news.set()
        await self._runner.cleanup()
        self._listener.close()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _by_its_name(self, answer: Handler) -> Handler:
        """Refuse foreign host names on a page for this machine alone.

        Otherwise a foreign page, whose name server resolves its name to this machine, could read it (DNS rebinding).
        """

        async def answer_to_its_name(request: web.Request) -> web.StreamResponse:
            if _is_here(self._host) and not _is_here(request.url.host):
                return web.Response(status=403, text=f"this page is {self.url}, and has no other name\n")
            return await answer(request)

        return answer_to_its_name

    async def _answer_page(self, _: web.Request) -> web.Response:
        # nothing is fetched from elsewhere, and the browser is told to see to it
        policy = "default-src 'self' 'unsafe-inline'; img-src 'self' data: blob:"
        return web.Response(
            body=self._page, content_type="text/html", charset="utf-8", headers={"Content-Security-Policy": policy}
        )

    async def _answer_plotly(self, _: web.Request) -> web.FileResponse:
        return web.FileResponse(_PLOTLY, headers={"Cache-Control": "max-age=86400"})

    async def _answer_live(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        self.watchers += 1
        fabric, number = b"", -1
        try:
            await response.write(f"retry: {_RETRY_MS}\n\n".encode())
            while not self._stopping:
                news = self._news
                if self._fabric is not fabric:
                    fabric = self._fabric
                    await response.write(b"event: fabric\ndata: " + fabric + b"\n\n")
                if self._number != number and self._state:
                    number = self._number
                    await response.write(b"event: state\ndata: " + self._state + b"\n\n")
                try:
                    await asyncio.wait_for(news.wait(), _SILENCE_S)
                except TimeoutError:
                    await response.write(b": nothing new\n\n")
            if self._state:
                await response.write(b"event: ended\ndata: {}\n\n")
        except ConnectionError:
            pass  # it comes back by itself
        finally:
            self.watchers -= 1
        return response
