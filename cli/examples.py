"""`weir examples`: copies of the guides' files for users without a clone."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from ..experiments.errors import ExperimentError


def copy_examples(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write to; it is made.")] = Path(
        "examples"
    ),
) -> None:
    """Write the examples that the guides run into a folder."""
    with resources.as_file(resources.files("weir") / "examples") as shipped:
        try:
            shutil.copytree(shipped, folder, ignore=shutil.ignore_patterns("__pycache__"))
        except FileExistsError:
            raise ExperimentError(
                f"{folder} is there already; name one that is not: weir examples my_examples"
            ) from None
        except shutil.Error as error:
            raise ExperimentError(f"{folder}: {error.args[0][0][2]}") from None
        except OSError as error:
            raise ExperimentError(f"{folder}: cannot be made ({error.strerror})") from None
    for line, explanation in (
        (f"weir launch -n 4 {folder}/train.py", "a training loop, on an emulated fabric"),
        (f"weir launch -n 4 {folder}/adasum.py", "Adasum and the mean at one learning rate"),
        (f"python {folder}/data_cache.py", "a cache of training data"),
        (f"weir launch -n 4 {folder}/graphs.py", "a graph network, with features at four hosts"),
        (f"weir launch --mesh 2x3 {folder}/grid.py", "sums along the rows and columns of a mesh of ranks"),
        (f"weir run {folder}/user_workload.yaml", "a workload, under every strategy"),
        (f"weir stf {folder}/p4_program/firewall.json {folder}/p4_program/firewall.stf", "a P4 program"),
        (f"pytest {folder}/p4_program", "its tests; pip install pytest"),
        (f"weir topology draw {folder}/two_racks.yaml two_racks.svg", "a fabric"),
    ):
        typer.echo(f"{line}\n    {explanation}")
