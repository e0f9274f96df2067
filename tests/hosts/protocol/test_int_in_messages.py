"""INT in front of messages in the cores: from a law's request to the law's reading of each result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from weir.hosts import ParameterServerCore, WorkerCore
from weir.hosts.protocol.messages import by_job
from weir.tests.hosts.protocol.test_host_cores import (
    OPTIONS,
    OTHER,
    PLAN,
    SERVER,
    SERVER_PLAN,
    WORKER,
    Listener,
    contribution,
    ones,
    sources,
)
from weir.tests.wire.int_stacks import Said, int_headers
from weir.wire.frames import Datagrams


class Asking(Listener):
    """Has INT come with results, too."""

    int_header = b"0123456789abcdef"


def stacks(*marks: int) -> NDArray[np.uint8]:
    """Stacks of messages of one hop, told apart by the switch's queue depth."""
    return int_headers([[Said(1, 2, mark, 4, 5)] for mark in marks])


def carrying(datagrams: Datagrams, *marks: int) -> Datagrams:
    return replace(datagrams, int_headers=stacks(*marks))


def joined(*batches: Datagrams) -> Datagrams:
    headers = [batch.int_headers for batch in batches if batch.int_headers is not None]
    return Datagrams(
        np.concatenate([batch.addresses for batch in batches]),
        np.concatenate([batch.payload for batch in batches]),
        int_headers=np.concatenate(headers),
    )


def marks(datagrams: Datagrams) -> list[int]:
    assert datagrams.int_headers is not None
    return [int(row[27]) for row in datagrams.int_headers]


def both(*, law: Asking) -> tuple[list[WorkerCore], ParameterServerCore]:
    workers = [
        WorkerCore(PLAN, replace(OPTIONS, law=lambda: law)),
        WorkerCore(replace(PLAN, rank=1, child_bit=2), OPTIONS),
    ]
    for worker in workers:
        worker.submit(ones(3))
    return workers, ParameterServerCore(SERVER_PLAN)


def test_a_laws_request_goes_with_contributions_with_lanes() -> None:
    law = Asking()
    workers, server = both(law=law)
    (scales,) = workers[0].poll(0)
    assert scales.int_headers is None
    server.receive(0, sources(scales, WORKER))
    server.receive(0, sources(workers[1].poll(0)[0], OTHER))
    (results,) = server.poll(0)
    assert results.int_headers is None
    for worker, address in zip(workers, (WORKER, OTHER), strict=True):
        mine = results.addresses == address
        worker.receive(1, Datagrams(np.full(3, SERVER, np.uint32), results.payload[mine]))
    (lanes,), (plain,) = workers[0].poll(1), workers[1].poll(1)
    assert lanes.int_headers is not None
    assert [bytes(row) for row in lanes.int_headers] == [law.int_header] * 3
    assert plain.int_headers is None

    server.receive(2, sources(plain, OTHER))
    server.receive(2, replace(sources(lanes, WORKER), int_headers=stacks(7, 8, 9)))
    (results,) = server.poll(2)
    assert marks(results) == [7, 8, 9] * 2
    mine = results.addresses == WORKER
    payload = results.payload[mine]
    payload[1, -1] ^= 1  # is refused, and its INT with it
    law.told.clear()
    assert results.int_headers is not None
    batch = Datagrams(np.full(3, SERVER, np.uint32), payload, int_headers=results.int_headers[mine])
    workers[0].receive(3, batch)
    [told] = law.told
    assert told.rounds == 2
    assert told.int_headers is not None
    assert marks(replace(batch, int_headers=told.int_headers)) == [7, 9]
    assert workers[0].counters.bad_check == 1


def test_a_result_has_the_int_of_its_completing_contribution() -> None:
    server = ParameterServerCore(SERVER_PLAN)
    server.receive(0, carrying(contribution(1, WORKER), 1))
    server.receive(0, carrying(contribution(2, OTHER), 2))
    (result,) = server.poll(0)
    assert (result.addresses.tolist(), marks(result)) == ([WORKER, OTHER], [2, 2])
    server.receive(0, carrying(contribution(1, WORKER), 3))
    (again,) = server.poll(0)
    assert (again.addresses.tolist(), marks(again)) == ([WORKER], [3]), "or of the one that asks again"
    server.receive(0, contribution(1, WORKER))
    assert server.poll(0)[0].int_headers is None


def test_rounds_of_one_batch_have_each_its_own() -> None:
    server = ParameterServerCore(SERVER_PLAN)
    server.receive(0, carrying(contribution(1, WORKER, 2), 9))
    server.receive(
        0,
        joined(
            carrying(contribution(1, WORKER, 1), 1),
            carrying(contribution(2, OTHER, 2), 2),
            carrying(contribution(2, WORKER, 2), 3),  # not its bit
            carrying(contribution(2, OTHER, 1), 4),
            carrying(contribution(1, WORKER, 3), 5),  # incomplete
        ),
    )
    sent = {
        (address, int(payload[7])): mark
        for result in server.poll(0)
        for address, payload, mark in zip(result.addresses.tolist(), result.payload, marks(result), strict=True)
    }
    assert sent == {(WORKER, 1): 4, (OTHER, 1): 4, (WORKER, 2): 2, (OTHER, 2): 2}


def test_jobs_of_one_host_are_told_apart_with_their_int() -> None:
    one, other = contribution(1, WORKER), contribution(2, OTHER)
    other = replace(other, payload=other.payload.copy())
    other.payload[:, 3] = 6
    parts = by_job(joined(carrying(one, 1), carrying(other, 2), carrying(one, 3)), [5, 6])
    assert [(job, marks(part)) for job, part in parts] == [(5, [1, 3]), (6, [2])]
