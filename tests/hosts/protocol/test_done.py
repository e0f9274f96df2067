"""A worker whose rounds end with DONE: which it takes, what it keeps, and how it sums them again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weir.hosts import WorkerCore
from weir.hosts.numerics.tensors import Tensor
from weir.tests.hosts.protocol.test_host_cores import MS, OPTIONS, OTHER, PLAN, SERVER, Job, headers, sources, tags
from weir.wire.aggregation import HEADER, LANES, MessageFlag, MessageType, set_checksum, version_type
from weir.wire.control import FinalRound, Held, Resume
from weir.wire.frames import Datagrams

CHUNKS = 3
WANTS_FIRST = ((0, LANES),)


def done(datagrams: Datagrams) -> Datagrams:
    """Results in the form of DONE."""
    payload = datagrams.payload[:, : HEADER.itemsize].copy()
    header = payload.view(HEADER)[:, 0]
    header["version_type"] = version_type(MessageType.DONE)
    set_checksum(header)
    return Datagrams(datagrams.addresses, payload)


def worker_after_scales(wanted: tuple[tuple[int, int], ...] | None, prunes: bool = True) -> tuple[Job, Datagrams]:
    """A job whose first worker wants some elements, with the results of its rounds with lanes on their way to it."""
    job = Job(prunes=prunes)
    for worker, runs in zip(job.workers, (wanted, None), strict=True):
        worker.submit(Tensor(np.arange(CHUNKS * LANES, dtype=np.float32), workers=2, wanted=runs))
    job.step()
    (results,), _ = job.answer()
    assert tags([results]) == [3, 4, 5]
    return job, results


@pytest.mark.parametrize("prunes", [True, False])
def test_a_worker_asks_for_the_lanes_that_it_wants(prunes: bool) -> None:
    job = Job(prunes=prunes)
    for worker in job.workers:
        worker.submit(Tensor(np.ones(CHUNKS * LANES, np.float32), workers=2, wanted=WANTS_FIRST))
    job.step()
    (sent,) = job.workers[0].poll(job.now)
    asks = (headers(sent)["flags"] & MessageFlag.WANTED != 0).tolist()
    assert asks == ([True, False, False] if prunes else [True] * 3)


def test_done_ends_the_rounds_that_a_worker_does_not_want() -> None:
    job, results = worker_after_scales(WANTS_FIRST)
    worker = job.workers[0]
    worker.receive(job.now, done(results))
    assert worker.counters.unexpected_type == 1, "the round that it wants"
    assert not worker.idle
    worker.receive(job.now, Datagrams(results.addresses[:1], results.payload[:1]))
    reduced = worker.pop_result(0)
    assert reduced is not None
    assert reduced.array[:LANES].tolist() == (2 * np.arange(LANES)).tolist()
    assert reduced.weights.tolist() == [2] * CHUNKS
    assert worker.pause() == Held(1, 6, done=frozenset({4, 5}))


def test_a_result_ends_a_round_that_a_worker_does_not_want() -> None:
    job, results = worker_after_scales(())
    worker = job.workers[0]
    worker.receive(job.now, results)
    assert worker.idle
    assert worker.pause() == Held(1, 6)


@pytest.mark.parametrize(("wanted", "prunes"), [(None, True), (WANTS_FIRST, False)])
def test_done_does_not_end_rounds_where_all_lanes_were_asked_for(
    wanted: tuple[tuple[int, int], ...] | None, prunes: bool
) -> None:
    job, results = worker_after_scales(wanted, prunes)
    worker = job.workers[0]
    worker.receive(job.now, done(results))
    assert worker.counters.unexpected_type == CHUNKS
    assert worker.rounds_complete == CHUNKS


def test_a_worker_has_no_result_for_others_of_a_round_that_done_has_ended() -> None:
    job, results = worker_after_scales(())
    holder = job.workers[0]
    holder.receive(job.now, done(results))
    holder.pause()
    holder.resume(Resume(replace(PLAN, generation=2, prunes=True)))
    asker = WorkerCore(replace(PLAN, rank=1, child_bit=2), OPTIONS)
    asker.submit(np.ones(CHUNKS * LANES, np.float32))
    asker.pause()
    final = tuple(FinalRound(number, OTHER) for number in range(6))
    asker.resume(Resume(replace(PLAN, rank=1, child_bit=2, generation=2), final))
    (fetches,) = asker.poll(0)
    holder.receive(job.now, sources(fetches, OTHER))
    (scales,) = holder.poll(job.now)
    assert tags([scales]) == [0, 1, 2]
    asker.receive(job.now, sources(scales, OTHER))
    (fetches,) = asker.poll(job.now)
    assert tags([fetches]) == [3, 4, 5]
    holder.receive(job.now, sources(fetches, OTHER))
    assert holder.poll(job.now) == []
    assert holder.counters.unknown_round == CHUNKS


def test_rounds_without_a_holder_are_summed_again_from_the_same_numbers() -> None:
    job = Job(prunes=True)
    numbers = np.arange(CHUNKS * LANES, dtype=np.float32)
    worker, other = job.workers
    worker.submit(Tensor(numbers, workers=2, wanted=()))
    other.submit(numbers)
    job.step()
    (sent,) = worker.poll(job.now)
    job.server.receive(job.now, sources(sent, 10))
    for datagrams in other.poll(job.now):
        job.server.receive(job.now, sources(datagrams, OTHER))
    (results,) = job.server.poll(job.now)
    first = Datagrams(np.full(CHUNKS, SERVER, np.uint32), results.payload[:CHUNKS])
    worker.receive(job.now, done(first))
    assert worker.pop_result(0) is not None
    submitted, settled = worker.submitted, worker.settled
    assert worker.awaited is None

    worker.pause()
    worker.resume(Resume(replace(PLAN, generation=2, prunes=True), again=(4, 5)))
    assert not worker.idle
    assert worker.awaited is None, "its sum was handed over"
    (again,) = worker.poll(job.now + MS)
    assert tags([again]) == [4, 5]
    assert again.payload[:, HEADER.itemsize :].tobytes() == sent.payload[1:, HEADER.itemsize :].tobytes()

    header = headers(again)
    header["version_type"] = version_type(MessageType.DONE)
    header["weight"] = 1
    set_checksum(header)
    worker.receive(job.now, Datagrams(np.full(2, SERVER, np.uint32), header.view(np.uint8).reshape(2, -1)))
    assert worker.idle
    assert (worker.submitted, worker.settled) == (submitted, settled), "and is handed over once"


def test_rounds_that_a_worker_holds_or_has_never_seen_are_not_summed_again() -> None:
    job, results = worker_after_scales(WANTS_FIRST)
    worker = job.workers[0]
    worker.receive(job.now, results)
    worker.pause()
    worker.resume(Resume(replace(PLAN, generation=2, prunes=True), again=(3, 4, 5, 6, 1 << 40)))
    assert worker.idle
    assert worker.poll(job.now) == []


def test_tensors_are_kept_until_others_must_have_their_sums() -> None:
    """Half of the slots later: then every worker has contributed to a round for which it needed the results."""
    job = Job(prunes=True, slots=4, window=2)
    for number in range(4):
        for worker in job.workers:
            worker.submit(Tensor(np.full(LANES, number, np.float32), workers=2, wanted=()))
    while not job.workers[0].idle:
        for worker, batches in zip(job.workers, job.answer(), strict=True):
            for datagrams in batches:
                lanes = datagrams.payload.shape[1] > HEADER.itemsize
                worker.receive(job.now, done(datagrams) if lanes else datagrams)
    held = job.workers[0].pause()
    assert held == Held(1, 8, done=frozenset({7}))


def test_done_has_the_window_that_queues_allow() -> None:
    """Results have it, too. A worker that hears of none would send one round at a time after its lease."""
    job = Job(prunes=True)
    for worker, wanted in zip(job.workers, ((), None), strict=True):
        worker.submit(Tensor(np.ones(40 * LANES, np.float32), workers=2, wanted=wanted))
    job.step()
    (results,), _ = job.answer()
    ended = done(results)
    header = headers(ended)
    header["window"] = 3
    set_checksum(header)
    worker = job.workers[0]
    worker.receive(job.now, Datagrams(ended.addresses, header.view(np.uint8).reshape(len(header), -1)))
    assert sum(map(len, worker.poll(job.now))) == 3
