"""Synchronisation as a graph of tasks in two queues, as CaSync has it (HiPress, SOSP 2021).

::

    compute queue   encode 1 │ encode 2 │ encode 3 │ decode 1 │ …
    network queue            │ merge 1  │ merge 2  │ merge 3  │ …

The network queue keeps its order, so that all workers make the same calls one after the other. The compute queue takes
the first task that is ready. Tasks that feed the network stand before those that only finish a gradient.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..errors import InvalidTensor
from .selective import CommunicationCosts, SummationChoice, choices, plan

COMPUTE: Final = "compute"
NETWORK: Final = "network"
QUEUES: Final = (COMPUTE, NETWORK)


@dataclass(frozen=True, slots=True)
class Task:
    """One step of one gradient's synchronisation."""

    kind: str
    """encode, decode, merge, send or receive."""
    queue: str
    """One of `QUEUES`."""
    gradient: int
    part: int
    after: tuple[int, ...] = ()
    """Tasks that end before this one begins, by their places in the graph."""
    time_ms: float = 0.0
    """Predicted duration."""

    @property
    def name(self) -> str:
        """Kind, gradient and part, such as "encode 3.0"."""
        return f"{self.kind} {self.gradient}.{self.part}"


@dataclass(frozen=True, slots=True)
class Span:
    """Time of one task, in ms from the start of the schedule."""

    start_ms: float
    end_ms: float


Stage = tuple[str, str, float]
"""Kind, queue and duration in ms of one task in the chain of a gradient's part."""


def stages(choice: SummationChoice, costs: CommunicationCosts, nodes: int, size: int) -> list[Stage]:
    """Return the chain of tasks of a gradient, as one of the workers has it: by the switches, of each part.

    The switches merge codes that can be summed. A server decodes and merges all codes, and encodes their sum; every
    worker is the server of at most one part. In a ring every worker does so with the codes of its neighbour.

    Args:
        choice: Way, parts, and whether codes travel.
        costs: Costs of the cluster, with those of the way.
        nodes: Number of workers.
        size: Numbers of the gradient.
    """
    part_bytes = size / choice.parts
    if choice.way == "switch":
        assert costs.hop is not None
        if not choice.compressed:
            return [("merge", NETWORK, costs.hop(part_bytes))]
        lanes = costs.switch_ratio * part_bytes
        return [_encode(costs, part_bytes), ("merge", NETWORK, costs.hop(lanes)), _decode(costs, lanes)]
    merge: Stage = ("merge", COMPUTE, costs.merge(part_bytes))
    sent = costs.ratio * part_bytes if choice.compressed else part_bytes
    before, after = ([_encode(costs, part_bytes)], [_decode(costs, sent)]) if choice.compressed else ([], [])
    if choice.way == "server":
        assert costs.gather is not None
        assert costs.broadcast is not None
        gathered: Stage = ("send", NETWORK, costs.gather(sent))
        received: Stage = ("receive", NETWORK, costs.broadcast(sent))
        merged = (nodes - 1) * [*after, merge]
        # its own part is neither encoded for the server nor decoded again, if every worker is a server
        others = min(choice.parts, nodes - 1)
        return [*(others * before), gathered, *merged, *before, received, *(others * after)]
    assert costs.send is not None
    send: Stage = ("send", NETWORK, costs.send(sent))
    return [*((nodes - 1) * [*before, send, *after, merge]), *before, *((nodes - 1) * [send]), *after]


def _encode(costs: CommunicationCosts, numbers: float) -> Stage:
    return "encode", COMPUTE, costs.encode(numbers)


def _decode(costs: CommunicationCosts, numbers: float) -> Stage:
    return "decode", COMPUTE, costs.decode(numbers)


