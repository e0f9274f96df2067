"""Tesseract: 2.5-D tensor parallelism."""

from __future__ import annotations

from typing import Final

from ..repetition.paper import Contender, Paper
from ..repetition.tensor_parallel import STEP, block_times

DESCRIPTION: Final = Paper(
    name="tesseract",
    title="Tesseract: 2.5-D tensor parallelism",
    published="Wang et al., Tesseract: Parallelize the Tensor Parallelism Efficiently, ICPP 2022 (SUMMA2.5-LM)",
    headline="1.45 times as fast on [4, 4, 4] as on [8, 8, 1] ranks; 1.38 times as fast as 1-D (strong scaling)",
    system=Contender("tesseract", "2.5-D, [4, 4, 4]"),
    baselines=(
        Contender("optimus", "2-D, [8, 8, 1] (Optimus)", strong=True),
        Contender("megatron", "1-D, 64 ranks (Megatron-LM)", strong=True),
        Contender("tesseract-deep", "2.5-D, [2, 2, 16]: 4 times the weights in each rank"),
        Contender("data-parallel", "[1, 1, 64], data parallelism: 16 times the weights in each rank"),
        Contender("tesseract-switches", "2.5-D, switches copy and add"),
        Contender("optimus-switches", "2-D, switches copy and add"),
        Contender("megatron-switches", "1-D, switches add"),
    ),
    figures=(STEP,),
    regime="flow model of 64 ranks on a leaf-spine fabric of 8 leaves, 4 spines, 10 Gbit/s links; one transformer "
    "block of width 4,096 and inner width 16,384, float32; rows are samples times positions; communication only",
    run_files=(),
    seeds=3,
    findings="Depth pays where activations outweigh weights: [4, 4, 4] is slower than [8, 8, 1] up to 4 rows per "
    "column, and the paper's 1.45 is reached at about 20. Megatron-LM's 1-D division is faster than both up to 2 rows "
    "per column, and with sums in switches up to 8. Depth is paid with memory: a rank of [4, 4, 4] holds 1/16 of the "
    "weights, one of [8, 8, 1] or 1-D 1/64. With still more memory [2, 2, 16] is faster than [4, 4, 4] from about 20 "
    "rows per column on. Data parallelism takes 1.27 s with any number of rows, less than [4, 4, 4] at every size "
    "here. So the division is for weights that a rank cannot hold. Switches that copy and add hardly shorten a step: "
    "each rank still receives every block. [tensor-parallelism.md](tensor-parallelism.md) has the formulas and the "
    "layers.",
    measure=block_times,
)
