"""A worker's log of calls, and when it reports that it waits."""

from __future__ import annotations

from weir.hosts.collectives.call_log import CallLog, StallWatch
from weir.wire.control import CallRecord, Calls


def test_the_log_keeps_the_last_calls_and_counts_all() -> None:
    log = CallLog()
    assert log.last(None) == Calls(0, (), None)
    for number in range(70):
        log.note(CallRecord("barrier", str(number)))
    last = log.last(69)
    assert (last.first, last.made, last.awaited) == (6, 70, 69)
    assert last.get(5) is None
    assert last.get(6) == CallRecord("barrier", "6")
    assert last.get(69) == CallRecord("barrier", "69")
    assert last.get(70) is None


def test_a_worker_reports_after_each_time_without_progress() -> None:
    watch = StallWatch(10)
    looks = [(0, 4, 7), (9, 4, 7), (10, 4, 7), (19, 4, 7), (20, 4, 7)]
    assert [watch.stalled(*look) for look in looks] == [False, False, True, False, True]
    assert watch.reported


def test_a_complete_round_another_call_or_no_call_is_progress() -> None:
    watch = StallWatch(10)
    assert not watch.stalled(0, 4, 7)
    assert watch.stalled(10, 4, 7)
    assert not watch.stalled(20, 4, 8)
    assert not watch.reported
    assert not watch.stalled(30, 5, 8)
    assert not watch.stalled(45, None, 8)
    assert not watch.stalled(60, None, 8), "a worker that computes"
