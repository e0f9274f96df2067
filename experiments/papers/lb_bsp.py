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
    regime="without packets, virtual time; a call takes 0.15 ms and its bytes at 1 Gbit/s, a request for batch sizes "
    "0.2 ms; a network of 2,410 parameters on handwritten digits, held-out loss 0.3, and a sparse SVM of 65,537 "
    "parameters on text, held-out loss 0.75; batches of 16; eight modelled machines of 800 to 4,000 samples/s whose "
    "free share jumps every 150 or 1,500 ms",
    run_files=("papers/lb_bsp.yaml", "papers/lb_bsp_slow.yaml", "papers/lb_bsp_svm.yaml"),
    seeds=3,
    findings="The paper has 38.7 % less time than FlexRR. Here LB-BSP takes 5 % (digits) and 1 % (SVM) less than "
    "FlexRR with free messages if speeds jump every 1.5 s, and the intervals of both include 0. If a message takes 1 "
    "ms it takes 19 % less in both. If speeds jump every 150 ms, about seven steps, it takes 42 % longer: work "
    "stealing needs no prediction. NARX begins after 100 steps, which these trainings do not have, so LB-BSP uses the "
    "median of five speeds. By the last speed it is 25 % faster with the fast jumps, and 6 % slower than FlexRR. LB- "
    "BSP is faster than BSP, SSP and backup workers in all three, and than static balancing with the slow jumps. ASP "
    "is the fastest throughout: the problems are small and forgive stale gradients. FlexRR is reconstructed, with "
    "constants that are usually quoted.",
    measure=balanced_times_to_loss,
)
