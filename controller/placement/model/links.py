"""A fabric's links as arrays, compiled once for each state of the routes, so that a decision starts from NumPy.

Two switches that are linked directly are a *pair*; parallel links between them are one pair, since equal-cost hashing
may put a stream on any of them. A pair's cost is that of its slowest link, in its slower direction: a node of a tree
sends one stream up and gets one result down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ....topologies.model import Endpoint, Topology
from ....topologies.routing import Routes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Links:
    """Links of one fabric, without the links that are down."""

    number: Mapping[Endpoint, int]
    """Every directed link's place in `Topology.directed_links`."""
    rate_bps: Floats
    """(links,): bits per second."""
    delay_seconds: Floats
    """(links,): propagation."""
    switches: tuple[str, ...]
    switch: Mapping[str, int]
    """Every switch's place in `switches`."""
    slots: Ints
    """(switches,): of each one's registers."""
    host: Mapping[str, int]
    """Every host's place in `access`."""
    rack: Mapping[str, str]
    """Every host's switch."""
    access: Ints
    """(hosts, 2): the directed links to a host's switch and back."""
    pairs: Ints
    """(pairs, 2): linked switches, each pair once, the lower number first."""
    pair: Mapping[tuple[int, int], int]
    """A pair's place in `pairs`, by its switches' numbers in either order."""
    pair_of: Ints
    """(links,): the pair that a directed link is of; −1 for a host's, and where it is down."""
    downward: Bools
    """(links,): whether a pair's directed link leaves its higher number."""
    _members: Ints
    _starts: Ints
    steps: dict[tuple[str, str], tuple[tuple[int, float], ...]] = field(default_factory=dict)
    """Cache of `PlacementCosts.steps`, which all problems of the fabric share."""

    @classmethod
    def of(cls, routes: Routes) -> Links:
        """Return those of the routes' fabric; compiled once."""
        if (known := _COMPILED.get(routes)) is None:
            known = _COMPILED[routes] = _compile(routes)
        return known

    def access_of(self, hosts: Iterable[str]) -> Ints:
        """Return (hosts, 2): the directed links to the switch of each of these hosts and back."""
        places: Ints = self.access[[self.host[host] for host in hosts]]
        return places

    def slowest_of_pairs(self, seconds: Floats) -> Floats:
        """Return the maximum (pairs,) of `seconds` (by directed link) on each pair."""
        if not len(self.pairs):
            return np.zeros(0)
        slowest: Floats = np.maximum.reduceat(seconds[self._members], self._starts)
        return slowest

    def parallel(self, seconds: Floats) -> tuple[Floats, Ints]:
        """Return (2, pairs), by direction: Σ 1 / `seconds` (by directed link) over parallel links, and how many they
        are.
        """
        places = (self.downward[self._members].astype(np.int64), self.pair_of[self._members])
        rates, counts = np.zeros((2, len(self.pairs))), np.zeros((2, len(self.pairs)), np.int64)
        np.add.at(rates, places, 1 / seconds[self._members])
        np.add.at(counts, places, 1)
        return rates, counts

    def of_pair(self, pair: int) -> Ints:
        """Return the directed links of one pair."""
        end = self._starts[pair + 1] if pair + 1 < len(self._starts) else len(self._members)
        return self._members[self._starts[pair] : end]


_COMPILED: WeakKeyDictionary[Routes, Links] = WeakKeyDictionary()


def _compile(routes: Routes) -> Links:
    """Compile a fabric by its links; link i has the directed links 2i, from its first end, and 2i + 1."""
    topology = routes.topology
    links, down = topology.links, routes.down
    number = {link: index for index, link in enumerate(topology.directed_links)}
    switches = tuple(switch.name for switch in topology.switches)
    switch = {name: index for index, name in enumerate(switches)}
    first, second = (np.array([switch.get(end.node, -1) for end in ends], np.int64) for ends in _ends(topology))
    between = (first >= 0) & (second >= 0)
    if down:
        between &= np.array([link.a not in down for link in links], np.bool_)
    pairs, pair_of_link = _in_order_of_first(
        np.stack([np.minimum(first, second), np.maximum(first, second)], 1)[between]
    )
    pair_of = np.full((len(links), 2), -1, np.int64)
    pair_of[between] = pair_of_link[:, None]
    downward = np.stack([first > second, second > first], 1) & between[:, None]
    members = np.flatnonzero(pair_of.ravel() >= 0)
    members = members[np.argsort(pair_of.ravel()[members], kind="stable")]
    ups = [Endpoint(host.name, 0) for host in topology.hosts]
    downs = [topology.peer(up) for up in ups]
    return Links(
        number=number,
        rate_bps=np.repeat(np.array([link.rate_bps for link in links], np.float64), 2),
        delay_seconds=np.repeat(np.array([link.delay_ns for link in links]) * 1e-9, 2),
        switches=switches,
        switch=switch,
        slots=np.array([switch.slots for switch in topology.switches]),
        host={host.name: index for index, host in enumerate(topology.hosts)},
        rack={up.node: down.node for up, down in zip(ups, downs, strict=True)},
        access=np.array([(number[up], number[down]) for up, down in zip(ups, downs, strict=True)], np.int64).reshape(
            len(ups), 2
        ),
        pairs=pairs,
        pair={ends: index for index, (a, b) in enumerate(pairs.tolist()) for ends in ((a, b), (b, a))},
        pair_of=pair_of.ravel(),
        downward=downward.ravel(),
        _members=members,
        _starts=np.concatenate(([0], np.cumsum(2 * np.bincount(pair_of_link, minlength=len(pairs)))))[:-1],
    )


def _ends(topology: Topology) -> tuple[list[Endpoint], list[Endpoint]]:
    """First and second ends of all links."""
    return [link.a for link in topology.links], [link.b for link in topology.links]


def _in_order_of_first(pairs: Ints) -> tuple[Ints, Ints]:
    """Different rows of (rows, 2) in the order in which they first come, and the place of each row among them."""
    different, firsts, places = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return different[order].reshape(len(order), 2), rank[places.ravel()]
