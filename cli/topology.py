"""`weir topology`: fabrics as data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .help import command_group, examples

app = command_group(
    no_args_is_help=True,
    help="Check, draw and write fabrics' files.",
    epilog=examples(
        "weir topology leaf-spine my.yaml --leaves 2 --spines 2",
        "weir topology check my.yaml",
        "weir topology draw my.yaml my.svg",
    ),
)

_console = Console(highlight=False, markup=False)


@app.command(epilog=examples("weir topology check my.yaml"))
def check(
    file: Annotated[Path, typer.Argument(metavar="TOPOLOGY", help="The fabric: a file, or one that ships with Weir.")],
) -> None:
    """Check a fabric's file: list its errors, or describe it."""
    from ..topologies import load_topology

    topology = load_topology(file)
    _console.print(
        f"{topology.name}: {len(topology.switches)} switches, {len(topology.hosts)} hosts, {len(topology.links)} links"
    )


@app.command(epilog=examples("weir topology draw leaf_spine.yaml fabric.svg"))
def draw(
    file: Annotated[Path, typer.Argument(metavar="TOPOLOGY", help="The fabric: a file, or one that ships with Weir.")],
    picture: Annotated[Path, typer.Argument(metavar="PICTURE", help="Where to draw it: NAME.svg or NAME.png.")],
    rates: Annotated[bool, typer.Option("--rates", help="Write the rate of each link.")] = False,
    ports: Annotated[bool, typer.Option("--ports", help="Write the port numbers of switches.")] = False,
) -> None:
    """Draw a fabric in tiers, or as a ring if it has none."""
    from ..topologies import load_topology
    from ..topologies.drawing import Drawing

    topology = load_topology(file)
    Drawing(topology, title=topology.name, rates=rates, ports=ports).save(picture)


@app.command("leaf-spine", epilog=examples("weir topology leaf-spine my.yaml --leaves 8 --rate 10Gbit"))
def leaf_spine_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the fabric (YAML).")],
    leaves: Annotated[int, typer.Option(help="Leaf switches.")] = 4,
    spines: Annotated[int, typer.Option(help="Spine switches; every leaf has a link to each.")] = 2,
    hosts_per_leaf: Annotated[int, typer.Option(help="Hosts on every leaf.")] = 3,
    rate: Annotated[str, typer.Option(help="Rate of every link, such as 10Gbit.")] = "1Gbit",
) -> None:
    """Write a leaf-spine fabric's file, spelled out, to edit."""
    from ..topologies import dump_topology, leaf_spine
    from ..topologies.units import parse_rate

    dump_topology(leaf_spine(leaves, spines, hosts_per_leaf, rate_bps=parse_rate(rate)), file)


@app.command("fat-tree", epilog=examples("weir topology fat-tree my.yaml --k 8"))
def fat_tree_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the fabric (YAML).")],
    k: Annotated[int, typer.Option(help="Ports of every switch, even: k^3 / 4 hosts.")] = 4,
    rate: Annotated[str, typer.Option(help="Rate of every link, such as 10Gbit.")] = "1Gbit",
) -> None:
    """Write a fat tree's file, spelled out, to edit."""
    from ..topologies import dump_topology, fat_tree
    from ..topologies.units import parse_rate

    dump_topology(fat_tree(k, rate_bps=parse_rate(rate)), file)
