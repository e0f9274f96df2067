"""Switches on network interfaces: packets a second through veth pairs.

Three jobs: `fabric.p4` forwarding small packets, `fabric.p4` summing 256-lane contributions, and a plain router
(`programs/l3.p4`). The peers are bmv2 with its logging off, running the same program with the same entries, and a C
program that moves the same frames with recvmmsg and sendmmsg and does nothing else (`relay.c`).

Each is measured in two ways: packets a second, for which device and driver share the machine; and the device's
processor time per packet, kernel included, which hardly depends on the load of the machine.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import finsy as fy
import numpy as np
from numpy.typing import NDArray

from weir.bench.devices import (
    BMV2,
    WEIR,
    P4Files,
    Running,
    load,
    make_interfaces,
    obstacle,
    own_namespace,
    running_relay,
    running_switch,
)
from weir.bench.driver import Device, Driver
from weir.bench.measure import RUNS, Aim, Figure, seconds
from weir.bench.traffic import contributions, fabric_entries, router_entries, small_packets
from weir.p4src import FABRIC_JSON

__all__ = ["figures", "obstacle"]

PACKETS: Final = 200_000
WINDOW: Final = 1024
BMV2_PACKETS: Final = 4_000
BMV2_WINDOW: Final = 32
"""Fewer than the 64 packets that its queues hold; more do not make it faster."""
RELAY: Final = "recvmmsg and sendmmsg in C"
ROUTER_JSON: Final = Path(__file__).parent / "programs" / "l3.json"


@dataclass(frozen=True, slots=True)
class Job:
    """One program, its traffic, and the ratios to the peers that it must reach."""

    name: str
    traffic: Mapping[int, NDArray[np.uint8]]
    aims: Mapping[str, float]


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module against the peers that are here."""
    small = small_packets()
    forwarding = Job("fabric.p4, 64-byte frames forwarded", small, {BMV2: 20})
    summing = Job("fabric.p4, 256-lane contributions summed", contributions(), {BMV2: 50})
    routing = Job("l3.p4, 64-byte frames routed", small, {BMV2: 5, RELAY: 0.7})
    yield from measure(P4Files.at(FABRIC_JSON), fabric_entries(), (forwarding, summing))
    yield from measure(P4Files.at(ROUTER_JSON), router_entries(), (routing,))


def measure(
    program: P4Files, entries: list[fy.P4TableEntry], jobs: tuple[Job, ...], *, packets: int = PACKETS
) -> Iterator[Figure]:
    """Run jobs on one program, paired with each peer."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-bench-")))
        stack.enter_context(own_namespace())
        switch = stack.enter_context(running_switch(WEIR, folder, make_interfaces("w")))
        load(switch.address, program, entries)
        weir = _Contender(switch, Device("w", packets, WINDOW, sums=True))
        peers = {}
        if shutil.which(BMV2) is not None:
            switch = stack.enter_context(running_switch((BMV2, "-L", "off"), folder, make_interfaces("b")))
            load(switch.address, program, entries)
            peers[BMV2] = _Contender(switch, Device("b", BMV2_PACKETS, BMV2_WINDOW, sums=True))
        if (compiler := shutil.which("cc")) is not None:
            relay = stack.enter_context(running_relay(compiler, folder, make_interfaces("c")))
            peers[RELAY] = _Contender(relay, Device("c", packets, WINDOW, sums=False))
        for job in jobs:
            for name, peer in peers.items():
                yield from _compare(job, weir, name, peer)


def _compare(job: Job, weir: _Contender, name: str, peer: _Contender) -> Iterator[Figure]:
    """Packets a second of time, and the processor's time for each, of two devices that take turns."""
    with Driver(weir.device, job.traffic) as mine, Driver(peer.device, job.traffic) as theirs:
        mine.push()
        theirs.push()
        turns = [(weir.run(mine), peer.run(theirs)) for _ in range(RUNS)]
    rates, costs = (tuple(tuple(turn[side][which] for turn in turns) for side in (0, 1)) for which in (0, 1))
    aim = Aim(job.aims[name], of_ratio=True) if name in job.aims else None
    yield Figure(job.name, "packets/s", rates[0], name, rates[1], aim=aim)
    yield Figure(f"{job.name}, processor time of each", "s", costs[0], name, costs[1], less_is_better=True)


@dataclass(frozen=True, slots=True)
class _Contender:
    running: Running
    device: Device

    def run(self, driver: Driver) -> tuple[float, float]:
        """(packets per second, seconds of the processor per packet) of one turn."""
        before = self.running.cpu_seconds()
        taken = seconds(driver.push)
        return self.device.packets / taken, (self.running.cpu_seconds() - before) / self.device.packets
