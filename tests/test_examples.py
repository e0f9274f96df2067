"""Contents of examples/ run as its pages state, from any folder."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scapy.layers.inet import IP
from scapy.utils import rdpcap
from sklearn.datasets import load_digits

from weir.controller.inference.forest import Forest
from weir.tests.own_network import IN_ITS_OWN_NETWORK
from weir.tests.paths import ROOT
from weir.topologies.mininet.fabric import SwitchKind, obstacle

EXAMPLES: Final = ROOT / "examples"
WEIR: Final = Path(sys.executable).with_name("weir")
PATIENCE_S: Final = 280.0 if "WEIR_GUARD" not in os.environ else 3600.0
"""Guarded memory takes several times as long (tests/support/guarded_processes)."""
OF_A_PACKET: Final = "Processing packet received"
"""Text in bmv2's log."""


def output_of(*words: object, cwd: Path) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows_of(printed: str, *strategies: str) -> list[list[str]]:
    """The cells of a printed table's rows that begin with one of these, wherever the table stands on its line."""
    found = re.findall(rf"^ *({'|'.join(map(re.escape, strategies))}) +(.*?) *$", printed, re.MULTILINE)
    return [[strategy, *re.split(r" +(?!%)", cells)] for strategy, cells in found]


@pytest.mark.long
def test_a_cache_of_data_reads_and_decodes_once(tmp_path: Path) -> None:
    said = output_of(sys.executable, EXAMPLES / "data_cache.py", cwd=tmp_path)
    found = re.findall(r"epoch \d: (\d+) bytes from the folder, (\d+) samples decoded, sum (\S+)", said)
    assert [(read, decoded) for read, decoded, _ in found] == [("320000", "500"), ("0", "500"), ("0", "0")]
    assert len({total for *_, total in found}) == 1


@pytest.mark.long
def test_a_training_loop_of_ones_own_on_an_emulated_fabric(tmp_path: Path) -> None:
    lines = output_of(sys.executable, EXAMPLES / "training_loop.py", cwd=tmp_path).splitlines()
    assert [line.split()[0] for line in lines] == ["ps", "weights", "agg", "weights"]
    assert lines[1] == lines[3], "the same bits whoever sums"
    assert set(re.findall(r"'h\d': '(\w+)'", lines[0])) == {"h12"}
    assert set(re.findall(r"'h\d': '(\w+)'", lines[2])) == {"s5"}
    took_ms = [float(line.split()[1]) for line in (lines[0], lines[2])]
    assert took_ms[1] < took_ms[0]  # of virtual time: the same on every machine


@pytest.mark.long
def test_a_p4_program_of_ones_own_under_pytest(tmp_path: Path) -> None:
    """The test runs in a copy, out of reach of this project's test configuration."""
    folder = shutil.copytree(EXAMPLES / "p4_program", tmp_path / "p4", ignore=shutil.ignore_patterns("__pycache__"))
    plugin = ("-p", "weir.testing.plugin")  # which an installed Weir brings by itself (test_packaging.py)
    assert re.search(r"\b9 passed\b", output_of(sys.executable, "-m", "pytest", "-q", *plugin, cwd=folder))


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")
def test_the_p4_program_is_what_p4c_makes_of_its_source(tmp_path: Path) -> None:
    folder = EXAMPLES / "p4_program"
    words = ["p4c-bm2-ss", "--arch", "v1model", "--Werror", "-o", tmp_path / "firewall.json", "firewall.p4"]
    output_of(*words, cwd=folder)
    assert (tmp_path / "firewall.json").read_text() == (folder / "firewall.json").read_text()


@pytest.mark.long
def test_a_topology_of_ones_own(tmp_path: Path) -> None:
    checked = output_of(WEIR, "topology", "check", EXAMPLES / "two_racks.yaml", cwd=tmp_path)
    assert checked == "two-racks: 3 switches, 6 hosts, 8 links\n"
    output_of(WEIR, "topology", "draw", EXAMPLES / "two_racks.yaml", "two_racks.svg", cwd=tmp_path)
    assert (tmp_path / "two_racks.svg").stat().st_size > 0
    printed = output_of(WEIR, "run", EXAMPLES / "two_racks_run.yaml", cwd=tmp_path)
    strategies = ["ps", "rack", "agg"]
    assert [row[0] for row in rows_of(printed, *strategies)] == strategies
    assert "✗" not in printed


