"""Rows that were read last: the cache of operating systems."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..caching import Cache, CacheDescription, CacheSetting, ChangingCache
from ..graph import Nodes


def _make(setting: CacheSetting) -> Cache:
    last = np.full(setting.graph.nodes, -1, np.int64)

    def rank(read: Nodes, candidates: Nodes, batch: int) -> NDArray[np.float64]:
        last[read] = batch
        return -last[candidates].astype(np.float64)

    return ChangingCache(setting.graph.nodes, setting.capacity, rank)


DESCRIPTION: Final = CacheDescription("lru", "rows that were read last", _make)
