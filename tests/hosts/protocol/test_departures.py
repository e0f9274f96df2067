"""Workers that leave a job in good order: the calls of the others that still complete, and those that are refused."""

from __future__ import annotations

import re

import pytest

from weir.hosts import CallMismatch, HostError, WorkerLeft
from weir.hosts.numerics.tensors import Tensor
from weir.hosts.protocol.departures import describe_departures
from weir.tests.hosts.protocol.test_host_cores import Job, ones
from weir.wire.control import Departure

H1, H2, H3 = (Departure(rank, f"h{rank + 1}", 10 + rank, calls) for rank, calls in enumerate((2, 2, 4)))


def submit(job: Job, rank: int, count: int, signature: int = 3) -> None:
    for _ in range(count):
        job.workers[rank].submit(Tensor(ones(2), workers=2, signature=signature))


def step(job: Job, count: int = 12) -> None:
    for _ in range(count):
        job.step()


def refusal_of(job: Job, handle: int) -> HostError:
    with pytest.raises(HostError) as caught:
        job.workers[0].pop_result(handle)
    return caught.value


def test_calls_before_a_departure_complete_and_later_ones_fail() -> None:
    job = Job()
    submit(job, 0, 4)
    submit(job, 1, 2)
    worker = job.workers[0]
    worker.end_after([Departure(1, "h2", 11, calls=2)])
    assert worker.done(2)
    assert not worker.done(0)
    step(job)
    assert [worker.pop_result(handle) is not None for handle in range(2)] == [True, True]
    assert worker.idle
    assert worker.deadline_ns is None
    for handle in (2, 3):
        error = refusal_of(job, handle)
        assert isinstance(error, WorkerLeft)
        assert "rank 1 (h2) left the job after 2 of your 4 calls" in str(error)
    with pytest.raises(WorkerLeft, match=re.escape("after 2 of your 5 calls")):
        submit(job, 0, 1)


def test_calls_that_the_leaver_took_part_in_may_still_be_made() -> None:
    job = Job()
    submit(job, 1, 2)
    job.workers[0].end_after([Departure(1, "h2", 11, calls=2)])
    submit(job, 0, 2)
    step(job)
    assert [job.workers[0].pop_result(handle) is not None for handle in range(2)] == [True, True]
    with pytest.raises(WorkerLeft, match=re.escape("after 2 of your 3 calls")):
        submit(job, 0, 1)


def test_a_later_departure_with_fewer_calls_ends_sums_earlier() -> None:
    job = Job()
    submit(job, 0, 6)
    worker = job.workers[0]
    worker.end_after([H3])
    assert [worker.done(handle) for handle in range(6)] == [False, False, False, False, True, True]
    worker.end_after([H2])
    assert [worker.done(handle) for handle in range(6)] == [False, False, True, True, True, True]
    assert "rank 1 (h2) left the job after 2 of your 6 calls" in str(refusal_of(job, 5))
    settled = worker.settled
    worker.end_after([H2, H1, H3])
    assert worker.settled == settled
    assert "rank 0 (h1) and rank 1 (h2) left the job after 2 of your 6 calls" in str(refusal_of(job, 5))


def test_calls_that_differ_before_a_departure_stay_the_reason() -> None:
    job = Job()
    submit(job, 0, 4)
    submit(job, 1, 4, signature=5)
    step(job)
    job.workers[0].end_after([H3])
    assert isinstance(refusal_of(job, 0), CallMismatch)
    assert isinstance(refusal_of(job, 3), CallMismatch)


def test_a_sum_in_progress_ignores_departures() -> None:
    job = Job()
    for rank in range(2):
        submit(job, rank, 1)
    job.step()
    worker = job.workers[0]
    assert worker.rounds_complete > 0
    worker.end_after([Departure(1, "h2", 11, calls=0)])
    step(job)
    assert worker.pop_result(0) is not None
    with pytest.raises(WorkerLeft):
        submit(job, 0, 1)


def test_departures_name_only_the_workers_that_left_first() -> None:
    assert describe_departures([H3], 9) == "rank 2 (h3) left the job after 4 of your 9 calls"
    assert describe_departures([H3, H2, H1], 3) == "rank 0 (h1) and rank 1 (h2) left the job after 2 of your 3 calls"
    assert describe_departures([H3], 4) == "rank 2 (h3) left the job after 4 calls, and others went on"
