"""Task graphs of compressed synchronisation: schedules in virtual time and in threads, and their traces."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from weir.hosts.compression.selective import (
    CommunicationCosts,
    Line,
    SummationChoice,
    bert_base_sizes,
    choices,
    plan,
    vgg19_sizes,
    ways_of,
)
from weir.hosts.compression.task_graph import (
    COMPUTE,
    NETWORK,
    Span,
    Task,
    chrome_trace,
    fused,
    graph,
    makespan_ms,
    plan_schedule,
    sequential_ms,
    virtual_spans,
)
from weir.hosts.errors import EndpointClosed, InvalidTensor
from weir.hosts.torch.two_queues import Action, TwoQueues
from weir.tests.support.compression_costs import hipress_costs
from weir.tests.support.errors import raises


def even_costs(ratio: float = 0.25) -> CommunicationCosts:
    """Encoding and decoding together take as long as sending the code."""
    hop = Line(4e-6, 0.0)
    half = Line(ratio * 2e-6, 0.0)
    return CommunicationCosts(half, Line(2e-6, 0.0), Line(0, 0), ratio, hop=hop, switch_ratio=ratio)


def random_graph(seed: int) -> list[Task]:
    rng = np.random.default_rng(seed)
    tasks: list[Task] = []
    for place in range(int(rng.integers(1, 40))):
        after = tuple(int(each) for each in np.flatnonzero(rng.random(place) < 0.15))
        queue = (COMPUTE, NETWORK)[int(rng.integers(2))]
        tasks.append(Task("encode", queue, place, 0, after, float(rng.integers(0, 5))))
    return tasks


@pytest.mark.parametrize("seed", range(30))
def test_virtual_schedules_keep_order_and_queues(seed: int) -> None:
    tasks = random_graph(seed)
    spans = virtual_spans(tasks)
    assert len(spans) == len(tasks)
    for task, span in zip(tasks, spans, strict=True):
        assert span.end_ms == span.start_ms + task.time_ms
        assert all(spans[earlier].end_ms <= span.start_ms for earlier in task.after)
    for queue in (COMPUTE, NETWORK):
        own = [span for task, span in zip(tasks, spans, strict=True) if task.queue == queue]
        ordered = own if queue == NETWORK else sorted(own, key=lambda span: (span.start_ms, span.end_ms))
        assert all(before.end_ms <= after.start_ms for before, after in pairwise(ordered))
    assert makespan_ms(spans) <= sequential_ms(tasks)


@pytest.mark.parametrize("sizes", [vgg19_sizes(), bert_base_sizes()], ids=["vgg19", "bert-base"])
def test_overlap_saves_a_quarter_if_encoding_equals_sending(sizes: list[int]) -> None:
    costs, nodes = even_costs(), 16
    taken = [
        min((choice for choice in choices(costs, nodes, n) if choice.compressed), key=lambda c: c.time_ms)
        for n in sizes
    ]
    tasks = graph(taken, costs, nodes, sizes)
    coding = sum(task.time_ms for task in tasks if task.queue == COMPUTE)
    sending = sum(task.time_ms for task in tasks if task.queue == NETWORK)
    assert coding == pytest.approx(sending)
    assert makespan_ms(virtual_spans(tasks)) <= 0.75 * sequential_ms(tasks)


def measured_costs() -> CommunicationCosts:
    """packed(8) as `weir codec bench` measured it on one core, and links on which sending takes as long as coding."""
    encode, decode = Line(1.53e-6, 0.005), Line(4 * 0.87e-6, 0.005)
    return CommunicationCosts(encode, decode, Line(0, 0), 0.25, hop=Line(32 / 3.3e6, 0.02), switch_ratio=0.25)


@pytest.mark.parametrize(
    ("sizes", "saved"), [(vgg19_sizes(), 0.635), (bert_base_sizes(), 0.592)], ids=["vgg19", "bert-base"]
)
def test_measured_costs_overlap_and_save_what_hipress_saves(sizes: list[int], saved: float) -> None:
    """`saved`: share of the synchronisation time that the paper's system saves of raw sums."""
    costs, nodes = measured_costs(), 16
    taken = [
        min((choice for choice in choices(costs, nodes, n) if choice.compressed), key=lambda c: c.time_ms)
        for n in sizes
    ]
    tasks = graph(taken, costs, nodes, sizes)
    wall = makespan_ms(virtual_spans(tasks))
    assert wall <= 0.75 * sequential_ms(tasks)
    assert costs.hop is not None
    assert wall <= (1 - saved) * sum(costs.hop(size) for size in sizes)


