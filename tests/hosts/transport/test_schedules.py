"""Random schedules of the transport: over any network behaviour, messages come once, whole and in order.

A schedule is its seed: `WEIR_SEED=… pytest tests/hosts/transport/test_schedules.py` plays that one alone.
`WEIR_SCHEDULES` is the number of schedules in the long run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

import pytest

from weir.tests.hosts.transport.schedule import Seen, play, play_restarts

QUICK: Final = 240
LONG: Final = int(os.environ.get("WEIR_SCHEDULES", "10000"))
_REPLAYED: Final = os.environ.get("WEIR_SEED")
FAULTS: Final = ("duplicate", "bad_check", "malformed", "unknown_job", "out_of_window", "stale_epoch")


def play_seeds(schedule: Callable[[int, Seen], None], seeds: range) -> Seen:
    """All of them. Raises AssertionError with the seeds that failed."""
    seen, failures = Seen(), []
    for seed in [int(_REPLAYED)] if _REPLAYED else seeds:
        try:
            schedule(seed, seen)
        except Exception as error:
            if _REPLAYED:
                raise
            failures.append(f"WEIR_SEED={seed}: {type(error).__name__}: {str(error)[:300]}")
            if len(failures) == 10:
                break
    sys.stdout.write(f"{dict(seen.counts)}\n")
    assert not failures, "\n".join(failures)
    return seen


def check_seen(seen: Seen, *kinds: str) -> None:
    """The schedules met these; nothing of it is left to chance, as seeds are fixed."""
    if not _REPLAYED:
        assert [kind for kind in kinds if not seen.counts[kind]] == []


def test_messages_come_once_and_whole_whatever_the_network_does() -> None:
    check_seen(play_seeds(play, range(QUICK)), *FAULTS[:3])


def test_a_restart_loses_no_delivered_message_and_doubles_none() -> None:
    check_seen(play_seeds(play_restarts, range(QUICK // 3)), "restarts", "told of a restart", "stale_epoch")


@pytest.mark.long(minutes=4)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("schedule", [play, play_restarts])
def test_many_schedules(schedule: Callable[[int, Seen], None]) -> None:
    play_seeds(schedule, range(1_000_000, 1_000_000 + LONG))
