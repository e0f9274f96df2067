"""A short run of the demo's fabric and job: the same hosts, links and traffic, fewer steps."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from weir.experiments.config import RunConfig
from weir.experiments.config.background import BackgroundFlow
from weir.experiments.records import plots
from weir.experiments.records.record import RunRecord

CHANGE_NS = 16_000_000
"""When the background traffic changes over from one spine to the other."""


@pytest.fixture(scope="session")
def demo() -> RunConfig:
    with resources.as_file(resources.files("weir.experiments") / "demo.yaml") as path:
        return RunConfig.load(Path(path))


@pytest.fixture(scope="session")
def short(demo: RunConfig) -> RunConfig:
    """Twenty-four steps under two of the strategies; the traffic changes after a quarter of them, so that a move pays
    before the end.
    """

    def moved(flow: BackgroundFlow) -> BackgroundFlow:
        return flow.model_copy(update={"start": CHANGE_NS} if flow.start else {"stop": CHANGE_NS})

    return demo.model_copy(
        update={
            "training": demo.training.model_copy(update={"steps": 24}),
            "background": [moved(flow) for flow in demo.background],
            "strategies": ["ps", "widest"],
        }
    )


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[[RunRecord], dict[str, Any]]:
    """The plots of a record by name, as matplotlib's figures for wide pages."""
    from matplotlib.figure import Figure

    def figure(draw: Callable[[Any, float], None], inches: tuple[float, float]) -> Any:
        made = Figure(figsize=inches)
        draw(made, inches[0])
        return made

    monkeypatch.setattr(plots, "_svg", figure)
    return lambda record: {name: picture.broad for name, picture in plots.plots_of(record, []).items()}
