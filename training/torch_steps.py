"""Load-balanced BSP for PyTorch scripts: a sampler with sizes of its own for each rank, and one call a step.

It works with any loss that is a mean over the batch. Over the back end "weir" the controller decides the sizes; over
any other, where there is no controller, every rank does from the reports of all. The script multiplies its
loss by `scale`, since DistributedDataParallel's mean over the ranks would count each of a small batch's samples more.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from .batching.manager import BatchSizeManager, RuleName, Turns
from .batching.reporter import REPORT_VALUES, SpeedReporter
from .errors import TrainingError
from .machines import Readings
from .samples import Samples

Batch = TypeVar("Batch")


class BalancedSampler:
    """A `batch_sampler` of a DataLoader: row numbers of this rank's share of each step's batch.

    All ranks make it alike, after `init_process_group`, and iterate as often. Rows that a pass leaves over come first
    in the next one.
    """

    def __init__(
        self,
        rows: int,
        total: int,
        model: Any,
        *,
        rule: RuleName = "analytic",
        predictor: str = "narx",
        seed: int = 0,
        group: Any = None,
    ) -> None:
        """Create the sampler of this rank; all ranks of the group do so with equal arguments.

        Args:
            rows: Number of rows of the data set.
            total: Samples of a step, which the ranks share.
            model: Model whose last gradient ends this rank's step: waiting for the others' is not in its time.
            rule: Rule for sizes, "analytic" or "numeric".
            predictor: Predictor of speeds, by name.
            seed: Seed of the order of rows.
            group: Process group; None: the default one.

        Raises:
            TrainingError: `total` is below the number of ranks, or above `rows`.
        """
        self._rank: int = dist.get_rank(group)
        self._ranks: int = dist.get_world_size(group)
        if not self._ranks <= total <= rows:
            raise TrainingError(
                f"a batch of {total} of {rows} rows for {self._ranks} ranks; each has one at least, and a pass a step"
            )
        self._group = group
        self._rows = rows
        self._total = total
        self._samples = Samples(rows, (seed,))
        self._manager = BatchSizeManager(total, self._ranks, rule=rule)
        self._reporter = SpeedReporter(predictor, rule=rule)
        self._rule: RuleName = rule
        self._turns = Turns(rule)
        self._sizes = self._manager.sizes
        self._meter = _Meter()
        self._drawn = 0
        self._under_way: deque[tuple[list[int], float]] = deque()
        """Everyone's sizes, and when they were handed out, of the steps that were drawn and are not done."""
        self._computed_s = 0.0
        self.loading_s = 0.0
        """Wait for the batch that `batches` returned last, in seconds. It is not part of the step's time."""
        self._asked: Callable[[], list[int] | None] | None = None
        """Waits for the answer to the last question: everyone's sizes, or None where they stay; None: it was taken."""
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._note)

    def __len__(self) -> int:
        """Steps of a pass."""
        return self._rows // self._total

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(len(self)):
            self._receive_answer()
            sizes = self._sizes
            rows = self._samples.share(self._drawn, sizes, self._rank)
            self._drawn += 1
            self._under_way.append((sizes, time.monotonic()))
            yield rows.tolist()

    def batches(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Iterate over a loader of this sampler, and begin a step when its batch is there.

        Otherwise a step begins when its rows are drawn, and a rank with a slow loader looks like a slow rank: it would
        be given fewer samples, which do not make it faster.

        Args:
            loader: Loader of this sampler's batches.
        """
        batches = iter(loader)
        while True:
            began_s = time.monotonic()
            try:
                batch = next(batches)
            except StopIteration:
                return
            loaded_s = time.monotonic()
            self.loading_s = loaded_s - began_s
            sizes, _ = self._step_under_way()
            self._under_way[0] = sizes, loaded_s
            yield batch

    @property
    def sizes(self) -> list[int]:
        """Samples of each rank in the step that is under way."""
        return self._step_under_way()[0]

    @property
    def scale(self) -> float:
        """Factor on this rank's mean loss with which the mean over ranks becomes the mean over samples."""
        taking_part = sum(size > 0 for size in self.sizes)  # the mean is over those who are left
        return self.sizes[self._rank] * taking_part / self._total

    def step(self) -> None:
        """Report this rank's speed and ask for the next step's sizes.

        Call it on every rank after `backward()`. The question is left out if the analytic rule has just kept the sizes.
        The call does not wait; the next batch is drawn when the answer is there.

        Raises:
            ControlRefused: the controller has no sizes. Raised by this call, or when the next batch is drawn.
        """
        sizes, began_s = self._step_under_way()
        if self._computed_s <= began_s:
            raise TrainingError("step() without a backward pass since the batch was drawn; call it after backward()")
        self._receive_answer()
        self._under_way.popleft()
        if self._under_way:  # a loader that fetches ahead drew it before: it begins now
            ahead, drawn_s = self._under_way[0]
            self._under_way[0] = ahead, max(drawn_s, time.monotonic())
        self._reporter.observe(sizes[self._rank], self._computed_s - began_s)
        report = self._reporter.report(self._meter.read())
        if self._turns.due():
            self._asked = self._request_sizes(report)

    def _request_sizes(self, report: NDArray[np.float64]) -> Callable[[], list[int] | None]:
        group = self._group or dist.group.WORLD
        if self._ranks > 1 and hasattr(group, "batch_sizes"):
            question = group.batch_sizes(report.tolist(), self._total, self._rule)

            def told() -> list[int] | None:
                (sizes,) = question.result()
                return sizes.tolist() if sizes.any() else None

            return told
        reports = [torch.empty(REPORT_VALUES, dtype=torch.float64) for _ in range(self._ranks)]
        gathering = dist.all_gather(reports, torch.from_numpy(report), group=self._group, async_op=True)

        def decided() -> list[int]:
            gathering.wait()
            return self._manager.decide(np.stack([each.numpy() for each in reports]))

        return decided

    def _receive_answer(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            answer = asked()
            self._turns.decided(changed=answer not in (None, self._sizes))
            self._sizes = answer or self._sizes

    def _step_under_way(self) -> tuple[list[int], float]:
        if not self._under_way:
            raise TrainingError("no step is under way; draw a batch from the sampler first")
        return self._under_way[0]

    def _note(self, _: Any) -> None:
        self._computed_s = time.monotonic()


class _Meter:
    """Shares of this machine's processors and memory that are free for this process, from Linux's /proc."""

    def __init__(self) -> None:
        self._before = self._times()

    def read(self) -> Readings:
        """Read the machine since the last reading. Values that cannot be read count as free."""
        before, self._before = self._before, self._times()
        total, free = self._before[0] - before[0], self._before[1] - before[1]
        cpu = min(max(free / total, 0.01), 1.0) if total > 0 else 1.0
        return Readings(cpu, _free_memory())

    @staticmethod
    def _times() -> tuple[float, float]:
        """Seconds of all processors together: all, and those that were idle or this process's own."""
        try:
            fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        except (OSError, ValueError):
            return 0.0, 0.0
        ticks = os.sysconf("SC_CLK_TCK")
        return sum(fields) / ticks, (fields[3] + fields[4]) / ticks + time.process_time()


def _free_memory() -> float:
    try:
        pairs = [line.split(":") for line in Path("/proc/meminfo").read_text().splitlines()]
        kilobytes = {name: int(value.split()[0]) for name, value in pairs}
        return max(kilobytes["MemAvailable"] / kilobytes["MemTotal"], 0.01)
    except (OSError, ValueError, KeyError):
        return 1.0
