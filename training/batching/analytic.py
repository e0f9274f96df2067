"""The analytic rule: shares in proportion to speeds, rounded so that the slowest is as fast as it can be."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from math import inf

from ..errors import TrainingError


def equal_shares(total: int, workers: int) -> list[int]:
    """Return shares as equal as possible; the remainder goes to the first workers, one sample each."""
    share, more = divmod(total, workers)
    return [share + (rank < more) for rank in range(workers)]


def proportional_shares(total: int, speeds: Sequence[float], limits: Sequence[int | None] | None = None) -> list[int]:
    """Return the whole numbers x of at least 1 whose sum is `total`, with the least possible max x / v for the
    speeds v.

    `limits` are the most that each worker can hold. Of several optima it is the one that the first workers have more
    in. Plain arithmetic in a fixed order, so all workers that compute it get the same. Raises `TrainingError` where no
    shares are.
    """
    workers = len(speeds)
    caps = [total if limit is None else limit for limit in limits or [None] * workers]
    if not workers <= total <= sum(caps) or min(caps) < 1:
        raise TrainingError(
            f"{total} samples for {workers} workers that hold {sum(caps)} at most; each has between 1 and its limit",
            value=total,
        )
    if not (all(speed > 0 for speed in speeds) and total * sum(speeds) < inf):
        raise TrainingError(
            f"{list(speeds)}; each is above 0 and finite, and so are {total} times all of them",
            place="speeds",
            value=speeds,
        )
    shares, free, left, whole = caps.copy(), list(range(workers)), total, sum(speeds)
    while full := {rank for rank in free if left * speeds[rank] / whole >= caps[rank]}:
        free = [rank for rank in free if rank not in full]
        left -= sum(caps[rank] for rank in full)
        whole = sum(speeds[rank] for rank in free)
    for rank in free:
        shares[rank] = max(1, int(left * speeds[rank] / whole))
    while sum(shares) > total:  # where a whole sample is more than a worker's part
        slowest = max(
            (rank for rank in range(workers) if shares[rank] > 1), key=lambda rank: shares[rank] / speeds[rank]
        )
        shares[slowest] -= 1
    queue = [((share + 1) / speed, rank) for rank, (share, speed) in enumerate(zip(shares, speeds, strict=True))]
    heapq.heapify(queue)
    for _ in range(total - sum(shares)):
        while shares[queue[0][1]] >= caps[queue[0][1]]:
            heapq.heappop(queue)
        rank = queue[0][1]
        shares[rank] += 1
        heapq.heapreplace(queue, ((shares[rank] + 1) / speeds[rank], rank))
    return shares
