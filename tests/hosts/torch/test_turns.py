"""Two jobs on the same hosts in turns, as processes over an emulated fabric."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from weir.tests.hosts.torch.rig import Ranks, running_fabric

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        find_spec("torch") is None, reason="PyTorch is not installed (pip install 'weir-fabric[torch]')"
    ),
]

JOBS = 2
RANKS = 2
STEPS = 10


@pytest.fixture(scope="module")
def forkers() -> Iterator[list[Ranks]]:
    with running_fabric() as told:
        made = [Ranks(told, "weir.tests.hosts.torch.turn_scenarios") for _ in range(JOBS)]
        try:
            yield made
        finally:
            for each in made:
                each.close()


def played(forkers: list[Ranks], ways: list[str], **environment: str) -> list[list[Any]]:
    """Results of ranks by job; jobs with a way run at the same time."""
    found: list[list[Any]] = [[] for _ in forkers]
    given = {"COMPUTE_S": "0.02", "EXPOSED_S": "0.02", "STEPS": str(STEPS), **environment}

    def play(at: int) -> None:
        found[at] = forkers[at].play("crossing", RANKS, WAY=ways[at], SEED=str(at), **given)

    threads = [threading.Thread(target=play, args=(index,)) for index in range(len(forkers)) if ways[index]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_jobs_in_turns_have_the_losses_that_they_have_alone(forkers: list[Ranks]) -> None:
    crossed = played(forkers, ["block", "hooks"])
    alone = [played(forkers, ["none", ""])[0], played(forkers, ["", "none"])[1]]
    for together, by_itself in zip(crossed, alone, strict=True):
        for one, other in zip(together, by_itself, strict=True):
            assert (one["losses"], one["digest"]) == (other["losses"], other["digest"])
            assert not one["held"], "a turn was held in a sum"


def test_a_job_killed_in_its_turn_stops_nobody(forkers: list[Ranks]) -> None:
    killed, other = played(forkers, ["block", "hooks"], DIES_AT="5")
    assert killed[0] == {"exit": -9}
    assert "error" in killed[1]
    assert [len(rank["losses"]) for rank in other] == [STEPS] * RANKS
