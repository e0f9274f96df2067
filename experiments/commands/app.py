"""The list of commands.

What each needs is imported when it runs, so that `weir --help` imports no more than typer and rich.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ... import __version__
from .console import NOTES
from .controller import controller
from .evaluate import evaluate
from .jobs import app as jobs_app
from .launch import launch
from .mininet import mininet
from .place import place
from .ptf import ptf
from .runs import demo, replay, run
from .schema import schema
from .schemes import schemes
from .stf import stf
from .telemetry import app as telemetry_app
from .top import top
from .topology import app as topology_app
from .torchrun import torchrun

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"weir {__version__}")
        raise typer.Exit


@app.callback()
def weir(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what goes on, too.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Results and errors alone.")] = False,
) -> None:
    """Train over programmable switches: gradients summed in the fabric, along the best trees that telemetry shows."""
    import logging

    if verbose or quiet:  # the first to set the log up; each command says what it logs otherwise
        logging.basicConfig(level=logging.INFO if verbose else logging.ERROR, format="%(asctime)s %(message)s")
    NOTES.quiet = quiet


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON instead of lines.")] = False,
) -> None:
    """Check this machine; exit status 1 when something that is needed is missing."""
    from .doctor import report

    if not report(as_json):
        raise typer.Exit(1)


app.command()(demo)
app.command()(run)
app.command()(replay)
app.command()(evaluate)
app.command()(schemes)
# what follows the program is the program's own
app.command(context_settings={"allow_extra_args": True, "allow_interspersed_args": False})(launch)
app.add_typer(topology_app, name="topology")
app.command()(schema)
app.command()(place)
app.command()(controller)
app.add_typer(jobs_app, name="jobs")
app.command()(top)
app.add_typer(telemetry_app, name="telemetry")
app.command()(mininet)
app.command()(stf)
app.command(context_settings={"ignore_unknown_options": True})(ptf)
app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(torchrun)
app.command()(doctor)
