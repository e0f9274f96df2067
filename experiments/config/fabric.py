"""Key `fabric` of a file: a fabric spelled out, or the file that has it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ...topologies import Topology, TopologyError, file_keys
from ...topologies.problems import BadFile, shown
from ...topologies.schema import parse_topology, shipped
from ...topologies.spelling import nearest
from ...topologies.targets import LIKE_TOFINO
from ...topologies.yaml_file import YamlFile
from ..errors import ExperimentError
from .sections import Section


class FabricFile(Section):
    """File with a key `fabric`: a fabric spelled out, or the name of a file that has it."""

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of the file, made from the models that read it: values that it refuses, `load`
        refuses.
        """
        own, fabric = cls.model_json_schema(), file_keys.json_schema()
        own["properties"]["fabric"] |= {"anyOf": [{"type": "string"}, *fabric.pop("anyOf")]}
        for key in ("type", "additionalProperties"):
            own["properties"]["fabric"].pop(key)
        return {**own, "$defs": {**fabric["$defs"], **own["$defs"]}}


def refuse_chips(topology: Topology, where: str) -> None:
    """Check that the emulator and bmv2 can be every switch of the fabric.

    Raises:
        ExperimentError: A switch is a chip that they cannot be.
    """
    if chips := [switch for switch in topology.switches if not switch.target.is_emulated]:
        raise ExperimentError(
            f"{chips[0].target.name} is a chip, which no software switch is; write target: {LIKE_TOFINO.name} for one "
            "within its limits",
            place=f"{where}: {', '.join(switch.name for switch in chips)}",
            value=chips[0].target.name,
        )


def sections_of(path: Path) -> frozenset[object]:
    """Return the names of a YAML file's sections; empty if it cannot be read."""
    try:
        return frozenset(YamlFile.read(path, "a run is a YAML mapping").data)
    except BadFile:
        return frozenset()


def read_run_file(path: Path, expected: str) -> tuple[YamlFile, dict[Any, Any]]:
    """Read a YAML file that has a fabric.

    Args:
        path: The file.
        expected: What it should be, for messages: "a run is a YAML mapping with name, fabric and job".

    Returns:
        The file as written, and its data, in which a fabric's file is replaced by its content.

    Raises:
        ExperimentError: A file cannot be read, is no YAML mapping, or the fabric is wrong.
    """
    try:
        written = YamlFile.read(path, expected)
    except BadFile as error:
        raise ExperimentError(str(error)) from None
    data = dict(written.data)
    if isinstance(data.get("fabric"), str):
        data["fabric"] = read_fabric(path, data["fabric"])
    elif isinstance(data.get("fabric"), dict):
        check_fabric(data["fabric"], f"{path}: fabric", written, ["fabric"])
    return written, data


def read_fabric(run_file: Path, name: str) -> dict[str, Any]:
    """Read the fabric file that a run names: next to the run's file, or one that ships with topologies/."""
    try:
        beside = run_file.parent / name
        path = beside if beside.exists() else Path(str(resources.files("weir.topologies") / name))
        if not path.is_file():
            raise ExperimentError(
                f"{run_file}: fabric: no file {shown(name)} beside it, nor one shipped in topologies/"
                f"{nearest(name, shipped())}"
            )
        written = YamlFile.read(path, "a fabric is a YAML mapping with name and links")
    except BadFile as error:
        raise ExperimentError(f"{run_file}: fabric: {error}") from None
    except OSError as error:  # of a name that is too long, say
        raise ExperimentError(f"{run_file}: fabric: {shown(name)} cannot be read ({error.strerror})") from None
    check_fabric(written.data, f"{run_file}: fabric: {path}", written)
    return written.data


def check_fabric(data: dict[str, Any], where: str, written: YamlFile, within: Sequence[str] = ()) -> None:
    """Check the fabric of a run file.

    Args:
        data: The fabric's keys and values.
        where: Place of the fabric, for errors.
        written: The file's text, for the lines of errors.
        within: Keys that lead to the fabric in the file.

    Raises:
        ExperimentError: The fabric is invalid.
    """
    try:
        parse_topology(data, where, written, within)
    except TopologyError as error:
        raise ExperimentError(str(error)) from None
