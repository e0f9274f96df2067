"""Ranks' calls compared through a store: who is waited for, and who differs."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402 (PyTorch may be missing)

from weir.hosts.torch.call_log import GroupCallLog  # noqa: E402

WHAT = "all_reduce SUM of 5000 torch.float32 through the switches"


class Waits:
    """The work object of a call without a result."""

    def is_completed(self) -> bool:
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("weir.hosts.torch.call_log.time.monotonic", lambda: now[0])
    return now


def logs_of(ranks: int) -> list[GroupCallLog]:
    store = dist.HashStore()
    return [GroupCallLog(store, rank, ranks, timedelta(seconds=60), f"h{rank + 1}") for rank in range(ranks)]


def look(logs: list[GroupCallLog], clock: list[float], *times_s: float) -> list[Any]:
    found: list[Any] = []
    for now in times_s:
        clock[0] = now
        found = [log.poll() for log in logs]
    return found


def test_a_rank_missing_from_a_call_is_named_once_after_10_s(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    logs, works = logs_of(4), [Waits() for _ in range(4)]
    for rank in (0, 2, 3):
        logs[rank].note("switches", WHAT, works[rank])
    text = f"waiting for rank 1 (h2): it is not in call 1 of the group, {WHAT}; ranks 0, 2, 3 are"
    look(logs, clock, 6, 9)
    assert [log.stall for log in logs] == [""] * 4
    with caplog.at_level(logging.WARNING):
        look(logs, clock, 11, 12, 13)
    assert [log.stall for log in logs] == [text, "", text, text]
    assert caplog.messages == [text]
    logs[1].note("switches", WHAT, works[1])
    look(logs, clock, 20, 21)
    assert [log.stall for log in logs] == [""] * 4, "it came late"


def test_ranks_are_grouped_by_the_calls_that_differ(clock: list[float]) -> None:
    logs, works = logs_of(4), [Waits() for _ in range(4)]
    for rank, log in enumerate(logs):
        log.note(f"kind {rank == 2}", "broadcast of 7 torch.int64 over Gloo" if rank == 2 else WHAT, works[rank])
    found = look(logs, clock, 6, 7, 8, 9, 10)
    text = "the ranks' calls differ in call 1 of the group: rank 2 (h3): broadcast of 7 torch.int64 over Gloo; "
    assert {str(each) for each in found} == {f"{text}ranks 0, 1, 3: {WHAT}"}


def test_a_call_that_was_refused_at_a_rank_is_named_as_such(clock: list[float]) -> None:
    """Rank 1 goes on with the next call, of the same kind, while the others wait in the refused one."""
    logs, works = logs_of(3), [Waits() for _ in range(4)]
    for log, work in zip(logs, works, strict=False):
        log.note("gloo", "allreduce of 9", work)
    logs[1].refuse(works[1])
    logs[1].note("gloo", "allreduce of 9", works[3])
    found = look(logs, clock, 6, 7, 8, 9, 10)
    text = "the ranks' calls differ in call 1 of the group: rank 1 (h2): allreduce of 9, which was refused; "
    assert [str(found[0]), str(found[2])] == [f"{text}ranks 0, 2: allreduce of 9"] * 2


def test_a_call_behind_one_that_was_refused_is_another_call(clock: list[float]) -> None:
    logs, works = logs_of(2), [Waits() for _ in range(2)]
    logs[1].refused = 1
    for log, work in zip(logs, works, strict=True):
        log.note("gloo", "allreduce of 9", work)
    found = look(logs, clock, 6, 7, 8, 9, 10)
    text = "rank 0 (h1): allreduce of 9; rank 1 (h2): allreduce of 9, refused calls before: 1"
    assert {str(each) for each in found} == {f"the ranks' calls differ in call 1 of the group: {text}"}
