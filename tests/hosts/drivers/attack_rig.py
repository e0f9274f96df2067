"""A job at a real control service that strangers attack, who know all of it but its key; in a namespace of its own.

The attackers are processes: one of another user on a member's host, which has the host's addresses but not its port,
and root on a host that is no member, which sends from whatever address and port it likes. Both know the job's number,
generation, bits and rounds. `python -m weir.tests.hosts.drivers.attack_rig` prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from functools import cache
from ipaddress import IPv4Address
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from weir.hosts import Membership
from weir.hosts.drivers.datagram_socket import DatagramSocket
from weir.tests.hosts.drivers.joined_rig import SERVER, WORKERS, Service, at_each
from weir.tests.paths import ROOT
from weir.tests.support.control_rig import TOPOLOGY, rig
from weir.wire.aggregation import (
    AGGREGATION_PORT,
    HEADER,
    LANES,
    MESSAGE,
    MessageType,
    linear_check,
    make_tag,
    set_checksum,
    version_type,
)
from weir.wire.frames import DEFAULT_TTL, FRAME_HEADER_BYTES, encapsulate

STEPS: Final = 20
MAX_STEPS: Final = 190
"""Steps by which every attack has been observed, unless the test is wrong."""
SIZE: Final = 1_000
ROUNDS: Final = 12 * MAX_STEPS
"""More than the job has."""
AHEAD: Final = 1 << 22
SLOTS: Final = 64
STRANGER: Final = "h4"
"""Source address of queries that get no answer: the server's host requests no round."""
NOBODY: Final = 65534
ATTACKERS: Final = ("neighbour", "spoofer")
PAUSE_S: Final = 0.002
"""Between batches: the attacks need not take the processor away."""
KINDS: Final = 4
"""Number of kinds of drops that attacks must cause at every worker."""


def address(host: str) -> int:
    return int(TOPOLOGY.host(host).address)


def forgeries(job: int, kind: MessageType, bit: int, rounds: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Messages of the job's first generation, with the check that everybody can make. Every other one is all zeros."""
    with_lanes = kind.has_lanes
    records = np.zeros(len(rounds), MESSAGE if with_lanes else HEADER)
    header = records["header"] if with_lanes else records
    header["version_type"] = version_type(kind)
    header["job"] = job
    header["tag"] = make_tag(1, rounds)
    header["contributors"] = bit
    header["slot"] = rounds % SLOTS
    header["window"] = 0xFFFF
    header["exponent"] = 255 if not with_lanes else 0
    header["weight"] = rounds % 2
    lanes = np.zeros((len(rounds), LANES), np.int32)
    if with_lanes:
        lanes[rounds % 2 == 1] = 12_345
        records["lanes"] = lanes
    header["check"] = linear_check(lanes, header["weight"])
    set_checksum(header)
    return records.view(np.uint8).reshape(len(rounds), -1)


def batches(job: int) -> list[tuple[str, str, NDArray[np.uint8]]]:
    """Claimed source, destination, and packets of each batch."""
    near = np.arange(ROUNDS)
    out = []
    for rounds in (near, near[:SLOTS] + AHEAD):
        for rank, worker in enumerate(WORKERS):
            for kind in (MessageType.CONTRIBUTION, MessageType.SCALE):
                out.append((worker, SERVER, forgeries(job, kind, 1 << rank, rounds)))
            for kind in (MessageType.RESULT, MessageType.SCALE_RESULT, MessageType.FETCHED, MessageType.DONE):
                out.append((SERVER, worker, forgeries(job, kind, 0, rounds)))
    for worker in WORKERS:
        out.append((STRANGER, worker, forgeries(job, MessageType.FETCH, 0, near)))
    return out


def neighbour(job: int) -> None:
    """Another user's process at the workers' and the server's hosts."""
    everything = batches(job)
    with ExitStack() as stack:
        sockets = {}
        for host in (*WORKERS, SERVER):
            sockets[host] = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sockets[host].bind((str(IPv4Address(address(host))), 0))
        os.setuid(NOBODY)
        while True:
            for source, destination, payload in everything:
                where = str(IPv4Address(address(destination))), AGGREGATION_PORT
                for row in payload:
                    sockets[source].sendto(row.data, where)
                time.sleep(PAUSE_S)
            say_ready()


def spoofer(job: int) -> None:
    """Root elsewhere: IP packets as it likes, which no switch has looked at."""
    ready = []
    for source, destination, payload in batches(job):
        frames = encapsulate(
            payload,
            source=address(source),
            destination=address(destination),
            source_mac=0,
            destination_mac=0,
            ttl=DEFAULT_TTL,
        )
        ready.append((str(IPv4Address(address(destination))), frames[:, FRAME_HEADER_BYTES - 28 :]))
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        while True:
            for where, packets in ready:
                for row in packets:
                    raw.sendto(row.tobytes(), (where, 0))
                time.sleep(PAUSE_S)
            say_ready()


@cache
def say_ready() -> None:
    """Once all has been sent for the first time."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def attacked(service: Service) -> Any:
    """Sums by step, last generation, and drops by reason, for each rank."""
    job, tokens = service.register(slots=SLOTS)
    begun = threading.Barrier(len(WORKERS))
    with ExitStack() as stack:

        def start(name: str) -> None:
            words = [sys.executable, "-m", "weir.tests.hosts.drivers.attack_rig", name, str(job)]
            attacker = stack.enter_context(subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE))
            stack.callback(attacker.kill)
            assert attacker.stdout is not None
            assert attacker.stdout.readline() == b"ready\n"

        def work(rank: int) -> Any:
            with Membership(service.control, job, tokens[rank]) as membership:
                if rank == 0:
                    for name in ATTACKERS:
                        start(name)
                begun.wait()
                sums = []
                for step in range(MAX_STEPS):
                    array = np.full(SIZE, float(10**rank + step), np.float32)
                    sums.append(np.unique(membership.communicator.allreduce(array)).tolist())
                    attacked = np.array([np.count_nonzero(list(drops(membership).values()))])
                    if step >= STEPS and membership.communicator.allreduce(attacked)[0] == len(WORKERS) * KINDS:
                        break
                return {"sums": sums, "generation": membership.generation, "drops": drops(membership)}

        return at_each(work)


def drops(membership: Membership) -> dict[str, int]:
    """Drops of a worker that the attacks should cause, by reason."""
    socket = membership.worker.endpoint.socket
    assert isinstance(socket, DatagramSocket)
    counters = membership.counters
    return {
        "foreign_ports": socket.foreign_ports,
        "bad_check": counters.bad_check,
        "out_of_window": counters.out_of_window,
        "foreign": counters.foreign,
    }


async def main() -> dict[str, Any]:
    for host in TOPOLOGY.hosts:
        subprocess.run(["ip", "address", "add", f"{host.address}/32", "dev", "lo"], check=True)
    async with rig() as running:
        service = Service(running.service.address)
        results = await asyncio.to_thread(attacked, service)
        return {"results": results, "jobs": await asyncio.to_thread(service.end), "failures": service.failures}


if __name__ == "__main__":
    if sys.argv[1:]:
        {"neighbour": neighbour, "spoofer": spoofer}[sys.argv[1]](int(sys.argv[2]))
    sys.stdout.write(json.dumps(asyncio.run(main())) + "\n")
