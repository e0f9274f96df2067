"""Options that `weir launch` and `weir torchrun` have in common."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..experiments.errors import ExperimentError
from ..topologies.errors import TopologyError
from ..topologies.mininet.fabric import SwitchKind
from ..topologies.units import parse_delay
from .help import STRATEGY_NAMES, complete_strategy

if TYPE_CHECKING:
    from ..topologies import Topology

_DETAILS: Final = ("weir.controller.congestion", "weir.controller.telemetry")
"""Loggers of queue bounds and of stale telemetry, both of which a busy machine alone can cause here."""

TimeoutOption = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="How long a call waits for other ranks, such as 30s; default: 60s."),
]

StrategyOption = Annotated[
    str, typer.Option(help=f"Where gradients are summed: {STRATEGY_NAMES}.", autocompletion=complete_strategy)
]
LossOption = Annotated[
    float,
    typer.Option(min=0, max=0.99, help="Probability that a link loses a packet, every link, both directions."),
]
MeshOption = Annotated[
    str | None,
    typer.Option(
        metavar="2x2x2", help="Ranks as a mesh: the groups along its dimensions are registered and placed together."
    ),
]


def lossy(topology: Topology, loss: float) -> Topology:
    """Return the fabric with links that lose packets with this probability, besides what they lose already."""
    links = tuple(replace(link, loss=1 - (1 - link.loss) * (1 - loss)) for link in topology.links)
    return replace(topology, links=links)


def log_what_matters() -> None:
    """Log warnings, those about queue bounds and telemetry only with `weir -v`."""
    root = logging.getLogger()
    if not root.isEnabledFor(logging.INFO):
        for name in _DETAILS:
            logging.getLogger(name).setLevel(logging.ERROR)
    logging.basicConfig(level=logging.WARNING, format="weir: %(message)s")


def switch_in(mininet: bool, switch: SwitchKind | None, instead: str) -> SwitchKind | None:
    """Resolve --switch: the kind of switch in Mininet, None elsewhere.

    `instead` describes the switches elsewhere. Raises ExperimentError for a kind that has no effect.
    """
    if mininet:
        return switch or SwitchKind.WEIR
    if switch is not None:
        raise ExperimentError(f"--switch {switch} is for Mininet, and {instead}; add --fabric mininet")
    return None


def nanoseconds(option: str, text: str) -> int:
    """Return a duration such as 30s. Raises TopologyError that names the option."""
    try:
        return parse_delay(text)
    except TopologyError as error:
        raise error.within(option) from None


def timeout_of(text: str | None) -> dict[str, str]:
    """Return the environment of a rank for `--timeout`. Raises TopologyError and ExperimentError for a malformed
    duration.
    """
    if text is None:
        return {}
    timeout_ns = nanoseconds("--timeout", text)
    if not timeout_ns:
        raise ExperimentError("--timeout 0: write it like 30s")
    return {"WEIR_TIMEOUT": f"{timeout_ns / 1e9:g}"}
