"""Switches on network interfaces: packets a second through veth pairs.

Three jobs: `fabric.p4` forwarding small packets, `fabric.p4` summing 256-lane contributions, and a plain router
(`programs/l3.p4`). The peers are bmv2 with its logging off, running the same program with the same entries, and a C
program that moves the same frames with recvmmsg and sendmmsg and does nothing else (`relay.c`).
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

from bench.devices import (
    BMV2,
    WEIR,
    P4Files,
    load,
    make_interfaces,
    obstacle,
    own_namespace,
    running_relay,
    running_switch,
)
from bench.driver import Device, Driver
from bench.measure import Aim, Contender, Figure, compare
from bench.traffic import contributions, fabric_entries, router_entries, small_packets
from p4src import FABRIC_JSON

__all__ = ["figures", "obstacle"]

PACKETS: Final = 200_000
WINDOW: Final = 1024
BMV2_PACKETS: Final = 4_000
BMV2_WINDOW: Final = 32
"""Fewer than the 64 packets that its queues hold; more do not make it faster."""
RELAY: Final = "recvmmsg and sendmmsg in C"
ROUTER_JSON: Final = Path(__file__).parent / "programs" / "l3.json"


@dataclass(frozen=True, slots=True)
class _Job:
    """One program, its traffic, and the ratios to the peers that it must reach."""

    name: str
    traffic: Mapping[int, NDArray[np.uint8]]
    aims: Mapping[str, float]


def figures() -> Iterator[Figure]:
    """Run the benchmarks of this module against the peers that are here."""
    small = small_packets()
    forwarding = _Job("fabric.p4, 64-byte frames forwarded", small, {BMV2: 20})
    summing = _Job("fabric.p4, 256-lane contributions summed", contributions(), {BMV2: 50})
    routing = _Job("l3.p4, 64-byte frames routed", small, {BMV2: 5, RELAY: 0.7})
    yield from _measure(P4Files.at(FABRIC_JSON), fabric_entries(), (forwarding, summing))
    yield from _measure(P4Files.at(ROUTER_JSON), router_entries(), (routing,))


def _measure(program: P4Files, entries: list[fy.P4TableEntry], jobs: tuple[_Job, ...]) -> Iterator[Figure]:
    """Run jobs on one program, beside each peer."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-bench-")))
        stack.enter_context(own_namespace())
        load(stack.enter_context(running_switch(WEIR, folder, make_interfaces("w"))), program, entries)
        weir = Device("w", PACKETS, WINDOW, sums=True)
        peers = {}
        if shutil.which(BMV2) is not None:
            load(
                stack.enter_context(running_switch((BMV2, "-L", "off"), folder, make_interfaces("b"))), program, entries
            )
            peers[BMV2] = Device("b", BMV2_PACKETS, BMV2_WINDOW, sums=True)
        if (compiler := shutil.which("cc")) is not None:
            stack.enter_context(running_relay(compiler, folder, make_interfaces("c")))
            peers[RELAY] = Device("c", PACKETS, WINDOW, sums=False)
        for job in jobs:
            for peer, device in peers.items():
                with Driver(weir, job.traffic) as mine, Driver(device, job.traffic) as theirs:
                    yield compare(
                        job.name,
                        "packets/s",
                        Contender("weir", weir.packets, mine.push),
                        Contender(peer, device.packets, theirs.push),
                        aim=Aim(job.aims[peer], of_ratio=True) if peer in job.aims else None,
                    )
