"""CrossoverScheduler: jobs that take turns on their devices."""

from __future__ import annotations

from typing import Final

from ..repetition.device_turns import FORMULA, OVERLAPPED, PERIOD, periods
from ..repetition.paper import Contender, Paper

DESCRIPTION: Final = Paper(
    name="crossover",
    title="CrossoverScheduler: turns on shared devices",
    published="Luo et al., CrossoverScheduler, arXiv 2103.07974 (known by its abstract)",
    headline="20 % faster training on ImageNet, with the same convergence",
    system=Contender("turns", "turns"),
    baselines=(
        Contender("one after the other", "one after the other"),
        Contender("uncoordinated", "uncoordinated", strong=True),
        Contender("shifted", "uncoordinated, shifted starts", strong=True),
        Contender(OVERLAPPED, "one after the other, 15/16 of the sums hidden", strong=True),
        Contender(FORMULA, "formula of turns"),
    ),
    figures=(PERIOD,),
    regime="flow simulator in virtual time; 2 or 4 equal jobs with a worker on each of 4 devices; c = 1 s of computing "
    "and m of exposed communication in a step",
    run_files=(),
    seeds=1,
    findings="The period in turns is that of the formula in all conditions: a speed-up of 1.2 at m = 0.2 c and of 2 at "
    "m = c over one job after the other. Jobs that start at the same time without turns stay in step and lose up to "
    "all of the gain. Shifted starts reach the same period with links of their own, and lose up to half of it "
    "where four jobs share a link. The jobs are equal here, which favours shifted starts. A job that hides 15/16 "
    "of its sums by itself gains little. Losses of real jobs in turns are not measured.",
    measure=periods,
)
