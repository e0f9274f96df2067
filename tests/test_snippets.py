"""Snippets and commands of README and docs run as written, or another test that is named here runs them.

Python that joins a job runs as the processes of one fabric in real time; snippets that need a network run in one of
their own. All command lines are parsed by the commands' own parsers: the names in them exist.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.main import get_command

from weir.cli.app import app
from weir.cli.place_files import read_jobs
from weir.cli.ranks import LaunchOptions, launched_job
from weir.controller.congestion import WALL_CLOCK_LEASE_NS, CongestionOptions, Uncontrolled, Windowed
from weir.controller.inference.forest import Forest
from weir.controller.placement import Problem
from weir.controller.placement.strategies import strategy
from weir.emulator.ports.options import parse, parse_control
from weir.emulator.program import Program
from weir.emulator.stf import StfTest, play
from weir.emulator.stf.reader import parse as parse_stf
from weir.experiments.config import RunConfig
from weir.experiments.config.congestion import ControllerCongestion
from weir.experiments.config.telemetry import TelemetryConfig
from weir.experiments.config.torchrun import TorchrunFile
from weir.experiments.scheduling.scheduling_file import SchedulingFile
from weir.experiments.search.search_file import SearchFile
from weir.hosts import ControlClient
from weir.imports.extras import EXTRAS
from weir.tests.own_network import IN_ITS_OWN_NETWORK
from weir.tests.paths import ROOT
from weir.tests.topologies.mininet.test_mininet import WITHOUT_OBSTACLE
from weir.topologies import Routes, load_topology
from weir.topologies.file_keys import json_schema as schema_of_a_fabric
from weir.topologies.mininet.fabric import EXECUTABLE, SwitchKind

PAGES: Final = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@dataclass(frozen=True)
class Snippet:
    page: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0][:40]}"


def snippets() -> Iterator[Snippet]:
    for page in PAGES:
        for language, text in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            yield Snippet(str(page.relative_to(ROOT)), language, text)


SNIPPETS: Final = list(snippets())


def python_of(page: str, beginning: str = "") -> str:
    """The one snippet of a page that has these words."""
    (found,) = [
        snippet.text
        for snippet in SNIPPETS
        if (snippet.page, snippet.language) == (page, "python") and beginning in snippet.text
    ]
    return found


# --- command lines ----------------------------------------------------------------------------------------------------

COMMANDS: Final = ("weir", "weir-switch", "make", "pytest", "python", "pip", "sudo", "cd", "ip", "p4c-bm2-ss", "ptf")
PLACEHOLDERS: Final = {
    "FILE": "topologies/leaf_spine.yaml",
    "FILE.yaml": "watch.yaml",
    "LOADS.yaml": "loads.yaml",
    "NAME": "widest",
    "SUITE.yaml": "experiments/evaluation.yaml",
    "TOPOLOGY": "topologies/leaf_spine.yaml",
    "TOPOLOGY.yaml": "topologies/leaf_spine.yaml",
    "my.yaml": "experiments/demo.yaml",
    "PROGRAM": "p",
    "TEST.stf...": "t.stf",
    "FOLDER": ".",
    "P4C_SOURCE_TREE": ".",
}
"""Placeholders that stand for a reader's own files."""


def command_lines() -> list[tuple[str, str]]:
    found = []
    for snippet in SNIPPETS:
        lines = [
            line
            for line in snippet.text.splitlines()
            if re.sub(r"^(\w+=\S+ |\. )", "", line).split(" ")[0].removeprefix(".venv/bin/") in COMMANDS
        ]
        found += [(snippet.page, line) for line in lines if snippet.language in ("", "sh")]
    return found


LINES: Final = command_lines()


def passing_commands() -> list[tuple[str, str]]:
    """Commands with arguments that pages mention in a sentence or a table.

    Names alone (`weir top`), and parts marked by "…", do not count.
    """
    found = []
    for page in PAGES:
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for text in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose):
            words = text.split()
            command = len(words) > 1 and words[0] in COMMANDS and "…" not in text
            if command and re.fullmatch(r"weir(-switch)?( [a-z-]+)+|python -m", text) is None:
                found.append((str(page.relative_to(ROOT)), text))
    return found


