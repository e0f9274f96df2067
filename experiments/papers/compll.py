"""CompLL: codecs generated from a few dozen lines."""

from __future__ import annotations

from typing import Final

from ..repetition.codec_speeds import ENCODE, codec_speeds
from ..repetition.paper import Contender, Paper

DESCRIPTION: Final = Paper(
    name="compll",
    title="CompLL: codecs generated from a few dozen lines",
    published="Bai et al., Gradient Compression Supercharged High-Performance Data Parallel DNN Training (HiPress), "
    "SOSP 2021",
    headline="generated codecs encode 256 MB up to 12 times as fast as public code, on GPUs",
    system=Contender("compll", "CompLL, native code (Numba)"),
    baselines=(
        Contender("numpy", "plain NumPy, as public collections have it", strong=True),
        Contender("torch", "PyTorch, operator by operator", strong=True),
        Contender("torch-compile", "PyTorch, torch.compile", strong=True),
    ),
    figures=(ENCODE,),
    regime="arrays of 64 MiB of normal float32 numbers; processor time of one core, in turns; "
    "codecs of examples/codecs with their default options",
    run_files=(),
    seeds=3,
    findings="With 64 MiB generated encoders are 12 (onebit) and 10 (TernGrad) times as fast as plain NumPy, DGC 7, "
    "GradDrop 5 and TBQ 4 times: the paper's 12 holds for two of five. Where NumPy makes few passes of vector "
    "instructions, a single pass can save no more; [results.md](results.md) has the bound of one core, and 256 MiB. "
    "Beside torch.compile they are 3 (TBQ) to 20 (DGC) times as fast, but onebit is not faster: its two sums and its "
    "packing are loops that PyTorch joins as well. torch.compile does not help sparse encoders, whose selections it "
    "leaves to PyTorch's operators, and TernGrad, whose random numbers cost most. The texts in CompLL have 15 to 28 "
    "lines each, NumPy's and PyTorch's functions 5 to 18. The machine was busy. Another one with another processor, "
    "quiet, had 13 (onebit), 10 (TernGrad), 6 (TBQ), 3.6 (DGC) and 2.9 times (GradDrop) NumPy's speed, and 6 to 24 "
    "times that of torch.compile, but for onebit. torch.compile on a GPU is not measured.",
    measure=codec_speeds,
)
