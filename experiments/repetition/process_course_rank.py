"""One rank of courses of training, a process in its host: `python -m weir.experiments.repetition.process_course_rank
COURSES`.

torchrun's variables and the back end's are in the environment. The model is trained by DistributedDataParallel, over
the back end weir or over Gloo in the same process. Rank 0 prints a line of JSON for each course: an `Outcome`.

PyTorch compares the annotations of hooks with its classes, so this module does not postpone their evaluation.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from ...hosts.torch import hooks
from ...training.samples import Samples
from ...training.workload import Batch, Floats, Workload
from ...training.workloads import make_workload
from .compressed_steps import MOMENTUM, POWER_RANK, SAMPLES, shapes_of
from .process_course import COURSES, OUTCOME, Course, Outcome

_WARM_UP: Final = 4
"""Steps before a course that are not counted: compiled code, rebuilt buckets, PowerSGD's steps without compression."""


class _Perceptron(torch.nn.Module):  # type: ignore[misc]
    """A workload's parameters as matrices and vectors; its output is the loss over a batch."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self._workload = workload
        parts = np.split(workload.initial(), np.cumsum(workload.layers)[:-1])
        shaped = zip(parts, shapes_of(workload.layers), strict=True)
        self.parts = torch.nn.ParameterList(
            torch.nn.Parameter(torch.from_numpy(part.reshape(shape).copy())) for part, shape in shaped
        )

    def forward(self, batch: Batch) -> Any:
        return self._workload.torch_loss(torch.cat([part.ravel() for part in self.parts]), batch)

    def weights(self) -> Floats:
        """Return the flat weights (parameters,)."""
        flat: Floats = torch.cat([part.detach().ravel() for part in self.parts]).numpy()
        return flat


def _bfloat16_hook(group: Any, bucket: dist.GradBucket) -> Future[torch.Tensor]:
    """Average a bucket in bfloat16 as PyTorch's `bf16_compress_hook` does, which is refused without NCCL."""
    numbers = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size(group))
    summed = dist.all_reduce(numbers, group=group, async_op=True).get_future()

    def done(waited: Future[Any]) -> torch.Tensor:
        total: torch.Tensor = bucket.buffer().copy_(waited.value()[0])
        return total

    return summed.then(done)


def _register(model: DistributedDataParallel, course: Course, group: Any) -> None:
    """Register a course's hook. Raises KeyError for an unknown one."""
    if course.hook == "float32":
        return
    states: dict[str, tuple[Any, Any]] = {
        "packed8": (hooks.packed_hook, lambda: hooks.PackedState(8, process_group=group)),
        "packed15": (hooks.packed_hook, lambda: hooks.PackedState(15, process_group=group)),
        "bf16": (_bfloat16_hook, lambda: group),
        "powersgd": (
            powerSGD_hook.powerSGD_hook,
            lambda: powerSGD_hook.PowerSGDState(
                group, matrix_approximation_rank=POWER_RANK, start_powerSGD_iter=2, min_compression_rate=1
            ),
        ),
        "topk": (hooks.topk_hook, lambda: hooks.TopKState(course.ratio, process_group=group)),
        "dgc": (hooks.dgc_hook, lambda: hooks.DgcState(course.ratio, MOMENTUM, process_group=group)),
    }
    hook, state = states[course.hook]
    model.register_comm_hook(state(), hook)


class _Training:
    """A course's model, optimiser and samples at this rank."""

    def __init__(self, course: Course, workload: Workload, group: Any) -> None:
        self.network = _Perceptron(workload)
        self._workload = workload
        self._model = DistributedDataParallel(self.network, process_group=group)
        _register(self._model, course, group)
        self._optimiser = torch.optim.SGD(self.network.parameters(), lr=course.rate, momentum=course.momentum)
        self._samples = Samples(workload.rows, (course.seed, 0))
        self._sizes = [SAMPLES] * dist.get_world_size()

    def step(self, number: int) -> None:
        """Make one step with all ranks."""
        batch = self._workload.fetch(self._samples.share(number, self._sizes, dist.get_rank()))
        self._optimiser.zero_grad()
        self._model(batch).backward()
        self._optimiser.step()


def train(course: Course, group: Any, gloo: Any) -> Outcome:
    """Train at all ranks until the accuracy is reached, and return the outcome, the same at all.

    Args:
        course: The course.
        group: Group of the back end that sums gradients.
        gloo: Group in which ranks agree on times, outside of what is timed.
    """
    workload = make_workload(course.workload, course.seed, course.hidden)
    held_out = workload.held_out()
    warming = _Training(course, workload, group)
    for number in range(_WARM_UP):
        warming.step(number)
    training, seconds = _Training(course, workload, group), 0.0
    for number in range(course.limit):
        dist.barrier(gloo)
        started = time.perf_counter()
        training.step(number)
        taken = time.perf_counter() - started
        reached = False
        if dist.get_rank() == 0:
            reached = workload.batch_accuracy(training.network.weights(), held_out) >= course.accuracy
        agreed = torch.tensor([taken, float(reached)])
        dist.all_reduce(agreed, dist.ReduceOp.MAX, group=gloo)
        seconds += float(agreed[0])
        if agreed[1]:
            return Outcome(number + 1, seconds)
    return Outcome(None, seconds)


def main(courses: Sequence[Course]) -> None:
    """Run the courses one after another."""
    torch.set_num_threads(1)  # many processes share few cores
    dist.init_process_group("weir")
    gloo = dist.new_group(backend="gloo")
    for course in courses:
        outcome = train(course, dist.group.WORLD if course.back_end == "weir" else gloo, gloo)
        if dist.get_rank() == 0:
            sys.stdout.write(OUTCOME.dump_json(outcome).decode() + "\n")
            sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(COURSES.validate_json(sys.argv[1]))
