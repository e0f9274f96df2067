"""The program for Tofino fits its chips: the back end's results are on record, with the digest of the sources."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weir.p4src import fit
from weir.p4src.fit import Chip, Fit, FitError, Use
from weir.tests.paths import ROOT
from weir.topologies.targets import TOFINO

RECORDS = {chip: chip.report.read_text() for chip in (*fit.CHIPS, *fit.FORESTS)}
TOFINO_1, TOFINO_2 = fit.CHIPS
ONE_STAGE = (Use("SRAM blocks", 79, 80), Use("TCAM blocks", 24, 24))
FITTING = Fit("9.13.4", {"ingress": 12, "egress": 1}, 12, (ONE_STAGE, ONE_STAGE), (Use("containers", 64, 64),))


each_chip = pytest.mark.parametrize("chip", fit.CHIPS, ids=lambda chip: chip.target)
each_program = pytest.mark.parametrize("chip", [*fit.CHIPS, *fit.FORESTS], ids=lambda chip: chip.program)


@each_program
def test_the_report_is_of_the_sources_as_they_are(chip: Chip) -> None:
    assert f"sources    sha256 {fit.sources_digest(chip.folder)}\n" in RECORDS[chip], (
        "the sources of the program for Tofino changed: run 'make tofino' where p4c has its Tofino back end"
    )


def stages_of(record: str) -> dict[str, tuple[int, int]]:
    """Used and available stages, by direction."""
    found = re.findall(r"^(ingress|egress) +(\d+) of (\d+) stages$", record, re.MULTILINE)
    return {gress: (int(used), int(there_are)) for gress, used, there_are in found}


@each_program
def test_the_recorded_program_fits(chip: Chip) -> None:
    stages = stages_of(RECORDS[chip])
    assert stages.keys() == {"ingress", "egress"}
    assert {there_are for _, there_are in stages.values()} == {{"tofino": 12, "tofino2": 20}[chip.target]}
    uses = re.findall(r"^ *(\d+) of +(\d+) ", RECORDS[chip], re.MULTILINE)
    assert len(uses) > 12
    assert all(int(used) <= int(there_is) for used, there_is in [*stages.values(), *uses])


@each_chip
def test_hosts_take_the_lanes_that_the_report_has(chip: Chip) -> None:
    assert f"lanes      {TOFINO.lanes} of a message\n" in RECORDS[chip]
    assert fit.lanes() == TOFINO.lanes


def test_the_report_has_what_nine_trees_of_64_leaves_take() -> None:
    guide = " ".join((ROOT / "docs" / "inference.md").read_text().split())
    for chip in fit.FORESTS:
        assert (
            "           9 trees with 64 leaves: 108 TCAM blocks of 44 bits x 512 rows, 576 rows of 4608;"
            in RECORDS[chip]
        )
        stages = stages_of(RECORDS[chip])
        assert [used for used, _ in stages.values()] == [12, 9]
    assert "12 ingress and 9 egress stages" in guide
    assert "108 of 288 TCAM blocks" in guide


def test_the_guides_say_what_is_on_record() -> None:
    guide = " ".join((ROOT / "docs" / "tofino.md").read_text().split())
    (ingress, _), (egress, _) = stages_of(RECORDS[TOFINO_1]).values()
    assert f"ingress {ingress} of 12 stages and egress {egress}, with {TOFINO.lanes} lanes" in guide
    most = max(ingress, egress)
    assert most == 12
    assert "p4c compiles it for Tofino 1 (all 12 stages)" in " ".join((ROOT / "README.md").read_text().split())
    (ingress, _), (egress, _) = stages_of(RECORDS[TOFINO_2]).values()
    assert f"{ingress} of 20 and {egress} on a Tofino 2" in guide
    units = re.search(r"^ *(\d+ of +48) register and meter units$", RECORDS[TOFINO_1], re.MULTILINE)
    assert units
    assert re.sub(" +", " ", units[1]) in guide
    for bits, used, there_are in ((8, 62, 64), (16, 96, 96), (32, 64, 64)):
        assert f"{used:5} of {there_are:4} normal containers of {bits} bits\n" in RECORDS[TOFINO_1]
    assert "Taken are 62 of 64 of 8 bits, all 96 of 16 and all 64 of 32" in guide


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({}, []),
        ({"stages": {"ingress": 13, "egress": 12}}, ["ingress takes 13 stages of 12"]),
        ({"by_stage": (ONE_STAGE, (Use("SRAM blocks", 81, 80), ONE_STAGE[1]))}, ["81 SRAM blocks of 80"]),
        ({"whole": (Use("containers", 65, 64),)}, ["65 containers of 64"]),
    ],
)
def test_resources_beyond_the_chip_are_refused(change: dict[str, Any], refused: list[str]) -> None:
    assert replace(FITTING, **change).refusals() == refused


def written(folder: Path, last_stage: int = 1) -> Path:
    """Abridged output of the back end for a program of two stages."""
    logs = folder / "pipe" / "logs"
    logs.mkdir(parents=True)
    stage = {
        "rams": {"nRows": 8, "nColumns": 10, "srams": [{}, {}]},
        "tcams": {"nRows": 12, "nColumns": 2, "tcams": [{}]},
        "map_rams": {"nRows": 8, "nUnits": 6, "maprams": []},
        "meter_alus": {"nAlus": 4, "meters": [{}, {}, {}]},
        "statistic_alus": {"nAlus": 4, "stats": []},
        "gateways": {"nRows": 8, "nUnits": 2, "gateways": [{}]},
        "logical_tables": {"size": 16, "ids": [{}, {}]},
        "xbar_bytes": {"exact_size": 128, "ternary_size": 66, "bytes": [{"byte_type": "exact"}] * 3},
    }
    parsers: list[dict[str, Any]] = [
        {"gress": gress, "nStates": 256, "states": [{}] * 5} for gress in ("ingress", "egress")
    ]
    resources = {
        "mau": {"nStages": 12, "mau_stages": [stage, stage]},
        "parser": {"parsers": parsers},
        "phv_containers": {"normal": [{"width": 8, "units": 64}], "tagalong": [{"width": 8, "units": 32}]},
    }
    (logs / "resources.json").write_text(json.dumps({"compiler_version": "1", "resources": resources}))
    used = [{"container_type": "normal", "bit_width": 8, "phv_number": number} for number in (64, 65, 65)]
    (logs / "phv.json").write_text(json.dumps({"containers": used}))
    (folder / "pipe" / "fabric.bfa").write_text(
        "stage 0 ingress:\n  exact_match jobs 0:\n    row: 1\n"
        f"stage {last_stage} ingress:\n  dependency: match\n  stateful tbl$salu.x:\n"
        "stage 0 egress:\n  ternary_match tbl_leave 0:\n"
        "stage 1 egress:\n  dependency: action\n"
        "deparser ingress:\n  dictionary: {}\n"
    )
    return folder


def test_the_back_ends_output_is_counted(tmp_path: Path) -> None:
    found = fit.read_fit(written(tmp_path))
    assert found.stages == {"ingress": 2, "egress": 1}
    totals = {use.name: (use.used, use.there_is) for use in (*found.totals, *found.whole)}
    assert totals["SRAM blocks"] == (4, 960)
    assert totals["register and meter units"] == (6, 48)
    assert totals["exact crossbar bytes"] == (6, 1536)
    assert totals["normal containers of 8 bits"] == (2, 64)
    assert totals["states of the egress parser"] == (5, 256)
    assert not found.refusals()


def test_a_table_behind_the_last_stage_is_refused(tmp_path: Path) -> None:
    assert fit.read_fit(written(tmp_path, last_stage=12)).refusals() == ["ingress takes 13 stages of 12"]


@pytest.mark.parametrize("name", ["pipe/logs/resources.json", "pipe/logs/phv.json", "pipe/fabric.bfa"])
def test_output_in_another_format_is_named(tmp_path: Path, name: str) -> None:
    folder = written(tmp_path)
    (folder / name).unlink()
    with pytest.raises(FitError, match=r"p4c-barefoot .*reports in another way than p4c 1\.2\.5"):
        fit.read_fit(folder)
    if name.endswith(".json"):
        (folder / name).write_text("{}")
        with pytest.raises(FitError, match="in another way"):
            fit.read_fit(folder)


def test_a_back_end_whose_parsers_choose_nothing_is_refused() -> None:
    states = "parser ingress:\n  states:\n    start:\n      {}*:\n        next: end\n"
    with pytest.raises(FitError, match=r"parsers that choose nothing.*github\.com/p4lang/p4c/pull/5753"):
        fit.check_parsers(states.format("match: [ ctr_neg, ctr_zero ]\n      "))
    fit.check_parsers(states.format("match: [ half ]\n      0x0800:\n        next: ipv4\n      "))


def test_without_the_back_end_the_report_stays() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "weir.p4src.fit"],
        env={**os.environ, "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "p4c-barefoot, bfas not on PATH, so what is on record of the chips stays as it is" in done.stdout
    assert {chip: chip.report.read_text() for chip in RECORDS} == RECORDS


@pytest.mark.long
@pytest.mark.p4c
@pytest.mark.skipif(
    None in (shutil.which(fit.BACK_END), shutil.which(fit.ASSEMBLER)),
    reason=f"{fit.BACK_END} and {fit.ASSEMBLER}, p4c's back end for Tofino, are not on PATH",
)
@each_program
def test_compiling_again_gives_the_same_report(chip: Chip, tmp_path: Path) -> None:
    assert fit.report_of(chip, fit.compile_for_chip(chip, tmp_path), fit.sources_digest(chip.folder)) == RECORDS[chip]
