"""Adasum and AdaCons beside means, sums, LARS and LAMB: steps to a held-out loss."""

from __future__ import annotations

from typing import Final

from ..repetition.large_batches import BEST_RATE, SAME_RATE, batch_courses
from ..repetition.paper import Contender, Paper

DESCRIPTION: Final = Paper(
    name="adasum",
    title="Adasum: gradients of large batches",
    published="Maleki et al., Scaling Distributed Training with Adaptive Summation, MLSys 2021",
    headline="30 % fewer steps to the same accuracy of BERT-Large and ResNet-50 in large batches",
    system=Contender("adasum", "Adasum"),
    baselines=(
        Contender("mean", "mean", strong=True),
        Contender("sum", "sum"),
        Contender("racks", "mean in racks of 4, Adasum among them"),
        Contender("adacons", "AdaCons", strong=True),
        Contender("lars", "LARS of the mean"),
        Contender("lamb", "LAMB of the mean", strong=True),
    ),
    figures=(BEST_RATE, SAME_RATE),
    regime="perceptrons with 32 hidden units, 32 samples of each worker in a step, no momentum; digits (1,797 images) "
    "and 5,000 images of MNIST; 200 steps at most; one rate is 0.4, and the best is that of seven powers of 2 for each "
    "seed",
    run_files=(),
    seeds=3,
    findings="At one rate that is too low for the mean, Adasum needs about half of its steps on digits, more than the "
    "paper reports; on MNIST, where that rate suits the mean, it needs more. At each one's best rate Adasum "
    "needs about as many steps as the mean, but 26 % more on MNIST with 8 workers: the gain is that of a longer step. "
    "AdaCons is close to the mean. LARS and LAMB need fewest at their best rates, which are far from the common one.",
    measure=batch_courses,
)
