"""Descriptions of plans: mappings as `weir place --json` prints them, and tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from ..controller.placement import Placement, Problem
from ..controller.placement.multi_job.multi_tree import PARTS
from ..controller.planning.completion import Expected, Step, expected_step
from ..controller.planning.plan import JobSpec

if TYPE_CHECKING:
    from .place_together import Plan
    from .place_without import Without

_console = Console(highlight=False, markup=False)


def slots_of(window: int) -> int:
    """Return the slots that a job with this window takes in each switch of its tree."""
    return 1 << (2 * window - 1).bit_length()


def expected(window: int, problem: Problem, plan: Placement) -> Expected:
    """Predict the time of a step, as the controller does before it moves a job."""
    return expected_step(problem, plan, _step(window, problem))


def _step(window: int, problem: Problem) -> Step:
    spec = JobSpec(1, problem.workers, problem.server, slots_of(window), window, problem.gradient_bytes)
    return Step.of(spec, problem.topology)


def describe(
    problem: Problem, window: int, name: str, plan: Placement, without: Mapping[str, Without] | None = None
) -> dict[str, Any]:
    """Describe a plan.

    Args:
        problem: Fabric, loads and workers.
        window: Maximum number of rounds in the network.
        name: The strategy's name.
        plan: The tree.
        without: The best plan without a switch, by switch; None: not computed.
    """
    time = expected(window, problem, plan)
    inner = [node for node in plan.children if node != problem.server]
    notes = [plan.note]
    if without is not None and len(without) < len(inner):
        notes.append(f"plans without {', '.join(inner[len(without) :])} were not computed: it takes too long")
    return {
        "strategy": name,
        "root": plan.root,
        "completion_seconds": time.seconds,
        "round_trip_seconds": time.round_trip_seconds,
        "bound_by_window": time.is_bound_by_window,
        "slowest_link": str(time.slowest_link),
        "slowest_link_seconds": time.link_seconds * problem.gradient_bytes / _step(window, problem).round_bytes,
        "workers": dict(plan.aggregators),
        "nodes": [
            {
                "node": node,
                "parent": plan.parents.get(node),
                "sums": list(children),
                "why": _reason(problem, plan, node),
                "without": without[node].described(node, time.seconds) if without and node in without else None,
            }
            for node, children in plan.children.items()
        ],
        "note": "; ".join(filter(None, notes)),
    }


def _reason(problem: Problem, plan: Placement, node: str) -> str:
    """Return the purpose of a node in the tree."""
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


def describe_together(plan: Plan, window: int) -> dict[str, Any]:
    """Describe a plan of several jobs, or of one job's parts."""
    jobs, completion = [], dict[str, float]()
    for part in plan.parts:
        described = describe(part.problem, window, plan.strategy, part.placement)
        completion[part.part.job] = max(completion.get(part.part.job, 0.0), described["completion_seconds"])
        more = {
            "job": part.part.job,
            "share": part.part.share / PARTS,
            "bytes": part.problem.gradient_bytes,
            "weight": part.part.weight,
            "priority": part.part.priority,
        }
        jobs.append({**more, **described, "why": part.why})
    return {
        "strategy": plan.strategy,
        "jobs": jobs,
        "completion_seconds": completion,
        "slowest_link": str(plan.slowest_link),
        "slowest_link_seconds": plan.slowest_link_seconds,
        "streams": dict(plan.streams),
        "slowest_job_seconds": plan.slowest_job_seconds,
        "bound_seconds": plan.bound_seconds,
        "note": plan.note,
    }


def print_plan(plan: Mapping[str, Any], title: str) -> None:
    """Print the description of one tree."""
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


def print_together(plan: Mapping[str, Any]) -> None:
    """Print the description of several trees, then the link that limits them all."""
    for part in plan["jobs"]:
        share = "" if part["share"] == 1 else f", {100 * part['share']:.0f} % of its chunks"
        print_plan(part, f"{part['job']} ({part['strategy']}{share})")
        _console.print(part["why"])
    streams = ", ".join(f"{count:.3g} of {job}" for job, count in plan["streams"].items())
    steps = ", ".join(f"{job} {1e3 * seconds:.3f} ms" for job, seconds in plan["completion_seconds"].items())
    _console.print(
        f"all at once ({plan['strategy']}): the slowest link is {plan['slowest_link']}, busy for "
        f"{1e3 * plan['slowest_link_seconds']:.3f} ms with the streams {streams}; a step takes {steps}"
    )
    if plan["bound_seconds"]:
        slowest_ms, bound_ms = 1e3 * plan["slowest_job_seconds"], 1e3 * plan["bound_seconds"]
        gap = slowest_ms / bound_ms - 1
        _console.print(
            f"the slowest job of the highest priority takes {slowest_ms:.3f} ms times its weight, "
            f"at least {bound_ms:.3f} ms by any trees: the gap is at most {100 * gap:.1f} %"
        )
    if plan["note"]:
        _console.print(plan["note"])
