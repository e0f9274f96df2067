"""`weir plan`: plans made before a job starts."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from ..errors.values import shown
from ..topologies.problems import BadFile, read_text
from .help import command_group, examples

if TYPE_CHECKING:
    from ..hosts.compression.selective import CommunicationCosts

app = command_group(
    no_args_is_help=True,
    help="Plan which gradients of a job to compress, and how.",
    epilog=examples("weir plan compression vgg19 --workers 8 --rate 100Mbit"),
)

_SAMPLE: tuple[int, int] = (1 << 14, 1 << 20)
"""Sizes at which encoding and decoding are measured."""
_LARGEST = 1 << 48
_MOST = 10_000
"""Sizes of a file: a schedule of so many takes a minute."""


@app.callback()
def _plan() -> None:
    """Keep `compression` a command of its own."""


@app.command(
    epilog=examples(
        "weir plan compression vgg19 --workers 8 --rate 100Mbit",
        "weir plan compression sizes.json --codec packed --json",
        "weir plan compression vgg19 --trace plan.json",
    )
)
def compression(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="vgg19, bert-base, or a JSON file with a list of the gradients' sizes."),
    ],
    workers: Annotated[int, typer.Option(min=2, help="Number of workers.")] = 8,
    rate: Annotated[str, typer.Option(help="Rate of every link, such as 100Mbit or 10Gbit.")] = "1Gbit",
    codec: Annotated[str, typer.Option(help="Codec to consider, by its name in weir codec list.")] = "packed",
    latency: Annotated[str, typer.Option(help="Time of an empty message, such as 50us.")] = "50us",
    trace: Annotated[
        Path | None, typer.Option(help="File for the plan's schedule, in Chrome's trace format (Perfetto reads it).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Plan for each gradient: compress, parts and way.

    The plan is the one whose schedule of all gradients is fastest. Encoding and decoding are measured here, on one
    core; links are a latency and a rate. The way is a parameter server on every node, a ring, or the switches if they
    can sum the codec's codes. All gradients are there at the start of the schedule, in which encoding and decoding
    overlap with the network. Below are the schedules of this plan, of SeCoPa's, which takes each gradient alone, of all
    raw and of all compressed.
    """
    from ..hosts.compression.selective import MODELS, choices, plan
    from ..hosts.compression.task_graph import chrome_trace, graph, makespan_ms, plan_schedule, virtual_spans

    sizes = MODELS[model]() if model in MODELS else _sizes_of(Path(model))
    costs = _measured(codec, workers, rate, latency)
    planned = plan_schedule(costs, workers, sizes)
    compared = {"plan": planned, "SeCoPa": plan(costs, workers, sizes)}
    for name, compressed in (("all raw", False), ("all compressed", True)):
        compared[name] = [
            min(
                (choice for choice in choices(costs, workers, size) if choice.compressed == compressed),
                key=lambda choice: choice.time_ms,
            )
            for size in sizes
        ]
    schedules_ms = {
        name: makespan_ms(virtual_spans(graph(taken, costs, workers, sizes))) for name, taken in compared.items()
    }
    tasks = graph(planned, costs, workers, sizes)
    spans = virtual_spans(tasks)
    if trace is not None:
        _write(trace, {"traceEvents": chrome_trace(tasks, spans), "displayTimeUnit": "ms"})
    rows = [
        {
            "size": size,
            "compress": choice.compressed,
            "parts": choice.parts,
            "way": choice.way,
            "ms": round(choice.time_ms, 3),
        }
        for size, choice in zip(sizes, planned, strict=True)
    ]
    if as_json:
        sys.stdout.write(json.dumps({"gradients": rows, "schedules_ms": schedules_ms}) + "\n")
        return
    table = Table("numbers", "compress", "parts", "way", "ms", box=box.SIMPLE_HEAD, show_edge=False)
    for row in rows:
        table.add_row(
            f"{row['size']:,}", "yes" if row["compress"] else "no", *(str(row[key]) for key in ("parts", "way", "ms"))
        )
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print("schedule: " + ", ".join(f"{name} {time_ms:.1f} ms" for name, time_ms in schedules_ms.items()))


def _write(file: Path, data: object) -> None:
    try:
        file.write_text(json.dumps(data) + "\n", encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}; give a file that can be written") from None


def _sizes_of(file: Path) -> list[int]:
    allowed = "give vgg19, bert-base, or a JSON file with a list of sizes"
    try:
        sizes = json.loads(read_text(file))
    except BadFile as error:
        raise typer.BadParameter(f"{error}; {allowed}") from None
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{file}: is not JSON: {error}; {allowed}") from None
    allowed = f"sizes are a JSON list of whole numbers from 1 to {_LARGEST}"
    if not isinstance(sizes, list) or not sizes:
        raise typer.BadParameter(f"{file}: {shown(sizes)} is no list of sizes; {allowed}, at least one")
    for index, size in enumerate(sizes):
        if type(size) is not int or not 0 < size <= _LARGEST:
            raise typer.BadParameter(f"{file}: size {index} is {shown(size)}; {allowed}")
    if len(sizes) > _MOST:
        raise typer.BadParameter(f"{file}: {len(sizes)} sizes; {_MOST} are the most")
    return sizes


def _measured(name: str, workers: int, rate: str, latency: str) -> CommunicationCosts:
    """Return costs of links of this rate, and of a codec as it is on this machine."""
    from ..hosts.compression.codecs import make_codec
    from ..hosts.compression.measured_costs import coding_costs, with_links
    from ..topologies.units import parse_delay, parse_rate

    coding = coding_costs(make_codec(name), workers, _SAMPLE, time.perf_counter)
    return with_links(coding, workers, parse_rate(rate), 1e-6 * parse_delay(latency))
