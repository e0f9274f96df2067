"""States of hooks in checkpoints: what is not theirs is refused, and nothing has changed then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weir.hosts.compression.selective import SummationChoice
from weir.hosts.errors import InvalidTensor
from weir.tests.paths import ROOT

pytest.importorskip("torch")

from weir.torch_entry import hooks

TERNGRAD = str(ROOT / "examples" / "codecs" / "terngrad.compll")


def saved(state: Any) -> dict[str, Any]:
    """A state as it is after a step of a parameter of three numbers."""
    values = np.array([1.0, -2.0, 0.5], np.float32)
    state.codec.update("0", state.codec.compensate("0", values), np.zeros(3, np.float32))
    found: dict[str, Any] = state.state_dict() | {"calls/0": np.array(4)}
    return found


STATES = {
    "packed": lambda: hooks.PackedState(8),
    "topk": lambda: hooks.TopKState(0.1),
    "dgc": lambda: hooks.DgcState(0.1),
    "terngrad": lambda: hooks.CodecState("terngrad"),
    "planned": lambda: hooks.PlannedState({}),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_loaded_and_saved_again(name: str) -> None:
    first, second = STATES[name](), STATES[name]()
    entries = saved(first)
    second.load_state_dict(entries)
    again = second.state_dict()
    assert again.keys() == entries.keys()
    assert all(np.array_equal(again[key], entries[key]) for key in entries)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("packed", lambda: hooks.PackedState(7)),
        ("packed", lambda: hooks.PackedState(8, seed=1)),
        ("packed", lambda: hooks.PackedState(8, feedback=False)),
        ("topk", lambda: hooks.TopKState(0.2)),
        ("dgc", lambda: hooks.DgcState(0.1, 0.5)),
        ("terngrad", lambda: hooks.CodecState("terngrad", clip=2)),
        ("terngrad", lambda: hooks.CodecState(TERNGRAD)),
    ],
)
def test_a_state_of_another_codec_is_refused(name: str, other: Any) -> None:
    entries = saved(other())
    with pytest.raises(InvalidTensor) as raised:
        STATES[name]().load_state_dict(entries)
    assert raised.value.value == str(entries["hook"])


@pytest.mark.parametrize(
    "change",
    [
        {"residual/layer": np.zeros(3, np.float32)},
        {"velocity/0": np.zeros(3, np.float32)},
        {"other": np.zeros(3, np.float32)},
        {"residual/0": np.zeros(3)},
        {"residual/0": np.zeros((3, 1), np.float32)},
        {"residual/0": np.array([0, np.nan, 1], np.float32)},
        {"residual/0": [0.0, 1.0, 2.0]},
        {"residual/0": None},
        {"calls/0": np.array(-1)},
        {"calls/0": np.array(1.5)},
        {"calls/0": "4"},
        {"calls/x": np.array(1)},
        {"hook": np.array("packed8")},
    ],
    ids=str,
)
def test_wrong_entries_are_refused_and_change_nothing(change: dict[str, Any]) -> None:
    state = hooks.PackedState(8)
    entries = saved(state)
    before = state.state_dict()
    with pytest.raises(InvalidTensor) as raised:
        state.load_state_dict({**entries, "residual/1": np.ones(2, np.float32), **change})
    assert raised.value.place.startswith("state of packed8")
    after = state.state_dict()
    assert after.keys() == before.keys()
    assert all(np.array_equal(after[key], before[key]) for key in before)


@pytest.mark.parametrize("state", [None, 3, [], {}, {3: np.zeros(1)}, "x"], ids=str)
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(InvalidTensor):
        hooks.DgcState().load_state_dict(state)


@pytest.mark.parametrize("plan", [None, [1], {"3": SummationChoice("switch", True, 1, 0.0)}, {3: 4}], ids=str)
def test_what_is_no_plan_is_refused(plan: Any) -> None:
    with pytest.raises(InvalidTensor):
        hooks.PlannedState(plan)
