"""Grouper: the order of the stages of hyper-parameter searches."""

from __future__ import annotations

from typing import Final

from ..repetition.paper import Contender, Paper
from ..repetition.search_orders import BOUND, STAGE_TIME, stage_times

DESCRIPTION: Final = Paper(
    name="grouper",
    title="Grouper: stages of hyper-parameter searches",
    published="Zhou, Yu, Sun, Grouper, IEEE TNSM 17(3), 2020 (known by its abstract)",
    headline="mean stage completion time below Baraat, Sincronia and fair sharing; the abstract has no figure",
    system=Contender("grouper", "Grouper"),
    baselines=(
        Contender("fair", "fair shares"),
        Contender("fifo-lm", "FIFO-LM (Baraat)"),
        Contender("sebf", "SEBF (Varys)", strong=True),
        Contender("sincronia", "Sincronia, a step as coflow", strong=True),
        Contender("sincronia-rest", "Sincronia, steps left known"),
        Contender("crux", "intensity (Crux)", strong=True),
        Contender("stage-srpt", "stage SRPT", strong=True),
        Contender(BOUND, "lower bound (linear program)"),
    ),
    figures=(STAGE_TIME,),
    regime="flow simulator; 6 to 12 searches by successive halving from 2, 4 or 8 configurations of 4 workers each on "
    "16 hosts at 1 Gbit/s; lognormal sizes, σ = 0.5; five traffic classes, 5 % of each link left to the lowest",
    run_files=(),
    seeds=20,
    findings="The mean stage takes 0.61 of the time with fair shares, and 0.84 of that with Sincronia (σ = 1: 0.61 "
    "and 0.89). SEBF, which knows no stages either, is ahead of Sincronia: Grouper takes 0.87 of its time (σ = 1: "
    "0.90), and more than it in some draws. Knowledge of stages makes most of the gain: stage SRPT, which has it too, "
    "needs 0.70 of fair shares, so the primal-dual order gains another 12 % (8 % with σ = 1). Sincronia with all "
    "steps left known is worse than with single steps, for successive halving doubles the steps of each stage. The "
    "mean is 1.4 times the lower bound, which counts neither order within a link nor steps that wait for computing. "
    "Both fabrics give the same figures: with sums in switches the hosts' links are the bottleneck.",
    measure=stage_times,
)
