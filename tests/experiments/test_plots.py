"""Plots of a run's page: the figures of the record, none of them cut off."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weir.experiments.config import RunConfig
from weir.experiments.errors import ExperimentError
from weir.experiments.records.plots import save_pdfs
from weir.experiments.records.record import FlowTrace, QueueTrace, RunRecord
from weir.tests.experiments.test_records import RESULT
from weir.tests.support.errors import raises

Drawn = Callable[[RunRecord], dict[str, Any]]


def levels(stairs: Any) -> tuple[Any, Any]:
    """The levels that were drawn, and from when to when in ms each of them is; nothing is drawn between."""
    values, edges, _ = stairs.get_data()
    assert np.isnan(values[1::2]).all()
    return values[::2].tolist(), list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def a_record(config: RunConfig, *changes: dict[str, Any]) -> RunRecord:
    record = RunRecord.begin(config, "ef", 0.5)
    record.results += [RESULT.model_copy(update=change) for change in changes]
    return record


def test_a_single_jobs_throughput_is_plotted_with_its_bound(short: RunConfig, drawn: Drawn) -> None:
    """Steps of 1 and 4 ms, of which the first could have been of 0.8 ms; in the second the job moved."""
    training = short.training.model_copy(update={"compute": 2_000_000})
    control = short.control.model_copy(update={"warm_up": 10_000_000})
    config = short.model_copy(update={"training": training, "control": control})
    slow = {"strategy": "ps", "iteration_ns": [8_000_000, 8_000_000], "achievable_ns": []}
    fast = {"strategy": "widest", "iteration_ns": [1_000_000, 4_000_000], "achievable_ns": [800_000.0, None]}
    above, below = drawn(a_record(config, slow, fast))["throughput"].axes
    mbit = 32 * config.gradient_values / 1e6
    assert (above.get_title("left"), below.get_title("left")) == ("ps", "widest")
    [rates] = above.patches
    assert levels(rates) == (pytest.approx([mbit / 8e-3] * 2), [(12, 20), (22, 30)])
    rates, best = below.patches
    assert levels(rates) == (pytest.approx([mbit / 1e-3, mbit / 4e-3]), [(12, 13), (15, 19)])
    assert levels(best) == (pytest.approx([mbit / 0.8e-3, np.nan], nan_ok=True), [(12, 13), (15, 19)])
    assert below.get_ylim()[0] == 0
    assert below.get_ylim()[1] > mbit / 0.8e-3, "whichever strategy is the fastest"


def test_the_deepest_queue_is_plotted_whole_for_any_strategy(short: RunConfig, drawn: Drawn) -> None:
    depths = {"ps": 5, "rack": 80, "widest": 7}
    traced = [
        {"strategy": name, "queues": [QueueTrace(port="s1-p2", time_ns=[0, 1_000], depth_packets=[0, depth])]}
        for name, depth in depths.items()
    ]
    for axes in drawn(a_record(short, *traced))["queues"].axes:
        low, high = axes.get_ylim()
        assert low == 0
        assert high > 80
        assert [9, 9] in [list(line.get_ydata()) for line in axes.lines], "what is promised of that port"


def test_fairness_of_flows_is_that_of_their_packets(short: RunConfig, drawn: Drawn) -> None:
    """One has three times what the other has; a third comes and has nothing, and goes. Packets are on their way for
    100 us at most, so that windows are of 1 ms.
    """

    def flow(source: str, start_ms: int, stop_ms: int | None, pace: int) -> FlowTrace:
        counts = [pace * max(0, ms - start_ms) for ms in range(11)]
        return FlowTrace(
            source=source,
            destination="h9",
            port=9,
            start_ns=start_ms * 1_000_000,
            stop_ns=None if stop_ms is None else stop_ms * 1_000_000,
            packet_bytes=1_042,
            sent=counts[-1],
            acknowledged=counts[-1],
            marked=0,
            lost=0,
            mean_delay_us=100.0 if source == "h1" else 20.0,
            time_ns=[ms * 1_000_000 for ms in range(11)],
            packets=counts,
        )

    flows = [flow("h1", 0, None, 30), flow("h2", 2, None, 10), flow("h3", 5, 8, 0)]
    plots = drawn(a_record(short, {"strategy": "widest", "flows": flows}))
    [axes] = plots["fairness"].axes
    assert axes.get_title("left") == "widest: flows that yield"
    [indices] = axes.patches
    two, three = 40**2 / (2 * (30**2 + 10**2)), 40**2 / (3 * (30**2 + 10**2))
    spans = [(ms, ms + 1) for ms in range(2, 10)]
    assert levels(indices) == (pytest.approx([two] * 3 + [three] * 3 + [two] * 2), spans)
    marks = {(line.get_xdata()[0], line.get_linestyle()) for line in axes.lines}
    assert marks == {(0, "--"), (2, "--"), (5, "--"), (8, ":")}
    assert axes.get_ylim()[0] < three < 1 < axes.get_ylim()[1]
    alone = drawn(a_record(short, {"flows": flows[:1]}))
    assert "fairness" not in alone, "one flow shares with nobody"


def test_plots_are_written_as_pdf_at_the_size_of_the_style(short: RunConfig, tmp_path: Path) -> None:
    record = a_record(short, {"strategy": "ps"}, {"strategy": "widest"})
    style = tmp_path / "wide.mplstyle"
    style.write_text("figure.figsize: 7, 2\n")
    for given, width in ((None, 3.4), (style, 7)):
        written = save_pdfs(record, tmp_path / f"{width}", given)
        assert {path.stem for path in written} == {"iterations", "queues", "throughput"}
        for path in written:
            data = path.read_bytes()
            assert data.startswith(b"%PDF-")
            box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", data)
            assert box is not None
            assert float(box[1]) == pytest.approx(72 * width)
            assert b"CreationDate" not in data, "the same for the same figures"


def test_a_style_that_cannot_be_read_is_named(short: RunConfig, tmp_path: Path) -> None:
    with raises(ExperimentError, place=str(tmp_path), value=str(tmp_path / "none.mplstyle")):
        save_pdfs(a_record(short, {"strategy": "ps"}), tmp_path, tmp_path / "none.mplstyle")