def test_pages_have_commands() -> None:
    assert {page for page, _ in LINES} >= {"README.md", "docs/launch.md", "docs/mininet.md", "docs/runs.md"}
    assert len(LINES) > 50
    assert {page for page, _ in passing_commands()} >= {"README.md", "docs/runs.md", "docs/training.md"}


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page} {line[:40]}" for page, line in LINES])
def test_a_command_line_is_what_its_command_takes(page: str, line: str) -> None:
    check_line(line)


def test_commands_that_are_named_in_passing_are_what_they_take() -> None:
    for page, line in passing_commands():
        try:
            lacks_arguments(line)
        except Exception as error:
            raise AssertionError(f"{page}: `{line}`: {error}") from error


def lacks_arguments(line: str) -> bool:
    """Return whether this is an option with its command's name rather than a command. Raises the errors of
    `check_line`.
    """
    try:
        check_line(line)
    except Exception as error:
        if type(error).__name__ != "MissingParameter":
            raise
        return True
    return False


def check_line(line: str) -> None:
    """Parse a line. Raises the errors of the commands' own parsers, or AssertionError for missing files."""
    folder = ROOT / "examples" / "exercise" if "../../" in line else ROOT
    for part in re.split(r"; |&& ", re.sub(r"\s(#.*|> \S+)", "", line)):
        words = [PLACEHOLDERS.get(word, word) for word in shlex.split(part, comments=True)]
        while words and (words[0] == "sudo" or re.fullmatch(r"\w+=\S+", words[0])):
            words.pop(0)
        if not words:
            continue
        words[0] = words[0].removeprefix("../../").removeprefix(".venv/bin/")
        check_command(words, folder)


@cache
def weir_command() -> Any:
    return get_command(app)


def check_command(words: Sequence[str], folder: Path) -> None:
    """Parse a command. Raises the errors of its own parser, or AssertionError for missing files."""
    match words:
        case ["weir", *rest]:
            command: Any = weir_command()
            while rest and rest[0] in getattr(command, "commands", {}):
                command, rest = command.commands[rest[0]], rest[1:]
            command.make_context("weir", list(rest))  # parses, and runs nothing
            for word in rest:
                if re.fullmatch(r"(topologies|examples|experiments|p4src|tests|pod)/\S+", word):
                    assert (folder / word).exists(), word
        case ["weir-switch", "ctl", *rest]:
            parse_control(rest)
        case ["weir-switch", *rest]:
            assert parse(rest).program is None or (ROOT / str(parse(rest).program)).exists()
        case ["make", *targets]:
            known = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
            assert {word for word in targets if "=" not in word} <= known
        case ["ptf", *rest]:
            check_ptf(rest, folder)
        case ["pytest" | "python", *rest]:
            for word in rest:
                if "/" in word:
                    assert (ROOT / word.split("::")[0]).exists(), word
        case ["pip", *rest]:
            for extra in re.findall(r"\[(\w+)\]", " ".join(rest)):
                assert extra in {*EXTRAS, "dev"}
        case ["cd", path]:
            assert (ROOT / path).is_dir()


