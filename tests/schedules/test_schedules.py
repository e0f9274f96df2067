"""Random schedules on the compiled switch program: after any events, every sum is exact and nothing is left behind.

A schedule is its seed: `WEIR_SEED=… pytest tests/schedules/test_schedules.py` plays that one alone, and prints it.
`WEIR_SCHEDULES` is the number of schedules in the long run.
"""

from __future__ import annotations

import logging
import os
import sys
import time

import numpy as np
import pytest

from weir.tests.schedules.mutants import MUTANTS, Mutant, mutated
from weir.tests.schedules.play import Seen, play
from weir.tests.schedules.schedule import Schedule

QUICK = 10
BLOCK = 40
MORE = 120
MAX_FOR_MUTANTS = 240
LONG = int(os.environ.get("WEIR_SCHEDULES", "2000"))
QUICK_MUTANTS = {
    "a host may send what one of its jobs sends",
    "a round begins with the children of the former",
    "no bitmap test in the switch",
}
"""One of the hosts, and of the switch two that few seeds find."""
_REPLAYED = os.environ.get("WEIR_SEED")


async def play_seeds(seeds: range) -> Seen:
    """Play all of them, regardless of failures; return their events. Raises AssertionError with every seed that
    failed.
    """
    seen, failures = Seen(), []
    for seed in [int(_REPLAYED)] if _REPLAYED else seeds:
        schedule = Schedule.draw(seed)
        if _REPLAYED:
            sys.stdout.write(f"{schedule}\n")
        try:
            seen += await play(schedule)
        except Exception as error:
            if _REPLAYED:
                raise
            failures.append(f"WEIR_SEED={seed}: {type(error).__name__}: {str(error)[:400]}")
            if len(failures) == 10:
                break
    sys.stdout.write(f"{seen}\n")
    assert not failures, "\n".join(failures)
    return seen


@pytest.mark.parametrize(
    "seeds",
    [
        range(QUICK),
        pytest.param(range(QUICK, BLOCK), marks=pytest.mark.long),
        *(pytest.param(range(first, first + BLOCK), marks=pytest.mark.long) for first in range(BLOCK, MORE, BLOCK)),
    ],
    ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}",
)
async def test_every_sum_is_exact_whatever_happens(seeds: range) -> None:
    await play_seeds(seeds)


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=mutant.name, marks=() if mutant.name in QUICK_MUTANTS else pytest.mark.long)
        for mutant in MUTANTS
    ],
)
async def test_a_broken_rule_is_found(mutant: Mutant) -> None:
    found = ""
    with mutated(mutant), np.errstate(all="ignore"):
        for seed in range(MAX_FOR_MUTANTS):
            schedule = Schedule.draw(seed)
            if not mutant.shows(schedule):
                continue
            try:
                await play(schedule)
            except Exception as error:  # noqa: BLE001 (a broken rule may break whatever relies on it)
                found = f"{mutant.name}: WEIR_SEED={seed}: {str(error)[-300:]}"
                break
    assert found, f"{mutant.name}: none of {MAX_FOR_MUTANTS} schedules finds it"
    sys.stdout.write(f"{found}\n")


@pytest.mark.long(minutes=12)
@pytest.mark.timeout(4 * 3600)  # 10,000 are an hour of one core
async def test_many_schedules(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "weir")  # pytest keeps what is logged: gigabytes, of so many
    started = time.monotonic()
    seen = await play_seeds(range(1_000_000, 1_000_000 + LONG))
    sys.stdout.write(f"{time.monotonic() - started:.0f} s\n")
    if not _REPLAYED:
        for kind in ("MoveTo", "Kill", "Restart", "LinkDown", "ended", "forgotten", "dirty", "beside", "paired flips"):
            assert seen.happenings[kind] > LONG / 100, f"{kind} hardly ever happened"
        for reason in ("bad_check", "bad_checksum", "duplicate", "stale_generation", "paused", "late", "malformed"):
            assert seen.hosts[reason], f"no host ever dropped anything as {reason}"
        for reason in ("duplicate", "late", "unknown_job", "not_parent", "bad_checksum", "no_route"):
            assert seen.switches[reason], f"no switch ever dropped anything as {reason}"
