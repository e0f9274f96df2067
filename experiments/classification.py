"""A model in an emulated switch: its answers to packets beside the model's own, and what it takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import p4src
from ..controller.inference.chip_entries import chip_state
from ..controller.inference.errors import ModelTooLarge
from ..controller.inference.forest import Forest
from ..controller.inference.table_entries import model_state
from ..controller.p4runtime.entries import Entry, FieldValue
from ..controller.p4runtime.tables import FEATURE, NODE_ADDRESS, ROUTES
from ..emulator.entries import ActionCall, ActionSet, Exact, Lpm, Match, Range, TableEntry, Ternary, WeightedAction
from ..emulator.switch import Switch
from ..wire import frames
from ..wire.classification import CLASSIFICATION_PORT, MESSAGE_BYTES, Answer, Status, pack_requests

_SWITCH: Final = 0x0AFF0001
_HOST: Final = 0x0A000001
_HOST_PORT: Final = 1
_MAC: Final = 0x020000000000
_DRAWN: Final = 1000
_BLOCKS_OF_TREE: Final = 12
"""Ternary blocks of a tree's table in the chips' program: p4src/build/forest_tofino.fit.txt."""


@dataclass(frozen=True, slots=True)
class ClassificationOutcome:
    """Answers of a switch compared with the model."""

    samples: int
    wrong: int
    """Samples without an answer, or with another class or number of votes."""
    trees: int
    leaves: int
    """Rows of all trees' tables."""
    intervals: int
    """Rows of all features' tables."""
    features: int
    """Features that the trees use, with a table each."""
    key_bits: int
    """Bits of the widest tree's key."""
    ternary_blocks: int
    """Blocks of 44 bits and 512 rows that the trees' tables take of a Tofino with the program for forests."""
    chip_refusal: str
    """Limit of that program that the model exceeds; empty if it fits."""

    def as_dict(self) -> dict[str, int | str]:
        """Return the fields by name."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Return sentences for people."""
        return [
            f"{self.trees} trees, {self.leaves} leaves, keys of up to {self.key_bits} bits",
            f"{self.features} features, {self.intervals} intervals",
            f"on a Tofino (p4src/forest): {self.chip_refusal or f'{self.ternary_blocks} of 288 ternary blocks'}",
            f"{self.samples - self.wrong} of {self.samples} samples get the model's class from the switch",
        ]


def try_model(forest: Forest, encoded: NDArray[np.uint8]) -> ClassificationOutcome:
    """Load a model into an emulated switch and ask for the classes of samples of bytes, (n, features)."""
    switch = loaded_switch(forest)
    votes = forest.votes_of_bytes(encoded)
    wrong = 0
    for payload, expected in zip(pack_requests(encoded, model=forest.number), votes, strict=True):
        answer = request(switch, payload)
        right = answer is not None and answer.status is Status.CLASSIFIED
        best = int(expected.argmax())
        if answer is None or not right or (answer.class_index, answer.votes) != (best, int(expected[best])):
            wrong += 1
    leaves = [sum(1 for _ in tree.leaves()) for tree in forest.trees]
    return ClassificationOutcome(
        samples=len(encoded),
        wrong=wrong,
        trees=len(forest.trees),
        leaves=sum(leaves),
        intervals=sum(map(len, forest.thresholds.values())),
        features=len(forest.thresholds),
        key_bits=max(map(len, forest.keys)),
        ternary_blocks=_BLOCKS_OF_TREE * len(forest.trees),
        chip_refusal=_chip_refusal(forest),
    )


def _chip_refusal(forest: Forest) -> str:
    try:
        chip_state(forest, 0)
    except ModelTooLarge as error:
        return str(error)
    return ""


def drawn_samples(forest: Forest, seed: int, count: int = _DRAWN) -> NDArray[np.uint8]:
    """Draw bytes, half of them thresholds of the forest and their neighbours: shape (count, features)."""
    random = np.random.default_rng(seed)
    samples = random.integers(0, 256, (count, forest.n_features), dtype=np.uint8)
    for feature, thresholds in forest.thresholds.items():
        near = np.clip(np.add.outer(thresholds, (0, 1)), 0, 255).ravel()
        where = random.random(count) < 0.75
        samples[where, feature] = random.choice(near, int(where.sum()))
    return samples


def loaded_switch(forest: Forest) -> Switch:
    """Return a switch with one host, its address and a model."""
    switch = Switch(1, ports=range(_HOST_PORT + 1))
    switch.load(p4src.json_of("fabric_32").read_bytes())
    assert switch.state is not None
    tables = switch.state.tables
    tables[NODE_ADDRESS].insert(TableEntry((Exact(_SWITCH),), ActionCall("FabricIngress.to_node", ())))
    forward = ActionCall("FabricIngress.routing.forward", (_HOST_PORT, _MAC, _MAC | _HOST))
    tables[ROUTES].insert(TableEntry((Lpm(_HOST, 32),), ActionSet((WeightedAction(forward),))))
    for item in model_state(forest, 0).items.values():
        assert isinstance(item, Entry)
        tables[item.table].insert(as_table_entry(item))
    return switch


def request(switch: Switch, payload: NDArray[np.uint8]) -> Answer | None:
    """Return the switch's answer to a request from its host; None if there is none."""
    answer = answer_to(switch, payload)
    return None if answer is None else Answer.parse(answer)


def answer_to(switch: Switch, payload: NDArray[np.uint8]) -> bytes | None:
    """Return the payload that the switch sends back to its host; None if it sends nothing."""
    frame = frames.encapsulate(
        payload[None],
        source=_HOST,
        destination=_SWITCH,
        source_mac=_MAC | _HOST,
        destination_mac=_MAC,
        destination_port=CLASSIFICATION_PORT,
    )
    out = switch.forward(frame.tobytes(), _HOST_PORT, 0)
    start = frames.FRAME_HEADER_BYTES
    return out[0][1][start : start + MESSAGE_BYTES] if len(out) == 1 else None


_PARAMETERS: Final = {"serve": ("in_bank", "model", "n_trees"), "encode": ("above",), "vote": ("ballot",)}


def as_table_entry(item: Entry) -> TableEntry:
    """Return an entry of a model as the emulator takes it."""
    values: dict[str, FieldValue] = dict(item.match)
    keys: list[Match] = [Exact(_number(values[name])) for name in ("model", "bank") if name in values]
    if item.table in FEATURE:
        keys.append(Range(*_pair(values["value"])))
    elif "bank" in values:
        keys.append(Ternary(*_pair(values.get("code", (0, 0)))))
    action = item.calls[0]
    args: dict[str, Any] = dict(action.args)
    parameters = tuple(args[name] for name in _PARAMETERS[action.action])
    return TableEntry(tuple(keys), ActionCall(f"FabricIngress.inference.{action.action}", parameters), item.priority)


def _number(value: FieldValue) -> int:
    assert isinstance(value, int)
    return value


def _pair(value: FieldValue) -> tuple[int, int]:
    assert isinstance(value, tuple)
    return value
