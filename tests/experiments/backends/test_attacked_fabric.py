"""Forged messages and floods through real switches, from hosts of namespaces of their own (docs/threat-model.md)."""

from __future__ import annotations

import pytest

from weir.tests.experiments.backends.attacked_fabric import STEPS, TENANT, WORKERS
from weir.tests.own_network import play
from weir.topologies.mininet.fabric import obstacle

pytestmark = [
    pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}"),
    pytest.mark.long,  # a dozen processes beside each other
    pytest.mark.timeout(500),
]


def test_forgeries_change_no_sum_and_stop_no_job() -> None:
    said = play("weir.tests.experiments.backends.attacked_fabric", timeout_s=400)
    first = said["steps"][WORKERS[0]]
    assert len(first) > STEPS
    for host in WORKERS:
        assert said["steps"][host] == first
    assert first == [[step, [111.0 + len(WORKERS) * step]] for step in range(len(first))]
    alone = said["steps"][TENANT]
    assert alone == [[step, [1.0 + step]] for step in range(len(alone))]

    # attackers outside: not even a round had to be summed again, and every defence was needed
    assert set(said["generations"].values()) == {1}
    for reason in ("foreign_source", "foreign_type", "foreign_port"):
        assert said["switches"]["s1"][reason] > 0, said["switches"]
    assert said["switches"]["s2"]["foreign_source"] > 0
    assert said["hosts"][WORKERS[0]]["foreign_ports"] > 0, said["hosts"]
    # root on a worker's host is trusted with its part: its forgeries cost a generation, and no sum
    assert said["last generation"] > 1
