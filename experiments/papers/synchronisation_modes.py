"""BSP over sums in the switches, beside modes that wait less or exchange less."""

from __future__ import annotations

from typing import Final

from ..repetition.measures import TIME_TO_LOSS, times_to_loss
from ..repetition.paper import Contender, Paper

DESCRIPTION: Final = Paper(
    name="synchronisation-modes",
    title="Synchronisation modes on equal machines",
    published="Chen et al., Round-Robin Synchronization (R²SP), INFOCOM 2019; SSP, local SGD and "
    "elastic averaging by their papers",
    headline="on GPU clusters ASP and SSP took 1.07 to 2.39 times as long as BSP",
    system=Contender("bsp", "BSP, summed in switches"),
    baselines=(
        Contender("ssp", "SSP, staleness 3", strong=True),
        Contender("asp", "ASP", strong=True),
        Contender("r2sp", "R²SP, relaxation 0.8", strong=True),
        Contender("local", "local SGD, period 4", strong=True),
        Contender("easgd", "elastic averaging, period 4"),
    ),
    figures=(TIME_TO_LOSS,),
    regime="aggregation protocol in the packet fabric, virtual time; a network of 2,410 parameters on handwritten "
    "digits; eight equal modelled machines with 3 % noise and 3 % of iterations twice as long; held-out loss 0.3",
    run_files=("papers/synchronisation.yaml",),
    seeds=3,
    findings="The machines are equal, so waiting costs BSP only the noise; on machines of several speeds it loses by "
    "far (entry lb-bsp). The problem is small, and stale gradients cost few updates.",
    measure=times_to_loss,
)
