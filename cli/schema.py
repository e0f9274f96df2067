"""`weir schema`: JSON schemas of the files that people write, for their editors."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated

import typer


class FileKind(StrEnum):
    """A file of Weir's."""

    FABRIC = "fabric"
    RUN = "run"
    JOBS = "jobs"
    SUITE = "suite"
    SEARCH = "search"
    SCHEDULING = "scheduling"
    TORCHRUN = "torchrun"


def schema(
    kind: Annotated[
        FileKind, typer.Argument(metavar="KIND", help="fabric, run, jobs, suite, search, scheduling or torchrun.")
    ],
) -> None:
    """Print the JSON schema of a kind of file. Editors use it to complete and check files."""
    if kind is FileKind.FABRIC:
        from ..topologies.file_keys import json_schema

        printed = json_schema()
    elif kind is FileKind.RUN:
        from ..experiments.config import RunConfig

        printed = RunConfig.json_schema()
    elif kind is FileKind.SUITE:
        from ..experiments.evaluation.suite import Suite

        printed = Suite.json_schema()
    elif kind is FileKind.SEARCH:
        from ..experiments.search.search_file import SearchFile

        printed = SearchFile.json_schema()
    elif kind is FileKind.SCHEDULING:
        from ..experiments.scheduling.scheduling_file import SchedulingFile

        printed = SchedulingFile.json_schema()
    elif kind is FileKind.TORCHRUN:
        from ..experiments.config.torchrun import TorchrunFile

        printed = TorchrunFile.json_schema()
    else:
        from .place_files import JobsFile

        printed = JobsFile.model_json_schema()
    named = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"a {kind} of Weir", **printed}
    sys.stdout.write(json.dumps(named, indent=2) + "\n")
