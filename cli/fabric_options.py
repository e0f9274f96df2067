"""Options that `weir launch` and `weir torchrun` have in common."""

from __future__ import annotations

from typing import Annotated

import typer

from ..experiments.errors import ExperimentError
from ..topologies.errors import TopologyError
from ..topologies.units import parse_delay

TimeoutOption = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="How long a call waits for other ranks, such as 30s; default: 60s."),
]


def timeout_of(text: str | None) -> dict[str, str]:
    """Environment of a rank for `--timeout`. Raises TopologyError and ExperimentError for a malformed duration."""
    if text is None:
        return {}
    try:
        timeout_ns = parse_delay(text)
    except TopologyError as error:
        raise error.within("--timeout") from None
    if not timeout_ns:
        raise ExperimentError("--timeout 0: write it like 30s")
    return {"WEIR_TIMEOUT": f"{timeout_ns / 1e9:g}"}
