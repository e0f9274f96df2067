"""Rows that are needed soonest, by the order that is to come (Belady, 1966): the bound above which no cache is.

It is of use where sampling runs ahead of gathering by an epoch, as in Ginex; here it is what others are compared with.
The order is that of the loader's first epoch; afterwards it holds nothing.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..caching import Cache, CacheDescription, CacheSetting, ChangingCache
from ..graph import Nodes


def _make(setting: CacheSetting) -> Cache:
    order = setting.order()
    needed = np.full(setting.graph.nodes, np.inf)
    following = []
    for number in reversed(range(len(order))):
        following.append(needed[order[number]])
        needed[order[number]] = number
    following.reverse()
    first = np.argsort(needed, kind="stable")[: setting.capacity]
    first = first[np.isfinite(needed[first])]

    def rank(read: Nodes, candidates: Nodes, batch: int) -> NDArray[np.float64]:
        needed[read] = following[batch] if batch < len(following) else np.inf
        return needed[candidates]

    cache = ChangingCache(setting.graph.nodes, setting.capacity, rank)
    cache.hold(first, setting.fetch(first))
    return cache


DESCRIPTION: Final = CacheDescription("oracle", "rows that are needed soonest, from the order to come", _make)
