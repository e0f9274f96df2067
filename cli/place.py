"""`weir place`: where a fabric's switches would sum a job, or several at once, how long that takes, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ..experiments.errors import ExperimentError
from .help import STRATEGY_NAMES, complete_strategy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..controller.placement import Placement, Problem
    from ..controller.placement.strategies import Strategy
    from ..controller.planning.completion import Expected, Step
    from .place_files import PlacedJob
    from .place_together import Plan
    from .place_without import Without

_console = Console(highlight=False)


def place(
    file: Annotated[Path, typer.Argument(metavar="TOPOLOGY", help="A fabric (YAML).")],
    workers: Annotated[
        str, typer.Option(metavar="h1,h4,…", help="The workers' hosts; default: all but the server.")
    ] = "",
    server: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="The parameter server's host; default: none, and a switch is the root."),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(
            metavar="JOBS",
            help="Several jobs, placed together (YAML): name, workers, server, bytes, weight, priority.",
        ),
    ] = None,
    stripes: Annotated[
        int, typer.Option(min=1, max=16, help="Divide each job's chunks among so many trees at most.")
    ] = 1,
    size: Annotated[int, typer.Option(help="Bytes of one worker's stream, headers included.")] = 1 << 20,
    window: Annotated[
        int, typer.Option(min=1, max=1 << 14, help="Rounds in the network, where no queue allows fewer.")
    ] = 32,
    loads: Annotated[
        Path | None,
        typer.Option(
            metavar="LOADS",
            help="Others' traffic by directed link (YAML): s1-p3: 300Mbit, or rate, queue, loss and latency.",
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help=f"How to place: {STRATEGY_NAMES}; may be repeated; default: widest.", autocompletion=complete_strategy
        ),
    ] = None,
    full: Annotated[
        list[str] | None, typer.Option(metavar="SWITCH", help="A switch without room; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes what strategies draw.")] = 1,
    draw: Annotated[
        Path | None, typer.Option(metavar="PICTURE", help="Draw the first plan: NAME.svg or NAME.png.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Prove that the matrix of the job's linear program (agg) is unimodular.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plans as JSON.")] = False,
) -> None:
    """Say where jobs' gradients would be summed, and why. Also how long a step takes, and which link is slowest.

    Without --jobs there is one job, of --workers and --server. A file for --jobs has `jobs:`, a list: each has a name
    and workers, and may have a server, bytes (of one worker's stream), a weight, how much more its time counts than
    another's, and a priority, 0 to 7: its time counts before that of all jobs with a lower one. They come in this
    order; each is placed beside the streams of those before it, and then, where the strategy does so (widest), all are
    looked at together, also from where each would be alone, and the better is taken.
    `weir schema jobs` prints the file's schema.

    A file for --loads has s1-p3: 300Mbit, or s1-p3: {rate: 300Mbit, queue: 12, loss: 0.01, latency: 40us}: others'
    traffic, packets in the queue, the share that is lost, and what a packet takes in the sending switch.
    """
    import json
    from functools import partial
    from time import perf_counter

    from ..controller.placement import Problem
    from ..controller.placement.strategies import DEFAULT
    from ..controller.placement.strategies import strategy as strategy_named
    from ..controller.placement.strategies.agg import Agg
    from ..topologies import Routes, load_topology
    from .place_files import PlacedJob, read_jobs, read_loads
    from .place_without import Asking

    for option, given in (("--workers", workers), ("--server", server), ("--check", check)):
        if given and (jobs is not None or (stripes > 1 and option == "--check")):
            other = "--jobs" if jobs is not None else "--stripes"
            raise ExperimentError(f"{option} is for one job with one tree, and there is {other}; leave one of them out")
    topology = load_topology(file)
    for name in full or ():
        topology.switch(name)
    routes, read = Routes(topology), {} if loads is None else read_loads(loads, topology)
    names = strategy or [DEFAULT]
    if jobs is None:
        hosts = [name.strip() for name in workers.split(",") if name.strip()]
        hosts = hosts or [host.name for host in topology.hosts if host.name != server]
        asked = [PlacedJob.model_construct(name="job", workers=hosts, server=server, bytes=size, weight=1.0)]
    else:
        asked = read_jobs(jobs, topology)
    several = jobs is not None or stripes > 1
    room = {
        switch.name: 0 if switch.name in (full or ()) else switch.slots // _slots(window) if several else 1
        for switch in topology.switches
    }
    problems = [Problem(routes, tuple(job.workers), job.server, job.bytes or size, read, room) for job in asked]
    if several:
        _together(asked, problems, names, stripes, window, seed, draw, as_json)
        return
    (problem,) = problems
    asking = Asking()
    plans: list[Placement] = []
    described: list[dict[str, Any]] = []
    for name in names:
        place_anew = partial(_place_anew, strategy_named(name), seed)
        started = perf_counter()
        plans.append(place_anew(problem))
        placed_in = perf_counter() - started
        plans[-1].check(problem)
        without = asking.without_each(problem, plans[-1], place_anew, partial(_expected, window), placed_in)
        described.append(describe(problem, window, name, plans[-1], without))
    if draw is not None:
        _draw([(problem, plans[0])], draw)
    proof = Agg().proof(problem) if check else None
    if as_json:
        typer.echo(json.dumps({"plans": described, "unimodular": proof}, indent=2))
        return
    for plan in described:
        _print(plan, plan["strategy"])
    if proof is not None:
        _console.print(proof)


def _together(
    jobs: Sequence[PlacedJob],
    problems: Sequence[Problem],
    names: Sequence[str],
    stripes: int,
    window: int,
    seed: int,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Plan several jobs, or parts of one, and print it."""
    import json

    from .place_together import parts_of, plan

    parts = parts_of(jobs, problems, stripes)
    plans = [plan(parts, name, seed) for name in names]
    if picture is not None:
        _draw([(each.problem, each.placement) for each in plans[0].parts], picture)
    described = [_described_together(each, window) for each in plans]
    if as_json:
        typer.echo(json.dumps({"plans": described}, indent=2))
        return
    for told in described:
        for part in told["jobs"]:
            share = "" if part["share"] == 1 else f", {100 * part['share']:.0f} % of its chunks"
            _print(part, f"{part['job']} ({part['strategy']}{share})")
            _console.print(part["why"])
        streams = ", ".join(f"{count:.3g} of {job}" for job, count in told["streams"].items())
        steps = ", ".join(f"{job} {1e3 * seconds:.3f} ms" for job, seconds in told["completion_seconds"].items())
        _console.print(
            f"all at once ({told['strategy']}): the slowest link is {told['slowest_link']}, busy for "
            f"{1e3 * told['slowest_link_seconds']:.3f} ms with the streams {streams}; a step takes {steps}"
        )
        if told["note"]:
            _console.print(told["note"])


def _described_together(plan: Plan, window: int) -> dict[str, Any]:
    """The same as `describe` for several jobs."""
    from ..controller.placement.multi_job.multi_tree import PARTS

    jobs, completion = [], dict[str, float]()
    for each in plan.parts:
        told = describe(each.problem, window, plan.strategy, each.placement)
        completion[each.part.job] = max(completion.get(each.part.job, 0.0), told["completion_seconds"])
        more = {
            "job": each.part.job,
            "share": each.part.share / PARTS,
            "bytes": each.problem.gradient_bytes,
            "weight": each.part.weight,
            "priority": each.part.priority,
        }
        jobs.append({**more, **told, "why": each.why})
    return {
        "strategy": plan.strategy,
        "jobs": jobs,
        "completion_seconds": completion,
        "slowest_link": str(plan.slowest_link),
        "slowest_link_seconds": plan.slowest_link_seconds,
        "streams": dict(plan.streams),
        "note": plan.note,
    }


def _slots(window: int) -> int:
    """What a job with so many rounds in the network takes in each switch that sums it."""
    return 1 << (2 * window - 1).bit_length()


def _place_anew(method: Strategy, seed: int, problem: Problem) -> Placement:
    """With what it draws from the seed's beginning."""
    import random
    from functools import partial

    from ..controller.placement.model.pipes import place_by_pipes

    return place_by_pipes(partial(method.place, rng=random.Random(seed)), problem)


def _expected(window: int, problem: Problem, plan: Placement) -> Expected:
    """A step's time, by which the controller moves jobs."""
    from ..controller.planning.completion import expected_step

    return expected_step(problem, plan, _step(window, problem))


def _step(window: int, problem: Problem) -> Step:
    from ..controller.planning.completion import Step
    from ..controller.planning.plan import JobSpec

    spec = JobSpec(1, problem.workers, problem.server, _slots(window), window, problem.gradient_bytes)
    return Step.of(spec, problem.topology)


def describe(
    problem: Problem, window: int, name: str, plan: Placement, without: Mapping[str, Without] | None = None
) -> dict[str, Any]:
    """A plan as `--json` prints it; `without`: how it were without a switch of the tree, None where nobody asked."""
    expected = _expected(window, problem, plan)
    inner = [node for node in plan.children if node != problem.server]
    notes = [plan.note]
    if without is not None and len(without) < len(inner):
        notes.append(f"what is without {', '.join(inner[len(without) :])} was not asked: it takes too long")
    return {
        "strategy": name,
        "root": plan.root,
        "completion_seconds": expected.seconds,
        "round_trip_seconds": expected.round_trip_seconds,
        "bound_by_window": expected.is_bound_by_window,
        "slowest_link": str(expected.slowest_link),
        "slowest_link_seconds": expected.link_seconds * problem.gradient_bytes / _step(window, problem).round_bytes,
        "workers": dict(plan.aggregators),
        "nodes": [
            {
                "node": node,
                "parent": plan.parents.get(node),
                "sums": list(children),
                "why": _reason(problem, plan, node),
                "without": without[node].described(node, expected.seconds) if without and node in without else None,
            }
            for node, children in plan.children.items()
        ],
        "note": "; ".join(filter(None, notes)),
    }


def _reason(problem: Problem, plan: Placement, node: str) -> str:
    """What a node is in the tree for."""
    children = plan.children[node]
    workers = sum(child in plan.aggregators for child in children)
    makes = f"makes one stream of {len(children)}" if len(children) > 1 else "holds a stream to its way"
    if node == problem.server:
        return f"the parameter server; gets {len(children)} stream{'s' * (len(children) > 1)}"
    if node == plan.root:
        return f"the root; {makes}, and the job has no server"
    at_home = workers and all(
        problem.topology.attached_switch(child).name == node for child in children if child in plan.aggregators
    )
    on_it = f"{workers} workers are on it" if workers > 1 else "1 worker is on it"
    return f"{on_it}; {makes}" if at_home else makes


def _print(plan: dict[str, Any], title: str) -> None:
    table = Table("node", "sums", "sends to", "why", title=title, title_justify="left")
    for node in plan["nodes"]:
        table.add_row(node["node"], ", ".join(node["sums"]), node["parent"] or "–", node["why"])
    _console.print(table)
    waits = ", which waits for the window" if plan["bound_by_window"] else ""
    _console.print(
        f"a step takes {1e3 * plan['completion_seconds']:.3f} ms; the slowest link is {plan['slowest_link']}, busy for "
        f"{1e3 * plan['slowest_link_seconds']:.3f} ms{waits}; a round trip takes "
        f"{1e3 * plan['round_trip_seconds']:.3f} ms"
    )
    for node in plan["nodes"]:
        if node["without"] is not None:
            _console.print(node["without"]["told"])
    if plan["note"]:
        _console.print(plan["note"])


def _draw(placed: Sequence[tuple[Problem, Placement]], picture: Path) -> None:
    """One or several jobs' trees over others' traffic."""
    from ..topologies.drawing import Drawing

    first = placed[0][0]
    topology = first.topology
    sums: dict[str, list[int]] = {}
    roles: dict[str, str] = {}
    for problem, plan in placed:
        for node, mine in plan.children.items():
            if topology.is_switch(node):
                sums.setdefault(node, []).append(len(mine))
        roles |= {worker: "worker" for worker in problem.workers if worker not in roles}
        roles |= {} if problem.server is None else {problem.server: "server"}
    Drawing(
        topology=topology,
        loads={
            link: min(load.background_bps / topology.link_at(link).rate_bps, 1.0) for link, load in first.loads.items()
        },
        summing={node: f"sums {'+'.join(map(str, counts))}" for node, counts in sums.items()},
        roles=roles,
        title=f"{topology.name}: summed at {', '.join(dict.fromkeys(plan.root for _, plan in placed))}",
    ).save(picture)