def check_ptf(words: Sequence[str], folder: Path) -> None:
    """Have PTF list the tests that it would run, if it is installed."""
    script = shutil.which("ptf", path=str(Path(sys.executable).parent)) or shutil.which("ptf")
    if script is None:
        return
    with tempfile.TemporaryDirectory(prefix="weir-ptf-") as own:  # for its log
        (Path(own) / "tests").symlink_to(folder / "tests")
        done = subprocess.run(
            [sys.executable, script, "--list", *words], cwd=own, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert re.search(r"with a total of [1-9]\d* tests", done.stdout), done.stdout


# --- Python -----------------------------------------------------------------------------------------------------------

RUN_BY_OTHERS: Final = {
    "README.md": "its one line of PyTorch is that of docs/pytorch.md",
    "docs/compression.md": "tests/hosts/collectives/test_compression.py makes these calls, and runs the codec",
    "docs/control-service.md": "tests/hosts/collectives/test_communicator.py makes the call of `report`",
    "docs/getting-started.md": "tests/test_examples.py compares it with examples/train.py, which test_launch.py runs",
    "docs/gossip.md": "examples/gossip_training.py makes the call, which test_gossip_averager.py runs",
    "docs/inference.md": "tests/hosts/drivers/test_classifier.py makes the calls of the client",
    "docs/large-batches.md": "examples/adasum.py and tests/hosts/drivers/test_udp_collectives.py make these calls",
    "docs/loading.md": "tests/training/loading, tests/training/graphs and test_torch_steps.py make these calls",
    "docs/pytorch.md": "the programs of tests/hosts/torch begin with the first, and have the others' calls",
    "docs/scheduling.md": "tests/hosts/torch/test_turns.py takes turns in both ways",
    "docs/search.md": "tests/hosts/torch/scenarios.py makes the call of `report`",
    "docs/tensor-parallelism.md": "tests/training/parallel makes these calls",
    "docs/transport.md": "tests/hosts/drivers/test_udp_transport.py and examples/gossip.py make these calls",
}

SEAT: Final = """
import os
import numpy as np
address, job, token = os.environ["WEIR_CONTROL"], int(os.environ["WEIR_JOB"]), os.environ["WEIR_TOKEN"]
"""
IN_A_JOB: Final = [
    ("", "README.md", "communicator", "assert mean.tolist() == [3.5] * 1000"),
    (SEAT, "docs/launch.md", "communicator.size", "assert total[0] == 6"),
    (
        SEAT + "gradient = np.ones(8, np.float32)\n",
        "docs/control-service.md",
        "weir.join",
        "assert total.tolist() == [4] * 8",
    ),
    (
        SEAT + "gradient, samples = np.ones(8, np.float32), 3\nlayers = [('a', np.ones(2)), ('b', np.ones((3, 2)))]\n",
        "docs/collectives.md",
        "wait_all",
        "assert total.tolist() == [4] * 8 and mean.tolist() == [1] * 8\n"
        "assert [each.sum() for each in gradients] == [24, 8]",
    ),
    (
        SEAT + "control, x = address, np.ones(3)\n",
        "docs/collectives.md",
        "new_groups",
        "assert (row is None) == (job_rank not in (0, 1))\nassert row is None or parts.shape == (2, 3)",
    ),
]
"""Context, page and words of a snippet, and a condition that holds after it at each of four ranks."""


async def run_in_jobs(folder: Path) -> None:
    topology = load_topology("leaf_spine.yaml")
    hosts = ["h1", "h2", "h3", "h4"]
    async with launched_job(LaunchOptions(topology, hosts)) as first:
        control = first.ranks[0].environment["WEIR_CONTROL"]
        for number, (before, page, words, after) in enumerate(IN_A_JOB):
            with ControlClient(control) as client:
                job = await asyncio.to_thread(client.register, hosts, policy="abort")
            program = folder / f"snippet_{number}.py"
            after = after.replace("job_rank", "int(os.environ['RANK'])")
            program.write_text(before + python_of(page, words) + after + "\n")
            processes = []
            for seat in job.seats:
                told = {"WEIR_JOB": str(job.job), "WEIR_TOKEN": seat.token, "RANK": str(seat.rank)}
                environment = {**os.environ, **first.ranks[seat.rank].environment, **told}
                processes.append(
                    await asyncio.create_subprocess_exec(
                        sys.executable, program, env=environment, stderr=asyncio.subprocess.PIPE
                    )
                )
            for process in processes:
                _, complaint = await process.communicate()
                assert process.returncode == 0, f"{page} {words}: {complaint.decode()}"


def test_python_that_joins_a_job_runs(tmp_path: Path) -> None:
    asyncio.run(run_in_jobs(tmp_path))


def test_the_guides_mesh_is_that_of_the_example() -> None:
    assert (ROOT / "examples" / "grid.py").read_text().endswith(python_of("docs/launch.md", "communicator.mesh"))


def test_several_roots_are_one_communicator() -> None:
    from weir.hosts import Communicator
    from weir.tests.hosts.collectives.memory_driver import MemoryJob

    fabrics = [MemoryJob(1), MemoryJob(1)]
    space: dict[str, Any] = {
        "Communicator": Communicator,
        "driver_of_job_7": fabrics[0].drivers[0],
        "driver_of_job_8": fabrics[1].drivers[0],
    }
    exec(python_of("docs/collectives.md", "ShardedDriver"), space)
    assert space["comm"].size == 1


def test_the_emulators_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ethernet, ipv4 = (
        bytes.fromhex("020000000001 020000000009 0800"),
        bytes.fromhex("4500001c00000000401166cf0a0000010a000002"),
    )
    space: dict[str, Any] = {"frame": ethernet + ipv4 + bytes(8)}
    exec(python_of("docs/emulator.md", "ActionCall"), space)
    [(port, _)] = space["switch"].forward(space["frame"], port=1)
    assert port == 2
    exec(python_of("docs/emulator.md", "P4RuntimeServer").replace("127.0.0.1:50051", "127.0.0.1:0"), space)
    space["server"].stop()
    exec(python_of("docs/emulator.md", "Fabric(seed=1)"), space)
    [wake] = space["wakes"]
    assert (wake.host, len(wake.frames[0])) == ("h2", 1)


@pytest.mark.parametrize("kind", WITHOUT_OBSTACLE)
def test_the_python_of_the_mininet_page_runs(kind: SwitchKind) -> None:
    shown = python_of("docs/mininet.md")
    assert shown.count("SwitchKind.WEIR") == 1
    told = """    print(open(f"/proc/{fabric.pids['s1']}/cmdline").read())\n"""
    words = [*IN_ITS_OWN_NETWORK, "-c", shown.replace("SwitchKind.WEIR", f"SwitchKind.{kind.name}") + told]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "default" in done.stdout or "10.0.0.0/8" in done.stdout
    assert EXECUTABLE[kind] in done.stdout


def test_the_pytest_page_runs(tmp_path: Path) -> None:
    for name in ("two_firewalls.yaml", "firewall.json"):
        (tmp_path / name).symlink_to(ROOT / "examples" / "p4_program" / name)
    (tmp_path / "test_page.py").write_text(python_of("docs/pytest.md"))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "weir.testing.plugin"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_ptf_page_runs(tmp_path: Path) -> None:
    if find_spec("ptf") is None:
        pytest.skip("ptf is not installed: pip install --no-deps ptf")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "page.py").write_text(python_of("docs/ptf.md"))
    program = ROOT / "examples" / "p4_program" / "firewall.json"
    told = ["--grpc-addr", "127.0.0.1:0", "--program", program, "--test-dir", tmp_path / "tests"]
    words = [str(word) for word in (Path(sys.executable).with_name("weir"), "ptf", *told)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "page.ListedSourcesComeIn ... ok" in done.stderr


def test_the_strategy_of_the_placement_page_places(tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(python_of("docs/placement.md"))
    problem = Problem(Routes(load_topology("leaf_spine.yaml")), ("h1", "h2"), "h12", 1 << 20)
    plan = strategy(str(tmp_path / "first.py")).place(problem, random.Random(1))
    assert set(plan.aggregators.values()) == {"s1"}


def test_the_model_of_the_inference_page_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(python_of("docs/inference.md", "Forest.of"), {})
    assert len(Forest.load("digits.json").trees) == 9


def test_the_policy_of_the_gossip_page_avoids_the_slow_pair() -> None:
    names: dict[str, Any] = {}
    exec(python_of("docs/gossip.md", "POLICIES"), names)
    assert names["policy"].probabilities[0, 1] < 1e-3
    assert names["seconds_to_shrink"](names["seconds"], names["policy"]) < 3


def test_the_order_of_the_scheduling_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    exec(python_of("docs/scheduling.md", "Demand"), {})
    assert f"`{capsys.readouterr().out.strip()}`" in (ROOT / "docs" / "scheduling.md").read_text()


BALANCED: Final = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from weir.training.torch_steps import BalancedSampler
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(1)
inputs = torch.randn(480, 4)
data = TensorDataset(inputs, inputs @ torch.tensor([[1.0], [2.0], [-1.0], [0.5]]))
model, loss = DistributedDataParallel(torch.nn.Linear(4, 1)), torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
before = loss(model(data.tensors[0]), data.tensors[1]).item()
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed (pip install 'weir-fabric[torch]')")
def test_the_sampler_of_the_training_page_trains() -> None:
    lost = "loss(model.module(data.tensors[0]), data.tensors[1]).item()"
    after = f"assert len(sampler) == 10\nassert {lost} < 0.1 * before\n"
    program = BALANCED + python_of("docs/training.md") + after + "dist.destroy_process_group()\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(find_spec("optuna") is None, reason="Optuna is not installed (pip install 'weir-fabric[search]')")
def test_the_searches_of_the_search_page_end_with_the_best() -> None:
    names: dict[str, Any] = {"train": lambda number, parameters, steps: steps - abs(parameters["learning_rate"] - 0.1)}
    exec(python_of("docs/search.md", "RandomSource"), names)
    assert names["search"].best.steps == 100 + 200 + 400
    exec(python_of("docs/search.md", "OptunaSource"), names)
    assert len(names["study"].trials) == 8


def test_no_python_is_left_out() -> None:
    assert {snippet.language for snippet in SNIPPETS} == {"", "python", "sh", "yaml"}, (
        "and none has a language of its own"
    )
    run = {python_of(page, words) for _, page, words, _ in IN_A_JOB}
    run |= {python_of("docs/emulator.md", words) for words in ("ActionCall", "P4RuntimeServer", "Fabric(seed=1)")}
    run |= {
        python_of("docs/collectives.md", "ShardedDriver"),
        python_of("docs/launch.md", "communicator.mesh"),
        python_of("docs/mininet.md"),
        python_of("docs/placement.md"),
        python_of("docs/ptf.md"),
        python_of("docs/pytest.md"),
        python_of("docs/training.md"),
        python_of("docs/gossip.md", "POLICIES"),
        python_of("docs/inference.md", "Forest.of"),
        python_of("docs/scheduling.md", "Demand"),
        *(python_of("docs/search.md", words) for words in ("RandomSource", "OptunaSource")),
    }
    left = {snippet for snippet in SNIPPETS if snippet.language == "python" and snippet.text not in run}
    assert {each.page for each in left} == set(RUN_BY_OTHERS), [str(each) for each in left]


# --- files ------------------------------------------------------------------------------------------------------------


FILES: Final = {
    "docs/congestion.md": 1,
    "docs/fabrics.md": 2,
    "docs/gossip.md": 1,
    "docs/placement.md": 1,
    "docs/runs.md": 3,
    "docs/scheduling.md": 1,
    "docs/search.md": 1,
    "docs/telemetry.md": 1,
    "docs/training.md": 1,
}
"""Number of files that a page shows; the tests below load all of them."""


def files_of(page: str) -> list[str]:
    return [snippet.text for snippet in SNIPPETS if (snippet.page, snippet.language) == (page, "yaml")]


def test_no_file_is_left_out() -> None:
    assert Counter(snippet.page for snippet in SNIPPETS if snippet.language == "yaml") == FILES


def test_the_run_files_of_the_runs_page_are_some(tmp_path: Path) -> None:
    (tmp_path / "user_workload.py").symlink_to(ROOT / "examples" / "user_workload.py")
    sizes = []
    run, script, workload = files_of("docs/runs.md")
    for text in (run, workload):
        (tmp_path / "run.yaml").write_text(text)
        config = RunConfig.load(tmp_path / "run.yaml")
        assert config.topology.name == "leaf-spine"
        sizes.append(config.gradient_values)
    assert sizes == [64 * 128 + 128 + 128 * 10 + 10, 10_000]
    (tmp_path / "tensor_parallel.py").symlink_to(ROOT / "examples" / "tensor_parallel.py")
    (tmp_path / "run.yaml").write_text(script)
    assert TorchrunFile.load(tmp_path / "run.yaml").torchrun.mesh == "2x2x2"


def test_the_file_of_the_search_page_is_a_search(tmp_path: Path) -> None:
    (text,) = files_of("docs/search.md")
    (tmp_path / "search.yaml").write_text(text)
    (search,) = SearchFile.load(tmp_path / "search.yaml").searches
    assert search.schedule.trainings == 8 + 4 + 2


def test_the_file_of_the_scheduling_page_is_a_run_file(tmp_path: Path) -> None:
    (text,) = files_of("docs/scheduling.md")
    (tmp_path / "run.yaml").write_text(text)
    assert SchedulingFile.load(tmp_path / "run.yaml").scheduling.compared == ["fair", "stage-srpt", "grouper"]


def test_the_section_of_the_gossip_page_is_one_of_a_run_file(tmp_path: Path) -> None:
    (section,) = files_of("docs/gossip.md")
    others = yaml.safe_load((ROOT / "experiments" / "modes.yaml").read_text())
    del others["synchronisation"]
    others["job"]["workers"] = ["h1", "h2", "h4", "h5"]
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(others) + section)
    synchronisation = RunConfig.load(tmp_path / "run.yaml").synchronisation
    assert synchronisation is not None
    assert len(synchronisation.modes) == 6


def test_the_section_of_the_training_page_is_one_of_a_run_file(tmp_path: Path) -> None:
    (section,) = files_of("docs/training.md")
    others = yaml.safe_load((ROOT / "experiments" / "modes.yaml").read_text())
    del others["synchronisation"]
    others["job"]["workers"] = ["h1", "h2"]
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(others) + section)
    synchronisation = RunConfig.load(tmp_path / "run.yaml").synchronisation
    assert synchronisation is not None
    assert [(mode.name, dict(mode.options)) for mode in synchronisation.modes][1:] == [("ssp", {"staleness": 3})]
    assert (synchronisation.target, synchronisation.limit) == (0.3, 3_000_000_000)
    assert [each.samples_per_s for each in synchronisation.machines.drawn(1)] == [4000, 1600]


