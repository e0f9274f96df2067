"""Slots of a job that asks for no number of them: the rounds that keep its links busy, within the queue bound and the
free memory (docs/congestion.md has what it gives).

    S = 2W,  W = ⌈min(R·T / frame, Q*)⌉ to a power of two,  T = the farthest worker's round trip + one turn of a host

R is the rate of the slowest worker's link. Rounds beyond R·T wait in queues, and a window above Q* is never allowed. So
that later jobs find room, a job takes at most half of the slots of switches without jobs, and otherwise at most a
quarter of the slots that its scarcest switch has free. The jobs of a family divide both: the rounds of a link among the
jobs that share a worker, the memory among all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...topologies.model import Endpoint, Topology
from ...topologies.routing import Routes
from .plan import round_bytes

HOST_TURN_NS: Final = 1_000_000
"""Time in ns from the arrival of a result until its worker's next round leaves, for a process that shares a core."""
MIN_SLOTS: Final = 64
MAX_SLOTS: Final = 1024
_PART_OF_EMPTY: Final = 2
_PART_OF_FREE: Final = 4


def default_slots(
    topology: Topology,
    routes: Routes,
    workers: Sequence[str],
    bound_packets: int | None,
    free: Mapping[str, int],
    host_turn_ns: int = HOST_TURN_NS,
    *,
    jobs: int = 1,
    sharing: int = 1,
) -> int:
    """Return S for a new job.

    Args:
        topology: The fabric.
        routes: Its routes, without lost links.
        workers: Names of the workers' hosts, at least one.
        bound_packets: Q*, the bound of every queue in packets; None: there is no bound.
        free: Free slots by switch.
        host_turn_ns: Time of a host's turn in ns.
        jobs: Number of jobs of its family, which are placed together.
        sharing: Maximum number of them with one worker in common.

    Returns:
        A power of two from `MIN_SLOTS` (2 in a family of several) to `MAX_SLOTS`.
    """
    links = [topology.link_at(Endpoint(worker, 0)) for worker in workers]
    rate_bps = min(link.rate_bps for link in links)
    frame_bits = 8 * round_bytes(topology)
    hops = max(
        (routes.hops(workers[0], worker) for worker in workers[1:] if routes.reaches(workers[0], worker)), default=1
    )
    delay_ns = max(link.delay_ns for link in topology.links)
    trip_ns = 2 * hops * (delay_ns + 1e9 * frame_bits / rate_bps) + host_turn_ns
    rounds = int(rate_bps * trip_ns / 1e9 / frame_bits) + 1
    if bound_packets is not None:
        rounds = min(rounds, bound_packets)
    wanted = 2 << (rounds - 1).bit_length()
    summing = [switch for switch in topology.switches if switch.slots]
    scarce = min((free[switch.name] for switch in summing), default=0)
    empty = all(free[switch.name] == switch.slots for switch in summing)
    room = 1 << max(0, (scarce // (jobs * (_PART_OF_EMPTY if empty else _PART_OF_FREE))).bit_length() - 1)
    share = max(MIN_SLOTS, min(wanted, MAX_SLOTS)) >> (sharing - 1).bit_length()
    return max(MIN_SLOTS if jobs == 1 else 2, min(share, room))
