"""The thirteen exercises of p4lang/tutorials start from their own files, and their solutions answer.

`P4_TUTORIALS=FOLDER` names a clone of p4lang/tutorials; p4c compiles the solutions.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import scapy

from weir.tests.own_network import IN_ITS_OWN_NETWORK, play
from weir.tests.paths import ROOT
from weir.tests.topologies.mininet.exercise_plans import PLANS, Plan
from weir.topologies.mininet.fabric import SwitchKind, obstacle

TUTORIALS: Final = os.environ.get("P4_TUTORIALS")
WEIR: Final = Path(sys.executable).with_name("weir")
SHELL_PYTHON: Final = ROOT / ".venv-shell" / "bin" / "python"
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


def solved(name: str, tmp_path: Path) -> Path:
    """A copy of an exercise's folder with its solution compiled."""
    exercise, folder = EXERCISES[name], tmp_path / name
    shutil.copytree(Path(TUTORIALS or "") / "exercises" / name, folder)
    for made in ("build", "logs"):
        (folder / made).mkdir(exist_ok=True)
    for solution in (folder / "solution").glob("*-runtime.json"):
        shutil.copy(solution, next(path for path in folder.rglob(solution.name) if path != solution))
    for program in exercise.programs:
        source = next(
            path for path in (folder / "solution" / f"{program}.p4", folder / f"{program}.p4") if path.exists()
        )
        words = ["--p4v", "16", "--p4runtime-files", f"build/{program}.p4.p4info.txtpb", "-o", f"build/{program}.json"]
        subprocess.run(["p4c-bm2-ss", *words, source], cwd=folder, check=True, capture_output=True)
    return folder


needs_tutorials = pytest.mark.skipif(
    shutil.which("p4c-bm2-ss") is None or TUTORIALS is None or obstacle() is not None,
    reason="needs p4c-bm2-ss on PATH, P4_TUTORIALS=the folder of p4lang/tutorials, and Mininet",
)


@pytest.mark.long
@pytest.mark.p4c
@needs_tutorials
@pytest.mark.parametrize("kind", SwitchKind)
@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercises_solution_answers(name: str, kind: SwitchKind, tmp_path: Path) -> None:
    if (reason := obstacle(kind)) is not None:
        pytest.skip(reason)
    exercise = EXERCISES[name]
    words = [str(WEIR), "mininet", exercise.topology, "--switch", kind]
    done = subprocess.run(
        [*IN_ITS_OWN_NETWORK[:-1], *words, "--exec", exercise.line],
        cwd=solved(name, tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert exercise.answer in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.p4c
@needs_tutorials
@pytest.mark.parametrize("name", PLANS)
def test_a_solutions_frames_are_those_of_bmv2(name: str, tmp_path: Path) -> None:
    """The frames that arrive at every host, and the lines of the exercise's own controller."""
    plan, controlled = PLANS[name], not EXERCISES[name].loaded
    if controlled and not SHELL_PYTHON.exists():
        pytest.skip("needs .venv-shell, which make test sets up: the exercise's controller imports p4runtime-shell")
    folder = solved(name, tmp_path)
    written = tmp_path / "plan.json"
    written.write_text(json.dumps(words_of(name, folder, controlled, tmp_path)))
    answers = {}
    for kind in SwitchKind:
        if obstacle(kind) is None:
            words = (str(kind), str(folder), str(written))
            answers[kind] = play("weir.tests.topologies.mininet.exercise_exchange", *words, timeout_s=600)
    for answer in answers.values():
        assert all(answer["told"])
        for step, arrivals in zip(plan.steps, answer["arrivals"], strict=True):
            hosts = [host for host, _ in arrivals]
            assert len(hosts) == len(step.at), (step, hosts)
            assert all(re.fullmatch(each, host) for each, host in zip(step.at, hosts, strict=True)), (step, hosts)
    if SwitchKind.BMV2 in answers:
        ours, theirs = (
            [[(host, masked(frame, plan)) for host, frame in arrivals] for arrivals in answers[kind]["arrivals"]]
            for kind in (SwitchKind.WEIR, SwitchKind.BMV2)
        )
        assert ours == theirs
        ours, theirs = (
            [sorted(lines) for lines in answers[kind]["told"]] for kind in (SwitchKind.WEIR, SwitchKind.BMV2)
        )
        assert ours == theirs


def words_of(name: str, folder: Path, controlled: bool, tmp_path: Path) -> dict[str, Any]:
    """A plan as exercise_exchange.py reads it."""
    plan, exercise = PLANS[name], EXERCISES[name]
    command = None
    if controlled:
        scapy_folder = tmp_path / "scapy-alone"  # the rest of this environment would hide p4runtime-shell's protobuf
        scapy_folder.mkdir()
        (scapy_folder / "scapy").symlink_to(Path(scapy.__file__).parent)
        script = Path(__file__).with_name("exercise_controller.py")
        utils = Path(TUTORIALS or "") / "utils"
        controller = folder / "solution" / "mycontroller.py"
        command = [str(word) for word in (SHELL_PYTHON, script, utils, scapy_folder, controller)]
    steps = [
        {"host": step.host, "frame": bytes(step.frame).hex(), "expected": len(step.at), "after": step.after or ".*"}
        for step in plan.steps
    ]
    return {
        "topology": exercise.topology,
        "controller": command,
        "steps": steps,
        "told": plan.told,
        "awaited": plan.awaited,
    }


def masked(frame: str, plan: Plan) -> str:
    """A frame in hex with zeros for the bytes that the plan ignores."""
    left = bytearray.fromhex(frame)
    for part in plan.ignored:
        left[part] = bytes(len(left[part]))
    return left.hex()


@pytest.mark.long
@pytest.mark.skipif(TUTORIALS is None, reason="needs P4_TUTORIALS=the folder of p4lang/tutorials")
def test_no_exercise_is_left_out() -> None:
    assert {path.name for path in (Path(TUTORIALS or "") / "exercises").iterdir() if path.is_dir()} == {*EXERCISES}
