"""Batch sizes from the control service: what workers that report at a step's end are told, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from weir.experiments.backends.batch_sizes import size_rule
from weir.tests.controller.control_rig import ANSWER_S, Host, Rig, rig
from weir.wire import control_pb2 as pb
from weir.wire.control_messages import BALANCE

WORKERS = ["h1", "h2", "h3"]
SPEEDS = [400.0, 100.0, 300.0]


@pytest.fixture
async def service() -> AsyncIterator[Rig]:
    async with rig(size_rule=size_rule) as running:
        yield running


def asking(service: Rig, registration: pb.Registration, rank: int, **said: Any) -> asyncio.Task[list[int]]:
    """One worker's report, which waits for the others'."""
    call = service.channel.unary_unary(
        BALANCE,
        request_serializer=pb.BalanceRequest.SerializeToString,
        response_deserializer=pb.BatchSizes.FromString,
    )
    fields: dict[str, Any] = {
        "token": registration.seats[rank].token,
        "samples": 80,
        "rule": "analytic",
        "seconds": 0.2,
        "step": 1,
    }
    fields |= {"speed": SPEEDS[rank % len(SPEEDS)], "job": registration.job, **said}

    async def answer() -> list[int]:
        return list((await call(pb.BalanceRequest(**fields), timeout=ANSWER_S)).sizes)

    return asyncio.create_task(answer())


async def refusal(asked: asyncio.Task[list[int]]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked
    return caught.value.code(), caught.value.details() or ""


async def test_sizes_are_in_proportion_to_speeds_when_all_have_reported(service: Rig) -> None:
    registration = await service.register(workers=WORKERS)
    first, second = (asking(service, registration, rank) for rank in (0, 1))
    await asyncio.sleep(0.1)
    assert not first.done()
    assert not second.done()
    third = asking(service, registration, 2)
    # the shares of 80 samples by speeds of 400, 100 and 300 samples per second
    assert [await each for each in (first, second, third)] == [[40, 10, 30]] * 3
    assert await asking(service, registration, 1) == [40, 10, 30]  # an answer that was lost on its way

    faster = [asking(service, registration, rank, step=2, speed=100.0 if rank else 600.0) for rank in range(3)]
    assert [await each for each in faster] == [[60, 10, 10]] * 3
    code, words = await refusal(asking(service, registration, 0))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert words == "step 1 is over; step 2 was decided last"


async def test_numeric_sizes_go_by_measured_times(service: Rig) -> None:
    """Without any speed: from equal shares to within a tenth of the optimum, which is 0.1 s with 40, 10 and 30."""
    registration = await service.register(workers=WORKERS)
    sizes = [27, 27, 26]
    for step in range(40):
        told = [
            asking(service, registration, rank, step=step, rule="numeric", speed=0.0, seconds=size / SPEEDS[rank])
            for rank, size in enumerate(sizes)
        ]
        answers = [await each for each in told]
        assert answers == [answers[0]] * 3
        sizes = answers[0]
        assert sum(sizes) == 80
    assert max(size / speed for size, speed in zip(sizes, SPEEDS, strict=True)) <= 0.11


async def test_numeric_sizes_move_by_what_the_job_says(service: Rig) -> None:
    """The slowest gives as many to the fastest, once it was so in three steps."""
    registration = await service.register(workers=WORKERS)
    times = [0.1, 0.9, 0.5]
    for step, sizes in enumerate([[27, 27, 26], [27, 27, 26], [30, 24, 26], [33, 21, 26]]):
        told = [
            asking(service, registration, rank, step=step, rule="numeric", seconds=times[rank], size_step=3)
            for rank in range(3)
        ]
        assert [await each for each in told] == [sizes] * 3


async def test_samples_that_nobody_holds_are_refused_to_all(service: Rig) -> None:
    registration = await service.register(workers=WORKERS)
    asked = [asking(service, registration, rank, limit=10) for rank in range(3)]
    for each in asked:
        assert await refusal(each) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "80 samples for 3 workers that hold 30 at most; each has between 1 and its limit",
        )


async def test_reports_that_do_not_go_together_are_refused_to_all(service: Rig) -> None:
    registration = await service.register(workers=WORKERS)
    asked = [asking(service, registration, rank, step=7 if rank == 2 else 6) for rank in range(3)]
    for each in asked:
        assert await refusal(each) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "the workers do not ask for the same: rank 0 for step 6 of 80 samples by the analytic rule, rank 2 for "
            "step 7 of 80 samples by the analytic rule",
        )
    again = [asking(service, registration, rank, step=6) for rank in range(3)]
    assert [await each for each in again] == [[40, 10, 30]] * 3


async def test_a_worker_that_is_lost_is_not_waited_for(service: Rig) -> None:
    registration = await service.register(workers=WORKERS, policy=pb.CONTINUE)
    hosts = [await service.joined(registration, rank) for rank in range(3)]
    for host in hosts:
        await host.say(resumed=pb.Resumed(generation=(await host.hear("worker_plan")).generation))
    asked = [asking(service, registration, rank) for rank in (0, 2)]
    await hosts[1].say(leave=pb.Leave(reason="out of memory"))
    held = [asyncio.create_task(_goes_on(host)) for host in (hosts[0], hosts[2])]
    # of 80 samples by speeds of 400 and 300: 45.7 and 34.3
    assert [await each for each in asked] == [[46, 0, 34]] * 2
    code, words = await refusal(asking(service, registration, 1, step=2))
    assert code is grpc.StatusCode.ABORTED
    assert words == f"job {registration.job} goes on without h2 (rank 1)"
    await asyncio.gather(*held)


async def _goes_on(host: Host) -> None:
    """What a worker without rounds says when its job gets another generation."""
    await host.say(held=pb.Held(generation=(await host.hear("pause")).generation))
    await host.say(resumed=pb.Resumed(generation=(await host.hear("resume")).worker_plan.generation))


async def test_a_job_that_ends_is_not_waited_for(service: Rig) -> None:
    registration = await service.register(workers=WORKERS)
    asked = asking(service, registration, 0)
    await asyncio.sleep(0.1)
    await service.end(registration.job, "out of time")
    assert await refusal(asked) == (grpc.StatusCode.ABORTED, f"job {registration.job} is over")


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ({"job": 9}, "NOT_FOUND", "9"),
        ({"token": "none"}, "PERMISSION_DENIED", "the token is none of its seats'"),
        ({"speed": float("nan")}, "INVALID_ARGUMENT", "speed nan of step 1; it is a number of 0 or more"),
        ({"seconds": -1.0}, "INVALID_ARGUMENT", "seconds -1.0 of step 1; it is a number of 0 or more"),
        ({"samples": 0}, "INVALID_ARGUMENT", "0 samples for 1 workers; each has one at least"),
        ({"rule": "fair"}, "INVALID_ARGUMENT", 'rule "fair" for batch sizes is unknown; there are analytic, numeric'),
    ],
)
async def test_what_cannot_be_is_refused(service: Rig, said: Any, code: str, words: str) -> None:
    registration = await service.register(workers=["h1"])
    found, text = await refusal(asking(service, registration, 0, **said))
    assert (found.name, words in text) == (code, True), text


async def test_a_parameter_server_has_no_batch_and_some_controllers_decide_none(service: Rig) -> None:
    registration = await service.register(workers=["h1"], server="h2")
    code, words = await refusal(asking(service, registration, 1))
    assert (code, "h2 (server) has no batch" in words) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    async with rig() as other:
        registration = await other.register(workers=["h1"])
        assert await refusal(asking(other, registration, 0)) == (
            grpc.StatusCode.UNIMPLEMENTED,
            "this controller decides no batch sizes",
        )