@pytest.mark.long
def test_a_workload_of_ones_own_in_a_run(tmp_path: Path) -> None:
    printed = output_of(WEIR, "run", EXAMPLES / "user_workload.yaml", cwd=tmp_path)
    rows = rows_of(printed, "ps", "widest")
    assert [(row[0], row[-1]) for row in rows] == [("ps", "100.0 %"), ("widest", "100.0 %")]
    assert "✗" not in printed
    assert "digits" not in printed
    (record,) = (tmp_path / "runs").iterdir()
    assert "✓ the replay reproduced every figure of the record" in output_of(
        WEIR, "replay", record, "--trust", cwd=tmp_path
    )


@pytest.mark.long
def test_a_strategy_of_ones_own(tmp_path: Path) -> None:
    own = ("--strategy", EXAMPLES / "user_strategy.py")
    planned = output_of(WEIR, "place", "leaf_spine.yaml", *own, cwd=tmp_path)
    assert "user_strategy.py" in planned
    printed = output_of(WEIR, "run", EXAMPLES / "user_workload.yaml", "--strategy", "widest", *own, cwd=tmp_path)
    assert [row[0] for row in rows_of(printed, "widest", "user_strategy.py")] == ["widest", "user_strategy.py"]
    assert "✓ final weights are bit-identical" in printed


@pytest.mark.long
@pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")
@pytest.mark.parametrize("kind", SwitchKind)
def test_processes_that_join_over_real_switches(kind: SwitchKind, tmp_path: Path) -> None:
    if (reason := obstacle(kind)) is not None:
        pytest.skip(reason)
    words = [*IN_ITS_OWN_NETWORK, EXAMPLES / "on_a_fabric.py", "--switch", kind]
    first, *workers = output_of(*words, cwd=tmp_path).splitlines()
    assert re.fullmatch(r"job \d+ of h1, h2, h4, summed at s\d(, s\d)*", first)
    assert [line.split(": ")[0] for line in workers] == [f"rank {rank} of 3" for rank in range(3)]
    (bits,) = {line.split("weights ")[1] for line in workers}
    assert re.search(r"\[ ?(3\.|2\.99999\d*) +(-1\.5|-1\.49999\d*) *]$", bits)


def test_workers_grow_the_forest_of_one_machine_with_all_images() -> None:
    """Three workers in turns, whose counts are added here; examples/classify.py has them added by switches."""
    example = runpy.run_path(str(EXAMPLES / "grow_forest.py"))
    images, digits = load_digits(return_X_y=True)
    alone = example["grow"](images, digits, 0, 1, lambda counts: counts)
    together = Barrier(3)
    given: list[NDArray[np.int32]] = [np.zeros(0, np.int32)] * 3

    def work(rank: int) -> Forest:
        def add(counts: NDArray[np.int32]) -> NDArray[np.int32]:
            given[rank] = counts
            together.wait()
            total = sum(given, np.zeros_like(counts))
            together.wait()
            return total

        forest: Forest = example["grow"](images, digits, rank, 3, add)
        return forest

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, range(3))) == [alone] * 3
    alone.check()
    assert [sum(1 for _ in tree.leaves()) for tree in alone.trees] == [64] * 9
    assert (alone.predict(images) == digits).mean() > 0.95


@pytest.mark.long
@pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")
@pytest.mark.parametrize("kind", SwitchKind)
def test_digits_are_classified_beside_a_job(kind: SwitchKind, tmp_path: Path) -> None:
    if (reason := obstacle(kind)) is not None:
        pytest.skip(reason)
    shown = output_of(*IN_ITS_OWN_NETWORK, EXAMPLES / "classify.py", "--switch", kind, cwd=tmp_path).splitlines()
    assert shown[0] == "9 trees of 576 leaves from the counts of 3 workers"
    lines = "".join(shown[1:-2])  # three processes write to one pipe, and may mix their ends of lines
    assert sorted(re.findall(r"rank \d of 3: ", lines)) == [f"rank {rank} of 3: " for rank in range(3)]
    assert shown[-2].startswith("450 of 450 classes by s1")
    assert shown[-1].startswith("92.0% ")


@pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")
@pytest.mark.parametrize("kind", SwitchKind)
def test_an_exercise_as_tutorials_write_it_runs_as_it_is(kind: SwitchKind, tmp_path: Path) -> None:
    """Topology JSON, P4 program and runtime JSON of every switch, named as from the folder where it is run."""
    if (reason := obstacle(kind)) is not None:
        pytest.skip(reason)
    words = [*IN_ITS_OWN_NETWORK[:-1], WEIR, "mininet", "pod/topology.json", "--switch", kind]
    told = ["--captures", tmp_path / "captures", "--logs", tmp_path / "logs"]
    asked = ["--exec", "h1 ping -c1 -W5 h2", "--exec", "h2 ip address show eth0"]
    shown = output_of(*words, *told, *asked, cwd=EXAMPLES / "exercise")
    assert "1 received" in shown
    assert "ttl=62" in shown, "two routers on the way"
    assert "inet 10.0.2.2/24" in shown
    captures = {path.name for path in (tmp_path / "captures").iterdir()}
    assert captures == {
        f"s{switch}-p{port}_{way}.pcap" for switch in (1, 2) for port in (1, 2) for way in ("in", "out")
    }
    pings = rdpcap(str(tmp_path / "captures" / "s1-p2_out.pcap"))
    assert [(packet[IP].src, packet[IP].dst, packet[IP].ttl) for packet in pings] == [("10.0.1.1", "10.0.2.2", 63)]
    logs = sorted((tmp_path / "logs").iterdir())
    assert [path.name.partition(".")[0] for path in logs] == ["s1", "s2"]
    texts = [path.read_text() for path in logs]
    if kind is SwitchKind.BMV2 and not any(OF_A_PACKET in text for text in texts):
        pytest.skip("this build of bmv2 has its log of packets compiled out")
    assert all("RouterIngress.routes" in text for text in texts)


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")
def test_the_exercises_program_is_what_p4c_makes_of_its_source(tmp_path: Path) -> None:
    folder, info, json = EXAMPLES / "exercise", "router.p4info.txtpb", "router.json"
    words = ["p4c-bm2-ss", "--arch", "v1model", "--Werror", "--p4runtime-files", tmp_path / info, "-o", tmp_path / json]
    output_of(*words, "router.p4", cwd=folder)
    for name in (info, json):
        assert (tmp_path / name).read_text() == (folder / "build" / name).read_text()


def test_a_failed_fabric_build_gives_the_reason(tmp_path: Path) -> None:
    """The copy has no clone around it."""
    copy = shutil.copytree(EXAMPLES, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PATH": str(tmp_path)}
    words = [sys.executable, str(copy / "on_a_fabric.py")]
    done = subprocess.run(
        words, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("on_a_fabric.py: ")
    assert "leaf_spine" not in done.stderr, "the fabric is found"
    assert done.stderr.count("\n") == 1


def test_the_examples_are_written_for_who_has_no_clone(tmp_path: Path) -> None:
    shown = output_of(WEIR, "examples", cwd=tmp_path)
    files = {path.relative_to(EXAMPLES) for path in EXAMPLES.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    written = {path.relative_to(tmp_path / "examples") for path in (tmp_path / "examples").rglob("*") if path.is_file()}
    assert written == files
    assert all((tmp_path / "examples" / path).read_bytes() == (EXAMPLES / path).read_bytes() for path in files)
    named = set(re.findall(r"examples/[\w/.]+", shown))
    assert len(named) >= 5
    assert {name for name in named if not (tmp_path / name).exists()} == set()
    again = subprocess.run([WEIR, "examples"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stderr) == (
        2,
        "weir: examples is there already; name one that is not: weir examples my_examples\n",
    )


def test_the_guides_training_loop_is_the_one_that_runs() -> None:
    (shown,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "getting-started.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert (EXAMPLES / "train.py").read_text().endswith(f'"""\n\n{shown}')
