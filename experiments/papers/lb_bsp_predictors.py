"""LB-BSP's predictors of speeds: NARX beside those that its paper compares."""

from __future__ import annotations

from typing import Final

from ..repetition.balanced_batches import ERROR, STEP, prediction_errors
from ..repetition.paper import Contender, Paper

DESCRIPTION: Final = Paper(
    name="lb-bsp-predictors",
    title="LB-BSP: predictors of speeds",
    published="Chen et al., Semi-Dynamic Load Balancing: Efficient Distributed Learning in Non-Dedicated Environments, "
    "SoCC 2020",
    headline="NARX has the smallest error and the shortest steps, beside memoryless, moving average, ARIMA, RNN, "
    "and LSTM",
    system=Contender("narx", "NARX"),
    baselines=(
        Contender("memoryless", "last speed"),
        Contender("ema", "moving average, weight 0.2"),
        Contender("median", "median of five"),
        Contender("ar", "AR(2)"),
        Contender("arima", "ARIMA(2, 1, 1)", strong=True),
        Contender("rnn", "RNN, last ten speeds"),
        Contender("lstm", "LSTM, last ten speeds", strong=True),
        Contender("lstm-reads", "LSTM, last ten speeds and readings", strong=True),
        Contender("oracle", "the true speed"),
    ),
    figures=(STEP, ERROR),
    regime="without network, and without thresholds that keep sizes; eight machines of 800 to 4,000 samples/s, 512 "
    "samples a step; free processor that jumps after 10 to 60 steps, 3 % noise, 3 % of steps twice as long; 600 steps, "
    "of which the last 450 count",
    run_files=(),
    seeds=2,
    findings="NARX is the best, as in the paper, and it alone of the paper's predictors reads the machine's load here. "
    "An LSTM that reads it, too, comes within 3 % of NARX's step. AR and ARIMA predict a little better than the last "
    "speed, but their steps are longer. RNN, LSTM, moving average and median are behind the last speed, since "
    "they smooth over jumps. Steps with true speeds are 18 to 20 % shorter than NARX's.",
    measure=prediction_errors,
)
