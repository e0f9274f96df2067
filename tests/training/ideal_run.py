"""A whole training job in virtual time, without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weir.training import Course, Machine, Mode, Processes, Training, TrainingPlan, Workload
from weir.training.ideal import Clock, IdealJob, run
from weir.training.workloads.synthetic import LeastSquares


def train(
    mode: Mode,
    machines: Sequence[Machine],
    done: Callable[[Course], bool],
    *,
    workload: Workload | None = None,
    batch: int = 32,
    learning_rate: float = 0.5,
    momentum: float = 0.0,
    delay_ns: Callable[[int], int] = lambda _: 0,
    seed: int = 1,
) -> tuple[Course, Training]:
    """Train until `done`; a call of `bytes` takes `delay_ns(bytes)` once everyone has made it."""
    workload = workload or LeastSquares(8, 256, seed=seed)
    clock, course = Clock(), Course(workload.loss)
    plan = TrainingPlan(mode, len(machines), batch, learning_rate, momentum, seed)
    training = Training(plan, workload, course, machines)
    if mode.summed:
        jobs = [IdealJob(clock, len(machines), delay_ns)]
        processes = training.summed(jobs[0].communicators)
    else:
        jobs = [IdealJob(clock, 2, delay_ns) for _ in machines]
        processes = training.served([(job.communicators[0], job.communicators[1]) for job in jobs])
    running = Processes(processes, training.cost_ns)
    run(running, clock, jobs, lambda: done(course))
    return course, training
