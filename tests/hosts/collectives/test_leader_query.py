"""Queries of one worker on behalf of all: the sender, the common answer and its time, with losses and late answers."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.hosts.collectives.communicator import Communicator
from weir.hosts.collectives.leader_query import LeaderQuery
from weir.hosts.errors import ControlAbsent, ControlRefused, HostError
from weir.tests.hosts.collectives.memory_driver import MemoryJob
from weir.tests.support.errors import raises

Numbers = np.ndarray


@dataclass
class Oracle:
    """Oracle: it keeps the queries, and answers as late as the test requires."""

    questions: list[Question] = field(default_factory=list)
    at_once: Any = None
    """Immediate answer: numbers, or an error; None: no answer."""

    def ask(self, reports: Numbers, present: Numbers) -> Question:
        self.questions.append(Question(reports.copy(), present.copy(), self.at_once))
        return self.questions[-1]


@dataclass
class Question:
    reports: Numbers
    present: Numbers
    answer: Any = None

    def done(self) -> bool:
        return self.answer is not None

    def wait(self, timeout_s: float, /) -> list[int]:
        assert self.answer is not None, "an answer is taken that is not there"
        if isinstance(self.answer, Exception):
            raise self.answer
        return list(self.answer)


class Played:
    """Workers of one job who ask in every step, in one thread."""

    def __init__(self, workers: int, seed: int = 0) -> None:
        self.job = MemoryJob(workers, seed=seed)
        self.oracles = [Oracle() for _ in range(workers)]
        self.queries = [
            LeaderQuery(Communicator(driver, timeout_s=1), oracle.ask, name="sizes")
            for driver, oracle in zip(self.job.drivers, self.oracles, strict=True)
        ]

    def asked(self, reports: Numbers) -> set[int]:
        """Deliver the reports and have the leader send the query; return the ranks that wait for an answer."""
        handles = [query.report(own) for query, own in zip(self.queries, reports, strict=True)]
        told = {rank: handle.wait() for rank, handle in enumerate(handles) if rank not in self.job.lost}
        waits = {rank for rank, words in told.items() if self.queries[rank].send_request(*words) is not None}
        survivors = list(told.values())
        for rows, present in survivors:
            assert rows.tobytes() == survivors[0][0].tobytes()
            assert present.tolist() == survivors[0][1].tolist()
            assert rows[present].tobytes() == reports[present].tobytes()
        return waits

    def answered(self) -> list[list[int] | None]:
        """Answer at each survivor, by rank."""
        handles = [query.answer() for query in self.queries]
        return [handle.wait() for rank, handle in enumerate(handles) if rank not in self.job.lost]


def reports(workers: int, step: int = 0) -> Numbers:
    return np.random.default_rng(step).standard_normal((workers, 3))


def test_the_first_rank_asks_and_all_are_told() -> None:
    played = Played(4)
    played.oracles[0].at_once = [7, 0, 2, 1]
    for step in range(3):
        assert played.asked(reports(4, step)) == {0}
        assert played.answered() == [[7, 0, 2, 1]] * 4
    assert [len(oracle.questions) for oracle in played.oracles] == [3, 0, 0, 0]
    for step, question in enumerate(played.oracles[0].questions):
        assert question.reports.tobytes() == reports(4, step).tobytes()
        assert question.present.all()


def test_reports_keep_their_bits() -> None:
    """The reports hold numbers that no sum of floats would keep: all exponents, NaN, −0, more workers than fit a
    message.
    """
    bits = np.random.default_rng(5).integers(0, 1 << 64, (120, 3), np.uint64)
    bits[7] = np.array([-0.0, np.nan, np.inf]).view(np.uint64)
    played = Played(120)
    played.oracles[0].at_once = list(range(120))
    assert played.asked(bits.view(np.float64)) == {0}
    assert played.oracles[0].questions[0].reports.tobytes() == bits.tobytes()
    assert played.answered() == [list(range(120))] * 120


def test_a_worker_lost_before_its_report_asks_nothing() -> None:
    played = Played(3)
    played.job.lost[0] = 0
    played.oracles[1].at_once = [0, 5, 4]
    assert played.asked(reports(3)) == {1}
    assert played.oracles[1].questions[0].present.tolist() == [False, True, True]
    assert played.answered() == [[0, 5, 4]] * 2


def test_a_leader_lost_before_its_answer_is_replaced() -> None:
    played = Played(3)
    played.oracles[0].at_once = [3, 3, 3]
    assert played.asked(reports(3)) == {0}
    played.job.lost[0] = 0
    assert played.answered() == [None, None]
    played.oracles[1].at_once = [0, 5, 4]
    assert played.asked(reports(3)) == {1}
    assert played.answered() == [[0, 5, 4]] * 2


def test_a_late_answer_is_handed_out_later_and_waited_for_once() -> None:
    played = Played(3)
    assert played.asked(reports(3, 0)) == {0}
    assert played.answered() == [None] * 3
    assert played.asked(reports(3, 1)) == set(), "it was waited for once"
    assert played.answered() == [None] * 3
    (question,) = played.oracles[0].questions
    question.answer = [1, 2, 3]
    assert played.asked(reports(3, 2)) == set()
    assert played.answered() == [[1, 2, 3]] * 3
    assert played.asked(reports(3, 3)) == {0}, "with reports of a step with the new numbers"
    assert played.oracles[0].questions[-1].reports.tobytes() == reports(3, 3).tobytes()


def test_an_answer_for_a_lost_worker_is_not_handed_out() -> None:
    played = Played(3)
    played.asked(reports(3, 0))
    assert played.answered() == [None] * 3
    played.job.lost[2] = 0
    played.oracles[0].at_once = [5, 4, 0]
    played.oracles[0].questions[0].answer = [3, 3, 3]
    assert played.asked(reports(3, 1)) == {0}
    assert played.answered() == [[5, 4, 0]] * 2


def test_without_an_answer_all_continue_and_one_line_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    played = Played(2)
    with caplog.at_level(logging.WARNING):
        for absent in (ControlAbsent("no controller at unix:x"), [4, 4], ControlAbsent("gone again")):
            played.oracles[0].at_once = absent
            for step in range(3):
                assert played.asked(reports(2, step)) == {0}
                assert played.answered() == [None if isinstance(absent, Exception) else absent] * 2
    assert [record.message for record in caplog.records] == [
        "sizes stay as they are until there is an answer: no controller at unix:x",
        "sizes stay as they are until there is an answer: gone again",
    ]


def test_a_refusal_is_raised_at_all() -> None:
    played = Played(3)
    played.oracles[0].at_once = ValueError("80 samples for 3 workers that hold 30 at most")
    played.asked(reports(3))
    handles = [query.answer() for query in played.queries]
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the leader's own error comes as it is)
        handles[0].wait()
    assert caught.value is played.oracles[0].at_once
    for handle in handles[1:]:
        with raises(ControlRefused, place="sizes", value=0):
            handle.wait()


@given(st.integers(1, 5), st.integers(0, 10**6), st.integers(1, 12))
def test_survivors_are_told_the_same_whatever_is_lost_or_late(workers: int, seed: int, steps: int) -> None:
    """No answer comes twice, none is malformed, and none is for other ranks than the remaining ones."""
    rng = np.random.default_rng(seed)
    played = Played(workers, seed)
    present, leader = np.ones(workers, np.bool_), 0
    taken: list[int] = []
    for step in range(steps):
        for half in (played.asked, played.answered):
            alive = [rank for rank in range(workers) if rank not in played.job.lost]
            if len(alive) > 1 and rng.random() < 0.15:
                played.job.lost[int(rng.choice(alive))] = 0
            for oracle in played.oracles:
                oracle.at_once = rng.integers(1, 1 << 31, workers).tolist() if rng.random() < 0.5 else None
                for question in oracle.questions:
                    if question.answer is None and rng.random() < 0.3:
                        question.answer = rng.integers(1, 1 << 31, workers).tolist()
            if half is played.asked:
                waits = played.asked(reports(workers, step))
                present = np.array([rank not in played.job.lost for rank in range(workers)])
                leader = int(present.argmax())
                assert waits <= {leader}
            else:
                told = played.answered()
                assert all(each == told[0] for each in told)
                if leader in played.job.lost:
                    assert told[0] is None
                elif told[0] is not None:
                    (given,) = [outcome for outcome in played.oracles[leader].questions if outcome.answer == told[0]]
                    assert given.present.tolist() == present.tolist()
                    assert id(given) not in taken
                    taken.append(id(given))


def test_numbers_that_are_not_one_for_each_worker_are_refused() -> None:
    played = Played(2)
    played.oracles[0].at_once = [1, 2, 3]
    played.asked(reports(2))
    handles = [query.answer() for query in played.queries]
    with pytest.raises(ValueError, match="shape"):
        handles[0].wait()
    with raises(HostError, place="sizes", value=0):
        handles[1].wait()
