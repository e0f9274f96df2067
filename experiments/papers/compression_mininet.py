"""Packed sums in a switch beside PyTorch's ways over Gloo: time to an accuracy of real processes."""

from __future__ import annotations

from typing import Final

from ..repetition.paper import Contender, Paper
from ..repetition.process_courses import process_courses
from .compression import DESCRIPTION as ARITHMETIC

DESCRIPTION: Final = Paper(
    name="compression-mininet",
    title="Compression that switches sum, among PyTorch processes",
    published=ARITHMETIC.published,
    headline=ARITHMETIC.headline,
    system=Contender("packed8", "packed(8), summed in the switch"),
    baselines=(
        Contender("packed15", "packed(15): the 16-bit sum in the switch", strong=True),
        Contender("float32", "float32, summed in the switch"),
        Contender("bf16", "bfloat16 over Gloo", strong=True),
        Contender("powersgd", "PowerSGD of rank 4 over Gloo (PyTorch's hook)", strong=True),
        Contender("powersgd-weir", "PowerSGD of rank 4 over Weir (PyTorch's hook)", strong=True),
        Contender("topk", "top-k, 1 %, all-gather over Gloo", strong=True),
        Contender("dgc", "DGC, 1 %, all-gather over Gloo", strong=True),
        Contender("gloo", "float32 over Gloo"),
    ),
    figures=ARITHMETIC.figures,
    regime="DistributedDataParallel in processes in Mininet on weir-switch, wall clock; perceptrons of 9,610 (digits) "
    "and 25,450 parameters (5,000 images of MNIST), 8 workers at one switch, 16 samples of each in a step; links of "
    "40 Mbit/s, the rate that two cores carry; learning rates and momentum as in the entry compression",
    run_files=(),
    seeds=ARITHMETIC.seeds,
    findings="Steps are about those of the arithmetic in the entry compression: the hooks compute what it does. Times "
    "are not: a step takes 20 to 77 ms, of which its bytes at line rate are 1 to 36. The rest is turns of eight "
    "ranks, their relays and the switch on two cores, and packed sums have two exchanges one after the other, of "
    "scales and of lanes. So packed(8) takes 19 % less time than the 16-bit sum on MNIST, and about as much on "
    "digits. It is not faster than bfloat16 over Gloo: on digits that takes 40 % less, on MNIST the interval of the "
    "change includes 0. top-k takes less than half of the time, and so does DGC on MNIST. float32 over Gloo takes 46 "
    "% less than packed(8) on digits, whose 38 KB cross a link in 8 ms. Models this small do not pay for sums in the "
    "switch among processes that share two cores; the entry in-network-aggregation has 64 MB.",
    measure=process_courses,
)
