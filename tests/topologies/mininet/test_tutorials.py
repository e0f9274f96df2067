"""The thirteen exercises of p4lang/tutorials start from their own files, and their solutions answer.

`P4_TUTORIALS=FOLDER` names a clone of p4lang/tutorials; p4c compiles the solutions.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from weir.tests.own_network import IN_ITS_OWN_NETWORK
from weir.topologies.mininet.fabric import obstacle

TUTORIALS: Final = os.environ.get("P4_TUTORIALS")
WEIR: Final = Path(sys.executable).with_name("weir")
PATIENCE_S: Final = 280.0


class Exercise(NamedTuple):
    """Files of an exercise, and the answer of its solution."""

    programs: tuple[str, ...]
    """P4 sources, the default one first: those in `solution` precede."""
    line: str = "h1 ping -c1 -W5 h2"
    answer: str = "1 received"
    topology: str = "topology.json"
    loaded: bool = True
    """False: the exercise's own controller loads the program."""


EXERCISES: Final[Mapping[str, Exercise]] = {
    "basic": Exercise(("basic",), "h1 ping -c1 -W5 h4", topology="pod-topo/topology.json"),
    "basic_tunnel": Exercise(("basic_tunnel",)),
    "calc": Exercise(("calc",), f"h1 sh -c 'printf \"1+2\\nquit\\n\" | {sys.executable} calc.py'", "\n3\n"),
    "ecn": Exercise(("ecn",)),
    "firewall": Exercise(("basic", "firewall"), topology="pod-topo/topology.json"),
    "flowcache": Exercise(("flowcache",), "h1 true", loaded=False, answer="P4Runtime: s1"),
    "link_monitor": Exercise(("link_monitor",), "h1 ping -c1 -W5 h4", topology="pod-topo/topology.json"),
    "load_balance": Exercise(("load_balance",), "h1 true", "P4Runtime: s1"),
    "mri": Exercise(("mri",)),
    "multicast": Exercise(("multicast",), topology="sig-topo/topology.json"),
    "p4runtime": Exercise(("advanced_tunnel",), "h1 true", loaded=False, answer="P4Runtime: s1"),
    "qos": Exercise(("qos",)),
    "source_routing": Exercise(("source_routing",), "h1 true", "P4Runtime: s1"),
}


@pytest.mark.long
@pytest.mark.p4c
@pytest.mark.skipif(
    shutil.which("p4c-bm2-ss") is None or TUTORIALS is None or obstacle() is not None,
    reason="needs p4c-bm2-ss on PATH, P4_TUTORIALS=the folder of p4lang/tutorials, and Mininet",
)
@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercises_solution_answers(name: str, tmp_path: Path) -> None:
    exercise, folder = EXERCISES[name], tmp_path / name
    shutil.copytree(Path(TUTORIALS or "") / "exercises" / name, folder)
    (folder / "build").mkdir(exist_ok=True)
    for program in exercise.programs:
        source = next(
            path for path in (folder / "solution" / f"{program}.p4", folder / f"{program}.p4") if path.exists()
        )
        words = ["--p4v", "16", "--p4runtime-files", f"build/{program}.p4.p4info.txtpb", "-o", f"build/{program}.json"]
        subprocess.run(["p4c-bm2-ss", *words, source], cwd=folder, check=True, capture_output=True)
    words = [str(WEIR), "mininet", exercise.topology]
    done = subprocess.run(
        [*IN_ITS_OWN_NETWORK[:-1], *words, "--exec", exercise.line],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert exercise.answer in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.skipif(TUTORIALS is None, reason="needs P4_TUTORIALS=the folder of p4lang/tutorials")
def test_no_exercise_is_left_out() -> None:
    assert {path.name for path in (Path(TUTORIALS or "") / "exercises").iterdir() if path.is_dir()} == {*EXERCISES}
