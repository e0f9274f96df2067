"""Jobs that hosts join at a real control service, and sum over sockets: all in one process.

The hosts' addresses are on the loopback interface of a network namespace of its own, and the switches keep what they
are written: jobs are summed by their server. `python -m weir.tests.hosts.drivers.joined_rig SCENARIO …` prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import numpy as np

from weir.experiments.backends.batch_sizes import size_rule
from weir.hosts import ControlClient, ControlRefused, HostError, Membership, UdpHost, join
from weir.hosts.collectives.groups import new_groups
from weir.hosts.drivers.batch_sizes import BatchSizes
from weir.hosts.drivers.client import serve
from weir.hosts.drivers.control_groups import ControlGroups
from weir.tests.support.control_rig import ANSWER_S, TOPOLOGY, rig
from weir.wire import control_pb2 as pb

WORKERS: Final = ("h1", "h2", "h3")
SERVER: Final = "h4"
GROUPS: Final = [[0, 1], [2, 1], [0, 2], [2, 0, 1], [1]]
SPEEDS: Final = (400.0, 100.0, 300.0)
REFUSED: Final = 2
"""The rank whose tensor has a NaN."""


class Service:
    """The control service at an address, and the host of all its jobs' servers."""

    def __init__(self, control: str) -> None:
        self.control = control
        self.failures: list[str] = []
        """Errors of servers."""
        self._server = UdpHost(int(TOPOLOGY.host(SERVER).address))
        self._serving: list[threading.Thread] = []

    def register(self, **fields: Any) -> tuple[int, list[str]]:
        """A job of all workers, whose server runs: its number, and the workers' tokens by rank."""
        with ControlClient(self.control) as client:
            registration = client.register(WORKERS, SERVER, **fields)
        *workers, server = registration.seats
        self.serve(registration.job, server.token)
        return registration.job, [seat.token for seat in workers]

    def serve(self, job: int, token: str) -> None:
        def run() -> None:
            try:
                serve(self.control, job, token, host=self._server)
            except HostError as error:
                self.failures.append(str(error))

        thread = threading.Thread(target=run, daemon=True)
        self._serving.append(thread)
        thread.start()

    def end(self) -> int:
        """Wait until no server runs; how many jobs there are."""
        for thread in self._serving:
            thread.join()
        self._server.close()
        with ControlClient(self.control) as client:
            return len(client.jobs())


def at_each(work: Callable[[int], Any]) -> list[Any]:
    """Run `work` for each rank concurrently; return its results."""
    with ThreadPoolExecutor(len(WORKERS)) as pool:
        return list(pool.map(work, range(len(WORKERS))))


def groups(service: Service) -> Any:
    """Groups of a job, whose members gather in them, and then all sum.

    Returns each worker's results, and by rank 0 each job's place in the family and its policy.
    """
    job, tokens = service.register(policy="abort")

    def work(rank: int) -> Any:
        with (
            Membership(service.control, job, tokens[rank]) as world,
            ControlGroups(
                service.control, world, WORKERS, server=SERVER, start_server=service.serve, slots=8
            ) as registrar,
        ):
            members = [group for group in new_groups(world.communicator, GROUPS, registrar) if group is not None]
            handles = [group.all_gather_async(np.array([rank, group.rank])) for group in reversed(members)]
            gathered = [handle.wait().tolist() for handle in reversed(handles)]
            family = _family(service, job) if rank == 0 else None  # while no worker leaves
            total = world.communicator.allreduce(np.full(3000, float(rank)), op="mean")
        return gathered, np.unique(total).tolist(), family

    return at_each(work)


def _family(service: Service, first: int) -> list[tuple[str, str]]:
    """Each job's place in the family of the first one, and its policy."""
    with ControlClient(service.control) as client:
        return [
            ("first" if job.job == first else "group" if job.parent == first else "foreign", pb.Policy.Name(job.policy))
            for job in client.jobs()
        ]


