"""Sums in a switch, beside the ring of Gloo over the same links."""

from __future__ import annotations

from typing import Final

from ..repetition.measures import GOODPUT, all_reduce
from ..repetition.paper import Contender, Paper

DESCRIPTION: Final = Paper(
    name="in-network-aggregation",
    title="In-network aggregation beside a ring",
    published="SwitchML (NSDI 2021) and ATP (NSDI 2021), whose common idea is repeated; Gloo is PyTorch's CPU back end",
    headline="SwitchML: up to 5.5 times the training throughput, 2.27 times that of NCCL over RDMA at 100 Gbit/s",
    system=Contender("weir", "Weir, summed in the switch"),
    baselines=(Contender("gloo", "Gloo's ring", strong=True),),
    figures=(GOODPUT,),
    regime="processes in Mininet on weir-switch, wall clock; all-reduce of 64 MB of float32 among 8 processes over "
    "links of 40 Mbit/s, the rate that two cores carry",
    run_files=(),
    seeds=3,
    findings="Each link carries the tensor once; a ring of 8 carries 1.75 times as much. Two cores run all processes "
    "and switches. Gloo is faster for tensors up to 16 KB ([results.md](results.md)).",
    measure=all_reduce,
)
