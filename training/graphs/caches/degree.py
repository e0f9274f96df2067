"""Nodes from which most edges go: PaGraph's choice (Lin et al., SoCC 2020)."""

from typing import Final

from ..caching import Cache, CacheDescription, CacheSetting, keep_best


def _make(setting: CacheSetting) -> Cache:
    return keep_best(setting, setting.graph.out_degrees)


DESCRIPTION: Final = CacheDescription("degree", "nodes with most outgoing edges", _make)
