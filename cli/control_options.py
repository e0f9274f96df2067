"""Options of the commands that talk to a running controller."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ControlOption = Annotated[
    str | None,
    typer.Option(
        "--control",
        metavar="HOST:PORT",
        help="Where the controller serves, or unix:PATH; default: this user's socket.",
    ),
]
TlsOption = Annotated[
    tuple[Path, Path, Path] | None,
    typer.Option("--tls", metavar="CERTIFICATE KEY AUTHORITY", help="PEM files, where the controller has TLS."),
]
