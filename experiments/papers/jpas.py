"""JPAS: jobs by their predicted gain of accuracy."""

from __future__ import annotations

from typing import Final

from ..repetition.learning_orders import LAST_END, MOST, NEARLY_ALL, ORACLE, learning_times
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
        Contender(ORACLE, "true curves: the bound"),
    ),
    figures=(MOST, NEARLY_ALL, LAST_END),
    regime="flow simulator in virtual time; 8 jobs of 4 workers on 16 hosts at 1 Gbit/s, which arrive one by one and "
    "follow real learning curves of small models (digits, MNIST, sparse SVM on text), 300 steps each; lognormal bytes",
    run_files=(),
    seeds=5,
    findings="Jobs reach 90 % of their accuracy in 24 % less time than with fair shares on average, and 95 % in 28 % "
    "less; the best draw has 49 % less, the worst 21 % more. The last job ends 2 % earlier. Orders that do not know "
    "progress are worse than fair shares here, for all jobs are equally long. JPAS needs 38 % more time than the same "
    "order with true curves: predictions from the first reports are poor, and more patience or the recent slope does "
    "not improve them.",
    measure=learning_times,
)
