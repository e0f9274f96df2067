"""Jobs of a real control service that hosts join: real sockets, in a network namespace of their own."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest

from weir.tests.hosts.drivers.joined_rig import GROUPS, REFUSED, SCENARIOS
from weir.tests.own_network import play

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="the command ip is not on PATH"),
]


@pytest.fixture(scope="module")
def joined() -> dict[str, Any]:
    """Outcome of each scenario, played in one process one after the other."""
    said: dict[str, Any] = play("weir.tests.hosts.drivers.joined_rig", *SCENARIOS)
    assert {outcome["jobs"] for outcome in said.values()} == {0}
    return said


def test_groups_of_a_job(joined: dict[str, Any]) -> None:
    said = joined["groups"]
    assert said["failures"] == []
    for rank, (gathered, mean, _) in enumerate(said["results"]):
        assert gathered == [[[member, i] for i, member in enumerate(ranks)] for ranks in GROUPS if rank in ranks]
        assert mean == [1]


def test_groups_are_of_their_worlds_family(joined: dict[str, Any]) -> None:
    *_, family = joined["groups"]["results"][0]
    assert family == [["first", "ABORT"], *[["group", "ABORT"]] * len(GROUPS)]


def test_one_impossible_group_refuses_all(joined: dict[str, Any]) -> None:
    for error, jobs in joined["groups_that_cannot_be"]["results"]:
        assert "no groups [[0, 1], [0, 2]]: " in error
        assert 'no host "h9"' in error
        assert jobs == 1  # the world's own


def test_a_tensor_one_worker_refuses_fails_or_is_summed_without(joined: dict[str, Any]) -> None:
    said = joined["refused_tensor"]
    refusal = "tensor 'second': element 7 (index (7,)) is nan; only finite values can be summed"
    failed = f"rank 2 (h3) failed: InvalidTensor: {refusal}"
    ends = {
        "continue": [0, 11],
        "abort": f"{failed}, and the job's policy is to abort",
        "wait": f"{failed}; it cannot come back, for which the job's policy would wait",
    }
    assert said["results"].keys() == ends.keys()
    told = set()
    for policy, outcomes in said["results"].items():
        assert outcomes.pop(REFUSED) == ["InvalidTensor", refusal]
        if policy == "continue":
            assert outcomes == [ends[policy]] * 2
            continue
        for kind, text in outcomes:
            assert kind == "AllreduceAborted"
            assert text.endswith(f" was aborted: {ends[policy]}")
            told.add(text)
    assert sorted(said["failures"]) == sorted(told)  # the servers are told, too


def test_batch_sizes_are_asked_by_one_worker_and_its_successor(joined: dict[str, Any]) -> None:
    first, *others = joined["batch_sizes"]["results"]
    # the shares of 80 samples by speeds of 400, 100 and 300 samples per second, and of 100 and 300 alone
    assert first == [[40, 10, 30]] * 2
    assert others == [[[40, 10, 30], [40, 10, 30], [0, 20, 60], "ControlRefused"]] * 2


def test_the_lowest_participating_rank_reports_the_progress(joined: dict[str, Any]) -> None:
    assert joined["progress"]["results"] == [[1, "first", 0.5, 4096, True], [5, "second", 0.25, 4096, True]]
