"""JPAS: jobs by their predicted gain of accuracy."""

from __future__ import annotations

from typing import Final

from ..repetition.learning_orders import LAST_END, NEARLY_ALL, NINETY_PERCENT, ORACLE, learning_times
from ..repetition.paper import Contender, Paper

DESCRIPTION: Final = Paper(
    name="jpas",
    title="JPAS: early stages of jobs first",
    published="Zhou et al., JPAS, Journal of Network and Computer Applications 158, 2020 (known by its abstract)",
    headline="up to 38 % less time to 90 % or 95 % of the converged accuracy, on 13 servers",
    system=Contender("jpas", "JPAS"),
    baselines=(
        Contender("fair", "fair shares", strong=True),
        Contender("fifo-lm", "FIFO-LM (Baraat)"),
        Contender("sincronia", "Sincronia, a step as coflow", strong=True),
        Contender("stage-srpt", "SRPT", strong=True),
        Contender("crux", "intensity (Crux)", strong=True),
        Contender(ORACLE, "the same order with true curves"),
    ),
    figures=(NINETY_PERCENT, NEARLY_ALL, LAST_END),
    regime="flow simulator in virtual time; 8 jobs of 4 workers on 16 hosts at 1 Gbit/s, which arrive one by one and "
    "follow real learning curves of small models (digits, MNIST, sparse SVM on text), 300 steps each; lognormal bytes",
    run_files=(),
    seeds=20,
    findings="The mean time to 90 % of the accuracy is 20 % less than with fair shares, but five draws do not show it "
    "surely: the interval includes no gain. The best draw has 49 % less, the worst 21 % more. The time to 95 % is 26 "
    "% less (8 to 45 %). The last job ends 2 % earlier. Orders that do not know progress are worse than fair shares "
    "here, since all jobs have the same number of steps. JPAS needs 43 % more time to 90 % than the same order with "
    "true curves, which is no lower bound: JPAS is faster in one draw. Predictions from the first reports are poor, "
    "and more patience or the recent slope does not improve them.",
    measure=learning_times,
)