def groups_that_cannot_be(service: Service) -> Any:
    """Request groups of which the second has a worker on an unknown host.

    Returns each worker's error, and the number of jobs afterwards.
    """
    job, tokens = service.register()
    hosts = (*WORKERS[:2], "h9")

    def work(rank: int) -> Any:
        with (
            Membership(service.control, job, tokens[rank]) as world,
            ControlGroups(service.control, world, hosts, server=SERVER, start_server=service.serve) as registrar,
        ):
            try:
                new_groups(world.communicator, [[0, 1], [0, 2]], registrar)
            except HostError as error:
                with ControlClient(service.control) as client:
                    jobs = len(client.jobs())
                world.communicator.barrier()  # nobody leaves before all have seen that
                return str(error), jobs

    return at_each(work)


def progress(service: Service) -> Any:
    """Return the listed report after the first worker's, and after another one's when the first is lost."""
    job, tokens = service.register(policy="continue")
    listed: list[Any] = []

    def wait_for(step: int) -> None:
        with ControlClient(service.control) as client:
            while (found := client.jobs()[0].report).step < step:
                time.sleep(0.01)
        listed.append([found.step, found.stage, found.loss, found.bytes // found.steps, found.exposed_ns > 0])

    def work(rank: int) -> None:
        with suppress(HostError), Membership(service.control, job, tokens[rank]) as membership:
            communicator = membership.communicator
            communicator.allreduce(np.ones(1000, np.float32))
            communicator.report(step=rank + 1, stage="first", loss=np.float32(0.5))
            if rank == 0:
                wait_for(1)
                raise HostError("out of memory")
            communicator.allreduce(np.ones(1000, np.float32))  # without the first one
            communicator.report(step=rank + 4, stage="second", loss=0.25)
            if rank == 1:
                wait_for(5)
            communicator.barrier()

    at_each(work)
    return listed


def batch_sizes(service: Service) -> Any:
    """Steps of all workers, and of the survivors after the leader was lost; and the error if the samples are
    unknown.
    """
    job, tokens = service.register(policy="continue")

    def work(rank: int) -> Any:
        found: list[Any] = []
        with (
            suppress(HostError),
            Membership(service.control, job, tokens[rank]) as membership,
            BatchSizes(membership.communicator, service.control, job, tokens[rank], 80, patience_s=ANSWER_S) as sizes,
        ):
            report = [SPEEDS[rank], 0.2]
            found += [sizes.next_step([*report, 0]) for _ in range(2)]
            if rank == 0:
                raise HostError("out of memory")
            found.append(sizes.next_step([*report, 0]))
            try:
                sizes.next_step([*report, 10])
            except ControlRefused as error:
                found.append(type(error).__name__)
        return found

    return at_each(work)


def refused_tensor(service: Service) -> Any:
    """Outcome of each worker's second call, per policy, if one worker's second tensor has a NaN."""

    def under(policy: str) -> Any:
        job, tokens = service.register(policy=policy)

        def work(rank: int) -> Any:
            try:
                with join(service.control, job, tokens[rank]) as communicator:
                    communicator.allreduce(np.ones(300), name="first")
                    array = np.full(300, 10.0**rank)
                    array[7] = np.nan if rank == REFUSED else 0
                    return np.unique(communicator.allreduce(array, name="second")).tolist()
            except HostError as error:
                return type(error).__name__, str(error)

        return at_each(work)

    return {policy: under(policy) for policy in ("continue", "abort", "wait")}


SCENARIOS: Final = {
    each.__name__: each for each in (groups, groups_that_cannot_be, progress, batch_sizes, refused_tensor)
}


async def main(scenarios: Sequence[str]) -> dict[str, Any]:
    for host in TOPOLOGY.hosts:
        subprocess.run(["ip", "address", "add", f"{host.address}/32", "dev", "lo"], check=True)
    return {scenario: await played(scenario) for scenario in scenarios}


async def played(scenario: str) -> dict[str, Any]:
    """Play a scenario at a control service of its own."""
    async with rig(size_rule=size_rule) as running:  # without leases: nobody is lost by being silent
        service = Service(running.service.address)
        results = await asyncio.to_thread(SCENARIOS[scenario], service)
        return {"results": results, "jobs": await asyncio.to_thread(service.end), "failures": service.failures}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(sys.argv[1:]))) + "\n")
