"""The command lines of README and docs run as they stand there; those that another test runs, or none, are named here.

They run in a folder that has all that a clone has, with the installed commands on PATH. `sudo .venv/bin/` is left out:
what needs root runs as root in a network of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from weir.tests.paths import ROOT
from weir.tests.test_snippets import LINES
from weir.topologies.mininet.fabric import SwitchKind, obstacle

PATIENCE_S: Final = 280
NEEDS_MININET: Final = pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")

ALONE: Final = [
    "weir launch --hosts h1,h4,h7 examples/train.py",
    "weir launch -n 3 --topology examples/two_racks.yaml examples/train.py",
    "weir launch -n 4 examples/train.py",
    "weir place topologies/leaf_spine.yaml --server h12",
    "weir place topologies/leaf_spine.yaml --strategy examples/own_strategy.py",
    "weir schema fabric > fabric.schema.json",
    "weir schema run > run.schema.json",
    "weir stf p4src/build/fabric.json tests/emulator/stf/fabric.stf",
    "weir topology draw topologies/fat_tree.yaml fabric.svg",
]
"""Lines that need nothing and end by themselves."""

IN_MININET: Final = [
    "weir mininet topologies/leaf_spine.yaml",
    'weir mininet topologies/leaf_spine.yaml --exec "h1 ping -c1 h12"',
    "weir mininet topologies/leaf_spine.yaml --switch bmv2",
    "weir mininet topologies/leaf_spine.yaml --program own.json --p4info own.p4info.txtpb --entries s1=s1-runtime.json "
    "--entries s2=s2-runtime.json",
]
"""Lines that end where nobody types anything."""

JOBS: Final = [
    "weir controller topologies/leaf_spine.yaml --journal jobs.journal",
    "weir jobs register h1 h2 h4 --server h12 --policy continue",
    "weir jobs",
    'weir jobs end 1234 --reason "out of time"',
]
SWITCH: Final = [
    "ip netns add h1; ip link add s1-eth1 type veth peer name eth0 netns h1; ip link set s1-eth1 up",
    "ip netns add h2; ip link add s1-eth2 type veth peer name eth0 netns h2; ip link set s1-eth2 up",
    "ip -n h1 link set eth0 up; ip -n h2 link set eth0 up",
    "weir-switch -i 1@s1-eth1 -i 2@s1-eth2 --port-rate 2=100Mbit p4src/build/fabric.json",
    "weir-switch ctl set_queue_rate 200Mbit 2",
    "weir-switch ctl set_queue_depth 32 2 0",
    "weir-switch ctl --device-id 0 set_queue_bytes 64000",
    "weir-switch ctl show_ports",
]
WATCHED: Final = [
    "weir demo --web 8265 --history seen.duckdb",
    "weir top",
    "weir telemetry runs seen.duckdb",
    "weir telemetry links seen.duckdb",
    "weir telemetry link seen.duckdb s1-p4",
    "weir telemetry events seen.duckdb",
]
LONG: Final = [
    "weir demo",
    "weir demo --loss 0.01",
    "weir run experiments/demo.yaml --strategy widest --seed 3",
    "weir run my.yaml --strategy widest --seed 3",
]

BY_OTHERS: Final[Mapping[str, str]] = {
    "cd examples/exercise": "tests/test_examples.py::test_an_exercise_as_tutorials_write_it_runs_as_it_is",
    '../../.venv/bin/weir mininet pod/topology.json --exec "h1 ping -c1 h2"': (
        "tests/test_examples.py::test_an_exercise_as_tutorials_write_it_runs_as_it_is"
    ),
    "make doctor": "tests/experiments/commands/test_doctor.py::test_all_that_is_required_is_here",
    "make shell": "tests/emulator/p4runtime/test_p4runtime_shell.py::test_the_shell_connects",
    "make mininet TOPO=topologies/leaf_spine.yaml": "tests/test_commands.py::test_a_line_that_builds_a_fabric",
    "pytest examples/p4_program": "tests/test_examples.py::test_a_p4_program_of_ones_own_under_pytest",
    "python examples/on_a_fabric.py": "tests/test_examples.py::test_processes_that_join_over_real_switches",
    "python examples/training_loop.py": (
        "tests/test_examples.py::test_a_training_loop_of_ones_own_on_an_emulated_fabric"
    ),
    "weir controller topologies/leaf_spine.yaml": "tests/test_commands.py::test_jobs_as_the_guide_has_them",
    "weir ptf --program examples/p4_program/firewall.json --test-dir examples/ptf": (
        "tests/testing/test_ptf.py::test_the_example_passes"
    ),
    "weir replay runs/digits-20260101-120000": "tests/test_examples.py::test_a_workload_of_ones_own_in_a_run",
    "weir run examples/own_workload.yaml": "tests/test_examples.py::test_a_workload_of_ones_own_in_a_run",
    "weir run examples/own_workload.yaml --strategy widest --strategy examples/own_strategy.py": (
        "tests/test_examples.py::test_a_strategy_of_ones_own"
    ),
    "weir run examples/two_racks_run.yaml": "tests/test_examples.py::test_a_topology_of_ones_own",
    "weir run experiments/demo.yaml --fabric mininet": (
        "tests/experiments/backends/test_mininet_run.py::test_sums_and_weights_are_the_virtual_fabrics"
    ),
    "weir run my.yaml --fabric mininet": (
        "tests/experiments/backends/test_mininet_run.py::test_sums_and_weights_are_the_virtual_fabrics"
    ),
    "weir stf PROGRAM TEST.stf...": "tests/test_commands.py::test_a_line_runs_as_it_stands",
    "weir topology check examples/two_racks.yaml": "tests/test_examples.py::test_a_topology_of_ones_own",
    "weir topology draw examples/two_racks.yaml two_racks.svg": "tests/test_examples.py::test_a_topology_of_ones_own",
    "weir torchrun -n 4 examples/ddp.py": "tests/hosts/torch/test_torchrun.py::test_the_example_has_the_bits",
    "weir torchrun -n 4 --fabric mininet examples/ddp.py": (
        "tests/hosts/torch/test_torchrun.py::test_the_example_has_the_same_bits_in_mininet"
    ),
    "weir-switch -i 1@veth1 -i 2@veth2 p4src/build/fabric.json": "tests/test_commands.py::test_a_switch_as_the_guide",
}
"""The beginning of a test that runs what the line does."""

BY_NONE: Final[Mapping[str, str]] = {
    r"make (demo|test|test-bmv2|test-long|lint|bench|p4)": "they make environments, or run for minutes",
    r"(WEIR_SEED=\d+ )?(.venv/bin/)?pytest .*tests/": "the suite itself",
    r"(apt-get|pip) install .*": "what they install is there",
    r"weir evaluate .*": "600 points take twelve processor-minutes; tests/experiments/evaluation runs small suites",
    r"weir schemes .*": "six schemes of a file take minutes; tests/experiments/test_schemes.py runs two of a small one",
    r"weir stf --p4c .*": "p4c's source tree is not there; tests/emulator/stf has the reader of its folders",
    r"weir torchrun -n 8 --topology fat_tree.yaml train.py --epochs 3": "the script is the reader's",
}


def command_of(line: str) -> str:
    """A line without comment and without what makes it root's."""
    return re.sub(r"\s+#.*|\bsudo ", "", line).replace(".venv/bin/", "", 1 if "../../" not in line else 0).strip()


