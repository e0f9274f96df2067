"""List of commands.

Each command imports its packages when it runs, so that `weir --help` imports only typer and rich.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from .baselines import baselines
from .codec import app as codec_app
from .console import NOTES
from .controller import controller
from .evaluate import evaluate
from .examples import copy_examples
from .help import COMPARE, CONTROL, FABRICS, MACHINE, PROGRAMS, TRAIN, command_group, examples
from .jobs import app as jobs_app
from .launch import launch
from .mininet import mininet
from .model import app as model_app
from .model import infer
from .papers import app as papers_app
from .place import place
from .plan import app as plan_app
from .ptf import ptf
from .runs import demo, replay, run
from .schema import schema
from .search import search
from .stf import stf
from .strategies import strategies
from .telemetry import app as telemetry_app
from .top import top
from .topology import app as topology_app
from .torchrun import torchrun

app = command_group(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=examples(
        "weir doctor                         # what this machine has",
        "weir demo                           # train over an emulated fabric",
        "weir examples                       # writes examples/, which the guides run",
        "weir launch -n 4 examples/train.py  # a training loop of your own",
        "weir launch --help                  # a command's options and examples",
    ),
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"weir {__version__}")
        raise typer.Exit


@app.callback()
def weir(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log details.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")] = False,
) -> None:
    """Train over programmable switches, which sum gradients along trees that are chosen by live telemetry."""
    import logging

    if verbose or quiet:  # the first to set the log up; each command says what it logs otherwise
        logging.basicConfig(level=logging.INFO if verbose else logging.ERROR, format="%(asctime)s %(message)s")
    NOTES.quiet = quiet


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON instead of lines.")] = False,
) -> None:
    """List what this machine has and lacks.

    Each missing part comes with the way to get it. The exit status is 1 if a required part is missing.
    """
    from .doctor import report

    if not report(as_json):
        raise typer.Exit(1)


app.command(rich_help_panel=MACHINE, epilog=examples("weir doctor"))(doctor)
app.command(
    "examples",
    rich_help_panel=MACHINE,
    epilog=examples(
        "weir examples",
        "weir examples my_examples",
    ),
)(copy_examples)
app.command(
    rich_help_panel=TRAIN,
    epilog=examples(
        "weir demo",
        "weir demo --loss 0.01                   # links lose a packet in a hundred",
        "weir demo --web 8265                    # and watch it in a browser",
    ),
)(demo)
app.command(
    rich_help_panel=TRAIN,
    epilog=examples(
        "weir run experiments/demo.yaml",
        "weir run my.yaml --strategy widest --seed 3",
        "sudo .venv/bin/weir run my.yaml --fabric mininet",
    ),
)(run)
app.command(
    rich_help_panel=TRAIN,
    epilog=examples(
        "weir search examples/search.yaml",
        "weir search my.yaml --order fair --order grouper --seed 3",
        "weir search my.yaml --check",
    ),
)(search)
app.command(rich_help_panel=TRAIN, epilog=examples("weir replay runs/digits-20260101-120000"))(replay)
# arguments after the program belong to the program
app.command(
    rich_help_panel=TRAIN,
    context_settings={"allow_extra_args": True, "allow_interspersed_args": False},
    epilog=examples(
        "weir launch -n 4 train.py --epochs 3",
        "weir launch --hosts h1,h4,h7 train.py",
        "weir launch -n 4 --topology fat_tree.yaml -m my_package.train",
    ),
)(launch)
app.command(
    rich_help_panel=TRAIN,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=examples(
        "weir torchrun -n 4 examples/ddp.py",
        "weir torchrun -n 8 --topology fat_tree.yaml train.py --epochs 3",
    ),
)(torchrun)
app.command(
    rich_help_panel=COMPARE,
    epilog=examples(
        "weir evaluate experiments/evaluation.yaml",
        "weir evaluate my_suite.yaml --workers 8 --write my_suite.md",
    ),
)(evaluate)
app.command(
    rich_help_panel=COMPARE,
    epilog=examples(
        "weir baselines experiments/queues/joins.yaml",
        "weir baselines my.yaml --scheme explicit --scheme dctcp",
    ),
)(baselines)
app.add_typer(papers_app, name="papers", rich_help_panel=COMPARE)
app.add_typer(codec_app, name="codec", rich_help_panel=COMPARE)
app.add_typer(plan_app, name="plan", rich_help_panel=COMPARE)
app.add_typer(topology_app, name="topology", rich_help_panel=FABRICS)
app.command(
    rich_help_panel=FABRICS,
    epilog=examples(
        "weir schema fabric > fabric.schema.json",
        "weir schema run > run.schema.json",
        "weir schema jobs > jobs.schema.json",
    ),
)(schema)
app.command(
    rich_help_panel=FABRICS,
    epilog=examples(
        "weir place leaf_spine.yaml --server h12",
        "weir place leaf_spine.yaml --workers h1,h4,h7 --strategy agg",
        "weir place my.yaml --loads loads.yaml --draw plan.svg",
        "weir place leaf_spine.yaml --jobs jobs.yaml --loads loads.yaml",
        "weir place leaf_spine.yaml --server h12 --stripes 2",
    ),
)(place)
app.command(rich_help_panel=FABRICS, epilog=examples("weir strategies"))(strategies)
app.command(
    rich_help_panel=FABRICS,
    epilog=examples(
        "sudo .venv/bin/weir mininet leaf_spine.yaml",
        'sudo .venv/bin/weir mininet leaf_spine.yaml --exec "h1 ping -c1 h12"',
        "sudo .venv/bin/weir mininet my.yaml --program own.json",
    ),
)(mininet)
app.command(
    rich_help_panel=PROGRAMS,
    epilog=examples(
        "weir stf own.json own.stf",
        "weir stf own.p4 first.stf second.stf    # compiled by p4c on the way",
    ),
)(stf)
app.command(
    rich_help_panel=PROGRAMS,
    context_settings={"ignore_unknown_options": True},
    epilog=examples("weir ptf --program own.json --test-dir ptf_tests"),
)(ptf)
app.command(
    rich_help_panel=CONTROL,
    epilog=examples(
        "weir controller leaf_spine.yaml --sockets FOLDER  # beside weir mininet",
        "weir controller my.yaml --switch s1=10.0.0.1:9559 --journal jobs.journal",
        "weir jobs register h1 h2 h4             # then, from another shell",
    ),
)(controller)
app.add_typer(jobs_app, name="jobs", rich_help_panel=CONTROL)
app.add_typer(model_app, name="model", rich_help_panel=CONTROL)
app.command(
    rich_help_panel=CONTROL,
    epilog=examples(
        "weir infer samples.csv --switch 10.255.0.1",
        "weir infer samples.csv --switch 10.255.0.1 --model digits.json",
    ),
)(infer)
app.command(
    rich_help_panel=CONTROL,
    epilog=examples(
        "weir demo --web 8265                    # in one shell",
        "weir top                                # in another",
    ),
)(top)
app.add_typer(telemetry_app, name="telemetry", rich_help_panel=CONTROL)
