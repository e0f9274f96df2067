"""A topology's emulated fabric: what its file says of links holds."""

from __future__ import annotations

from weir.experiments.backends.emulated import EmulatedFabric
from weir.topologies import leaf_spine


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
