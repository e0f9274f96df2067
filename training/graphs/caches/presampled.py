"""Nodes that an epoch of samples, drawn before, reads most often: GNNLab's choice (Yang et al., EuroSys 2022)."""

from typing import Final

from ..caching import Cache, CacheDescription, CacheSetting, keep_best


def _make(setting: CacheSetting) -> Cache:
    return keep_best(setting, setting.visits())


DESCRIPTION: Final = CacheDescription("presampled", "nodes read most often in an epoch that is sampled before", _make)