COMMANDS: Final = {command_of(line): page for page, line in LINES}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What a clone has, and what the reader is to bring."""
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name not in ("runs", "build"):
            (tmp_path / path.name).symlink_to(path)
    exercise = ROOT / "examples" / "exercise"
    brought = {"my.yaml": ROOT / "experiments" / "demo.yaml"}
    brought |= {f"own.{ending}": exercise / "build" / f"router.{ending}" for ending in ("json", "p4info.txtpb")}
    brought |= {f"s{number}-runtime.json": exercise / "pod" / f"s{number}-runtime.json" for number in (1, 2)}
    for name, path in brought.items():
        (tmp_path / name).symlink_to(path)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    """With a place of its own for the sockets of `weir-switch ctl`, which go by device id."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "XDG_RUNTIME_DIR": str(folder)}


def output_of(words: Sequence[str], folder: Path) -> str:
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_its_own_network(script: str) -> list[str]:
    """Interfaces, and names of network namespaces, are nobody else's."""
    mounted = "ip link set lo up && mkdir -p /run/netns && mount -t tmpfs none /run/netns"
    return ["unshare", "--net", "--mount", "bash", "-ec", f"{mounted}\n{script}"]


def test_no_line_is_left_out_and_none_is_named_in_vain() -> None:
    run = {*ALONE, *IN_MININET, *JOBS, *SWITCH, *WATCHED, *LONG, *BY_OTHERS}
    left = [line for line in COMMANDS if line not in run and not any(re.fullmatch(f"{how}.*", line) for how in BY_NONE)]
    assert left == []
    assert {line for line in run if line not in COMMANDS} == set()
    for how in BY_NONE:
        assert [line for line in COMMANDS if re.match(how, line)], how


