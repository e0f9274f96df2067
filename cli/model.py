"""`weir model`: decision forests in switches; and `weir infer`, which asks a switch for classes."""

from __future__ import annotations

import json
import sys
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from ..experiments.errors import ExperimentError
from .control_options import ControlOption, TlsOption, control_client
from .help import command_group, examples

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

app = command_group(
    no_args_is_help=True,
    help="Load decision forests into switches, list them, or test one.",
    epilog=examples(
        "weir model test digits.json",
        "weir model convert digits.skops digits.json",
        "weir model load digits.json --switch s1",
        "weir model list",
        "weir model unload --switch s1",
    ),
)

FileArgument = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="A model as weir.Forest.save writes it, or a classifier in a skops file."),
]
FeaturesOption = Annotated[
    Literal["bytes", "numbers"] | None,
    typer.Option(help="A classifier's features: whole numbers in 0…255, or any; default: bytes."),
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Read a pickle (joblib, pkl), too, and execute the code in it.")
]
SwitchOption = Annotated[list[str], typer.Option("--switch", metavar="NAME", help="A switch; may be repeated.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

_console = Console(highlight=False, markup=False)


@app.command(epilog=examples("weir model load digits.json --switch s1 --switch s2"))
def load(
    file: FileArgument,
    switch: SwitchOption,
    features: FeaturesOption = None,
    trust: TrustOption = False,
    control: ControlOption = None,
    tls: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have switches classify by a model.

    It replaces the one that they have. Jobs go on meanwhile.
    """
    from ..controller.inference.forest import Forest

    forest = Forest.load(file, features=features, trust=trust)
    _show(control_client(control, tls).load_model(switch, forest.as_json()), as_json)


@app.command(epilog=examples("weir model unload --switch s1"))
def unload(
    switch: SwitchOption, control: ControlOption = None, tls: TlsOption = None, as_json: JsonOption = False
) -> None:
    """Take the model from switches."""
    _show(control_client(control, tls).load_model(switch, ""), as_json)


@app.command("list", epilog=examples("weir model list", "weir model list --json"))
def list_models(control: ControlOption = None, tls: TlsOption = None, as_json: JsonOption = False) -> None:
    """List the switches' models."""
    _show(control_client(control, tls).models(), as_json)


@app.command(
    "test", epilog=examples("weir model test digits.json", "weir model test digits.json --samples held_out.csv")
)
def try_out(
    file: FileArgument,
    samples: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Samples, one a line; default: drawn around the thresholds.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of drawn samples.")] = 1,
    features: FeaturesOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare an emulated switch with the model itself.

    The switch classifies samples that come in packets.
    The exit status is 1 if a class differs.
    """
    from ..controller.inference.forest import Forest
    from ..experiments.classification import drawn_samples, try_model

    forest = Forest.load(file, features=features, trust=trust)
    encoded = drawn_samples(forest, seed) if samples is None else forest.encode(_read(samples))
    outcome = try_model(forest, encoded)
    if as_json:
        sys.stdout.write(json.dumps(outcome.as_dict()) + "\n")
    else:
        for line in outcome.lines():
            _console.print(line, soft_wrap=True)
    if outcome.wrong:
        raise typer.Exit(1)


@app.command(epilog=examples("weir model convert digits.skops digits.json"))
def convert(
    file: FileArgument,
    output: Annotated[Path, typer.Argument(metavar="OUTPUT.json", help="The file to write.")],
    features: FeaturesOption = None,
    trust: TrustOption = False,
) -> None:
    """Write a classifier of scikit-learn as a model file.

    It needs neither scikit-learn nor trust to be read.
    """
    from ..controller.inference.forest import Forest

    forest = Forest.load(file, features=features, trust=trust)
    try:
        forest.save(output)
    except OSError as error:
        raise ExperimentError(f"cannot be written: {error.strerror}", place=str(output)) from None


def infer(
    samples: Annotated[Path, typer.Argument(metavar="FILE.csv", help="Samples, one a line, without a header.")],
    switch: Annotated[str, typer.Option(metavar="ADDRESS", help="The switch's address, as weir model list has it.")],
    model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The model's JSON file: for classes' names, or other features.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds until a request is sent again.")] = 0.1,
    as_json: JsonOption = False,
) -> None:
    """Ask a switch for the classes of samples.

    This runs on a host of the fabric, and prints one line for each sample.
    """
    from ..controller.inference.forest import Forest
    from ..hosts import Classifier

    forest = None if model is None else Forest.load(model)
    with Classifier(
        switch,
        classes=None if forest is None else forest.classes,
        edges=None if forest is None else forest.edges,
        model=0 if forest is None else forest.number,
        timeout_s=timeout,
    ) as classifier:
        answers = classifier.predict(_read(samples)).tolist()
    sys.stdout.write(json.dumps(answers) + "\n" if as_json else "".join(f"{answer}\n" for answer in answers))


def _read(path: Path) -> NDArray[np.float64]:
    """Samples of a file, (n, features). Raises ExperimentError."""
    import numpy as np

    try:
        return np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise ExperimentError(f"is no file of numbers separated by commas: {error}", place=str(path)) from None


def _show(models: Any, as_json: bool) -> None:
    rows = [
        {
            "switch": model.switch_name,
            "address": str(IPv4Address(model.address)),
            "model": model.number,
            "features": model.features,
            "kind": "numbers" if model.numbers else "bytes",
            "classes": model.classes,
            "trees": model.trees,
            "leaves": model.rows,
        }
        for model in models
    ]
    if as_json:
        sys.stdout.write(json.dumps(rows) + "\n")
    elif not rows:
        _console.print("no models")
    else:
        table = Table(*rows[0], box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for row in rows:
            table.add_row(*map(str, row.values()))
        _console.print(table)
