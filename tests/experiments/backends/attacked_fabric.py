"""A job of processes over real switches, attacked from hosts of the fabric with full knowledge of it except the key.

Mininet runs it: every host has a network namespace, and its packets pass `weir-switch` processes. The attackers:

* `stranger`: root on a host that is in no job. It sends raw frames of any source, for a while at its link's rate.
* `tenant`: the same on a host of another job, whose own messages are allowed.
* `neighbour`: a process without rights on a worker's host. It has the host's address but not its port.
* `insider`: root on a worker's host, which is trusted with that host's part. It acts once, at the end.

`python -m weir.tests.experiments.backends.attacked_fabric` prints JSON.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from ipaddress import IPv4Address
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weir.controller.controller import Controller, ControllerOptions
from weir.controller.p4runtime.tables import DROP_REASONS, DROPS
from weir.controller.placement.strategies import strategy
from weir.controller.service.service import ControlService
from weir.experiments.backends.sessions import open_sessions
from weir.hosts import ControlClient, Membership
from weir.tests.experiments.backends.process_rig import Worker, wait
from weir.tests.hosts.drivers.attack_rig import AHEAD, NOBODY, drops, forgeries
from weir.topologies import Routes, leaf_spine, mac_number
from weir.topologies.mininet.fabric import MininetFabric, interface
from weir.topologies.mininet.scratch import scratch_folder
from weir.topologies.model import Endpoint
from weir.wire.aggregation import AGGREGATION_PORT, MessageType
from weir.wire.frames import encapsulate

TOPOLOGY: Final = leaf_spine(2, 1, 3, rate_bps=200_000_000)
WORKERS: Final = ("h1", "h2", "h4")
SERVER: Final = "h5"
STRANGER: Final = "h3"
TENANT: Final = "h6"
SLOTS: Final = 64
SIZE: Final = 1_000
STEPS: Final = 10
"""That the job goes on under attack, at least."""
STEP_S: Final = 0.05
PAUSE_S: Final = 0.005
"""Seconds between batches: forgeries have to arrive next to the job's messages."""
LEASE_S: Final = 12
FLOOD_S: Final = 2 * LEASE_S + 2.0
"""Duration in seconds in which a host without contact would be lost."""
LATEST: Final = 8
"""Rounds forged before and after those that are being summed."""


Forged = tuple[str, str, NDArray[np.uint8]]
"""Claimed source, destination, and packets."""


def address(node: str) -> int:
    return int(TOPOLOGY.node(node).address)


# --- processes of the job ---


def work(control: str, job: int, progress: Path, stop: Path) -> None:
    """A worker: a JSON line for each step, and at the end what it dropped."""
    with Membership(control, job, sys.stdin.readline().strip()) as membership:
        rank = membership.worker.core.plan.rank
        for step in itertools.count():
            weight = 1_000 if stop.exists() else 1
            tensor = np.full(SIZE, float(10**rank + step), np.float32)
            total = membership.communicator.allreduce_many({"tensor": tensor}, weight=weight)["tensor"]
            sums = np.unique(total.array).tolist()
            say(step=step, sums=sums, generation=membership.generation)
            if rank == 0:
                progress.write_text(str(membership.worker.core.rounds_complete))
            if total.weights.max() >= 1_000:
                break
            time.sleep(STEP_S)
        say(drops=drops(membership))


