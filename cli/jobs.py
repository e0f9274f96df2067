"""`weir jobs`: list the controller's jobs, register and end them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from threading import Timer
from typing import Annotated, Any, Final

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from .console import NOTES
from .control_options import ControlOption, TlsOption, control_client
from .help import POLICY_NAMES, command_group, complete_policy, examples

app = command_group(
    help="List a running controller's jobs; register and end them. Without a command it lists.",
    epilog=examples(
        "weir jobs",
        "weir jobs register h1 h2 h4 --server h12 --policy continue",
        "weir jobs end 1234",
    ),
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

_TOLD_AFTER_S: Final = 2.0
"""Time without an answer after which a client is told that its job may be queued."""
_console = Console(highlight=False, markup=False)
"""Console without markup: workers' error messages may look like markup."""


@app.callback(invoke_without_command=True)
def list_jobs(
    context: typer.Context,
    control: ControlOption = None,
    tls: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the jobs, their progress, and any event that they wait for."""
    context.obj = control, tls, as_json
    if context.invoked_subcommand is None:
        _list(context, as_json)


@app.command("list", epilog=examples("weir jobs list", "weir jobs list --json"))
def list_command(
    context: typer.Context, control: ControlOption = None, tls: TlsOption = None, as_json: JsonOption = False
) -> None:
    """List the jobs with their progress, and what they wait for."""
    _list(context, as_json or context.obj[2], control, tls)


def _list(
    context: typer.Context, as_json: bool, control: str | None = None, tls: tuple[Path, Path, Path] | None = None
) -> None:
    with _client(context, control, tls) as client:
        listing = client.listing()
    jobs, queued = listing.jobs, listing.queued
    if as_json:
        _dump([*(_as_dict(job) for job in jobs), *(_waiting(job) for job in queued)])
        return
    for job in queued:
        _console.print(
            f"job {job.job}: queued, position {job.position} for {job.waited_seconds:.0f} s: {job.reason}",
            soft_wrap=True,
        )
    if not jobs and queued:
        return
    if not jobs:
        _console.print("no jobs")
        return
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)  # 80 columns have room for it
    for column in ("job", "gen.", "rounds", "workers", "server", "summed at", "slots", "policy", "waiting"):
        table.add_column(
            column,
            justify="right" if column in {"job", "gen.", "rounds", "slots"} else "left",
            no_wrap=column in {"job", "gen.", "rounds", "slots", "policy"},
        )
    for job in jobs:
        values = _as_dict(job)
        table.add_row(
            str(job.job),
            str(job.generation),
            str(job.rounds),
            " ".join(_mark(host) for host in values["hosts"] if host["rank"] is not None),
            " ".join(_mark(host) for host in values["hosts"] if host["rank"] is None) or "–",
            " ".join(job.switches) or "the server",
            str(job.slots),
            values["policy"],
            job.waiting_for or "–",
        )
    _console.print(table)
    for stripes in dict.fromkeys(tuple((stripe.job, stripe.share) for stripe in job.stripes) for job in jobs):
        if stripes:
            _console.print(_shared(stripes), soft_wrap=True)
    for parent in dict.fromkeys(job.parent for job in jobs if job.parent):
        groups = ", ".join(str(job.job) for job in jobs if job.parent == parent)
        _console.print(f"groups of job {parent}, with its policy, priority and end: {groups}", soft_wrap=True)
    for job in jobs:
        if job.HasField("report"):
            _console.print(f"job {job.job}: {_progress(job.report)}", soft_wrap=True)
        if job.ranking.places > 1:
            _console.print(f"job {job.job}: {_rank(job.ranking)}", soft_wrap=True)
        if job.keeps_class:
            _console.print(f"job {job.job}: traffic class {job.traffic_class} of 5 as long as it runs", soft_wrap=True)
        if job.turns:
            _console.print(f"job {job.job}: {job.turns}", soft_wrap=True)
    for partner in listing.partners:
        _console.print(
            f"jobs {', '.join(map(str, partner.jobs))}: {partner.speed_up:.2f} times as fast in turns on the same "
            f"devices, a step of each in {1e3 * partner.period_seconds:.3g} ms",
            soft_wrap=True,
        )
    if any(not host.attending for job in jobs for host in job.hosts):
        _console.print("(…): not attending")


WorkersArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[HOST…]", help="The workers' hosts, by rank; or name --count.")
]
CountOption = Annotated[
    int, typer.Option(min=0, help="Number of workers, on hosts that the controller chooses; it may queue.")
]
MemoryOption = Annotated[
    str, typer.Option(metavar="AMOUNT", help="Memory of its host that each worker takes, such as 16GiB.")
]
ServerOption = Annotated[
    str | None,
    typer.Option(metavar="HOST", help="The parameter server's host; default: none, and a switch is the root."),
]
SpareOption = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST", help="A host that can replace the server; may be repeated."),
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        help=f"When a worker is lost: {POLICY_NAMES}; default: that of --parent, or continue.",
        autocompletion=complete_policy,
    ),
]
GradientBytesOption = Annotated[
    int, typer.Option(help="Bytes of a worker's stream in a step, for placement; 0: 1 MiB.")
]
WeightOption = Annotated[
    float, typer.Option(help="Weight of its time relative to other jobs on the same links, 0.001 to 1000.")
]
PriorityOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=7,
        help="Its time counts before that of all jobs with a lower one, for any weights: 0 to 7; default: that of "
        "--parent, or 0.",
    ),
]
ClassOption = Annotated[
    int | None,
    typer.Option(
        "--traffic-class",
        min=1,
        max=5,
        help="Class of its packets in switches as long as it runs: 1 (bulk) to 5, which goes before all other jobs; "
        "default: bulk, or by the controller's --order.",
    ),
]
StripesOption = Annotated[
    int, typer.Option(min=1, help="Without a server: max. number of trees that share each sum's chunks.")
]


@app.command(
    epilog=examples(
        "weir jobs register h1 h2 h4",
        "weir jobs register h1 h2 h4 --server h12 --policy continue",
        "weir jobs register --count 4 --accelerators 2 --memory 16GiB --wait 600",
        "weir jobs register h1 h2 --accelerators 1",
        "weir jobs register h1 h2 --traffic-class 5",
    )
)
def register(
    context: typer.Context,
    workers: WorkersArgument = None,
    count: CountOption = 0,
    accelerators: Annotated[
        int, typer.Option(min=0, help="Accelerators of its host that each worker takes; 0: 1.")
    ] = 0,
    memory: MemoryOption = "",
    wait: Annotated[
        float, typer.Option(min=0, help="Longest time until the answer, such as in the queue, in seconds.")
    ] = 60.0,
    parent: Annotated[
        int, typer.Option(min=0, help="Number of a job whose policy and priority it has, and with which it ends.")
    ] = 0,
    server: ServerOption = None,
    spare: SpareOption = None,
    slots: Annotated[
        int, typer.Option(help="Aggregation slots in each switch, a power of two; 0: by rate and bound.")
    ] = 0,
    window: Annotated[int, typer.Option(help="Max. rounds in flight; 0: half the slots.")] = 0,
    policy: PolicyOption = None,
    min_workers: Annotated[int, typer.Option(help="Min. workers with which the job continues.")] = 1,
    gradient_bytes: GradientBytesOption = 0,
    weight: WeightOption = 1.0,
    priority: PriorityOption = None,
    traffic_class: ClassOption = None,
    stripes: StripesOption = 1,
    control: ControlOption = None,
    tls: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Register a job; print its number, and its hosts' tokens."""
    from ..topologies.units import parse_memory

    if not workers and not count:
        raise typer.BadParameter("a job needs workers: name their hosts, or a number of them by --count")
    with _client(context, control, tls) as client, _told_of_waiting(wait):
        job = client.register(
            workers or [],
            server,
            worker_count=count,
            accelerators=accelerators,
            memory_bytes=parse_memory(memory) if memory else 0,
            wait_s=wait,
            parent=parent,
            spares=spare or [],
            slots=slots,
            window=window,
            policy=policy,
            min_workers=min_workers,
            gradient_bytes=gradient_bytes,
            weight=weight,
            priority=priority,
            traffic_class=traffic_class or 0,
            stripes=stripes,
        )
    seats = [
        {"host": seat.host, "rank": seat.rank if seat.HasField("rank") else None, "token": seat.token}
        for seat in job.seats
    ]
    if as_json or context.obj[2]:
        given = {"job": job.job, "slots": job.slots, "window": job.window, "note": job.note}
        _dump({**given, "seats": seats, "stripes": _stripes(job)})
        return
    _console.print(f"job {job.job}: {job.slots} slots, window {job.window}")
    if job.stripes:
        _console.print(_shared([(stripe.job, stripe.share) for stripe in job.stripes]), soft_wrap=True)
    if job.note:
        _console.print(f"note: {job.note}", soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    for column in ("host", "part", "token"):
        table.add_column(column)
    for seat in seats:
        table.add_row(seat["host"], "server" if seat["rank"] is None else f"rank {seat['rank']}", seat["token"])
    _console.print(table)


@contextmanager
def _told_of_waiting(most_s: float) -> Iterator[None]:
    """Print a line if the block takes longer than jobs that have room."""
    text = f"no answer yet; weir jobs shows a queued job's position and reason (--wait: at most {most_s:g} s)"
    timer = Timer(_TOLD_AFTER_S, NOTES.print, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@app.command(epilog=examples('weir jobs end 1234 --reason "out of time"'))
def end(
    context: typer.Context,
    job: Annotated[int, typer.Argument(metavar="JOB", help="The job's number.")],
    reason: Annotated[str, typer.Option(help="Reason sent to its hosts.")] = "",
    control: ControlOption = None,
    tls: TlsOption = None,
) -> None:
    """End a running or queued job; its hosts get the reason."""
    with _client(context, control, tls) as client:
        client.end(job, reason)


def _client(context: typer.Context, control: str | None = None, tls: tuple[Path, Path, Path] | None = None) -> Any:
    """Return a client, from a command's own options or else those before the command."""
    control_before, tls_before, _ = context.obj
    return control_client(control or control_before, tls or tls_before)


def _as_dict(job: Any) -> dict[str, Any]:
    """A job's state as JSON has it."""
    from ..hosts.drivers.control_client import POLICIES

    return {
        "job": job.job,
        "generation": job.generation,
        "rounds": job.rounds,
        "slots": job.slots,
        "window": job.window,
        "policy": next(name for name, number in POLICIES.items() if number == job.policy),
        "switches": list(job.switches),
        "waiting_for": job.waiting_for,
        "stripes": _stripes(job),
        "state": "running",
        "parent": job.parent or None,
        "report": _report(job),
        "ranking": _ranking(job),
        "turns": job.turns or None,
        "traffic_class": job.traffic_class,
        "keeps_class": job.keeps_class,
        "hosts": [
            {
                "host": host.host,
                "rank": host.rank if host.HasField("rank") else None,
                "attending": host.attending,
                "rounds": host.rounds,
                "silent_s": host.silent_seconds if host.silent_seconds >= 0 else None,
            }
            for host in job.hosts
        ],
    }


def _stripes(job: Any) -> list[dict[str, int]]:
    return [{"job": stripe.job, "share": stripe.share} for stripe in job.stripes]


def _shared(stripes: Sequence[tuple[int, int]]) -> str:
    jobs, shares = ", ".join(str(job) for job, _ in stripes), " : ".join(str(share) for _, share in stripes)
    return f"jobs {jobs} are stripes of one: they share its chunks as {shares}, and end together"


def _waiting(job: Any) -> dict[str, Any]:
    """A queued job as JSON has it."""
    return {
        "job": job.job,
        "state": "queued",
        "position": job.position,
        "reason": job.reason,
        "waited_s": job.waited_seconds,
        "workers": job.worker_count,
        "accelerators": job.accelerators,
        "memory_bytes": job.memory_bytes,
        "priority": job.priority,
    }


def _report(job: Any) -> dict[str, Any] | None:
    """The newest report of a job's program, with times and bytes of one step; NaN and infinity are null in JSON."""
    if not job.HasField("report"):
        return None
    told = job.report

    def value(name: str) -> Any:
        return getattr(told, name) if told.HasField(name) and isfinite(getattr(told, name)) else None

    return {
        "step": told.step,
        "steps_left": value("steps_left"),
        "stage": told.stage,
        "loss": value("loss"),
        "accuracy": value("accuracy"),
        "compute_s": told.compute_ns / told.steps / 1e9 or None,
        "exposed_s": told.exposed_ns / told.steps / 1e9 or None,
        "waiting_s": told.waiting_ns / told.steps / 1e9 or None,
        "bytes": told.bytes // told.steps,
    }


def _progress(told: Any) -> str:
    """One line about a report."""
    parts = [told.stage, f"step {told.step}"]
    if told.HasField("steps_left"):
        parts.append(f"{told.steps_left} left")
    parts += [f"{name} {getattr(told, name):.4g}" for name in ("loss", "accuracy") if told.HasField(name)]
    if told.compute_ns or told.exposed_ns:
        compute_ms, exposed_ms = (total_ns / told.steps / 1e6 for total_ns in (told.compute_ns, told.exposed_ns))
        parts.append(f"{compute_ms:.4g} ms of computation and {exposed_ms:.4g} ms of exposed communication a step")
    if told.waiting_ns:
        parts.append(f"{told.waiting_ns / told.steps / 1e6:.4g} ms of waiting for turns a step")
    parts.append(f"{told.bytes / told.steps / 1e6:.4g} MB a step")
    return ", ".join(part for part in parts if part)


def _ranking(job: Any) -> dict[str, Any] | None:
    """Place of a job in the order of all."""
    if not job.HasField("ranking"):
        return None
    ranking = job.ranking
    return {
        "order": ranking.order,
        "place": ranking.place,
        "places": ranking.places,
        "traffic_class": ranking.traffic_class,
        "why": ranking.why,
    }


def _rank(position: Any) -> str:
    """One line about a job's place."""
    place = f"place {position.place} of {position.places} by {position.order}"
    return f"{place}, class {position.traffic_class}: {position.why}"


def _mark(host: dict[str, Any]) -> str:
    return host["host"] if host["attending"] else f"({host['host']})"


def _dump(values: dict[str, Any] | Sequence[Any]) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
