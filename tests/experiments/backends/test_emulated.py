"""A topology's emulated fabric: links have the properties in the file."""

from __future__ import annotations

from weir.experiments.backends.emulated import EmulatedFabric
from weir.tests.emulator.runtime.runtime_program import frame, start
from weir.topologies import Endpoint, leaf_spine
from weir.wire.frames import BULK_PRIORITY


def test_links_carry_what_their_mtu_allows() -> None:
    for mtu in (1500, 1800):
        emulated = EmulatedFabric(leaf_spine(2, 1, 1, mtu=mtu), start=None)
        for size in (mtu + 14, mtu + 15, 60):
            emulated.fabric.send("h1", bytes(size))
        emulated.fabric.run(10_000_000)
        found = {figures.end.node: figures for figures in emulated.links() if figures.job_bytes}
        assert {name: (figures.job_bytes, figures.oversized_packets) for name, figures in found.items()} == {
            "h1": (mtu + 14 + 60, 1)
        }


def test_longest_queues_are_per_call_and_per_run() -> None:
    """Two hosts send at once to a third, whose link carries one frame at a time."""
    emulated = EmulatedFabric(leaf_spine(1, 0, 3), start=lambda switch, _: start(switch))
    end = Endpoint("s1", 3)

    def burst(frames: int) -> int:
        for _ in range(frames):
            emulated.fabric.send("h1", frame(3, 1000, priority=BULK_PRIORITY))
            emulated.fabric.send("h2", frame(3, 1000, priority=BULK_PRIORITY))
        assert len(list(emulated.fabric.wakes_until(emulated.fabric.now_ns + 10_000_000))) == 2 * frames
        return emulated.pop_longest_queues()[end]

    assert [burst(8), burst(3), burst(0)] == [8, 3, 0], "one more waits with each pair"
    [figures] = [link for link in emulated.links() if link.end == end]
    assert figures.largest_queue_packets == 8
    assert emulated.fabric.port_counters()[end].max_queue_packets[BULK_PRIORITY] == 0
