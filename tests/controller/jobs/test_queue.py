"""The queue's order, its choice of hosts, and the reasons to wait."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from weir.controller.errors import PlanError
from weir.controller.jobs.queue import AGE_NS, FreeCapacity, JobQueue, Needs, QueueEntry, Wanted, check_needs
from weir.controller.planning.plan import HIGHEST
from weir.tests.support.errors import raises
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Topology

GIB = 1 << 30


def fabric(leaves: int = 3, hosts_per_leaf: int = 3, accelerators: int = 1, memory_bytes: int = 0) -> Topology:
    plain = leaf_spine(leaves, 1, hosts_per_leaf)
    hosts = (replace(host, accelerators=accelerators, memory_bytes=memory_bytes) for host in plain.hosts)
    return replace(plain, hosts=tuple(hosts))


def rack(topology: Topology, host: str) -> str:
    return topology.neighbours(host)[0].node


def entry(job: int, since_ns: int, priority: int = 0) -> QueueEntry[None]:
    return QueueEntry(job, Wanted(2, Needs()), priority, since_ns, None)


def test_priority_goes_first_and_then_age() -> None:
    queue = JobQueue([entry(1, 30), entry(2, 20, priority=1), entry(3, 10), entry(4, 25, priority=1)])
    assert [each.job for each in queue.ordered(40)] == [2, 4, 3, 1]


def test_a_job_that_waits_long_enough_is_before_every_later_one() -> None:
    old = entry(1, 0)
    for age in range(1, HIGHEST + 1):
        now_ns = age * AGE_NS
        assert JobQueue([entry(2, now_ns, priority=age), old]).ordered(now_ns)[0] is old
        assert JobQueue([entry(2, now_ns - 1, priority=age), old]).ordered(now_ns - 1)[0] is not old
    assert JobQueue([entry(2, 0, priority=HIGHEST), old]).ordered(9 * HIGHEST * AGE_NS)[0] is not old


@pytest.mark.parametrize("seed", range(30))
def test_hosts_have_room_and_are_in_as_few_racks_as_possible(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = fabric(accelerators=2)
    names = [host.name for host in topology.hosts]
    taken = [([str(rng.choice(names))], Needs(int(rng.integers(1, 3)))) for _ in range(int(rng.integers(0, 5)))]
    used = {name: sum(needs.accelerators for hosts, needs in taken if name in hosts) for name in names}
    needs, count = Needs(int(rng.integers(1, 3))), int(rng.integers(1, 5))
    room = FreeCapacity(topology, taken)
    free = [name for name in names if 2 - used[name] >= needs.accelerators]
    chosen = room.choose(Wanted(count, needs))
    assert room.hosts(Wanted(count, needs)) == free
    if len(free) < count:
        assert chosen is None
        return
    assert chosen is not None
    assert len(set(chosen)) == count
    assert set(chosen) <= set(free)
    fewest = min(len({rack(topology, host) for host in some}) for some in combinations(free, count))
    assert len({rack(topology, host) for host in chosen}) == fewest


def test_memory_is_subtracted_and_unknown_memory_is_none() -> None:
    needs = Needs(0, 6 * GIB)
    topology = fabric(1, 2, memory_bytes=10 * GIB)
    assert FreeCapacity(topology, [(["h1"], needs)]).hosts(Wanted(1, needs)) == ["h2"]
    assert FreeCapacity(fabric(1, 2)).hosts(Wanted(1, needs)) == []


def test_a_jobs_server_is_none_of_its_workers() -> None:
    assert FreeCapacity(fabric(1, 3)).choose(Wanted(2, Needs(), others=("h2",))) == ["h1", "h3"]


def test_a_job_that_no_idle_fabric_holds_is_an_error() -> None:
    topology = fabric(1, 3, accelerators=2)
    assert check_needs(topology, 7, Wanted(3, Needs(2))) == ["h1", "h2", "h3"]
    with raises(PlanError, place="job 7", value=4):
        check_needs(topology, 7, Wanted(4, Needs()))
    with raises(PlanError, place="job 7", value=1):
        check_needs(topology, 7, Wanted(1, Needs(3)))


def test_the_reason_to_wait_has_what_is_needed_and_what_is_free() -> None:
    wanted = Wanted(2, Needs(1, GIB))
    room = FreeCapacity(fabric(1, 3, memory_bytes=GIB), [(["h1", "h2"], Needs(1))])
    assert room.reason_to_wait(wanted) == "2 hosts with 1 accelerator and 1GiB of memory are needed, 1 are free"


def test_named_hosts_need_room_of_their_own() -> None:
    topology = fabric(1, 3, accelerators=2, memory_bytes=4 * GIB)
    room = FreeCapacity(topology, [(["h1"], Needs(1, GIB))])
    named = Wanted(2, Needs(2, 3 * GIB), ("h2", "h1"))
    assert FreeCapacity(topology).choose(named) == ["h2", "h1"]
    assert room.choose(named) is None
    assert room.reason_to_wait(named) == (
        "h1: 2 accelerators and 3GiB of memory needed, 1 accelerator and 3GiB of memory free"
    )
    with raises(PlanError, place="job 7", value=("h2", "h1")):
        check_needs(topology, 7, Wanted(2, Needs(2, 5 * GIB), ("h2", "h1")))
    with raises(PlanError, place="job 7", value=("h1",)):
        check_needs(topology, 7, Wanted(1, Needs(), ("h1",), ("h1",)))


def test_chosen_hosts_reach_each_other_and_the_server() -> None:
    topology = fabric(3, 2)
    parts = [["h1", "h2", "h3"], ["h5", "h6"]]
    room = FreeCapacity(topology, [(["h2"], Needs())], parts)
    assert room.choose(Wanted(2, Needs())) == ["h1", "h3"]
    assert room.choose(Wanted(3, Needs())) is None
    assert room.choose(Wanted(1, Needs(), others=("h6",))) == ["h5"]
    assert room.choose(Wanted(1, Needs(), others=("h4",))) is None
    assert room.choose(Wanted(2, Needs(), ("h1", "h5"))) is None
    assert room.reason_to_wait(Wanted(4, Needs(), others=("h4",))) == (
        "h4 cannot be reached; 4 hosts with 1 accelerator are needed, 4 are free"
    )
    assert room.reason_to_wait(Wanted(2, Needs(), ("h1", "h5"))) == "its hosts do not reach each other"
    assert room.reason_to_wait(Wanted(5, Needs())) == (
        "5 hosts with 1 accelerator are needed, 5 are free; 1 of these cannot be reached"
    )