@pytest.mark.parametrize("seed", range(20))
def test_one_gradients_schedule_takes_the_predicted_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = [Line(float(10 ** rng.uniform(-9, -5)), float(rng.uniform(0, 1))) for _ in range(3)]
    costs = CommunicationCosts(lines[0], lines[1], Line(0, 0), 0.25, hop=lines[2], switch_ratio=0.25)
    for choice in choices(costs, 5, 1_000_000):
        tasks = graph([choice], costs, 5, [1_000_000])
        assert makespan_ms(virtual_spans(tasks)) == pytest.approx(choice.time_ms)


@pytest.mark.parametrize("nodes", [4, 8, 16])
def test_tasks_are_those_of_the_formulas(nodes: int) -> None:
    """The tasks' times by servers or a ring add up to the cost that the plan has counted."""
    costs = hipress_costs(nodes)
    for way in ways_of(costs):
        for choice in choices(costs, nodes, 1_000_000):
            if choice.way == way:
                tasks = graph([choice], costs, nodes, [1_000_000])
                assert sequential_ms(tasks) == pytest.approx(choice.time_ms)


def test_an_encoding_runs_while_an_earlier_part_is_merged() -> None:
    tasks = graph([SummationChoice("switch", True, 4, 0.0)], even_costs(), 4, [1_000_000])
    trace = {event["name"]: event for event in chrome_trace(tasks, virtual_spans(tasks))}
    for part in range(3):
        merge, encode = trace[f"merge 0.{part}"], trace[f"encode 0.{part + 1}"]
        assert encode["ts"] < merge["ts"] + merge["dur"]
    assert {event["tid"] for event in trace.values()} == {COMPUTE, NETWORK}
    assert json.loads(json.dumps(list(trace.values())))[0]["ph"] == "X"


def test_small_gradients_are_fused() -> None:
    assert fused([5, 5, 100, 1, 1, 20, 3], 10) == [[0, 1], [2], [3, 4], [5], [6]]
    assert fused([], 10) == []
    sizes = vgg19_sizes()
    assert [index for group in fused(sizes, 262_144) for index in group] == list(range(len(sizes)))


def test_plan_is_no_slower_than_all_raw_or_all_compressed() -> None:
    costs, nodes, sizes = even_costs(), 8, vgg19_sizes()
    planned = makespan_ms(virtual_spans(graph(plan(costs, nodes, sizes), costs, nodes, sizes)))
    for compressed in (False, True):
        fixed = [SummationChoice("switch", compressed, 1, 0.0) for _ in sizes]
        assert planned <= makespan_ms(virtual_spans(graph(fixed, costs, nodes, sizes)))


