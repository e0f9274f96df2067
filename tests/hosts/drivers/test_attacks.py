"""Forged packets from members' own hosts and from others, by processes that know all of a job but its key."""

from __future__ import annotations

import os
import shutil

import pytest

from weir.tests.hosts.drivers.attack_rig import KINDS, STEPS
from weir.tests.hosts.drivers.joined_rig import WORKERS
from weir.tests.own_network import play

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