def test_the_telemetry_pages_watches_are_valid(tmp_path: Path) -> None:
    (text,) = files_of("docs/telemetry.md")
    (tmp_path / "watch.yaml").write_text(text)
    watching = TelemetryConfig.load(tmp_path / "watch.yaml").watching(load_topology("leaf_spine.yaml"), "the page")
    assert (len(watching.flows), watching.collector, len(watching.drops)) == (2, "h12", 16)


def test_the_congestion_pages_declarations_are_valid(tmp_path: Path) -> None:
    (text,) = files_of("docs/congestion.md")
    (tmp_path / "congestion.yaml").write_text(text)
    options = ControllerCongestion.load(tmp_path / "congestion.yaml", load_topology("leaf_spine.yaml"))
    assert options == CongestionOptions(
        lease_ns=WALL_CLOCK_LEASE_NS,
        uncontrolled=(Uncontrolled("h3", "h6", 7e8, 1514, 20),),
        windowed=(Windowed("h4", "h6", 16, 1514),),
    )


def test_the_jobs_of_the_placement_page_are_some(tmp_path: Path) -> None:
    (text,) = [
        snippet.text for snippet in SNIPPETS if (snippet.page, snippet.language) == ("docs/placement.md", "yaml")
    ]
    (tmp_path / "jobs.yaml").write_text(text)
    jobs = read_jobs(tmp_path / "jobs.yaml", load_topology("leaf_spine.yaml"))
    assert [(job.name, job.server, job.weight, job.priority) for job in jobs] == [
        ("vision", "h10", 1.0, 0),
        ("text", "h11", 2.0, 0),
        ("serving", "h12", 1.0, 1),
    ]


def test_the_fabrics_of_the_fabrics_page_are_some(tmp_path: Path) -> None:
    texts = files_of("docs/fabrics.md")
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.yaml").write_text(text)
    fabrics = [load_topology(tmp_path / f"{number}.yaml") for number in range(len(texts))]
    assert [(len(fabric.hosts), len(fabric.switches)) for fabric in fabrics] == [(3, 2), (12, 6)]


def test_the_fabrics_page_has_every_key() -> None:
    page = (ROOT / "docs" / "fabrics.md").read_text()
    keys = {key for section in schema_of_a_fabric()["$defs"].values() for key in section.get("properties", ())}
    assert keys == {key for key in keys if re.search(rf"`[\w.\[\]]*\b{key}\b[\w.\[\]]*`|{key}:", page)}


def test_the_packet_test_of_the_stf_page_passes() -> None:
    (text,) = [snippet.text for snippet in SNIPPETS if snippet.page == "docs/stf.md" and "expect 2" in snippet.text]
    router = Program.load(ROOT / "examples" / "exercise" / "build" / "router.json")
    path = Path("docs/stf.md")
    outcome = play(router, StfTest(path, parse_stf(text, str(path))))
    assert (outcome.failures, outcome.checks) == ((), 1)