@pytest.mark.parametrize("seed", range(10))
def test_a_plan_of_the_schedule_is_no_slower_than_any_rule(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = [int(size) for size in 10 ** rng.uniform(2, 6, 6)]
    slopes = 10 ** rng.uniform(-7, -5, 3)
    costs = CommunicationCosts(
        Line(float(slopes[0]), float(rng.uniform(0, 0.1))),
        Line(float(slopes[1]), float(rng.uniform(0, 0.1))),
        Line(0, 0),
        0.25,
        hop=Line(float(slopes[2]), 0.02),
        switch_ratio=0.25,
    )

    def time_ms(taken: list[SummationChoice]) -> float:
        return makespan_ms(virtual_spans(graph(taken, costs, 4, sizes)))

    planned = time_ms(plan_schedule(costs, 4, sizes))
    assert planned <= time_ms(plan(costs, 4, sizes))
    for least in (0, *sizes, 10**7):
        rule = [
            min(
                (choice for choice in choices(costs, 4, size) if choice.compressed == (size >= least)),
                key=lambda choice: choice.time_ms,
            )
            for size in sizes
        ]
        assert planned <= time_ms(rule)


def test_a_plan_of_the_schedule_hides_coding_that_seems_not_to_pay() -> None:
    """One gradient's coding takes longer than the bytes it saves; with several, it overlaps with others' sums."""
    costs = CommunicationCosts(
        Line(5e-6, 0.0), Line(2e-5, 0.0), Line(0, 0), 0.25, hop=Line(1.2e-5, 0.0), switch_ratio=0.25
    )
    sizes = [100_000] * 8
    alone, whole = plan(costs, 2, sizes), plan_schedule(costs, 2, sizes)
    times = [makespan_ms(virtual_spans(graph(taken, costs, 2, sizes))) for taken in (alone, whole)]
    assert times[1] < 0.95 * times[0]


def test_invalid_graphs_are_refused() -> None:
    with raises(InvalidTensor, value="disk"):
        virtual_spans([Task("send", "disk", 0, 0)])
    for after in ((0,), (1,), (-1,)):
        with raises(InvalidTensor, value=after):
            virtual_spans([Task("send", NETWORK, 0, 0, after)])
    assert virtual_spans([]) == []
    assert makespan_ms([]) == 0


def run_in_threads(tasks: list[Task], actions: Sequence[Action]) -> tuple[list[Span], BaseException | None]:
    ended, errors = threading.Event(), list[BaseException | None]()
    ticks = iter(range(1_000_000))

    def done(error: BaseException | None) -> None:
        errors.append(error)
        ended.set()

    with TwoQueues(lambda: float(next(ticks))) as queues:
        submitted = queues.submit(tasks, actions, done)
        assert ended.wait(60)
    return submitted.spans, errors[0]


@pytest.mark.parametrize("seed", range(10))
def test_threads_keep_dependencies_and_the_networks_order(seed: int) -> None:
    tasks = random_graph(seed)
    order: list[int] = []
    run = [partial(order.append, place) for place in range(len(tasks))]
    _, error = run_in_threads(tasks, run)
    assert error is None
    assert sorted(order) == list(range(len(tasks)))
    at = {place: position for position, place in enumerate(order)}
    assert all(at[earlier] < at[place] for place, task in enumerate(tasks) for earlier in task.after)
    network = [place for place in order if tasks[place].queue == NETWORK]
    assert network == sorted(network)


def test_threads_encode_the_next_part_while_one_is_merged() -> None:
    """The merge of part 0 ends only after the encoding of part 1 has begun."""
    tasks = graph([SummationChoice("switch", True, 2, 0.0)], even_costs(), 4, [1000])
    began = threading.Event()
    met: list[bool] = []
    special = {"encode 0.1": began.set, "merge 0.0": lambda: met.append(began.wait(60))}
    _, error = run_in_threads(tasks, [partial(special.get(task.name, lambda: None)) for task in tasks])
    assert error is None
    assert met == [True]


def test_closed_queues_refuse_graphs_and_failed_callbacks_do_not() -> None:
    tasks = [Task("encode", COMPUTE, 0, 0)]
    delivered = threading.Event()

    def failing(_: BaseException | None) -> None:
        raise ZeroDivisionError

    with TwoQueues(lambda: 0.0) as queues:
        queues.submit(tasks, [int], failing)
        queues.submit(tasks, [int], lambda _: delivered.set())
    assert delivered.is_set()
    with pytest.raises(EndpointClosed):
        queues.submit(tasks, [int], lambda _: None)


def test_an_error_ends_its_graph_alone() -> None:
    tasks = [Task("encode", COMPUTE, 0, 0), Task("send", NETWORK, 0, 0, (0,)), Task("decode", COMPUTE, 0, 0, (1,))]

    def broken() -> None:
        raise ZeroDivisionError

    ran: list[str] = []
    run: list[Action] = [partial(ran.append, "encode"), partial(broken), partial(ran.append, "decode")]
    _, error = run_in_threads(tasks, run)
    assert isinstance(error, ZeroDivisionError)
    assert ran == ["encode"]
    outcomes: list[BaseException | None] = []
    with TwoQueues(lambda: 0.0) as queues:
        queues.submit(tasks, run, outcomes.append)
        queues.submit(tasks[:1], run[:1], outcomes.append)
        queues.submit([], [], outcomes.append)
    assert sum(outcome is None for outcome in outcomes) == 2
    assert ran == ["encode", "encode", "encode"]
