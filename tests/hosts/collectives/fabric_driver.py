"""Drivers over the virtual fabric: workers whose packets go through the compiled switch program, in one thread."""

from __future__ import annotations

import asyncio

from weir.controller.congestion import CongestionOptions
from weir.controller.placement import Placement
from weir.controller.planning.plan import JobPlan, JobSpec
from weir.experiments.backends.agents import VirtualHost, VirtualWorker
from weir.experiments.backends.emulated import EmulatedFabric
from weir.experiments.backends.written_job import write_job
from weir.hosts import Reduced, WorkerCore
from weir.topologies.generators import leaf_spine
from weir.topologies.targets import BMV2, Target

_WORKERS = ("h1", "h2", "h3", "h4")
_LEAVES = ("s1", "s1", "s2", "s2")
_PLACEMENTS = {
    "three switches": Placement({"h1": "s1", "h2": "s1", "h3": "s2", "h4": "s2"}, {"s1": "s3", "s2": "s3"}, "s3"),
    "one leaf below another": Placement({"h1": "s1", "h2": "s1", "h3": "s2", "h4": "s2"}, {"s1": "s2"}, "s2"),
}
TREES = tuple(_PLACEMENTS)


async def _write_job(emulated: EmulatedFabric, tree: str) -> JobPlan:
    spec = JobSpec(1, _WORKERS, None, 16, 8)
    with emulated.serve() as server:
        async with emulated.sessions(server) as sessions:
            return await write_job(emulated.topology, sessions, spec, _PLACEMENTS[tree], CongestionOptions())


class FabricJob:
    """Four workers in two racks, summed by their leaves and a spine, over links that lose frames."""

    def __init__(self, *, loss: float, seed: int, tree: str = TREES[0], target: Target = BMV2) -> None:
        self._tree = tree
        self._topology = leaf_spine(2, 1, 2, loss=loss, target=target)
        emulated = EmulatedFabric(self._topology, seed=seed)
        self._fabric = emulated.fabric
        plan = asyncio.run(_write_job(emulated, tree))
        self._drivers = {
            name: FabricDriver(self, VirtualHost(emulated, name), WorkerCore(plan.workers[name])) for name in _WORKERS
        }
        self.drivers = list(self._drivers.values())

    @property
    def now_ns(self) -> int:
        return self._fabric.now_ns

    def links_of_tree(self) -> dict[tuple[str, str], set[int]]:
        """The links that the job's messages cross, as (lower node, upper node), with the ranks below each."""
        below = {(host, leaf): {rank} for rank, (host, leaf) in enumerate(zip(_WORKERS, _LEAVES, strict=True))}
        if self._tree == "three switches":
            return below | {("s1", "s3"): {0, 1}, ("s2", "s3"): {2, 3}}
        return below | {("s1", "s3"): {0, 1}, ("s3", "s2"): {0, 1}}

    def bytes_on(self, lower: str, upper: str) -> tuple[int, int]:
        """Bytes of frames that the upper node of a link has received from the lower one, and sent to it."""
        (link,) = [link for link in self._topology.links if {link.a.node, link.b.node} == {lower, upper}]
        counters = self._fabric.port_counters()[link.a if link.b.node == lower else link.b]
        return counters.rx_bytes, counters.tx_bytes

    def run_until(self, core: WorkerCore, handle: int, limit_ns: int) -> None:
        while not core.done(handle) and self._fabric.now_ns < limit_ns:
            for wake in self._fabric.run(limit_ns):
                self._drivers[wake.host].handle(wake)


class FabricDriver(VirtualWorker):
    """The driver of one worker: to wait is to run the fabric, so all workers make their calls first."""

    def __init__(self, job: FabricJob, host: VirtualHost, core: WorkerCore) -> None:
        super().__init__(host, core)
        self._job = job

    def wait(self, handle: int, timeout_s: float) -> Reduced:
        self._job.run_until(self.core, handle, self._job.now_ns + round(timeout_s * 1e9))
        return super().wait(handle, timeout_s)
