"""`weir topology`: fabrics as data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="Fabrics as data: check, generate and draw them.")

_console = Console(highlight=False)


@app.command()
def check(file: Annotated[Path, typer.Argument(metavar="FILE", help="A fabric (YAML).")]) -> None:
    """Validate FILE and say what it is."""
    from ...topologies import load_topology

    topology = load_topology(file)
    _console.print(
        f"{topology.name}: {len(topology.switches)} switches, {len(topology.hosts)} hosts, {len(topology.links)} links"
    )


@app.command()
def draw(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A fabric (YAML).")],
    picture: Annotated[Path, typer.Argument(metavar="PICTURE", help="Where to draw it: NAME.svg or NAME.png.")],
) -> None:
    """Draw the fabric in FILE, tier by tier."""
    from ...topologies import load_topology
    from ...topologies.drawing import Drawing

    topology = load_topology(file)
    Drawing(topology, title=topology.name).save(picture)


@app.command("leaf-spine")
def leaf_spine_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the fabric (YAML).")],
    leaves: Annotated[int, typer.Option(help="Leaf switches.")] = 4,
    spines: Annotated[int, typer.Option(help="Spine switches; every leaf has a link to each.")] = 2,
    hosts_per_leaf: Annotated[int, typer.Option(help="Hosts on every leaf.")] = 3,
    rate: Annotated[str, typer.Option(help="Rate of every link, such as 10Gbit.")] = "1Gbit",
) -> None:
    """Write a leaf-spine fabric, every node and link spelled out, to edit."""
    from ...topologies import dump_topology, leaf_spine
    from ...topologies.units import parse_rate

    dump_topology(leaf_spine(leaves, spines, hosts_per_leaf, rate_bps=parse_rate(rate)), file)


@app.command("fat-tree")
def fat_tree_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the fabric (YAML).")],
    k: Annotated[int, typer.Option(help="Ports of every switch, even: k^3 / 4 hosts.")] = 4,
    rate: Annotated[str, typer.Option(help="Rate of every link, such as 10Gbit.")] = "1Gbit",
) -> None:
    """Write a fat tree, every node and link spelled out, to edit."""
    from ...topologies import dump_topology, fat_tree
    from ...topologies.units import parse_rate

    dump_topology(fat_tree(k, rate_bps=parse_rate(rate)), file)
