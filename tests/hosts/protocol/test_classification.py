"""Questions for classes under loss, repetition and replaced models."""

from __future__ import annotations

import random

import numpy as np
import pytest

from weir.hosts.errors import NoClass
from weir.hosts.protocol.classification import Questions
from weir.wire.classification import MESSAGE, Answer, Status

MS = 1_000_000
SAMPLES = np.arange(40, dtype=np.uint8)[:, None]
MODEL = 77


def answer(request: np.ndarray, status: Status = Status.CLASSIFIED, model: int = MODEL) -> Answer:
    """A switch's answer: the class is the first feature modulo 7."""
    message = request.view(MESSAGE)[0]
    return Answer(int(message["sequence"]), status, model, int(message["features"][0]) % 7, 5, 9)


def test_each_sample_gets_its_own_class() -> None:
    questions = Questions(SAMPLES, window=16, first_sequence=2**32 - 3)
    rounds = 0
    while not questions.done:
        requests = questions.due(rounds)
        assert 0 < len(requests) <= 16
        for request in requests:
            questions.receive(answer(request))
        rounds += 1
    assert rounds == 3
    assert (questions.classes == np.arange(40) % 7).all()
    assert set(questions.votes) == {5}
    assert set(questions.models) == {MODEL}
    assert questions.repeated == 0


@pytest.mark.parametrize("seed", range(10))
def test_lost_late_and_repeated_packets_change_no_class(seed: int) -> None:
    draw = random.Random(seed)
    questions = Questions(SAMPLES, window=8, timeout_ns=10 * MS, attempts=100)
    now_ns, flying = 0, []
    while not questions.done:
        flying += [answer(request) for request in questions.due(now_ns) if draw.random() < 0.7]
        draw.shuffle(flying)
        for _ in range(draw.randint(0, len(flying))):
            arriving = flying.pop()
            questions.receive(arriving)
            if draw.random() < 0.2:
                flying.append(arriving)
        now_ns += 3 * MS
    assert (questions.classes == np.arange(40) % 7).all()


def test_a_request_without_an_answer_is_repeated_at_its_time_out() -> None:
    questions = Questions(SAMPLES[:1], timeout_ns=10 * MS)
    first = questions.due(0)
    assert len(questions.due(10 * MS - 1)) == 0
    assert questions.deadline_ns == 10 * MS
    assert (questions.due(10 * MS) == first).all()
    assert questions.repeated == 1


def test_answers_without_class_or_of_other_models_are_repeated() -> None:
    questions = Questions(SAMPLES[:1], model=MODEL, timeout_ns=MS)
    (request,) = questions.due(0)
    questions.receive(answer(request, Status.UNKNOWN_MODEL))
    questions.receive(answer(request, model=MODEL + 1))
    assert not questions.done
    assert len(questions.due(MS)) == 1
    questions.receive(answer(request))
    assert questions.done


def test_a_silent_switch_is_given_up() -> None:
    questions = Questions(SAMPLES[:1], timeout_ns=MS, attempts=3)
    for now_ms in range(3):
        assert len(questions.due(now_ms * MS)) == 1
    with pytest.raises(NoClass):
        questions.due(3 * MS)


def test_no_samples_need_no_answers() -> None:
    assert Questions(SAMPLES[:0]).done


def test_more_features_than_a_request_holds_are_refused() -> None:
    with pytest.raises(NoClass):
        Questions(np.zeros((1, 65), np.uint8))
