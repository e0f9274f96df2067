"""The live page of a command, read over HTTP by a rank of the job that the page shows."""

from __future__ import annotations

import json
import socket
from urllib.request import urlopen


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free at the moment."""
    with socket.socket() as free_socket:
        free_socket.bind(("127.0.0.1", 0))
        return int(free_socket.getsockname()[1])


def read_page(port: str) -> str:
    """Read the page and the first message of its stream.

    Args:
        port: Port of the page at 127.0.0.1.

    Returns:
        Name of the fabric in the stream.

    Raises:
        URLError: No page is served there.
    """
    url = f"http://127.0.0.1:{port}/"
    with urlopen(url, timeout=30) as page:
        assert b"<html" in page.read()
    with urlopen(f"{url}live", timeout=30) as stream:
        lines = iter(stream.readline, b"")
        assert b"event: fabric\n" in lines
        return str(json.loads(next(lines).removeprefix(b"data: "))["name"])
