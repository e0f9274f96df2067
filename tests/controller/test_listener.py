"""The listener of pages: half a request, many connections and a lack of descriptors end nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from weir.controller import listener as listener_module
from weir.controller.listener import MAX_CONNECTIONS, Listener

HALF = b"GET / HTTP/1.1\r\nHost: x\r\n"


class Answer(asyncio.Protocol):
    """Answers a whole head with two letters."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\r\n\r\n"):
            self.transport.write(b"ok")
            self.transport.close()


async def ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(HALF + b"\r\n")
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_half_a_request_is_ended_after_a_while() -> None:
    async def scenario() -> bytes:
        listener = Listener("page", Answer, head_s=0.1)
        port = await listener.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HALF)
        try:
            return await asyncio.wait_for(reader.read(), 30)
        except ConnectionError:
            return b""
        finally:
            writer.close()
            listener.close()

    assert asyncio.run(scenario()) == b""


def test_half_requests_make_room_for_whole_ones() -> None:
    async def scenario() -> tuple[bytes, int]:
        listener = Listener("page", Answer)
        port = await listener.start("127.0.0.1", 0)
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2 * MAX_CONNECTIONS)]
        for _, writer in held:
            writer.write(HALF)
        said = await ask(port)
        open_now = len(listener._doors)
        for _, writer in held:
            writer.close()
        listener.close()
        return said, open_now

    said, open_now = asyncio.run(scenario())
    assert said == b"ok"
    assert open_now <= MAX_CONNECTIONS


@contextmanager
def no_descriptors() -> Iterator[None]:
    """The process can open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        last = os.open("/dev/null", os.O_RDONLY)
        stack.callback(os.close, last)
        resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        yield


def test_a_lack_of_descriptors_is_told_once_and_ends_with_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "_RETRY_S", 0.2)

    async def scenario() -> bytes:
        listener = Listener("page", Answer)
        port = await listener.start("127.0.0.1", 0)
        with ExitStack() as stack:
            waiting = [stack.enter_context(socket.socket()) for _ in range(20)]
            with no_descriptors():
                for seat in waiting:
                    seat.setblocking(False)
                    seat.connect_ex(("127.0.0.1", port))
                await asyncio.sleep(0.1)
            said = await ask(port)
        listener.close()
        return said

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(scenario()) == b"ok"
    assert len(caplog.records) == 1
