"""`weir controller --congestion FILE`: the declared traffic, the resulting bounds, and that queues keep them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import grpc
import numpy as np
import pytest

from weir.controller.congestion import WALL_CLOCK_LEASE_NS, CongestionOptions, Marks, Uncontrolled, Windowed
from weir.controller.planning.plan import round_bytes
from weir.experiments.backends.agents import VirtualHost, VirtualWorker
from weir.experiments.backends.emulated import EmulatedFabric
from weir.experiments.config.congestion import ControllerCongestion
from weir.experiments.errors import ExperimentError
from weir.hosts import ControlClient, WorkerCore
from weir.hosts.numerics.tensors import Tensor
from weir.tests.cli.test_two_controllers import SERVED, TOPOLOGY, setting
from weir.tests.support.control_rig import Host
from weir.topologies import leaf_spine, load_topology
from weir.wire import control_pb2 as pb
from weir.wire.aggregation import LANES
from weir.wire.control import WorkerPlan
from weir.wire.control_messages import read_to_host

WORKERS = ["h1", "h2"]
FRAME_BYTES = 1_042
OTHERS_BPS = 300_000_000
FILE = f"""
bound: 24
lease: 70ms
background:
  - {{source: h3, destination: h2, rate: {OTHERS_BPS}bit, packet_bytes: {FRAME_BYTES}}}
"""
BOUND = 24


async def seated(address: str) -> list[WorkerPlan]:
    """The plans of a job that asks for a larger window than its queues have room for."""

    def registered() -> pb.Registration:
        with ControlClient(address) as client:
            return client.register(WORKERS, window=128, slots=256)

    async with grpc.aio.insecure_channel(address) as channel:
        job = await asyncio.to_thread(registered)
        hosts = [Host(channel) for _ in job.seats]
        for host, seat in zip(hosts, job.seats, strict=True):
            await host.say(join=pb.Join(job=job.job, token=seat.token))
        plans = [read_to_host(pb.ToHost(worker_plan=await host.hear("worker_plan"))) for host in hosts]
    return [plan for plan in plans if isinstance(plan, WorkerPlan)]


def longest_queue(emulated: EmulatedFabric, plans: Sequence[WorkerPlan]) -> int:
    """Maximum depth of any queue over all enqueues, in packets, while workers with these plans sum next to the declared
    traffic.
    """
    rounds = 500
    emulated.add_flow("h3", "h2", payload_bytes=1_000, rate_bps=OTHERS_BPS)
    workers = {}
    for name, plan in zip(WORKERS, plans, strict=True):
        workers[name] = VirtualWorker(VirtualHost(emulated, name), WorkerCore(plan))
        ones = np.ones(rounds * LANES, np.float32)
        workers[name].submit(Tensor(ones, workers=len(WORKERS), lanes=LANES, name="gradient"))
    fabric = emulated.fabric
    while not all(worker.core.idle for worker in workers.values()):
        assert fabric.now_ns < 1_000_000_000, "it sums"
        for wake in fabric.run(fabric.now_ns + 1_000_000):
            workers[wake.host].handle(wake)
    assert sum(worker.core.counters.retransmitted for worker in workers.values()) == 0
    return max(emulated.pop_longest_queues().values())


@pytest.mark.parametrize("declared", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_a_file_sets_bounds_and_jobs_keep_them(declared: bool, tmp_path: Path) -> None:
    (tmp_path / "congestion.yaml").write_text(FILE)
    (tmp_path / "fabric.yaml").write_text(TOPOLOGY)
    quiet = ("--probe", "1000s", "--lease", "1000s", "--solve", "0ms")
    words = ("--congestion", str(tmp_path / "congestion.yaml"), *quiet) if declared else quiet
    topology = load_topology(tmp_path / "fabric.yaml")
    emulated = EmulatedFabric(topology, sinks={"h3"})
    with emulated.serve() as server:
        async with setting(server, tmp_path) as of:
            controller = await of.start(10, *words)
            await controller.says(SERVED)
            plans = await seated(of.address)
            await controller.says("N = 1 streams")
            held = longest_queue(emulated, plans)
    line = next(line for line in controller.said.splitlines() if "N = 1 streams" in line)
    found = re.search(r": at most (\d+) packets = .*others u = (\d\.\d\d)", line)
    assert found is not None, line
    promised, share = int(found[1]), found[2]
    (lease_ns,) = {plan.pacing.lease_ns for plan in plans}
    if declared:
        assert share == f"{OTHERS_BPS / 1e9 * round_bytes(topology) / FRAME_BYTES:.2f}", "packets, not bytes"
        assert lease_ns == 70_000_000
        assert held <= promised <= BOUND
    else:
        assert (promised, share, lease_ns) == (64, "0.00", WALL_CLOCK_LEASE_NS)
        assert held > BOUND, "the file is what bounds the queue"


def test_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "congestion.yaml"
    file.write_text(
        """
        bound: 96
        lease: 50ms
        law: explicit
        marks: virtual
        virtual_share: 0.9
        background:
          - {source: h1, destination: h3, rate: 700Mbit, packet_bytes: 1514, burst: 20}
          - {source: h2, destination: h3, kind: yielding, window: 16, packet_bytes: 1514}
        """
    )
    assert ControllerCongestion.load(file, leaf_spine(1, 1, 3)) == CongestionOptions(
        96,
        (Uncontrolled("h1", "h3", 700_000_000, 1514, 20),),
        50_000_000,
        marks=Marks.VIRTUAL,
        virtual_share=0.9,
        windowed=(Windowed("h2", "h3", 16, 1514),),
    )


def test_omitted_keys_have_the_defaults_of_no_file(tmp_path: Path) -> None:
    (tmp_path / "congestion.yaml").write_text("marks: depth")
    options = ControllerCongestion.load(tmp_path / "congestion.yaml", leaf_spine(1, 1, 3))
    assert options == CongestionOptions(lease_ns=WALL_CLOCK_LEASE_NS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("100000000000000000000: 1", "line 1: key 100000000000000000000 is not text; write it in quotes"),
        ("2.5: 1", "line 1: key 2.5 is not text; write it in quotes"),
        ("5: 1", "line 1: key 5 is not text; write it in quotes"),
        ("background: [{source: h1, 0.5: h2}]", "line 1: background.0: key 0.5 is not text; write it in quotes"),
        ("bound: 0", "line 1: bound: 0 is not right; write 1 or more"),
        ("bound: 524288", "line 1: bound: 524288 is not right; write 524287 or less"),
        ("lease: 0ms", 'line 1: lease: "0ms" is not right; write more than 0'),
        ("law: dctcp", "line 1: law dctcp is available in virtual time only"),
        ("background:\n- {source: h9, destination: h1, rate: 1Mbit, packet_bytes: 99}", "line 2: background.0.source"),
        ("background: [{source: h1, destination: h1, rate: 1Mbit, packet_bytes: 99}]", "h1 sends to itself; name two"),
        ("background: [{source: h1, destination: h2, rate: 1Mbit}]", '"packet_bytes" is missing'),
        ("background: [{source: h1, destination: h2, kind: yielding, packet_bytes: 99}]", '"window" is missing'),
    ],
)
def test_declarations_without_a_possible_bound_are_refused(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "congestion.yaml").write_text(text)
    with pytest.raises(ExperimentError) as caught:
        ControllerCongestion.load(tmp_path / "congestion.yaml", leaf_spine(1, 1, 3))
    assert str(caught.value).startswith(f"{tmp_path / 'congestion.yaml'}: ")
    assert why in str(caught.value)