@pytest.mark.parametrize("test", sorted(set(BY_OTHERS.values())))
def test_a_line_that_another_test_runs_is_run_by_one_that_is_there(test: str) -> None:
    path, _, name = test.partition("::")
    assert f"def {name}" in (ROOT / path).read_text()


@pytest.mark.parametrize("line", ALONE)
def test_a_line_runs_as_it_stands(line: str, clone: Path) -> None:
    output_of(["bash", "-ec", line], clone)


@pytest.mark.long
@pytest.mark.parametrize("line", LONG)
def test_a_line_that_takes_a_minute_runs_as_it_stands(line: str, clone: Path) -> None:
    assert "✗" not in output_of(["bash", "-ec", line], clone)


@NEEDS_MININET
@pytest.mark.parametrize("line", IN_MININET)
def test_a_line_that_builds_a_fabric_in_mininet(line: str, clone: Path) -> None:
    if "bmv2" in line and (reason := obstacle(SwitchKind.BMV2)) is not None:
        pytest.skip(reason)
    shown = output_of(in_its_own_network(line), clone)
    assert "--exec" not in line or "1 received" in shown


@NEEDS_MININET
def test_jobs_as_the_guide_has_them(clone: Path) -> None:
    """The fabric and the controller run meanwhile; the job's number is the one that was printed."""
    controller, register, jobs, end = JOBS
    script = f"""
mkfifo hold; weir mininet topologies/leaf_spine.yaml < hold > fabric.log 2>&1 & exec 3> hold
until grep -q P4Runtime fabric.log; do sleep 0.2; kill -0 %1; done
{controller} > controller.log 2>&1 &
until weir jobs > /dev/null 2>&1; do sleep 0.2; kill -0 %2; done
{register} > registered; cat registered
number=$(grep -oE '[0-9]+' registered | head -n 1)
{jobs}
{end.replace("1234", "$number")}
kill %2; wait %2 || true; exec 3>&-; wait %1
"""
    shown = output_of(in_its_own_network(script), clone)
    assert all(host in shown for host in ("h1", "h2", "h4", "h12"))


@NEEDS_MININET
def test_a_switch_as_the_guide_has_it(clone: Path) -> None:
    *links, switch, rate, depth, size, ports = SWITCH
    script = f"""
{chr(10).join(links)}
{switch} > switch.log 2>&1 &
until {ports} > /dev/null 2>&1; do sleep 0.2; kill -0 %1; done
{rate}; {depth}; {size}; {ports}
kill %1; wait %1
"""
    shown = output_of(in_its_own_network(script), clone)
    assert re.search(r"^1 s1-eth1 up: no rate, queues of 64 packets or 64000 bytes; ", shown, re.MULTILINE)
    assert re.search(r"^2 s1-eth2 up: 200Mbit, queues of 64 packets or 64000 bytes; ", shown, re.MULTILINE)


@pytest.mark.long
def test_a_run_that_is_watched_as_the_guide_has_it(clone: Path) -> None:
    demo, top, *questions = WATCHED
    script = f"""
{demo} > demo.log 2>&1 &
until {top} --once > top.log 2>&1; do sleep 0.5; kill -0 %1; done
wait %1
{chr(10).join(questions)}
"""
    assert "s1-p4" in output_of(["bash", "-ec", script], clone)