def graph(
    choices: Sequence[SummationChoice], costs: CommunicationCosts, nodes: int, sizes: Sequence[int]
) -> list[Task]:
    """Return the tasks of a plan, in the order in which queues prefer them: by gradient and part.

    The last tasks of each chain, which no network task waits for, come after all others.

    Args:
        choices: Choice of each gradient.
        costs: Costs of the cluster.
        nodes: Number of workers.
        sizes: Numbers of each gradient.
    """
    tasks: list[Task] = []
    finishing: list[tuple[int, int, list[Stage], int | None]] = []
    for gradient, (choice, size) in enumerate(zip(choices, sizes, strict=True)):
        chain = stages(choice, costs, nodes, size)
        split = 1 + max(place for place, (_, queue, _) in enumerate(chain) if queue == NETWORK)
        for part in range(choice.parts if choice.way == "switch" else 1):
            last = _append(tasks, chain[:split], gradient, part, None)
            finishing.append((gradient, part, chain[split:], last))
    for gradient, part, rest, last in finishing:
        _append(tasks, rest, gradient, part, last)
    return tasks


def _append(tasks: list[Task], chain: Sequence[Stage], gradient: int, part: int, last: int | None) -> int | None:
    """Append a chain after task `last`; return the place of its own last one."""
    for kind, queue, time_ms in chain:
        tasks.append(Task(kind, queue, gradient, part, () if last is None else (last,), time_ms))
        last = len(tasks) - 1
    return last


def fused(sizes: Sequence[int], least: int) -> list[list[int]]:
    """Return the gradients that are synchronised as one: consecutive small ones until they have `least` numbers.

    Args:
        sizes: Numbers of each gradient.
        least: Numbers from which a gradient stays alone.
    """
    groups: list[list[int]] = []
    open_numbers = 0
    for index, size in enumerate(sizes):
        if size >= least:
            groups.append([index])
            open_numbers = 0
            continue
        if open_numbers == 0:
            groups.append([])
        groups[-1].append(index)
        open_numbers += size
        if open_numbers >= least:
            open_numbers = 0
    return groups


def check(tasks: Sequence[Task]) -> None:
    """Check that a graph can be scheduled in its order.

    Raises:
        InvalidTensor: A task waits for one that is not before it, or its queue is unknown.
    """
    for place, task in enumerate(tasks):
        if task.queue not in QUEUES:
            raise InvalidTensor("unknown queue", place=f"task {task.name}", value=task.queue, allowed=QUEUES)
        if not all(0 <= earlier < place for earlier in task.after):
            raise InvalidTensor("tasks wait for earlier ones of the graph", place=f"task {task.name}", value=task.after)


class Frontier:
    """Tasks of a graph that can begin, by the rules of the two queues."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Begin a graph. Raises InvalidTensor if it cannot be scheduled."""
        check(tasks)
        self.left: Final = {queue: sum(task.queue == queue for task in tasks) for queue in QUEUES}
        """Number of tasks that have not begun, by queue."""
        self._tasks = tasks
        self._waits_for = [len(task.after) for task in tasks]
        self._followers: list[list[int]] = [[] for _ in tasks]
        for place, task in enumerate(tasks):
            for earlier in task.after:
                self._followers[earlier].append(place)
        self._network = [place for place, task in enumerate(tasks) if task.queue == NETWORK][::-1]
        self._ready = [place for place, task in enumerate(tasks) if task.queue == COMPUTE and not task.after]

    def begin(self, queue: str) -> int | None:
        """Begin this queue's next task, and return its place in the graph; None if none can begin now."""
        if queue == COMPUTE:
            place = heapq.heappop(self._ready) if self._ready else None
        else:
            place = self._network.pop() if self._network and not self._waits_for[self._network[-1]] else None
        if place is not None:
            self.left[queue] -= 1
        return place

    def end(self, place: int) -> None:
        """End a task that has begun."""
        for follower in self._followers[place]:
            self._waits_for[follower] -= 1
            if not self._waits_for[follower] and self._tasks[follower].queue == COMPUTE:
                heapq.heappush(self._ready, follower)


