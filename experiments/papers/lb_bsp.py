"""LB-BSP: batch sizes that follow the workers' speeds."""

from __future__ import annotations

from typing import Final

from ..repetition.balanced_batches import balanced_times_to_loss
from ..repetition.measures import TIME_TO_LOSS
from ..repetition.paper import Contender, Paper

DESCRIPTION: Final = Paper(
    name="lb-bsp",
    title="LB-BSP: load-balanced batch sizes",
    published="Chen et al., Semi-Dynamic Load Balancing: Efficient Distributed Learning in Non-Dedicated Environments, "
    "SoCC 2020",
    headline="up to 54 % less time to converge than BSP (16 GPU nodes of four kinds); 38.7 % less than FlexRR, the "
    "second best (32 CPU nodes)",
    system=Contender("lb-bsp", "LB-BSP"),
    baselines=(
        Contender("bsp", "BSP"),
        Contender("static", "static balancing by rated speeds"),
        Contender("flexrr", "FlexRR, free messages", strong=True),
        Contender("flexrr delay_ms=0.1", "FlexRR, messages of 0.1 ms", strong=True),
        Contender("flexrr delay_ms=1", "FlexRR, messages of 1 ms", strong=True),
        Contender("ssp", "SSP, staleness 3"),
        Contender("asp", "ASP", strong=True),
        Contender("backup", "backup workers, 7 of 8"),
        Contender("easgd", "elastic averaging, period 4", strong=True),
        Contender("lb-bsp predictor=memoryless", "LB-BSP by the last speed"),
    ),
    figures=(TIME_TO_LOSS,),
    regime="aggregation protocol in the packet fabric, virtual time; a network of 2,410 parameters on handwritten "
    "digits; eight modelled machines of 800 to 4,000 samples/s whose free share jumps every 150 ms; held-out loss 0.3",
    run_files=("papers/lb_bsp.yaml", "papers/lb_bsp_slow.yaml", "papers/lb_bsp_svm.yaml"),
    seeds=3,
    findings="LB-BSP is faster than BSP and SSP. ASP and elastic averaging are faster than LB-BSP here: the problem is "
    "small and forgives stale gradients. FlexRR, the paper's second best, is not implemented. Machines are modelled, "
    "gradients and packets are real ([docs/training.md](../docs/training.md)).",
    measure=balanced_times_to_loss,
)
