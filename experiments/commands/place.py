"""`weir place`: where a fabric's switches would sum a job, how long that takes, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ..errors import ExperimentError
from .help import STRATEGY_NAMES, complete_strategy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...controller.placement import Placement, Problem
    from ...controller.placement.loads import LinkLoad
    from ...topologies import Endpoint, Topology

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
    size: Annotated[int, typer.Option(help="Bytes of one worker's stream, headers included.")] = 1 << 20,
    window: Annotated[
        int, typer.Option(min=1, max=1 << 14, help="Rounds in the network, where no queue allows fewer.")
    ] = 32,
    loads: Annotated[
        Path | None, typer.Option(metavar="LOADS", help="Others' traffic by directed link (YAML): s1-p3: 300Mbit.")
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
    """Say where a job's gradients would be summed, and why. Also how long a step takes, and which link is slowest."""
    import json
    import random

    from ...controller.placement import Problem
    from ...controller.placement.strategies import DEFAULT
    from ...controller.placement.strategies import strategy as strategy_named
    from ...controller.placement.strategies.agg import Agg
    from ...topologies import Routes, load_topology

    topology = load_topology(file)
    names = [name.strip() for name in workers.split(",") if name.strip()]
    problem = Problem(
        Routes(topology),
        tuple(names or (host.name for host in topology.hosts if host.name != server)),
        server,
        size,
        {} if loads is None else read_loads(loads, topology),
        {switch.name: int(switch.name not in (full or ())) for switch in topology.switches},
    )
    for name in full or ():
        topology.switch(name)
    plans = {name: strategy_named(name).place(problem, random.Random(seed)) for name in strategy or [DEFAULT]}
    for placement in plans.values():
        placement.check(problem)
    described = [describe(problem, window, name, plan) for name, plan in plans.items()]
    if draw is not None:
        _draw(problem, next(iter(plans.values())), draw)
    proof = Agg().proof(problem) if check else None
    if as_json:
        typer.echo(json.dumps({"plans": described, "unimodular": proof}, indent=2))
        return
    for plan in described:
        _print(plan)
    if proof is not None:
        _console.print(proof)


def read_loads(path: Path, topology: Topology) -> Mapping[Endpoint, LinkLoad]:
    """Others' traffic by directed link. Raises ExperimentError, which names file and key."""
    from ...controller.placement.loads import LinkLoad
    from ...topologies import Endpoint, TopologyError
    from ...topologies.problems import BadFile, Problem, told
    from ...topologies.units import parse_rate
    from ...topologies.yaml_file import YamlFile

    try:
        written = YamlFile.read(path, "loads are a YAML mapping, such as s1-p3: 300Mbit")
    except BadFile as error:
        raise ExperimentError(str(error)) from None
    found: dict[Endpoint, LinkLoad] = {}
    problems = list(written.problems)
    for key, value in written.data.items():
        try:
            link = Endpoint.parse(str(key))
            topology.link_at(link)
            found[link] = LinkLoad(float(parse_rate(value)))
        except TopologyError as error:
            problems.append(Problem(f"{key}: {error}", written.line([key])))
    if problems:
        raise ExperimentError(told(str(path), problems))
    return found


def describe(problem: Problem, window: int, name: str, plan: Placement) -> dict[str, Any]:
    """A plan as `--json` prints it; the times are those by which the controller moves jobs."""
    from ...controller.planning.completion import Step, expected_step
    from ...controller.planning.plan import JobSpec

    slots = 1 << (2 * window - 1).bit_length()
    spec = JobSpec(1, problem.workers, problem.server, slots, window, problem.gradient_bytes)
    step = Step.of(spec, problem.topology)
    expected = expected_step(problem, plan, step)
    return {
        "strategy": name,
        "root": plan.root,
        "completion_seconds": expected.seconds,
        "round_trip_seconds": expected.round_trip_seconds,
        "bound_by_window": expected.is_bound_by_window,
        "slowest_link": str(expected.slowest_link),
        "slowest_link_seconds": expected.link_seconds * problem.gradient_bytes / step.round_bytes,
        "workers": dict(plan.aggregators),
        "nodes": [
            {
                "node": node,
                "parent": plan.parents.get(node),
                "sums": list(children),
                "why": _reason(problem, plan, node),
            }
            for node, children in plan.children.items()
        ],
        "note": plan.note,
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
    return f"{workers} workers are on it; {makes}" if at_home else makes


def _print(plan: dict[str, Any]) -> None:
    table = Table("node", "sums", "sends to", "why", title=plan["strategy"], title_justify="left")
    for node in plan["nodes"]:
        table.add_row(node["node"], ", ".join(node["sums"]), node["parent"] or "–", node["why"])
    _console.print(table)
    waits = ", which waits for the window" if plan["bound_by_window"] else ""
    _console.print(
        f"a step takes {1e3 * plan['completion_seconds']:.3f} ms; the slowest link is {plan['slowest_link']}, busy for "
        f"{1e3 * plan['slowest_link_seconds']:.3f} ms{waits}; a round trip takes "
        f"{1e3 * plan['round_trip_seconds']:.3f} ms"
    )
    if plan["note"]:
        _console.print(plan["note"])


def _draw(problem: Problem, plan: Placement, picture: Path) -> None:
    from ...topologies.drawing import Drawing

    topology = problem.topology
    Drawing(
        topology=topology,
        loads={
            link: min(load.background_bps / topology.link_at(link).rate_bps, 1.0)
            for link, load in problem.loads.items()
        },
        summing={node: f"sums {len(mine)}" for node, mine in plan.children.items() if topology.is_switch(node)},
        roles={
            **dict.fromkeys(problem.workers, "worker"),
            **({} if problem.server is None else {problem.server: "server"}),
        },
        title=f"{topology.name}: summed at {plan.root}",
    ).save(picture)
