"""Nodes drawn at random: the bound below which no choice should be."""

from typing import Final

from ..caching import Cache, Description, Setting, keep_best


def _make(setting: Setting) -> Cache:
    return keep_best(setting, setting.rng.random(setting.graph.nodes))


DESCRIPTION: Final = Description("random", "nodes drawn at random", _make)
