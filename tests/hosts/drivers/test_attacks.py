"""Forged packets from members' own hosts and from others, by processes that know all of a job but its key."""

from __future__ import annotations

import os
import random
import shutil
import sys

import pytest

from weir.tests.hosts.drivers.attack_rig import KINDS, STEPS
from weir.tests.hosts.drivers.datagram_fuzz import ATTACKERS
from weir.tests.hosts.drivers.joined_rig import WORKERS
from weir.tests.own_network import play

GROWTH_BYTES = 48 << 20
"""Maximum growth of memory after the first fifth of all datagrams."""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="the command ip is not on PATH"),
]


def test_forgeries_change_no_sum_and_stop_no_job() -> None:
    said = play("weir.tests.hosts.drivers.attack_rig")
    assert said["failures"] == []
    assert said["jobs"] == 0
    first = said["results"][0]["sums"]
    assert len(first) > STEPS
    for worker in said["results"]:
        assert worker["sums"] == first == [[111.0 + len(WORKERS) * step] for step in range(len(first))]
        assert worker["generation"] == 1  # nothing had to be repaired, either
        assert len(worker["drops"]) == KINDS
        assert min(worker["drops"].values()) > 0, worker["drops"]


@pytest.mark.long(minutes=5)
def test_random_datagrams_change_no_sum_and_take_no_memory() -> None:
    seed = int(os.environ.get("WEIR_SEED") or random.randrange(1 << 32))
    sys.stdout.write(f"WEIR_SEED={seed}\n")
    said = play("weir.tests.hosts.drivers.datagram_fuzz", "200000", str(seed), timeout_s=3_000)
    assert said["attackers"] == [0] * len(ATTACKERS)
    assert (said["jobs"], said["failures"]) == (0, [])
    assert said["growth"] < GROWTH_BYTES
    for worker in said["workers"]:
        assert (worker["wrong"], worker["generation"]) == (0, 1)
        assert worker["foreign_ports"] > 0
        for reason in (
            "malformed",
            "bad_checksum",
            "unknown_job",
            "stale_generation",
            "foreign",
            "out_of_window",
            "unknown_round",
        ):
            assert worker["counters"][reason] > 0, reason
