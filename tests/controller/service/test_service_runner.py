"""The controller's driver on the wall clock: one thing after the other, and no time while the process does not run."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from weir.controller.controller import Controller
from weir.controller.errors import ControllerEnded, ControllerError, NotPrimary, SwitchUnreachable
from weir.controller.service.runner import Runner

S = 1_000_000_000


class Clock:
    """Clock that advances on request."""

    def __init__(self) -> None:
        self.now_ns = 7 * S

    def __call__(self) -> int:
        return self.now_ns


class Ticking:
    """A controller that notes what happens to it."""

    def __init__(self) -> None:
        self.deadline_ns = 0
        self.events: list[Any] = []
        self.failures: list[Exception] = []
        self.done = asyncio.Event()

    async def tick(self, now_ns: int) -> list[Any]:
        self.events.append("tick begins")
        await asyncio.sleep(0.01)
        self.events.append("tick ends")
        self.deadline_ns = 1 << 62
        if self.failures:
            self.deadline_ns = 0
            raise self.failures.pop(0)
        self.done.set()
        return [SimpleNamespace(host="h1")]


def runner_of(controller: Ticking, clock: Clock | None = None) -> tuple[Runner, list[str]]:
    told: list[str] = []
    driver = Runner(cast(Controller, controller), lambda message: told.append(message.host), clock=clock or Clock())
    return driver, told


async def test_nothing_happens_to_the_controller_while_it_ticks() -> None:
    controller = Ticking()
    runner, told = runner_of(controller)
    runner.post(lambda now_ns: controller.events.append("before"))
    task = asyncio.create_task(runner.run())
    while "tick begins" not in controller.events:
        await asyncio.sleep(0)

    async def slow(now_ns: int) -> int:
        controller.events.append("call begins")
        await asyncio.sleep(0.01)
        controller.events.append("call ends")
        return now_ns

    answer = asyncio.create_task(runner.call(slow))
    await asyncio.sleep(0)
    runner.post(lambda now_ns: controller.events.append("after"))
    assert await answer == 7 * S
    await controller.done.wait()
    assert controller.events == ["before", "tick begins", "tick ends", "call begins", "call ends", "after"]
    assert told == ["h1"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_errors_reach_who_asked_and_stop_nobody() -> None:
    controller = Ticking()
    controller.failures = [SwitchUnreachable("s1", "127.0.0.1:9559", "write", "it is away")]
    runner, _ = runner_of(controller)
    task = asyncio.create_task(runner.run())

    async def refuse(now_ns: int) -> None:
        raise ControllerError("no")

    with pytest.raises(ControllerError, match="no"):
        await runner.call(refuse)

    def fail(now_ns: int) -> None:
        raise ControllerError("a host that is none of the job")

    runner.post(fail)
    await asyncio.wait_for(controller.done.wait(), 60)  # the tick that failed was tried again
    controller.failures, controller.deadline_ns = [NotPrimary(("s1",))], 0
    runner.post(lambda now_ns: None)
    with pytest.raises(NotPrimary):
        await asyncio.wait_for(task, 60)
    with pytest.raises(ControllerEnded, match=r"controller has ended: .*taken over"):
        await asyncio.wait_for(runner.call(refuse), 60)


async def test_calls_to_an_ended_controller_do_not_wait() -> None:
    controller = Ticking()
    runner, _ = runner_of(controller)
    task = asyncio.create_task(runner.run())
    begun = asyncio.Event()

    async def endless(now_ns: int) -> None:
        begun.set()
        await asyncio.Event().wait()

    under_way = asyncio.create_task(runner.call(endless))
    await asyncio.wait_for(begun.wait(), 60)
    behind = asyncio.create_task(runner.call(endless))
    await asyncio.sleep(0)
    task.cancel()
    for answer in (under_way, behind, asyncio.create_task(runner.call(endless))):
        with pytest.raises(ControllerEnded, match=r"controller has ended: .*was stopped"):
            await asyncio.wait_for(answer, 60)
    with pytest.raises(asyncio.CancelledError):
        await task


def test_time_stands_still_while_the_process_does_not_run() -> None:
    clock = Clock()
    runner = Runner(cast(Controller, None), lambda message: None, clock=clock)
    begun = runner.now_ns()
    for _ in range(10):
        clock.now_ns += S // 20
        assert runner.now_ns() == clock.now_ns
    clock.now_ns += 3 * S  # stopped, or starved
    assert runner.now_ns() == begun + 11 * S // 20
    clock.now_ns += S // 20
    assert runner.now_ns() == begun + 12 * S // 20


def test_a_stalled_controller_is_logged_once_a_minute_at_most(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    runner, _ = runner_of(Ticking(), clock)
    for _ in range(200):
        clock.now_ns += S // 2
        runner.now_ns()
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "the controller did not run for 0.5 s; nobody is lost by that",
        "the controller did not run for 54.0 s; nobody is lost by that",
    ]