def virtual_spans(tasks: Sequence[Task]) -> list[Span]:
    """Return when each task runs if it takes its predicted time.

    Raises:
        InvalidTensor: The graph cannot be scheduled.
    """
    frontier = Frontier(tasks)
    spans: list[Span | None] = [None] * len(tasks)
    running: list[tuple[float, int]] = []
    busy = set[str]()
    now = 0.0
    while True:
        for queue in QUEUES:
            if queue not in busy and (place := frontier.begin(queue)) is not None:
                busy.add(queue)
                spans[place] = Span(now, now + tasks[place].time_ms)
                heapq.heappush(running, (now + tasks[place].time_ms, place))
        if not running:
            return [span for span in spans if span is not None]
        now, ended = heapq.heappop(running)
        busy.discard(tasks[ended].queue)
        frontier.end(ended)


def makespan_ms(spans: Sequence[Span]) -> float:
    """Return when the last task ends; 0 without tasks."""
    return max((span.end_ms for span in spans), default=0.0)


def plan_schedule(costs: CommunicationCosts, nodes: int, sizes: Sequence[int]) -> list[SummationChoice]:
    """Return a plan by the predicted time of the schedule of all gradients, in which coding overlaps with sums.

    It is the best of SeCoPa's plan, which takes each gradient alone, and of the rules that compress gradients from some
    size on, each in one part or in its cheapest number of parts; then all gradients of each size, half of them,
    a quarter and so on, the largest first, take the choice that shortens the schedule most. So it is never slower than
    all compressed, all raw or any threshold.

    Args:
        costs: Costs of the cluster.
        nodes: Number of workers, at least 2.
        sizes: Numbers of each gradient.

    Raises:
        InvalidTensor: As for `plan`.
    """
    alone = plan(costs, nodes, sizes)
    options = {size: _options(costs, nodes, size) for size in set(sizes)}

    def time_ms(taken: Sequence[SummationChoice]) -> float:
        return makespan_ms(virtual_spans(graph(taken, costs, nodes, sizes)))

    rules = [
        [options[size][size >= least][one_part] for size in sizes]
        for least in (*sorted(options), float("inf"))
        for one_part in (0, 1)
    ]
    best = min([alone, *rules], key=time_ms)
    for size in sorted(options, reverse=True):
        places = [place for place, each in enumerate(sizes) if each == size]
        while places:
            changed = [
                [option if place in places else choice for place, choice in enumerate(best)]
                for option in dict.fromkeys((*options[size][0], *options[size][1]))
            ]
            best = min([best, *changed], key=time_ms)
            places = places[: len(places) // 2]
    return best


def _options(
    costs: CommunicationCosts, nodes: int, size: int
) -> tuple[tuple[SummationChoice, SummationChoice], tuple[SummationChoice, SummationChoice]]:
    """Return the raw and the compressed choices of a gradient: in its cheapest number of parts, and in one part."""
    every = choices(costs, nodes, size)

    def cheapest(compressed: bool, most: int) -> SummationChoice:
        allowed = (choice for choice in every if choice.compressed == compressed and choice.parts <= most)
        return min(allowed, key=lambda choice: choice.time_ms)

    raw, compressed = ((cheapest(each, nodes), cheapest(each, 1)) for each in (False, True))
    return raw, compressed


def sequential_ms(tasks: Sequence[Task]) -> float:
    """Return the time of all tasks one after the other in ms: encode all, then send all, then decode all."""
    return sum(task.time_ms for task in tasks)


def chrome_trace(tasks: Sequence[Task], spans: Sequence[Span]) -> list[dict[str, Any]]:
    """Return the schedule's events in Chrome's trace format, for chrome://tracing or Perfetto.

    Args:
        tasks: The graph.
        spans: When each task ran.

    Returns:
        Complete events, one for each task; `tid` is the queue and times are in µs.
    """
    return [
        {
            "name": task.name,
            "cat": task.kind,
            "ph": "X",
            "pid": 0,
            "tid": task.queue,
            "ts": 1e3 * span.start_ms,
            "dur": 1e3 * (span.end_ms - span.start_ms),
            "args": {
                "gradient": task.gradient,
                "part": task.part,
                "after": [tasks[index].name for index in task.after],
            },
        }
        for task, span in zip(tasks, spans, strict=True)
    ]
