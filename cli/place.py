"""`weir place`: the switches that would sum a job, or several jobs, with the time of a step and the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..experiments.errors import ExperimentError
from .help import STRATEGY_NAMES, complete_strategy

if TYPE_CHECKING:
    from ..controller.placement import Placement, Problem
    from ..controller.placement.model.loads import LinkLoad
    from ..controller.placement.strategies import Strategy
    from ..topologies import Endpoint, Topology
    from .place_files import PlacedJob


@dataclass(frozen=True)
class _Request:
    """Options of `weir place` that apply to one job and to several."""

    topology: Topology
    loads: Mapping[Endpoint, LinkLoad]
    strategies: Sequence[str]
    window: int
    stripes: int
    full: Sequence[str]
    streams: Mapping[str, int]
    """Maximum number of streams of switches, for strategy agg."""
    seed: int
    picture: Path | None
    as_json: bool

    def problems(self, jobs: Sequence[PlacedJob], size: int, *, shares_slots: bool) -> list[Problem]:
        """Return a placement problem for each job; `size` is the stream of a job that names none."""
        from ..controller.placement import Problem
        from ..topologies import Routes
        from .place_description import slots_of

        room = {
            switch.name: 0 if switch.name in self.full else switch.slots // slots_of(self.window) if shares_slots else 1
            for switch in self.topology.switches
        }
        routes = Routes(self.topology)
        return [Problem(routes, tuple(job.workers), job.server, job.bytes or size, self.loads, room) for job in jobs]


WorkersOption = Annotated[str, typer.Option(metavar="h1,h4,…", help="The workers' hosts; default: all but the server.")]
ServerOption = Annotated[
    str | None,
    typer.Option(metavar="HOST", help="The parameter server's host; default: none, and a switch is the root."),
]
JobsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="JOBS",
        help="Several jobs, placed together (YAML): name, workers, server, bytes, weight, priority.",
    ),
]
StripesOption = Annotated[int, typer.Option(min=1, max=16, help="Max. number of trees that share each job's chunks.")]
WindowOption = Annotated[
    int,
    typer.Option(
        min=1, max=1 << 14, help="Max. rounds in the network; queue bounds, which may lower it, are not considered."
    ),
]
LoadsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="LOADS",
        help="Others' traffic by directed link (YAML): s1-p3: 300Mbit, or rate, queue, loss and latency.",
    ),
]
StrategyOption = Annotated[
    list[str] | None,
    typer.Option(
        help=f"How to place: {STRATEGY_NAMES}; may be repeated; default: widest.", autocompletion=complete_strategy
    ),
]
FullOption = Annotated[
    list[str] | None, typer.Option(metavar="SWITCH", help="A switch without free slots; may be repeated.")
]
StreamsOption = Annotated[
    list[str] | None,
    typer.Option(metavar="SWITCH=N", help="Max. number of streams into a switch under agg; may be repeated."),
]
DrawOption = Annotated[Path | None, typer.Option(metavar="PICTURE", help="Draw the first plan: NAME.svg or NAME.png.")]
CheckOption = Annotated[
    bool, typer.Option("--check", help="Prove that the matrix of the job's linear program (agg) is unimodular.")
]


def place(
    file: Annotated[Path, typer.Argument(metavar="TOPOLOGY", help="A fabric (YAML).")],
    workers: WorkersOption = "",
    server: ServerOption = None,
    jobs: JobsOption = None,
    stripes: StripesOption = 1,
    size: Annotated[int, typer.Option(help="Bytes of one worker's stream, headers included.")] = 1 << 20,
    window: WindowOption = 32,
    loads: LoadsOption = None,
    strategy: StrategyOption = None,
    full: FullOption = None,
    streams: StreamsOption = None,
    seed: Annotated[int, typer.Option(help="Seed of strategies' random draws.")] = 1,
    draw: DrawOption = None,
    check: CheckOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plans as JSON.")] = False,
) -> None:
    """Show each job's tree, with reasons and step time.

    Without --jobs there is one job, of --workers and --server. A file for --jobs lists `jobs:`, each with a name and
    workers, and optionally a server, bytes of one worker's stream, a weight of its time, and a priority from 0 to 7,
    whose time counts before that of all lower ones. Each job is placed given the streams of those above it; then, if
    the strategy can (widest), all jobs are placed together, and the better plan is kept. `weir schema jobs` prints the
    file's schema.

    A file for --loads gives others' traffic by directed link, as s1-p3: 300Mbit or as s1-p3: {rate: 300Mbit, queue: 12,
    loss: 0.01, latency: 40us}: packets in the egress queue, share of packets lost, and time of a packet in the sending
    switch.
    """
    from ..controller.placement.strategies import DEFAULT
    from ..topologies import load_topology
    from .place_files import read_jobs, read_loads

    for option, given in (("--workers", workers), ("--server", server), ("--check", check)):
        if given and (jobs is not None or (stripes > 1 and option == "--check")):
            other = "--jobs" if jobs is not None else "--stripes"
            raise ExperimentError(
                f"it is for one job with one tree, and there is {other}; leave one of them out",
                place=option,
                value=other,
            )
    topology = load_topology(file)
    for name in full or ():
        topology.switch(name)
    limits = _limits(streams or (), topology)
    if limits and ("agg" not in (strategy or ()) or jobs is not None or stripes > 1):
        raise ExperimentError(
            "it limits the switches of one job under --strategy agg; add that, and leave --jobs and --stripes out",
            place="--streams",
            value=streams,
        )
    read = {} if loads is None else read_loads(loads, topology)
    request = _Request(topology, read, strategy or [DEFAULT], window, stripes, full or [], limits, seed, draw, as_json)
    asked = [_one_job(topology, workers, server)] if jobs is None else read_jobs(jobs, topology)
    several = jobs is not None or stripes > 1
    problems = request.problems(asked, size, shares_slots=several)
    if several:
        _place_together(request, asked, problems)
    else:
        _place_one(request, problems[0], check=check)


def _limits(written: Sequence[str], topology: Topology) -> dict[str, int]:
    """Return the limits of `--streams`, by switch."""
    limits = {}
    for limit in written:
        name, sign, count = limit.partition("=")
        if not sign or not count.isascii() or not count.isdigit():
            raise ExperimentError(f'"{limit}" is not SWITCH=N; write it like s1=4', place="--streams", value=limit)
        limits[topology.switch(name).name] = int(count)
    return limits


def _one_job(topology: Topology, workers: str, server: str | None) -> PlacedJob:
    """Return the job of `--workers` and `--server`."""
    from .place_files import PlacedJob

    hosts = [name.strip() for name in workers.split(",") if name.strip()]
    hosts = hosts or [host.name for host in topology.hosts if host.name != server]
    return PlacedJob.model_construct(name="job", workers=hosts, server=server, bytes=None, weight=1.0)


def _place_one(request: _Request, problem: Problem, *, check: bool) -> None:
    """Place one job by each strategy and print the plans; `check` adds the proof of unimodularity."""
    import json
    from functools import partial

    from ..controller.placement.strategies import strategy as strategy_named
    from ..controller.placement.strategies.agg import Agg
    from .place_description import describe, expected, print_plan
    from .place_without import RemovalStudy

    asking = RemovalStudy()
    plans: list[Placement] = []
    described: list[dict[str, Any]] = []
    for name in request.strategies:
        options = {"streams": request.streams} if name == "agg" and request.streams else None
        place_anew = partial(_place_anew, strategy_named(name, options), request.seed)
        plans.append(place_anew(problem))
        plans[-1].check(problem)
        without = asking.without_each(problem, plans[-1], place_anew, partial(expected, request.window))
        described.append(describe(problem, request.window, name, plans[-1], without))
    if request.picture is not None:
        _draw([(problem, plans[0])], request.picture)
    proof = Agg().proof(problem) if check else None
    if request.as_json:
        typer.echo(json.dumps({"plans": described, "unimodular": proof}, indent=2))
        return
    for plan in described:
        print_plan(plan, plan["strategy"])
    if proof is not None:
        typer.echo(proof)


def _place_together(request: _Request, jobs: Sequence[PlacedJob], problems: Sequence[Problem]) -> None:
    """Place several jobs, or one job's parts, by each strategy and print the plans."""
    import json

    from .place_description import describe_together, print_together
    from .place_together import parts_of, plan

    parts = parts_of(jobs, problems, request.stripes)
    plans = [plan(parts, name, request.seed) for name in request.strategies]
    if request.picture is not None:
        _draw([(part.problem, part.placement) for part in plans[0].parts], request.picture)
    described = [describe_together(each, request.window) for each in plans]
    if request.as_json:
        typer.echo(json.dumps({"plans": described}, indent=2))
        return
    for description in described:
        print_together(description)


def _place_anew(method: Strategy, seed: int, problem: Problem) -> Placement:
    """Place with a random generator in its first state."""
    import random
    from functools import partial

    from ..controller.placement.model.pipes import place_by_pipes

    return place_by_pipes(partial(method.place, rng=random.Random(seed)), problem)


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
        trees=[
            {link for child, parent in plan.edges for link in problem.routes.shares(child, parent)}
            for problem, plan in placed
        ],
        title=f"{topology.name}: summed at {', '.join(dict.fromkeys(plan.root for _, plan in placed))}",
    ).save(picture)
