"""Predicted links of a job's messages, as far as possible. `test_completion` compares them with the packet fabric."""

from __future__ import annotations

from dataclasses import replace

from weir.controller.planning.forwarding import message_way, result_way
from weir.topologies import Endpoint, Routes, leaf_spine
from weir.topologies.targets import TOFINO

FABRIC = leaf_spine(2, 3, 4)


def test_streams_are_spread_over_equal_ways_and_each_takes_one() -> None:
    routes = Routes(FABRIC)
    spines = set[str]()
    for worker in ("h1", "h2", "h3", "h4"):
        for server in ("h5", "h6", "h7", "h8"):
            way = message_way(routes, worker, server)
            up, leaf, spine, down = way
            assert (up, down) == (Endpoint(worker, 0), FABRIC.peer(Endpoint(server, 0)))
            assert set(way.values()) == {1.0}
            assert way.keys() <= routes.shares(worker, server).keys()
            assert FABRIC.peer(leaf).node == spine.node
            spines.add(spine.node)
    assert spines == {"s3", "s4", "s5"}


def test_replicas_take_equal_ports_in_turn() -> None:
    routes = Routes(FABRIC)
    first = [next(iter(result_way(routes, "s1", "h5", turn))) for turn in range(4)]
    assert [link.node for link in first] == ["s1"] * 4
    assert first[3] == first[0]
    assert {FABRIC.peer(link).node for link in first} == {"s3", "s4", "s5"}
    assert set(result_way(routes, "s1", "h1", 2)) == {FABRIC.peer(Endpoint("h1", 0))}


def test_how_a_chip_chooses_is_not_known() -> None:
    chips = replace(FABRIC, switches=tuple(replace(each, target=TOFINO) for each in FABRIC.switches))
    routes = Routes(chips)
    assert message_way(routes, "h1", "h5") == routes.shares("h1", "h5")
    assert message_way(routes, "h1", "h2").keys() == {Endpoint("h1", 0), chips.peer(Endpoint("h2", 0))}
    assert set(message_way(routes, "h1", "h2").values()) == {1.0}
    assert max(message_way(routes, "h1", "h5").values()) == 1.0 > min(message_way(routes, "h1", "h5").values())
