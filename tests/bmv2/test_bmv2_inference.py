"""A forest in bmv2 and the emulated switch: all held-out digits get scikit-learn's hard vote, also while one model
replaces another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from weir import p4src
from weir.controller.inference.forest import Forest
from weir.controller.inference.table_entries import model_state
from weir.controller.p4runtime.entries import Entry, Item
from weir.controller.p4runtime.reconcile import difference, in_order
from weir.experiments.classification import as_table_entry
from weir.tests.bmv2.differential import Pair
from weir.tests.bmv2.fabric_node import PORTS, SWITCH, WORKERS, entities, mac
from weir.tests.bmv2.harness import Compiled, needs_bmv2
from weir.tests.controller.inference.forests import digits, digits_model, hard_votes
from weir.wire import frames
from weir.wire.classification import CLASSIFICATION_PORT, MESSAGE_BYTES, Answer, Status, pack_requests

pytestmark = [pytest.mark.bmv2, needs_bmv2]

UPDATES_AT_ONCE = 200


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(Compiled.read(p4src.json_of("fabric_32"), p4src.p4info_of("fabric_32")), PORTS) as both:
        both.insert(*entities(both.encoder))
        yield both


def rows(pair: Pair, items: Iterable[Item]) -> list[Any]:
    return [pair.encoder.table_entry(item.table, as_table_entry(item)) for item in items if isinstance(item, Entry)]


def ask(pair: Pair, samples: NDArray[Any]) -> list[Answer]:
    """Answers of both switches, which are the same."""
    requests = frames.encapsulate(
        pack_requests(samples.astype(np.uint8)),
        source=WORKERS[0],
        destination=SWITCH,
        source_mac=mac(WORKERS[0]),
        destination_mac=mac(SWITCH),
        destination_port=CLASSIFICATION_PORT,
    )
    head = frames.FRAME_HEADER_BYTES
    answers = []
    for (output,) in pair.compare([(1, request.tobytes()) for request in requests]):
        assert output.port == 1
        answers.append(Answer.parse(output.frame[head : head + MESSAGE_BYTES]))
    return answers


def test_all_held_out_digits_get_scikit_learns_hard_vote(pair: Pair) -> None:
    model, images = digits_model(), digits()[1][0]
    pair.insert(*rows(pair, model_state(Forest.of(model), 0).items.values()))
    answers = ask(pair, images)
    assert [answer.status for answer in answers] == [Status.CLASSIFIED] * 450
    assert (model.classes_[[answer.class_index for answer in answers]] == hard_votes(model, images)).all()


def test_at_no_step_of_a_replacement_is_a_class_neither_models(pair: Pair) -> None:
    some = digits()[1][0][:40]
    models = [digits_model(seed=seed) for seed in (0, 1)]
    old, new = (model_state(Forest.of(model), bank) for bank, model in enumerate(models))
    expected = {Forest.of(model).number: hard_votes(model, some) for model in models}
    pair.insert(*rows(pair, old.items.values()))
    seen = []
    for stage in in_order(difference(old, new)):
        for change, items in (
            (pair.delete, list(stage.deletes)),
            (pair.modify, [item for _, item in stage.modifies]),
            (pair.insert, list(stage.inserts)),
        ):
            for start in range(0, len(items), UPDATES_AT_ONCE):
                change(*rows(pair, items[start : start + UPDATES_AT_ONCE]))
                for index, answer in enumerate(ask(pair, some)):
                    assert answer.status is Status.CLASSIFIED
                    assert answer.class_index == expected[answer.model][index]
                    seen.append(answer.model)
    assert list(dict.fromkeys(seen)) == list(expected)
