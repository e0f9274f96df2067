"""The decision tree in the switch of AGG's outlook, as a forest."""

from __future__ import annotations

from typing import Final

from ..repetition.decision_forest import ACCURACY, accuracies
from ..repetition.paper import Contender, Paper

DESCRIPTION: Final = Paper(
    name="decision-forest",
    title="Decision forest in the switch",
    published="the outlook of AGG, known by its summary; the mapping is that of Zheng et al., Planter, CCR 2024",
    headline="a decision tree in the switch that recognises handwritten digits is in use; no figures are known",
    system=Contender("switch", "hard vote by packets in the switch (Weir)"),
    baselines=(
        Contender("soft", "mean of the trees' probabilities on the host (scikit-learn)", strong=True),
        Contender("large", "100 trees of any size on the host", strong=True),
        Contender("svm", "support vector machine on the host", strong=True),
        Contender("hard", "hard vote on the host"),
        Contender("tree", "one of the trees"),
    ),
    figures=(ACCURACY,),
    regime="scikit-learn's 1,797 digits of 8 × 8 pixels, 450 held out; the emulated switch, a packet for each image",
    run_files=(),
    seeds=3,
    findings="The switch decides every image as the hard vote on the host does. The mean of probabilities, which a "
    "switch does not have, is right for 0.6 to 0.7 % of the images more. Models without the tables' limits are "
    "better: 100 trees of any size are right for 97.2 % of the images, a support vector machine for 98.9 %. "
    "[inference.md](inference.md) has the tables and their limits.",
    measure=accuracies,
)
