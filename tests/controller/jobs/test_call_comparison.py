"""Comparison of workers' calls: the text for each situation, and when a comparison ends."""

from __future__ import annotations

import pytest

from weir.controller.jobs.call_comparison import ANSWER_NS, CallComparison, compared
from weir.wire.control import CallRecord, Calls

HOSTS = {0: "h1", 1: "h2", 2: "h3", 3: "h4"}


def summed(name: str, shape: str = "shape (100,)") -> CallRecord:
    return CallRecord("allreduce", name, ("op sum", "float32", shape))


def waits(*calls: CallRecord, first: int = 0) -> Calls:
    """A worker that waits for its last call."""
    return Calls(first, calls, first + len(calls) - 1)


def computes(*calls: CallRecord) -> Calls:
    return Calls(0, calls, None)


ONE, TWO = summed("s1"), summed("s2")


@pytest.mark.parametrize(
    ("calls", "text"),
    [
        (
            {0: waits(ONE, TWO), 1: computes(ONE), 2: waits(ONE, TWO), 3: waits(ONE, TWO)},
            "waiting for rank 1 (h2): it has not called allreduce 's2'; ranks 0, 2, 3 have",
        ),
        (
            {0: waits(ONE, TWO), 1: computes(ONE), 2: computes(ONE), 3: computes(ONE)},
            "waiting for rank 1 (h2), rank 2 (h3), rank 3 (h4): they have not called allreduce 's2'; rank 0 (h1) has",
        ),
        (
            {0: waits(ONE, TWO), 2: waits(ONE, TWO), 3: waits(ONE, TWO)},
            "waiting for rank 1 (h2): it does not answer; ranks 0, 2, 3 have called allreduce 's2'",
        ),
        (
            {0: waits(ONE, TWO), 2: waits(ONE), 3: computes()},
            "waiting for rank 3 (h4): it has not called allreduce 's1', rank 1 (h2): it does not answer; "
            "ranks 0, 2 have",
        ),
        (
            {rank: waits(ONE) for rank in HOSTS},
            "all workers have called allreduce 's1', but no result comes through the fabric",
        ),
        (
            {rank: waits(ONE, summed("s2", "shape (101,)") if rank == 2 else TWO) for rank in HOSTS},
            "the workers' calls differ in call 2 of the job: allreduce 's2', rank 2 (h3): shape (101,); "
            "ranks 0, 1, 3: shape (100,)",
        ),
        (
            {0: waits(TWO, first=9), 1: waits(ONE, CallRecord("barrier", "b"), first=8), 2: waits(TWO, first=9)},
            "the workers' calls differ in call 10 of the job: rank 1 (h2): barrier 'b'; "
            "ranks 0, 2: allreduce 's2', op sum, float32, shape (100,)",
        ),
    ],
)
def test_the_text_names_who_is_waited_for_or_differs(calls: dict[int, Calls], text: str) -> None:
    workers = HOSTS if len(calls) > 1 and 3 in calls else {rank: HOSTS[rank] for rank in calls}
    assert compared(calls, workers) == text


def test_a_comparison_ends_with_the_last_answer() -> None:
    comparison = CallComparison()
    assert comparison.receive(2, waits(ONE), 0, asks=True), "the others are asked"
    assert not comparison.receive(0, waits(ONE), 1, asks=True), "once"
    assert comparison.result(HOSTS, 1) is None
    assert not comparison.receive(1, computes(), 2, asks=False)
    assert not comparison.receive(3, waits(ONE), 3, asks=False)
    text, speaker = comparison.result(HOSTS, 3) or ("", -1)
    assert (text, speaker) == (compared({0: waits(ONE), 1: computes(), 2: waits(ONE), 3: waits(ONE)}, HOSTS), 2)
    assert comparison.result(HOSTS, 4) is None, "it has ended"
    assert comparison.receive(1, waits(ONE), 5, asks=True), "and another can begin"


def test_an_unanswering_worker_is_awaited_for_at_most_a_second() -> None:
    comparison = CallComparison()
    comparison.receive(0, waits(ONE), 0, asks=True)
    assert comparison.result({0: "h1", 1: "h2"}, ANSWER_NS - 1) is None
    assert comparison.result({0: "h1", 1: "h2"}, ANSWER_NS) == (
        "waiting for rank 1 (h2): it does not answer; rank 0 (h1) has called allreduce 's1'",
        0,
    )


def test_a_comparison_of_workers_that_have_gone_on_says_nothing() -> None:
    comparison = CallComparison()
    comparison.receive(0, computes(ONE), 0, asks=True)
    comparison.receive(1, computes(ONE), 0, asks=False)
    assert comparison.result({0: "h1", 1: "h2"}, 1) is None
