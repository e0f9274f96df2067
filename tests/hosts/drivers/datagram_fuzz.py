"""Random and mutated datagrams at the UDP ports of a job that sums, from a process without rights and from root.

::

    stranger (user nobody on a member's host) ──any port but the job's──▶ ports of workers ──▶ sums stay exact
    spoofer (root elsewhere) ──────any address, the job's port─────────▶ and of the server

`python -m weir.tests.hosts.drivers.datagram_fuzz COUNT SEED` plays it in a network namespace, with so many datagrams of
each attacker, and prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from dataclasses import asdict
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

import numpy as np

from weir.hosts import Membership
from weir.hosts.drivers.datagram_socket import DatagramSocket
from weir.tests.hosts.drivers.attack_rig import NOBODY, SLOTS, address, batches
from weir.tests.hosts.drivers.joined_rig import SERVER, WORKERS, Service, at_each
from weir.tests.paths import ROOT
from weir.tests.support.control_rig import TOPOLOGY, rig
from weir.wire.aggregation import AGGREGATION_PORT, HEADER, set_checksum
from weir.wire.frames import DEFAULT_TTL, FRAME_HEADER_BYTES, encapsulate

ATTACKERS: Final = ("stranger", "spoofer")
SIZE: Final = 1_000
LONGEST: Final = 60_000
LENGTHS: Final = (0, 1, 7, 8, 24, 31, 32, 33, 64, 255, 1_023, 1_055, 1_056, 1_057, 1_472, 9_000, LONGEST)
LONGEST_OF_LINK: Final = 1_472
_UDP_AT: Final = FRAME_HEADER_BYTES - 8
_FIFTH: Final = 5


class Datagrams:
    """Datagrams from one seed: forged messages of the job as they are and with changes, and random bytes."""

    def __init__(self, job: int, seed: str) -> None:
        self._rng = random.Random(seed)
        self._forged = [
            row.tobytes() for _, _, payload in batches(job) for row in payload[:: max(1, len(payload) // 40)]
        ]

    def __next__(self) -> bytes:
        rng = self._rng
        data = bytearray(rng.choice(self._forged))
        match rng.randrange(6):
            case 0:
                return bytes(data)
            case 1:
                return rng.randbytes(rng.choice(LENGTHS))
            case 2:  # a valid header with another length
                length = rng.choice([*LENGTHS, len(data) - 1, len(data) + 1, rng.randrange(2_000)])
                return (bytes(data) + rng.randbytes(max(0, length - len(data))))[:length]
            case 3:
                for _ in range(rng.randrange(1, 4)):
                    data[rng.randrange(HEADER.itemsize)] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
            case 4:
                for _ in range(rng.randrange(1, 20)):
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case _:
                at = rng.randrange(0, HEADER.itemsize, 4)
                data[at : at + 4] = rng.choice([0, 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]).to_bytes(4, "big")
        if rng.randrange(4):
            set_checksum(np.frombuffer(data, HEADER, count=1))
        return bytes(data)

    def choice(self, of: Any) -> Any:
        """One of them."""
        return self._rng.choice(of)


def stranger(job: int, count: int, seed: str) -> None:
    """Another user's process on a member's host: the host's addresses, and any port but the job's."""
    made = Datagrams(job, seed)
    sockets = []
    for host in TOPOLOGY.hosts:
        sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sockets[-1].bind((str(host.address), 0))
    os.setuid(NOBODY)
    for number in range(count):
        with suppress(OSError):  # the kernel refuses some lengths
            made.choice(sockets).sendto(
                next(made), (str(IPv4Address(address(made.choice([*WORKERS, SERVER])))), AGGREGATION_PORT)
            )
        if number == count // _FIFTH:
            _say()


def spoofer(job: int, count: int, seed: str) -> None:
    """Root elsewhere: packets from any address and the job's port, some with a wrong length in the UDP header."""
    made = Datagrams(job, seed)
    names = [host.name for host in TOPOLOGY.hosts]
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for number in range(count):
            destination = address(made.choice([*WORKERS, SERVER]))
            payload = np.frombuffer(next(made)[:LONGEST_OF_LINK], np.uint8)[None]
            [frame] = encapsulate(
                payload,
                source=address(made.choice(names)),
                destination=destination,
                source_mac=0,
                destination_mac=0,
                ttl=DEFAULT_TTL,
            )
            if made.choice(range(20)) == 0:
                frame[_UDP_AT + 4 + made.choice([0, 1])] = made.choice(range(256))
            with suppress(OSError):
                raw.sendto(frame[FRAME_HEADER_BYTES - 28 :].tobytes(), (str(IPv4Address(destination)), 0))
            if number == count // _FIFTH:
                _say()


def _say() -> None:
    sys.stdout.write("a fifth\n")
    sys.stdout.flush()


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def attacked(service: Service, count: int, seed: int) -> Any:
    """Sums that were not exact, last generation and drops of each rank; growth of memory after the first fifth."""
    job, tokens = service.register(slots=SLOTS)
    running = threading.Barrier(len(WORKERS))
    attackers: list[subprocess.Popen[bytes]] = []
    growth: list[int] = []

    def work(rank: int) -> Any:
        with Membership(service.control, job, tokens[rank]) as membership:
            if rank == 0:
                for name in ATTACKERS:
                    words = [sys.executable, "-m", "weir.tests.hosts.drivers.datagram_fuzz", name]
                    words += [str(job), str(count), f"{seed} {name}"]
                    attackers.append(stack.enter_context(subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE)))
                    stack.callback(attackers[-1].kill)
                for attacker in attackers:
                    assert attacker.stdout is not None
                    os.set_blocking(attacker.stdout.fileno(), False)
            running.wait()
            wrong, step, at_fifths = 0, 0, [b""] * len(ATTACKERS)
            while True:
                summed = membership.communicator.allreduce(np.full(SIZE, float(10**rank + step), np.float32))
                wrong += int(np.any(summed != 111.0 + len(WORKERS) * step))
                step += 1
                over = np.zeros(1)
                if rank == 0:
                    for number, attacker in enumerate(attackers):
                        assert attacker.stdout is not None
                        at_fifths[number] += attacker.stdout.read() or b""
                    if not growth and all(at_fifths):
                        growth.append(-_resident_bytes())
                    over[0] = all(attacker.poll() is not None for attacker in attackers)
                if membership.communicator.allreduce(over)[0]:
                    break
            ends = membership.worker.endpoint.socket
            assert isinstance(ends, DatagramSocket)
            counters = {name: value for name, value in asdict(membership.counters).items() if value}
            found = {"wrong": wrong, "steps": step, "generation": membership.generation, "counters": counters}
            return {**found, "foreign_ports": ends.foreign_ports}

    with ExitStack() as stack:
        results = at_each(work)
        statuses = [attacker.returncode for attacker in attackers]
    grown = growth[0] + _resident_bytes() if growth else None
    return {"workers": results, "attackers": statuses, "growth": grown}


async def main(count: int, seed: int) -> dict[str, Any]:
    for host in TOPOLOGY.hosts:
        subprocess.run(["ip", "address", "add", f"{host.address}/32", "dev", "lo"], check=True)
    async with rig() as running:
        service = Service(running.service.address)
        results = await asyncio.to_thread(attacked, service, count, seed)
        return {**results, "jobs": await asyncio.to_thread(service.end), "failures": service.failures}


if __name__ == "__main__":
    if sys.argv[1] in ATTACKERS:
        {"stranger": stranger, "spoofer": spoofer}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        sys.stdout.write(json.dumps(asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))) + "\n")
