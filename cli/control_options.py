"""Options of the commands that talk to a running controller."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..wire.control_channel import Tls

if TYPE_CHECKING:
    from ..hosts import ControlClient

ControlOption = Annotated[
    str | None,
    typer.Option(
        "--control",
        metavar="HOST:PORT",
        help="Where the controller serves, or unix:PATH; default: WEIR_CONTROL, or this user's socket.",
    ),
]
TlsOption = Annotated[
    tuple[Path, Path, Path] | None,
    typer.Option("--tls", metavar="CERTIFICATE KEY AUTHORITY", help="PEM files, where the controller has TLS."),
]


def control_client(control: str | None, tls: tuple[Path, Path, Path] | None) -> ControlClient:
    """Return a client of the controller that the options name."""
    from ..hosts import ControlClient

    # not typer's envvar: it would count for more than an option that leads the command's name
    return ControlClient(control or os.environ.get("WEIR_CONTROL") or None, Tls(*tls) if tls is not None else None)
