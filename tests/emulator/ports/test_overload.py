"""Under overload queues hold their bounds and every packet is accounted for; in the long run memory stays flat.

`SOAK_SECONDS=…` changes how long the soak tests of `make test-long` take, ten minutes each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weir.emulator.entries import ActionCall, Exact, TableEntry
from weir.emulator.fabric import Fabric
from weir.emulator.ports.wired import WiredSwitch
from weir.emulator.runtime.memory import PRIORITIES
from weir.emulator.switch import Switch
from weir.tests.emulator.harness import seeded_random
from weir.tests.emulator.network import Network, eventually, needs_namespaces, network
from weir.tests.emulator.ports.test_command import PAIRS, attached, running
from weir.tests.emulator.ports.test_ports import fabric, numbered, packet
from weir.tests.emulator.runtime.runtime_program import frame, switch
from weir.tests.paths import ROOT
from weir.wire.frames import BULK_PRIORITY

SOAK_SECONDS = float(os.environ.get("SOAK_SECONDS", "600"))
GROWTH_KB = 4096
"""Growth in KB allowed for the allocator and the page cache of a process over minutes."""


def test_a_port_of_a_fabric_that_gets_three_times_its_rate() -> None:
    """Frames of random sizes and priorities from three hosts; queues that hold 20 packets and 9000 bytes each."""
    rng = seeded_random()
    net = Fabric(seed=rng.randrange(1 << 32))
    net.add_switch("s1", switch())
    for port in (1, 2, 3):
        net.add_host(f"h{port}")
        net.add_link((f"h{port}", 0), ("s1", port), rate_bps=1e9, delay_ns=500)
    net.add_host("out")
    net.add_link(("out", 0), ("s1", 5), rate_bps=1e9, queue_packets=20, queue_bytes=9000)
    sent = 0
    got = [0] * PRIORITIES
    for _ in range(60):
        for port in (1, 2, 3):
            for _ in range(rng.randrange(20)):
                priority = rng.choice((0, 0, 3, 7))
                net.send(f"h{port}", frame(5, size=rng.randrange(64, 1500), priority=priority, number=priority))
                sent += 1
        for wake in net.run(net.now_ns + 60_000):
            _count(wake.frames, got)
        _check_bounds(net)
    while wakes := net.run(net.now_ns + 100_000_000):
        for wake in wakes:
            _count(wake.frames, got)
    counters = net.port_counters()["s1", 5]
    assert sum(counters.drops) > sent // 4
    assert sum(got) + sum(counters.drops) == sent
    assert sum(got) == counters.tx_packets
    assert counters.drops[7] * 3 < counters.drops[0], "what is urgent is dropped least"
    assert net.packets_in_flight == 0


def _count(frames: list[Any], got: list[int]) -> None:
    for group in frames:
        for one in group[:, 56]:  # the field `number`
            got[int(one)] += 1


def _check_bounds(net: Fabric) -> None:
    engine = net._engine
    index = net._nodes.switches["s1"].port_index(5)
    queues = engine.queues.data[index * PRIORITIES : (index + 1) * PRIORITIES]
    assert queues["max_depth_packets"].max() <= 20
    assert queues["max_depth_bytes"].max() <= 9000


@pytest.fixture
def net() -> Iterator[Network]:
    with network([1, 2, 3]) as made:
        yield made


@needs_namespaces
def test_interfaces_that_get_more_than_a_port_sends(net: Network) -> None:
    """Two classes into a slow port: exactly what was received has left, waits, or was dropped by its queue."""
    made = fabric(rate_bps=2e5, queue_packets=16, queue_bytes=12_000)
    urgent = [packet(2, mark=i, size=300, dscp=48) for i in range(200)]
    bulk = [packet(2, mark=i, size=1000) for i in range(1000)]
    with WiredSwitch(made, net.interfaces) as wired:
        received = 0
        for i in range(200):
            net.send(1, urgent[i], *bulk[5 * i : 5 * i + 5])
            received += len(net.receive(2, 100, 0.001))
        assert eventually(lambda: wired.counters()[1].port.rx_packets + wired.counters()[1].missed == 1200)
        assert eventually(lambda: wired.counters()[2].port.depth_packets == 0)
        counters = wired.counters()
        port = counters[2].port
        received += len(net.receive(2, 1200, 0.5))
        assert port.drops[BULK_PRIORITY] > 500
        assert port.tx_packets + sum(port.drops) + counters[1].missed == 1200
        assert received == port.tx_packets
        index = made.port_index(2) * PRIORITIES
        queues = wired._engine.queues.data[index : index + PRIORITIES]
        assert queues["max_depth_packets"].max() <= 16
        assert queues["max_depth_bytes"].max() <= 12_000


def resident_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} has no VmRSS")


def soak(pid: int, work: Callable[[], object]) -> None:
    """Work for the time of a soak test; after its first fifth the process must not grow."""
    end = time.monotonic() + SOAK_SECONDS
    warm = time.monotonic() + SOAK_SECONDS / 5
    first: int | None = None
    while time.monotonic() < end:
        work()
        if first is None and time.monotonic() > warm:
            first = resident_kb(pid)
    assert first is not None
    grown = resident_kb(pid) - first
    sys.stdout.write(f"{first} kB resident, grown by {grown} kB\n")
    assert grown < GROWTH_KB


@pytest.mark.long
@pytest.mark.timeout(SOAK_SECONDS + 300)
@needs_namespaces
def test_memory_of_weir_switch_in_a_soak(net: Network) -> None:
    """Full load from two sides, frames of all sizes."""
    frames = [one[: 60 + i % 1400] for i, one in enumerate(numbered(512, 1500))]
    with running(*attached(net), "--grpc-server-addr", "127.0.0.1:0", "--port-rate", "1=50Mbit", str(PAIRS)) as process:
        moved = 0

        def work() -> None:
            nonlocal moved
            for _ in range(10):
                net.send(1, *frames)
                net.send(2, *frames)
                moved += len(net.receive(2, len(frames), 0.01)) + len(net.receive(1, len(frames), 0.001))

        soak(process.pid, work)
        assert moved > 1000


@pytest.mark.long
@pytest.mark.timeout(SOAK_SECONDS + 300)
def test_memory_of_a_switch_in_memory_in_a_soak() -> None:
    """The process handles packets while entries, groups and programs change."""
    command = [sys.executable, "-c", "from weir.tests.emulator.ports.test_overload import churn; churn()"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        stdin, stdout = child.stdin, child.stdout

        def work() -> None:
            stdin.write("\n")
            stdin.flush()
            assert stdout.readline() == "done\n"

        try:
            soak(child.pid, work)
        finally:
            stdin.close()


def churn() -> None:
    """Run a round of packets and changes for every line of standard input."""
    program = ROOT / "p4src" / "build" / "fabric.json"
    made = Switch(1, ports=range(8))
    made.load(program.read_bytes())
    frames = np.stack([np.frombuffer(packet(2, mark=i), np.uint8) for i in range(256)])
    for _ in sys.stdin:
        state: Any = made.state
        table = state.tables["FabricIngress.node_address"]
        for address in range(16):
            table.insert(TableEntry((Exact(address),), ActionCall("FabricIngress.to_node")))
        made.process(frames, ports=1, repeat=200)
        for address in range(16):
            table.delete((Exact(address),))
        made.start(made.program, made.program.new_state())  # type: ignore[arg-type, union-attr]
        sys.stdout.write("done\n")
        sys.stdout.flush()
