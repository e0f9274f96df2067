"""Batch sizes from the control service: its answer to the leader's query at a step's end."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import grpc
import numpy as np
import pytest

from weir.controller.errors import PlanError
from weir.controller.service.batch_sizes import JobBatchSizes
from weir.controller.service.limits import Limits
from weir.experiments.backends.batch_sizes import size_rule
from weir.hosts import ControlAbsent, ControlRefused
from weir.hosts.drivers import batch_size_client
from weir.hosts.drivers.batch_size_client import BatchSizeClient, BatchSizeRequest
from weir.tests.support.control_rig import ANSWER_S, Host, ServiceRig, refusal, rig
from weir.tests.support.errors import raises
from weir.wire import control_pb2 as pb
from weir.wire.control_messages import BALANCE, balance_request

WORKERS = ["h1", "h2", "h3"]
SPEEDS = [400.0, 100.0, 300.0]


@pytest.fixture
async def service() -> AsyncIterator[ServiceRig]:
    async with rig(size_rule=size_rule) as running:
        yield running


def stream_of(service: ServiceRig) -> Any:
    return service.channel.stream_stream(
        BALANCE,
        request_serializer=pb.BalanceRequest.SerializeToString,
        response_deserializer=pb.BatchSizes.FromString,
    )


def asking(service: ServiceRig, registration: pb.Registration, rank: int, **said: Any) -> asyncio.Task[list[int]]:
    """One worker asks for all: `told` has what the others' reports are by rank where they are not as always."""
    call = stream_of(service)
    workers = [seat for seat in registration.seats if seat.HasField("rank")]
    told: dict[int, dict[str, Any] | None] = said.pop("told", {})
    reports = [
        pb.SpeedReport(**{"rank": index, "seconds": 0.2, "speed": SPEEDS[index % len(SPEEDS)], **own})
        for index in range(len(workers))
        if (own := told.get(index, {})) is not None
    ]
    fields: dict[str, Any] = {"token": registration.seats[rank].token, "samples": 80, "rule": "analytic"}
    fields |= {"job": registration.job, "reports": reports, **said}

    async def answer() -> list[int]:
        (sizes,) = [list(each.sizes) async for each in call(iter([pb.BalanceRequest(**fields)]), timeout=ANSWER_S)]
        return sizes

    return asyncio.create_task(answer())


async def test_sizes_are_in_proportion_to_speeds(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS)
    # the shares of 80 samples by speeds of 400, 100 and 300 samples per second
    assert await asking(service, registration, 0) == [40, 10, 30]
    assert await asking(service, registration, 1) == [40, 10, 30], "whoever asks"
    faster = {0: {"speed": 600.0}, 1: {"speed": 100.0}, 2: {"speed": 100.0}}
    assert await asking(service, registration, 0, told=faster) == [60, 10, 10]
    unknown = {0: {"speed": 0.0}}
    assert await asking(service, registration, 0, told=unknown) == [60, 10, 10], "they stay where a speed is not known"


async def test_numeric_sizes_go_by_measured_times(service: ServiceRig) -> None:
    """No speed is known: sizes go from equal shares to within a tenth of the optimum, which is 0.1 s with 40, 10 and
    30.
    """
    registration = await service.register(workers=WORKERS)
    sizes = [27, 27, 26]
    for _ in range(40):
        told = {rank: {"speed": 0.0, "seconds": size / SPEEDS[rank]} for rank, size in enumerate(sizes)}
        sizes = await asking(service, registration, 0, rule="numeric", told=told)
        assert sum(sizes) == 80
    assert max(size / speed for size, speed in zip(sizes, SPEEDS, strict=True)) <= 0.11


async def test_numeric_sizes_move_by_what_the_job_says(service: ServiceRig) -> None:
    """The slowest gives as many to the fastest, once it was so in three steps."""
    registration = await service.register(workers=WORKERS)
    told = {rank: {"seconds": seconds} for rank, seconds in enumerate([0.1, 0.9, 0.5])}
    for sizes in [[27, 27, 26], [27, 27, 26], [30, 24, 26], [33, 21, 26]]:
        assert await asking(service, registration, 0, rule="numeric", told=told, size_step=3) == sizes


