"""Fabrics as data: hosts, switches and links, read from YAML or generated, validated, routed and drawn.

`Topology` is the model that all other packages share; `Routes` says through which ports a node reaches each address;
`topologies.mininet.fabric` builds a fabric of processes and packets. The modules that read files are loaded when they
are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import TopologyError
from .generators import fat_tree, jellyfish, leaf_spine, random_fabric
from .model import Endpoint, Host, Link, Node, Switch, Topology, mac_number, mac_of
from .routing import Routes

if TYPE_CHECKING:
    from .schema import dump_topology, load_topology
else:
    from ..imports.extras import lazily

    __getattr__, __dir__ = lazily(__name__, {"schema": ("dump_topology", "load_topology")})

__all__ = [
    "Endpoint",
    "Host",
    "Link",
    "Node",
    "Routes",
    "Switch",
    "Topology",
    "TopologyError",
    "dump_topology",
    "fat_tree",
    "jellyfish",
    "leaf_spine",
    "load_topology",
    "mac_number",
    "mac_of",
    "random_fabric",
]
