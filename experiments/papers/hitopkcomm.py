"""HiTopKComm: dense sums inside racks, the largest sums between them."""

from __future__ import annotations

from typing import Final

from ..repetition.hierarchical_sums import EXCHANGE, FORMULA, NETWORK, exchanges
from ..repetition.paper import Contender, Paper

DESCRIPTION: Final = Paper(
    name="hitopkcomm",
    title="HiTopKComm: dense sums in racks, the largest sums between them",
    published="Shi et al., Towards Scalable Distributed Training of Deep Learning on Public Cloud Clusters, MLSys 2021",
    headline="25 to 40 % faster training than the best systems of its time, 16 nodes of 8 GPUs over 25 Gbit/s",
    system=Contender("hitopkcomm", "HiTopKComm, rings in racks, 1 %"),
    baselines=(
        Contender("rack-switches", "HiTopKComm, racks sum in their switch, 1 %", strong=True),
        Contender("flat", "top-k, 1 %, one all-gather of all"),
        Contender("packed15", "packed(15): the 16-bit sum in the switches", strong=True),
        Contender("packed7", "packed(7), summed in the switches", strong=True),
    ),
    figures=(EXCHANGE, NETWORK, FORMULA),
    regime="2 racks of 4 workers, 2^20 normal numbers; links of 1 Gbit/s in the racks; all packets in virtual time; "
    "codecs in processor time of one core, overlapped with nothing; adding in rings takes no time",
    run_files=("papers/hitopkcomm.yaml",),
    seeds=3,
    findings="Times on the network are within 4 % of the formula for HiTopKComm and 2 % for sums by switches; the "
    "flat exchange takes 3 to 15 % longer than its formula. HiTopKComm pays where links between racks are slow: at "
    "100 Mbit/s it takes 4 % less time than the flat exchange and 65 % less than the 16-bit sum in the switches, at "
    "25 Mbit/s 60 and 88 % less. With links of one rate it is the slowest of all: the 16-bit sum takes 22 ms and "
    "packed(7) 13 ms instead of 57. By the formulas the 16-bit sum wins while the links between racks have at least a "
    "third of the rate inside, and packed(7) while they have a sixth. Racks that sum in their switch, and then "
    "exchange codes alone, take 22 to 30 % less time than rings in racks at every rate. Steps to an accuracy are not "
    "in these figures: a sum of 1 % needs error feedback, and dense sums lose less. The paper's 25 to 40 % are of "
    "whole training on GPUs, with links inside a node a hundred times as fast as between nodes.",
    measure=exchanges,
)