def say(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


# --- attackers ---


def forged(job: int, rounds: NDArray[np.int64], senders: Sequence[str]) -> Iterator[Forged]:
    """Every kind of message, to nodes of every kind, in the name of each of these."""
    for source in senders:
        bit = 1 << WORKERS.index(source) if source in WORKERS else 1
        for destination in (WORKERS[0], WORKERS[2], SERVER, *(switch.name for switch in TOPOLOGY.switches)):
            for kind in MessageType:
                up = kind in (MessageType.CONTRIBUTION, MessageType.SCALE)
                yield source, destination, forgeries(job, kind, bit if up else 0, rounds)


def aims(progress: Path) -> Iterator[NDArray[np.int64]]:
    """The rounds to forge, without end: those under way, and others far ahead."""
    file = os.open(progress, os.O_RDONLY)
    for turn in itertools.count():
        text = os.pread(file, 20, 0) or b"0"
        yield max(0, int(text) - LATEST) + np.arange(2 * LATEST) + turn % 3 // 2 * AHEAD


def raw(job: int, progress: Path, host: str) -> None:
    """Root on a host: whole frames in the name of every node of the job, of a switch, and in its own."""
    names = [host, *WORKERS, SERVER, "s1"]
    with raw_socket(host) as link:
        for rounds in aims(progress):
            for source, destination, payload in forged(job, rounds, names):
                for row in frames(host, source, destination, payload):
                    send(link, row)
                time.sleep(PAUSE_S)
            say(ready=True)


def flood(job: int, progress: Path, host: str) -> None:
    """Root on a host for a while: as many as its link takes."""
    rounds = int(progress.read_text()) + np.arange(SLOTS)
    rows = [row for each in forged(job, rounds, [host, *WORKERS]) for row in frames(host, *each)]
    end = time.monotonic() + FLOOD_S
    with raw_socket(host) as link:
        while time.monotonic() < end:
            for row in rows:
                send(link, row)
    say(ready=True)


def insider(job: int, progress: Path, host: str) -> None:
    """Root on a worker's host, once: its part of rounds to come, with numbers and checks of its own."""
    rounds = int(progress.read_text()) + np.arange(2 * SLOTS)
    bit = 1 << WORKERS.index(host)
    with raw_socket(host) as link:
        for switch in TOPOLOGY.switches:
            for kind in (MessageType.CONTRIBUTION, MessageType.SCALE):
                for row in frames(host, host, switch.name, forgeries(job, kind, bit, rounds)):
                    send(link, row)
    say(ready=True)


def neighbour(job: int, progress: Path, host: str) -> None:
    """Another user's process on a worker's host, which sends to its own host, too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.bind((str(IPv4Address(address(host))), 0))
        aim = aims(progress)
        next(aim)
        os.setuid(NOBODY)
        for rounds in aim:
            for _, destination, payload in forged(job, rounds, [host]):
                for row in payload:
                    port.sendto(row.data, (str(IPv4Address(address(destination))), AGGREGATION_PORT))
                time.sleep(PAUSE_S)
            say(ready=True)


def raw_socket(host: str) -> socket.socket:
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    link.bind((interface(Endpoint(host, 0)), 0))
    return link


def frames(host: str, source: str, destination: str, payload: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return encapsulate(
        payload,
        source=address(source),
        destination=address(destination),
        source_mac=mac_number(TOPOLOGY.host(host).mac),
        destination_mac=mac_number(TOPOLOGY.attached_switch(host).mac),
    )


def send(link: socket.socket, frame: NDArray[np.uint8]) -> None:
    try:
        link.send(frame.data)
    except OSError:  # its queue is full: a flood takes what it gets
        time.sleep(PAUSE_S)


# --- the fabric and observations ---


def until_ready(attacker: Worker) -> None:
    """It has sent everything once."""
    wait(lambda: bool(attacker.lines), "an attacker to have sent everything once")


async def attacked(fabric: MininetFabric, stack: AsyncExitStack) -> dict[str, Any]:
    folder = stack.enter_context(scratch_folder("weir-attack-"))
    sessions = await stack.enter_async_context(open_sessions(TOPOLOGY, fabric.addresses))
    options = ControllerOptions(probe_period_ns=10**9, solve_period_ns=0, lease_ns=LEASE_S * 10**9, stuck_ns=8 * 10**9)
    controller = Controller(TOPOLOGY, Routes(TOPOLOGY), sessions, strategy("widest"), options, time.monotonic_ns())
    await controller.start()
    service = await stack.enter_async_context(ControlService(controller, address=f"unix:{folder}/control"))
    client = stack.enter_context(ControlClient(service.address))
    register = client.register
    job = await asyncio.to_thread(register, WORKERS, SERVER, slots=SLOTS, window=SLOTS // 2)
    other = await asyncio.to_thread(register, (TENANT,), None, slots=SLOTS, window=SLOTS // 2)
    progress, stop = folder / "progress", folder / "stop"
    progress.write_text("0")
    workers: dict[str, Worker] = {}

    def start(host: str, *words: object) -> Any:
        command = [sys.executable, "-m", *map(str, words)]
        return fabric.popen(host, command, stdin=PIPE, stdout=PIPE, text=True)

    here = "weir.tests.experiments.backends.attacked_fabric"
    for registration in (job, other):
        for seat in registration.seats:
            if seat.HasField("rank"):
                files = (progress, stop) if registration is job else (folder / "elsewhere", stop)
                process = start(seat.host, here, "work", service.address, registration.job, *files)
                workers[seat.host] = Worker(process, seat.token)
            else:
                server = start(seat.host, "weir.hosts.drivers.agent", service.address, registration.job)
                server.stdin.write(seat.token + "\n")
                server.stdin.close()

    def steps(count: int) -> None:
        for host in WORKERS:
            wanted = len(workers[host].steps) + count
            workers[host].until(wanted)

    def attack(name: str, host: str) -> Worker:
        return Worker(start(host, here, name, job.job, progress, host), "")

    await asyncio.to_thread(steps, 2)
    attackers = [attack("raw", STRANGER), attack("raw", TENANT), attack("neighbour", WORKERS[0])]
    for each in attackers:
        await asyncio.to_thread(until_ready, each)
    await asyncio.to_thread(steps, STEPS)
    for each in attackers:
        each.process.kill()
    outside = {host: workers[host].steps[-1]["generation"] for host in WORKERS}
    refused = {
        name: dict(zip(DROP_REASONS, await session.read_counter(DROPS), strict=True))
        for name, session in sessions.items()
    }
    for name, host in (("flood", STRANGER), ("insider", WORKERS[1])):
        each = attack(name, host)
        await asyncio.to_thread(until_ready, each)
        await asyncio.to_thread(steps, 2)
    stop.touch()
    for worker in workers.values():
        await asyncio.to_thread(worker.end)
    return {
        "steps": {host: [(step["step"], step["sums"]) for step in workers[host].steps] for host in workers},
        "generations": outside,
        "last generation": workers[WORKERS[0]].steps[-1]["generation"],
        "switches": refused,
        "hosts": {host: workers[host].lines[-1]["drops"] for host in WORKERS},
    }


async def main() -> dict[str, Any]:
    with MininetFabric(TOPOLOGY) as fabric:
        async with AsyncExitStack() as stack:
            return await attacked(fabric, stack)


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            sys.stdout.write(json.dumps(asyncio.run(main())) + "\n")
        case ["work", control, job, progress, stop]:
            work(control, int(job), Path(progress), Path(stop))
        case [name, job, progress, host]:
            {"raw": raw, "neighbour": neighbour, "flood": flood, "insider": insider}[name](
                int(job), Path(progress), host
            )