async def test_a_job_learns_nothing_from_one_that_had_its_number(service: ServiceRig) -> None:
    told = {rank: {"seconds": seconds} for rank, seconds in enumerate([0.1, 0.9, 0.5])}
    for _ in range(2):
        registration = await service.register(workers=WORKERS, job=9)
        for sizes in [[27, 27, 26], [27, 27, 26], [30, 24, 26]]:
            assert await asking(service, registration, 0, rule="numeric", told=told, size_step=3) == sizes
        await service.end(9)


async def test_samples_that_nobody_holds_are_refused(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS)
    assert await refusal(asking(service, registration, 0, told={rank: {"limit": 10} for rank in range(3)})) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "80 samples for 3 workers that hold 30 at most; each has between 1 and its limit",
    )


async def test_the_numeric_rule_refuses_samples_beyond_all_limits(service: ServiceRig) -> None:
    """It has learned the limits by then, and would else give everyone as many, which are not all."""
    registration = await service.register(workers=WORKERS)
    for _ in range(2):
        asked = asking(service, registration, 0, rule="numeric", told={rank: {"limit": 10} for rank in range(3)})
        assert await refusal(asked) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "workers hold [10, 10, 10] samples at most, which is fewer than there are",
        )


MOST = (1 << 32) - 1


@pytest.mark.parametrize(
    ("rule", "told", "sizes"),
    [
        ("analytic", {0: {"limit": 1}}, [1, MOST // 4, MOST - 1 - MOST // 4]),
        ("analytic", {0: {"speed": 1e12}, 1: {"speed": 1e-9}}, [MOST - 2, 1, 1]),
        ("numeric", {0: {"limit": 1}}, [1, MOST // 2, MOST // 2]),
        ("numeric", {1: {"limit": 2}, 2: {"limit": 1 << 30}}, [MOST - 2 - (1 << 30), 2, 1 << 30]),
        ("numeric", {0: {"seconds": 1e12}, 1: {"seconds": 1e-9}}, [MOST // 3] * 3),
    ],
)
async def test_the_most_samples_that_a_question_can_name(
    service: ServiceRig, rule: str, told: dict[int, dict[str, Any]], sizes: list[int]
) -> None:
    registration = await service.register(workers=WORKERS)
    assert await asking(service, registration, 0, rule=rule, told=told, samples=MOST, size_step=MOST) == sizes


NUMBERS = (0.0, 5e-324, 1e-9, 1e-3, 0.2, 400.0, 1e12, 1e300, 1e308)
COUNTS = (0, 1, 2, 5, 1 << 16, 1 << 31, MOST)


@pytest.mark.parametrize("seed", range(3))
def test_any_question_is_refused_or_all_samples_are_given_out(seed: int) -> None:
    """No worker gets zero, nor more than it holds."""
    rng, sizes = random.Random(seed), JobBatchSizes(size_rule)
    answered = 0
    for _ in range(100):
        likely = rng.random() < 0.7
        samples, rule, size_step = rng.choice(COUNTS), rng.choice(["analytic", "numeric"]), rng.choice(COUNTS)
        for _ in range(12):
            reports = [
                pb.SpeedReport(
                    rank=rank,
                    speed=rng.choice(NUMBERS[2:7] if likely else NUMBERS),
                    seconds=rng.choice(NUMBERS[2:7] if likely else NUMBERS),
                    limit=rng.choice(COUNTS) if rng.random() < 0.2 else 0,
                )
                for rank in range(3)
            ]
            request = pb.BalanceRequest(job=1, samples=samples, rule=rule, size_step=size_step, reports=reports)
            try:
                given = sizes.decide(request, 3, frozenset(range(3)))
            except PlanError:
                continue
            answered += 1
            assert (min(given) >= 1, sum(given)) == (True, samples)
            if rule == "numeric" or all(report.speed for report in reports):
                held = [report.limit or MOST for report in reports]
                assert all(size <= limit for size, limit in zip(given, held, strict=True))
    assert answered > 300


async def test_a_worker_without_a_report_gets_no_batch_of_none(service: ServiceRig) -> None:
    """Its share is not the others' as long as it takes part."""
    registration = await service.register(workers=WORKERS)
    assert await refusal(asking(service, registration, 0, told={1: None, 2: None})) == (
        grpc.StatusCode.ABORTED,
        f"job {registration.job}: no report of rank 1, rank 2",
    )
    assert await asking(service, registration, 0) == [40, 10, 30]


async def test_a_worker_that_is_lost_has_no_batch(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS, policy=pb.CONTINUE)
    hosts = [await service.joined(registration, rank) for rank in range(3)]
    for host in hosts:
        await host.say(resumed=pb.Resumed(generation=(await host.hear("worker_plan")).generation))
    await hosts[1].say(leave=pb.Leave(reason="out of memory"))
    await asyncio.gather(*(_goes_on(host) for host in (hosts[0], hosts[2])))
    # of 80 samples by speeds of 400 and 300: 45.7 and 34.3, whether its last report came with theirs or not
    for told in ({}, {1: None}):
        assert await asking(service, registration, 0, told=told) == [46, 0, 34]
    code, words = await refusal(asking(service, registration, 1))
    assert code is grpc.StatusCode.ABORTED
    assert words == f"job {registration.job} goes on without rank 1 (h2)"


async def _goes_on(host: Host) -> None:
    """Send the message of a worker without rounds after a new generation."""
    await host.say(held=pb.Held(generation=(await host.hear("pause")).generation))
    await host.say(resumed=pb.Resumed(generation=(await host.hear("resume")).worker_plan.generation))


async def test_a_stream_of_questions_is_answered_in_order(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS)
    questions, report = BatchSizeClient(service.service.address), np.array([[speed, 0.2, 0] for speed in SPEEDS])

    def ask(speed: float, limit: int = 0) -> BatchSizeRequest:
        report[0] = speed, 0.2, limit
        everyone, token = np.ones(3, np.bool_), registration.seats[0].token
        return questions.request(balance_request(registration.job, 80, "analytic", report, everyone, token=token))

    def played() -> None:
        asked = [ask(speed) for speed in (400.0, 600.0, 400.0)]
        assert [each.wait(ANSWER_S) for each in asked] == [[40, 10, 30], [48, 8, 24], [40, 10, 30]]
        report[:, 2] = 10
        refused = ask(400.0, limit=10)
        with pytest.raises(ControlRefused, match=r"80 samples for 3 workers .*30 at most"):
            refused.wait(ANSWER_S)
        report[:, 2] = 0
        assert ask(400.0).wait(ANSWER_S) == [40, 10, 30], "another stream is opened"

    with closing(questions):
        await asyncio.to_thread(played)
        waiting = questions.request(balance_request(99, 80, "analytic", report, np.ones(3, np.bool_), token="none"))
        with pytest.raises(ControlAbsent, match="99"):
            await asyncio.to_thread(waiting.wait, ANSWER_S)


async def test_unanswered_questions_fail_and_later_ones_find_another() -> None:
    report, everyone = np.array([[400.0, 0.2, 0]]), np.ones(1, np.bool_)
    async with rig(size_rule=size_rule) as first:
        registration = await first.register(workers=["h1"])
        question = balance_request(
            registration.job, 80, "analytic", report, everyone, token=registration.seats[0].token
        )
        address = first.service.address
        questions = BatchSizeClient(address)
        assert await asyncio.to_thread(questions.request(question).wait, ANSWER_S) == [80]
    with closing(questions):
        with raises(ControlAbsent, place=address):
            await asyncio.to_thread(questions.request(question).wait, ANSWER_S)
        async with rig(size_rule=size_rule, address=address) as second:
            registration = await second.register(workers=["h1"])
            question.job, question.token = registration.job, registration.seats[0].token
            for _ in range(100):
                try:
                    assert await asyncio.to_thread(questions.request(question).wait, ANSWER_S) == [80]
                except ControlAbsent:
                    await asyncio.sleep(0.1)
                else:
                    break
            else:
                pytest.fail("the second controller was never found")


def test_a_question_without_an_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller hangs; the next question is sent again."""
    monkeypatch.setattr(batch_size_client, "_ANSWER_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with closing(BatchSizeClient(address)) as questions:
            for _ in range(2):
                asked = questions.request(pb.BalanceRequest(job=1))
                assert asked.done()
                with pytest.raises(ControlAbsent, match=f"{address}: no answer after 0 s"):
                    asked.wait(0)


async def test_no_more_streams_of_questions_than_hosts_that_may_attend() -> None:
    async with rig(size_rule=size_rule, limits=Limits(streams=1)) as service:
        registration = await service.register(workers=["h1"])
        first = stream_of(service)()
        token = registration.seats[0].token
        await first.write(
            balance_request(registration.job, 8, "analytic", np.zeros((1, 3)), np.ones(1, np.bool_), token=token)
        )
        assert list((await first.read()).sizes) == [8]
        assert await refusal(asking(service, registration, 0)) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "1 workers ask for batch sizes, and no more than 1 may; end jobs",
        )
        first.cancel()
        while service.service._asking:
            await asyncio.sleep(0.01)
        assert await asking(service, registration, 0, samples=8) == [8]


async def test_a_job_that_has_ended_has_no_sizes(service: ServiceRig) -> None:
    registration = await service.register(workers=WORKERS)
    await service.end(registration.job, "out of time")
    code, words = await refusal(asking(service, registration, 0))
    assert (code, str(registration.job) in words) == (grpc.StatusCode.NOT_FOUND, True)


async def test_a_job_that_the_controller_has_just_ended_is_not_found(service: ServiceRig) -> None:
    """Before the service has looked after the job's seats."""
    registration = await service.register(workers=WORKERS)
    await service.controller.finish(registration.job)
    code, words = await refusal(asking(service, registration, 0))
    assert (code, str(registration.job) in words) == (grpc.StatusCode.NOT_FOUND, True)


IMPOSSIBLE_SIZES: list[tuple[Any, str, str]] = [
    ({"job": 9}, "NOT_FOUND", "9"),
    ({"token": "none"}, "PERMISSION_DENIED", "the token is none of its seats'"),
    (
        {"told": {0: {"speed": float("nan")}}},
        "INVALID_ARGUMENT",
        "speed nan of rank 0; it is in 1e-09…1e+12, or 0 where it is unknown",
    ),
    *(
        ({"told": {0: {name: value}}}, "INVALID_ARGUMENT", f"{name} {value:g} of rank 0; it is in 1e-09…1e+12")
        for name in ("speed", "seconds")
        for value in (-1.0, 5e-324, 1e-10, 2e12, 1e308, float("inf"))
    ),
    ({"reports": [pb.SpeedReport(rank=1)]}, "INVALID_ARGUMENT", "a report of rank 1; there are ranks 0…0"),
    ({"reports": [pb.SpeedReport()] * 2}, "INVALID_ARGUMENT", "two reports of rank 0; each has one"),
    ({"samples": 0}, "INVALID_ARGUMENT", "0 samples for 1 workers; each has one at least"),
    ({"rule": "fair"}, "INVALID_ARGUMENT", 'unknown rule "fair" for batch sizes; supported: analytic, numeric'),
    ({"rule": "r" * 100_000}, "INVALID_ARGUMENT", "r… ("),
]
"""Parts of a question, code of the refusal, and words of it."""


async def test_impossible_sizes_are_refused(service: ServiceRig) -> None:
    registration = await service.register(workers=["h1"])
    for said, code, words in IMPOSSIBLE_SIZES:
        found, text = await refusal(asking(service, registration, 0, **said))
        assert (found.name, words in text) == (code, True), (said, text)


async def test_a_server_has_no_batch_and_some_controllers_decide_none(service: ServiceRig) -> None:
    registration = await service.register(workers=["h1"], server="h2")
    code, words = await refusal(asking(service, registration, 1))
    assert (code, "server (h2) has no batch" in words) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    async with rig() as other:
        registration = await other.register(workers=["h1"])
        assert await refusal(asking(other, registration, 0)) == (
            grpc.StatusCode.UNIMPLEMENTED,
            "this controller decides no batch sizes",
        )
