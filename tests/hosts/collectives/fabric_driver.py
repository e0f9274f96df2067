"""Drivers over the virtual fabric: workers whose packets go through the compiled switch program, in one thread."""

from __future__ import annotations

import asyncio

from weir.bench.fabric import write_job
from weir.controller.placement import Placement
from weir.controller.planning.plan import JobSpec, Marking
from weir.emulator.fabric import Fabric
from weir.emulator.p4runtime import P4RuntimeServer
from weir.emulator.switch import Switch
from weir.experiments.backends.agents import VirtualWorker
from weir.hosts import Reduced, WorkerCore
from weir.p4src import FABRIC_JSON
from weir.topologies.generators import leaf_spine
from weir.topologies.model import Host, Topology

_WORKERS = ("h1", "h2", "h3", "h4")
_PLACEMENT = Placement({"h1": "s1", "h2": "s1", "h3": "s2", "h4": "s2"}, {"s1": "s3", "s2": "s3"}, "s3")


class FabricJob:
    """Four workers in two racks, summed by their leaves and a spine, over links that lose frames."""

    def __init__(self, *, loss: float, seed: int) -> None:
        topology = leaf_spine(2, 1, 2, loss=loss)
        self._fabric = Fabric(seed=seed)
        switches = {node.name: Switch(node.device_id) for node in topology.switches}
        for name, switch in switches.items():
            switch.load(FABRIC_JSON.read_bytes())
            self._fabric.add_switch(name, switch)
        for host in topology.hosts:
            self._fabric.add_host(host.name)
        for link in topology.links:
            ends = ((link.a.node, link.a.port), (link.b.node, link.b.port))
            self._fabric.add_link(*ends, rate_bps=link.rate_bps, delay_ns=link.delay_ns, loss=link.loss)
        rpc = P4RuntimeServer(switches.values())
        rpc.start()
        try:
            spec = JobSpec(1, _WORKERS, None, 16, 8)
            addresses = dict.fromkeys(switches, rpc.address)
            plan = asyncio.run(write_job(topology, addresses, spec, _PLACEMENT, Marking()))
        finally:
            rpc.stop()
        self._drivers = {
            name: FabricDriver(self, self._fabric, topology, topology.host(name), WorkerCore(plan.workers[name]))
            for name in _WORKERS
        }
        self.drivers = list(self._drivers.values())

    @property
    def now_ns(self) -> int:
        return self._fabric.now_ns

    def run_until(self, core: WorkerCore, handle: int, limit_ns: int) -> None:
        while not core.done(handle) and self._fabric.now_ns < limit_ns:
            for wake in self._fabric.run(limit_ns):
                self._drivers[wake.host].handle(wake)


class FabricDriver(VirtualWorker):
    """The driver of one worker: to wait is to run the fabric, so all workers make their calls first."""

    def __init__(self, job: FabricJob, fabric: Fabric, topology: Topology, host: Host, core: WorkerCore) -> None:
        super().__init__(fabric, topology, host, core)
        self._job = job

    def wait(self, handle: int, timeout_s: float) -> Reduced:
        self._job.run_until(self.core, handle, self._job.now_ns + round(timeout_s * 1e9))
        return super().wait(handle, timeout_s)
