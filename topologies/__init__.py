"""Fabrics as data: hosts, switches and links, read from YAML or generated, validated, routed and drawn.

`Topology` is the model that every other room shares; `Routes` says through which ports a node reaches each address;
`topologies.mininet.fabric` builds a fabric of processes and packets.
This package imports nothing of ours.
"""

from .errors import TopologyError
from .generators import fat_tree, leaf_spine
from .model import Endpoint, Host, Link, Node, Switch, Topology, mac_number, mac_of
from .routing import Routes
from .schema import dump_topology, load_topology

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
    "leaf_spine",
    "load_topology",
    "mac_number",
    "mac_of",
]
