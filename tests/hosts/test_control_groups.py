"""Groups that the control service places: real sockets, in a network namespace of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.hosts.groups_bench import GROUPS
from tests.topologies.test_mininet import IN_ITS_OWN_NETWORK

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
@pytest.mark.skipif(shutil.which("ip") is None, reason="the command ip is not on PATH")
def test_groups_of_a_job_of_the_control_service() -> None:
    done = subprocess.run(
        [*IN_ITS_OWN_NETWORK, "-m", "tests.hosts.groups_bench"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["failures"] == []
    assert said["jobs"] == 1  # the bench's own: the world and its groups ended when their workers left
    for rank, (gathered, mean) in enumerate(said["results"]):
        assert gathered == [[[member, i] for i, member in enumerate(ranks)] for ranks in GROUPS if rank in ranks]
        assert mean == [1]
