"""Nodes drawn at random: the bound below which no choice should be."""

from typing import Final

from ..caching import Cache, CacheDescription, CacheSetting, keep_best


def _make(setting: CacheSetting) -> Cache:
    return keep_best(setting, setting.rng.random(setting.graph.nodes))


DESCRIPTION: Final = CacheDescription("random", "nodes drawn at random", _make)
