"""The chips' own program for a forest: p4c takes it as TNA, and its classes are scikit-learn's, packet by packet.

Runs if p4test is on PATH.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from weir.controller.inference.chip_entries import FEATURES_OF_WORD, MAX_TREES, WORD_BITS, chip_state
from weir.controller.inference.errors import ModelTooLarge
from weir.controller.inference.forest import LEAF, DecisionTree, Forest
from weir.controller.p4runtime.entries import Entry, SwitchState
from weir.controller.p4runtime.reconcile import difference, in_order
from weir.controller.p4runtime.tables import TREE
from weir.emulator.switch import Switch
from weir.experiments.classification import loaded_switch
from weir.tests.controller.inference.forests import digits, digits_model, drawn_forests, hard_votes
from weir.tests.p4src.node_model import DROP_REASONS
from weir.tests.p4src.tna_program import Frame, Program, flattened
from weir.tests.support.errors import raises
from weir.wire import frames
from weir.wire.classification import CLASSIFICATION_PORT, MESSAGE_BYTES, Answer, Status, pack_requests

SWITCH, HOST, PORT, FOREIGN_PORT = 0x0AFF0001, 0x0A000001, 1, 2
MAC = 0x020000000000
EXACT = (1 << 128) - 1
BALLOTS = tuple(f"ballot_{word}" for word in range(4))
PARAMETERS = {"serve": ("in_bank", "model", "n_trees"), "vote_even": BALLOTS, "vote_odd": BALLOTS}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("p4test") is None:
        pytest.skip("p4test (of p4c) is not on PATH")
    return flattened(tmp_path_factory.mktemp("p4test"), source="forest/forest.p4")


def loaded(text: str, state: SwitchState) -> Program:
    """The program with an address, a host and a model."""
    program = Program(text)
    program.insert("FabricIngress.node_address", ((SWITCH, EXACT),), "FabricIngress.to_node")
    program.insert("FabricIngress.hosts", ((PORT, EXACT),), "FabricIngress.admit", HOST, 0)
    program.insert("FabricIngress.hosts", ((FOREIGN_PORT, EXACT),), "FabricIngress.admit", HOST + 1, 0)
    program.insert(
        "FabricIngress.routing.routes", ((HOST, EXACT),), "FabricIngress.routing.forward", PORT, MAC, MAC | HOST
    )
    for item in state.items.values():
        insert(program, item)
    return program


def insert(program: Program, item: Any) -> None:
    for match, action, args in rows(item):
        program.insert(item.table, match, action, *args)


def rows(item: Any) -> Iterator[tuple[tuple[tuple[int, int], ...], str, tuple[int, ...]]]:
    """An entry as values with masks."""
    assert isinstance(item, Entry)
    (action,) = item.calls
    match: dict[str, Any] = dict(item.match)
    args: dict[str, Any] = dict(action.args)
    name = f"FabricIngress.inference.{action.action}"
    given = tuple(args[each] for each in PARAMETERS.get(action.action, ("above",)))
    if "model" in match:
        yield ((int(match["model"]), EXACT),), name, given
        return
    bank = (int(match["bank"]), EXACT)
    if "value" in match:
        yield (bank, (int(match["value"]), EXACT)), name, given
        return
    yield (bank, *(match.get(f"word_{word}", (0, 0)) for word in range(16))), name, given


def forward(program: Program, data: bytes, port: int = PORT) -> tuple[int, bytes] | None:
    """The frame that leaves for one frame, with its port."""
    frame = Frame(data=data, length=len(data))
    frame.values["ig_intr_md.ingress_port"] = port
    frame.values["ig_prsr_md.parser_err"] = program.parse("FabricIngressParser", frame)
    program.run("FabricIngress", frame)
    program.run("FabricIngressDeparser", frame)
    if frame.values.get("ig_dprsr_md.drop_ctl"):
        return None
    out = frame.values["ig_tm_md.ucast_egress_port"]
    leaving = Frame(data=frame.emitted(), length=len(data))
    leaving.values["eg_intr_md.egress_port"] = out
    leaving.values["eg_prsr_md.parser_err"] = program.parse("FabricEgressParser", leaving)
    program.run("FabricEgress", leaving)
    program.run("FabricEgressDeparser", leaving)
    return out, leaving.emitted()


def requests(encoded: Any, model: int = 0, destination: int = SWITCH, source: int = HOST) -> list[bytes]:
    made = frames.encapsulate(
        pack_requests(encoded, first_sequence=5, model=model),
        source=source,
        destination=destination,
        source_mac=MAC | source,
        destination_mac=MAC,
        source_port=4000,
        destination_port=CLASSIFICATION_PORT,
    )
    return [frame.tobytes() for frame in made]


def check(program: Program, switch: Switch, data: bytes) -> Answer:
    """The answer of the chip's program, which is that of bmv2's to the last bit of the frame."""
    found = forward(program, data)
    assert found is not None
    assert [found] == switch.forward(data, PORT, 0)
    start = frames.FRAME_HEADER_BYTES
    return Answer.parse(found[1][start : start + MESSAGE_BYTES])


def test_held_out_digits_match_bmv2_and_scikit_learn(text: str) -> None:
    model = digits_model()
    forest, images = Forest.of(model), digits()[1][0]
    program, switch = loaded(text, chip_state(forest, 1)), loaded_switch(forest)
    answers = [check(program, switch, data) for data in requests(forest.encode(images))]
    assert {answer.status for answer in answers} == {Status.CLASSIFIED}
    assert (model.classes_[[answer.class_index for answer in answers]] == hard_votes(model, images)).all()


@pytest.mark.parametrize("count", [4, pytest.param(60, marks=pytest.mark.long)])
def test_drawn_forests_get_the_frames_of_bmv2(text: str, count: int) -> None:
    fitting = 0
    for number, _, forest, samples in drawn_forests(count * 10, seed=6):
        try:
            state = chip_state(forest, 0)
        except ModelTooLarge:
            continue
        program, switch = loaded(text, state), loaded_switch(forest)
        for data in requests(forest.encode(samples[:10]), forest.number):
            assert check(program, switch, data).status is Status.CLASSIFIED, f"seed 6, forest {number}"
        fitting += 1
        if fitting == count:
            return
    pytest.fail(f"{fitting} of the drawn forests fit")


def test_other_models_and_missing_rows_get_no_class(text: str) -> None:
    forest = Forest.of(digits_model(trees=3, leaves=12, seed=3))
    images = forest.encode(digits()[1][0][:12])
    program, switch = loaded(text, chip_state(forest, 0)), loaded_switch(forest)
    assert check(program, switch, requests(images[:1], forest.number ^ 1)[0]).status is Status.UNKNOWN_MODEL
    expected = forest.decide(images)
    for stage in in_order(difference(chip_state(forest, 0), chip_state(forest, 1))):
        for item in stage.deletes:
            if isinstance(item, Entry) and item.table in TREE:
                for row in rows(item):
                    program.table(item.table).entries.remove((row[0], program.action(row[1]), row[2]))
                for index, data in enumerate(requests(images)):
                    found = forward(program, data)
                    assert found is not None
                    answer = Answer.parse(found[1][frames.FRAME_HEADER_BYTES :][:MESSAGE_BYTES])
                    assert answer.status is Status.UNKNOWN_MODEL or answer.class_index == expected[index]
    assert all(forward(program, data) is not None for data in requests(images))
    assert answer.status is Status.UNKNOWN_MODEL


def test_packets_without_a_request_are_routed_or_dropped(text: str) -> None:
    forest = Forest.of(digits_model(trees=1, leaves=4))
    program, switch = loaded(text, chip_state(forest, 0)), loaded_switch(forest)
    image = forest.encode(digits()[1][0][:1])
    (through,) = requests(image, destination=HOST)
    assert [forward(program, through)] == switch.forward(through, PORT, 0)
    (good,) = requests(image)
    dropped = {
        "foreign_source": (requests(image)[0], FOREIGN_PORT),
        "no_service": (good[: frames.FRAME_HEADER_BYTES] + bytes([0x57, 0x49, 2]) + good[45:], PORT),
        "no_route": (requests(image, destination=HOST + 7)[0], PORT),
        "bad_checksum": (good[:24] + bytes([good[24] ^ 1]) + good[25:], PORT),
        "truncated": (good[:60], PORT),
        "not_ipv4": (good[:12] + bytes([0x86, 0xDD]) + good[14:], PORT),
    }
    for data, port in dropped.values():
        assert forward(program, data, port) is None
    (counts,) = program.counters.values()
    assert {DROP_REASONS[reason]: count for reason, count in counts.items()} == dict.fromkeys(dropped, 1)


def test_models_beyond_the_chips_limits_are_named() -> None:
    leaf = DecisionTree((LEAF,), (0,), (0,), (0,), (0,))
    with raises(ModelTooLarge, limit="trees", value=MAX_TREES + 1):
        chip_state(Forest((0,), 1, (leaf,) * (MAX_TREES + 1)), 0)
    full = tuple(
        DecisionTree((feature, LEAF, LEAF), (each, 0, 0), (1, 0, 0), (2, 0, 0), (0, 0, 1))
        for feature, each in [(1, 10), (2, 10)]
    )
    chain = _chain(feature=3, thresholds=WORD_BITS - 2)
    chip_state(Forest((0, 1), FEATURES_OF_WORD, (*full, chain)), 0)
    with raises(ModelTooLarge, limit="distinct thresholds of features 0…3", value=WORD_BITS + 1):
        chip_state(Forest((0, 1), FEATURES_OF_WORD, (*full, _chain(feature=3, thresholds=WORD_BITS - 1))), 0)


def _chain(feature: int, thresholds: int) -> DecisionTree:
    """A tree that compares one feature with 0, 1, 2 …, one after the other."""
    ordered = [(feature, 0, 1, 2, 0)]
    for index in range(thresholds):
        ordered.append((LEAF, 0, 0, 0, 1))
        following = (feature, index + 1, 2 * index + 3, 2 * index + 4, 0)
        ordered.append(following if index + 1 < thresholds else (LEAF, 0, 0, 0, 0))
    return DecisionTree(*(tuple(part) for part in zip(*ordered, strict=True)))
