"""Run by test_mininet.py in a network namespace of its own, as a module with the words `weir SEED`.

Builds a leaf-spine fabric in Mininet, writes the base plan, lets every host send to every other by UDP, ends it, and
prints as JSON what was seen.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from typing import Any

from weir.cli.mininet import install_base_plan
from weir.topologies import Topology, leaf_spine
from weir.topologies.mininet.fabric import MininetFabric, SwitchKind

DATAGRAMS = 8
MTU = 4000
"""MTU of all links, above the interfaces' default."""
LARGEST_PAYLOAD = MTU - 28
"""Payload that fills a packet; it may not be fragmented."""

HOST = """
import json, select, socket, sys
address, expected = sys.argv[1], int(sys.argv[2])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
sock.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
sock.bind((address, 7000))
print("ready", flush=True)
for destination, payload in json.loads(sys.stdin.readline()):
    sock.sendto(bytes.fromhex(payload), (destination, 7000))
received = []
while select.select([sock], [], [], 0.3 if len(received) >= expected else 10)[0]:
    payload, source = sock.recvfrom(65536)
    received.append((source[0], payload.hex()))
print(json.dumps(sorted(received)), flush=True)
"""


def fabric_of() -> Topology:
    """Two leaves, two spines, two hosts on each leaf; on links of their own rate and MTU."""
    topology = leaf_spine(2, 2, 2, rate_bps=200_000_000, mtu=MTU)
    return replace(topology, name="mininet-test")


def traffic(topology: Topology, seed: int) -> list[tuple[str, str, str]]:
    """(source, destination, payload in hex) of every ordered pair of hosts, by address."""
    rng = random.Random(seed)
    addresses = [str(host.address) for host in topology.hosts]
    return [
        (source, destination, rng.randbytes(rng.choice([1, 18, 700, LARGEST_PAYLOAD])).hex())
        for source in addresses
        for destination in addresses
        if source != destination
        for _ in range(DATAGRAMS)
    ]


def exchange(fabric: MininetFabric, sent: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Received messages, as (source, destination, payload)."""
    processes: dict[str, subprocess.Popen[str]] = {}
    for host in fabric.topology.hosts:
        address = str(host.address)
        expected = sum(destination == address for _, destination, _ in sent)
        command = [sys.executable, "-c", HOST, address, str(expected)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes[address] = fabric.popen(host.name, command, **pipes)
    for process in processes.values():
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for address, process in processes.items():
        assert process.stdin is not None
        own = [(destination, payload) for source, destination, payload in sent if source == address]
        process.stdin.write(json.dumps(own) + "\n")
        process.stdin.flush()
    return [
        (source, address, payload)
        for address, process in processes.items()
        for source, payload in json.loads(process.communicate(timeout=60)[0])
    ]


def interfaces() -> list[str]:
    return sorted(os.listdir("/proc/sys/net/ipv4/conf"))


def main() -> None:
    kind, seed = SwitchKind(sys.argv[1]), int(sys.argv[2])
    topology = fabric_of()
    sent = traffic(topology, seed)
    before = interfaces()
    with MininetFabric(topology, kind) as fabric:
        during = interfaces()
        states = asyncio.run(install_base_plan(topology, fabric.addresses))
        received = exchange(fabric, sent)
        statuses = [fabric.execute("h1 test h4 = 10.0.2.2"), fabric.execute("h1 test h4 = h3")]
        pids, notes = fabric.pids, fabric.notes
    print(  # noqa: T201
        json.dumps(
            {
                "received": received,
                "entries": {name: len(state.items) for name, state in states.items()},
                "statuses": statuses,
                "notes": notes,
                "interfaces": [before, during, interfaces()],
                "alive": [name for name, pid in pids.items() if os.path.exists(f"/proc/{pid}")],
                "processes": sorted(pids),
            }
        )
    )


if __name__ == "__main__":
    main()
