"""Weir: in-network aggregation for distributed training.

Importing this package costs nothing: each name here is loaded when it is first used.

`join` takes a seat in a job and returns a `Communicator`, whose collectives sum in the switches; `serve` is the seat of
a job's parameter server; `connect` sends messages between two hosts. `DistributedOptimizer` wraps one of PyTorch's.
`Topology` is a fabric as data: `load_topology` reads one, `leaf_spine` and `fat_tree` make regular ones. `Program`,
`Switch` and `Fabric` run compiled P4 programs in virtual time; `run` runs a run file. `Forest` is a classifier for
switches, `Classifier` asks them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .controller.inference.forest import Forest
    from .emulator import Fabric, Program, Switch
    from .experiments.start import run
    from .hosts import (
        Classifier,
        Communicator,
        Compression,
        ControlClient,
        HostError,
        Transport,
        TransportOptions,
        connect,
        join,
        serve,
    )
    from .hosts.collectives.operations import AdaCons, Adasum, Average, Sum
    from .hosts.torch.distributed_optimizer import DistributedOptimizer
    from .topologies import Topology, TopologyError, dump_topology, fat_tree, leaf_spine, load_topology
elif __package__:  # pytest loads this file by itself where the checkout's folder has a name that no package can have
    from .imports.extras import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "controller.inference.forest": ("Forest",),
            "emulator": ("Fabric", "Program", "Switch"),
            "experiments.start": ("run",),
            "hosts": (
                "Classifier",
                "Communicator",
                "Compression",
                "ControlClient",
                "HostError",
                "Transport",
                "TransportOptions",
                "connect",
                "join",
                "serve",
            ),
            "hosts.collectives.operations": ("AdaCons", "Adasum", "Average", "Sum"),
            "hosts.torch.distributed_optimizer": ("DistributedOptimizer",),
            "topologies": ("Topology", "TopologyError", "dump_topology", "fat_tree", "leaf_spine", "load_topology"),
        },
    )

__version__ = "0.2.0"

__all__ = [
    "AdaCons",
    "Adasum",
    "Average",
    "Classifier",
    "Communicator",
    "Compression",
    "ControlClient",
    "DistributedOptimizer",
    "Fabric",
    "Forest",
    "HostError",
    "Program",
    "Sum",
    "Switch",
    "Topology",
    "TopologyError",
    "Transport",
    "TransportOptions",
    "__version__",
    "connect",
    "dump_topology",
    "fat_tree",
    "join",
    "leaf_spine",
    "load_topology",
    "run",
    "serve",
]
