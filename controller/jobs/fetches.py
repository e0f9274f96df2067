"""Final rounds that a moved job's hosts fetch from each other: the packets that they may add to queues.

Each round is asked for by one packet and answered by one. Both go from host to host, by any path that hashing may
choose, and not along the job's tree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...topologies.model import Endpoint
from ...topologies.routing import Routes
from ...wire.control import FinalRound


@dataclass(slots=True)
class Fetches:
    """Fetches of one generation of a job, until they are over."""

    pairs: Mapping[tuple[str, str], int]
    """Number of rounds, by the worker that lacks them and the host that holds them."""
    last: Mapping[str, int]
    """Newest round that each worker fetches."""
    over_ns: int | None = None
    """Time from which none of the packets is in the network; None: unknown."""

    @classmethod
    def of(cls, finals: Mapping[str, tuple[FinalRound, ...]], host_at: Callable[[int], str]) -> Fetches:
        """Return the fetches of the workers' final rounds.

        Args:
            finals: Rounds that each worker fetches, in order.
            host_at: Returns the host that has an address.
        """
        pairs = Counter((worker, host_at(final.holder)) for worker, rounds in finals.items() for final in rounds)
        return cls(pairs, {worker: rounds[-1].round for worker, rounds in finals.items() if rounds})

    def note(self, rounds: Mapping[str, int], wait_ns: int, now_ns: int) -> None:
        """Note the progress of the job's present workers.

        Args:
            rounds: Number of rounds that each has completed, −1 if it has not reported.
            wait_ns: Longest time that a copy may be in the network.
            now_ns: Present time.
        """
        if self.over_ns is None and all(done > self.last.get(worker, -2) for worker, done in rounds.items()):
            self.over_ns = now_ns + wait_ns

    def packets(self, routes: Routes, bound_packets: int) -> Mapping[Endpoint, int]:
        """Return the most packets of these fetches that may be in each link's queue.

        Args:
            routes: Routes of the fabric.
            bound_packets: Q*. A worker sends a copy in at most one of three longest round trips, in which a NIC sends
                more than Q* of the answers. So there is at most one copy, and another for each Q* answers.
        """
        copies = 1 + sum(self.pairs.values()) // bound_packets
        packets = Counter[Endpoint]()
        for (worker, holder), rounds in self.pairs.items():
            for way in ((worker, holder), (holder, worker)):
                if routes.reaches(*way):
                    packets.update(dict.fromkeys(routes.shares(*way), rounds))
        return {link: rounds + copies for link, rounds in packets.items()}
