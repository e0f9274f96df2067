"""The compiled program in the repository matches its sources."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weir import p4src
from weir.p4src import compile as compiling


def test_sources_and_products_have_the_digests_on_record() -> None:
    assert p4src.FABRIC_DIGEST.read_text() == compiling.digests(), "the P4 sources changed: run 'make p4'"


def test_the_json_names_no_path_of_a_machine() -> None:
    program = json.loads(p4src.FABRIC_JSON.read_text())
    assert program["program"] == "bmv2/fabric.p4"
    assert {info["filename"].split("/")[0] for info in _source_infos(program)} == {"bmv2"}


def test_a_missing_compiler_is_named_with_its_home() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "weir.p4src.build"],
        env={"PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "p4c-bm2-ss is not on PATH" in done.stderr
    assert "https://github.com/p4lang/p4c" in done.stderr


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which(p4src.P4C) is None, reason=f"{p4src.P4C} is not on PATH; see {p4src.P4C_HOME}")
@pytest.mark.parametrize(
    "program",
    [pytest.param(program, marks=() if program == "fabric" else pytest.mark.long) for program in p4src.LANES],
)
def test_compiling_again_gives_the_same_program(program: str, tmp_path: Path) -> None:
    compiling.compile_fabric(tmp_path / "fabric.json", tmp_path / "fabric.p4info.txtpb", p4src.LANES[program])
    assert _without_sources(tmp_path / "fabric.json") == _without_sources(p4src.json_of(program))
    assert (tmp_path / "fabric.p4info.txtpb").read_text() == p4src.p4info_of(program).read_text()


@pytest.mark.long
@pytest.mark.p4c
@pytest.mark.skipif(shutil.which(p4src.P4TEST) is None, reason=f"{p4src.P4TEST} is not on PATH; see {p4src.P4C_HOME}")
@pytest.mark.parametrize("program", p4src.TOFINO)
def test_describing_again_gives_the_same_control_plane(program: str, tmp_path: Path) -> None:
    compiling.describe_tofino(tmp_path / "tofino.p4info.txtpb", p4src.TOFINO[program])
    assert (tmp_path / "tofino.p4info.txtpb").read_text() == p4src.p4info_of(program).read_text()


def _source_infos(node: Any) -> list[dict[str, Any]]:
    """Every source_info of the JSON that has a file name."""
    if isinstance(node, dict):
        here = [node["source_info"]] if "filename" in node.get("source_info", ()) else []
        return here + [info for value in node.values() for info in _source_infos(value)]
    if isinstance(node, list):
        return [info for value in node for info in _source_infos(value)]
    return []


def _without_sources(path: Path) -> Any:
    """The JSON without what depends on p4c's version or on where it ran."""

    def strip(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: strip(value) for key, value in node.items() if key not in ("source_info", "__meta__")}
        return [strip(value) for value in node] if isinstance(node, list) else node

    return strip(json.loads(path.read_text()))
