"""The command lines of README and docs run unchanged; exceptions, run by another test or not at all, are named here.

They run in a folder with all files of a clone, with the installed commands on PATH and the environment that `make`
would set up. `sudo .venv/bin/` is left out: commands that need root run as root in a network of their own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from weir.tests.paths import ROOT, STF
from weir.tests.test_snippets import LINES, SNIPPETS, lacks_arguments, passing_commands, python_of
from weir.tests.topologies.mininet.test_mininet import LONG_ON_BMV2, WITHOUT_OBSTACLE
from weir.topologies.mininet.fabric import SwitchKind, obstacle

PATIENCE_S: Final = 280
NEEDS_MININET: Final = pytest.mark.skipif(obstacle() is not None, reason=f"Mininet: {obstacle()}")


def command_of(line: str) -> str:
    """A line without comment and without what makes it root's."""
    return re.sub(r"\s+#.*|\bsudo ", "", line).replace(".venv/bin/", "", 1 if "../../" not in line else 0).strip()


WHOLE: Final = [(page, line) for page, line in passing_commands() if not lacks_arguments(line)]
COMMANDS: Final = {command_of(line): page for page, line in LINES + WHOLE}

ALONE: Final = [
    "make doctor",
    "make wireshark",
    "weir codec check examples/codecs/terngrad.compll",
    "weir codec list",
    "weir plan compression vgg19 --workers 8 --rate 100Mbit",
    "weir plan compression bert-base --codec onebit",
    "weir place TOPOLOGY --workers h1,h2 --server h3 --loads LOADS.yaml --strategy widest",
    "weir place topologies/leaf_spine.yaml --server h12",
    "weir place topologies/leaf_spine.yaml --server h12 --strategy agg --streams s1=4",
    "weir place topologies/leaf_spine.yaml --strategy examples/user_strategy.py",
    "weir run experiments/demo.yaml --check",
    *(f"weir run experiments/scheduling/{name}.yaml" for name in ("learners", "searches", "turns")),
    "weir search examples/search.yaml",
    "weir schema fabric > fabric.schema.json",
    "weir schema run > run.schema.json",
    "p4c-bm2-ss --arch v1model --p4runtime-files firewall.p4info.txtpb -o firewall.json "
    "examples/p4_program/firewall.p4",
    "weir stf --p4c FOLDER",
    "weir stf examples/p4_program/firewall.json examples/p4_program/firewall.stf",
    "weir stf p4src/build/fabric.json tests/emulator/stf/fabric.stf",
    "weir topology check FILE",
    "weir topology draw FILE fabric.svg",
    "weir topology draw topologies/fat_tree.yaml fabric.svg",
    "weir topology fat-tree tree.yaml",
    "weir topology leaf-spine leaves.yaml",
]
"""Lines that need nothing and end by themselves."""
QUICK: Final = [
    "make doctor",
    "make wireshark",
    "weir place topologies/leaf_spine.yaml --server h12",
    "weir run experiments/demo.yaml --check",
    "weir schema run > run.schema.json",
    "weir stf --p4c FOLDER",
    "weir stf examples/p4_program/firewall.json examples/p4_program/firewall.stf",
    "weir topology check FILE",
    "weir topology draw FILE fabric.svg",
]
"""Those of them that `make test` runs as processes; it has tests of the other lines' commands within its own."""
LAUNCHES: Final = [
    "weir launch --hosts h1,h4,h7 examples/train.py",
    "weir launch -n 3 --topology examples/two_racks.yaml examples/train.py",
    "weir launch -n 4 examples/adasum.py",
    "weir launch -n 4 examples/gossip.py",
    "weir launch -n 4 examples/graphs.py",
    "weir launch -n 4 examples/train.py",
    "weir launch --mesh 2x3 examples/grid.py",
]
"""Such as start processes, and take a while."""

IN_MININET: Final = [
    "make mininet TOPO=topologies/leaf_spine.yaml",
    "weir mininet topologies/leaf_spine.yaml",
    'weir mininet topologies/leaf_spine.yaml --exec "h1 ping -c1 h12"',
    "weir mininet topologies/leaf_spine.yaml --switch bmv2",
    "weir mininet topologies/leaf_spine.yaml --program own.json --p4info own.p4info.txtpb --entries s1=s1-runtime.json "
    "--entries s2=s2-runtime.json",
]
"""Lines that end by themselves without input."""
RUN_IN_MININET: Final = "weir run experiments/demo.yaml --fabric mininet"
"""A line that takes several minutes."""

JOBS: Final = [
    "weir mininet topologies/leaf_spine.yaml --sockets sockets",
    "weir controller topologies/leaf_spine.yaml --sockets sockets --journal jobs.journal",
    "weir jobs register h1 h2 h4 --server h12 --policy continue",
    "weir jobs",
    'weir jobs end 1234 --reason "out of time"',
    "weir controller TOPOLOGY.yaml --metrics-port 9100",
    "weir controller TOPOLOGY.yaml --telemetry FILE.yaml",
    "ip link show s1-p3",
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
    "make bench",
    "make bench ONLY=balance",
    "make bench ONLY=plugin",
    "make bench ONLY=pytorch",
    "make bench ONLY=tensors",
    "make demo",
    "make test-bmv2",
    "make test-torch",
    "make tofino",
    "python -m weir.tests.mutation --count 20 --seed 7 --only protocol",
    "weir demo",
    "weir demo --loss 0.01",
    "weir evaluate SUITE.yaml",
    "weir evaluate experiments/evaluation.yaml --write docs/evaluation.md",
    "weir evaluate experiments/strong_baselines.yaml --write docs/strong-baselines.md",
    "weir evaluate my_suite.yaml --workers 8",
    "weir run experiments/demo.yaml --strategy widest --seed 3",
    "weir papers run NAME",
    "weir papers run lb-bsp",
    "weir papers run netmax",
    "weir run experiments/gossip/label-shards.yaml",
    "weir run experiments/gossip/moving-link.yaml",
    "weir run experiments/gossip/slow-host-link.yaml",
    "weir run experiments/gossip/slow-worker.yaml",
    "weir run experiments/modes.yaml",
    "weir run experiments/queues/transfers.yaml",
    "weir run experiments/striped.yaml",
    "weir run my.yaml --strategy widest --seed 3",
    "weir baselines experiments/queues/joins.yaml",
    "weir baselines my.yaml --scheme explicit --scheme dctcp-virtual --json",
    "weir torchrun -n 8 --topology fat_tree.yaml train.py --epochs 3",
]
"""Lines that take a minute or much longer."""
NO_TORCH: Final = None if find_spec("torch") else "PyTorch is not installed"
NEEDS: Final[Mapping[str, Callable[[], str | None]]] = {
    "make bench ONLY=pytorch": lambda: NO_TORCH,
    "make test-bmv2": lambda: obstacle(SwitchKind.BMV2),
    "make test-torch": lambda: NO_TORCH,
    "weir run experiments/scheduling/learners.yaml": lambda: None if find_spec("mlxtend") else "mlxtend is missing",
    "make tofino": lambda: None if shutil.which("p4test") else "p4test is not on PATH",
    "weir torchrun": lambda: NO_TORCH,
    "p4c-bm2-ss": lambda: None if shutil.which("p4c-bm2-ss") else "it is not on PATH",
    "weir stf --p4c": lambda: None if shutil.which("p4c-bm2-ss") else "p4c-bm2-ss is not on PATH",
}
"""Reasons that lines cannot run here, by their beginnings."""

OF_THIS_SUITE: Final = sorted(
    line
    for line in COMMANDS
    if line in ("make test-documents", "make test-long") or re.match(r"(WEIR_SEED=\d+ )?pytest .*tests/", line)
)
"""Lines that run parts of this suite."""
IN_CI: Final = ["make lint", "make test"]
"""Lines that every change to Weir is checked by."""

BY_OTHERS: Final[Mapping[str, str]] = {
    "cd examples/exercise": "tests/test_examples.py::test_an_exercise_as_tutorials_write_it_runs_as_it_is",
    '../../.venv/bin/weir mininet pod/topology.json --exec "h1 ping -c1 h2"': (
        "tests/test_examples.py::test_an_exercise_as_tutorials_write_it_runs_as_it_is"
    ),
    "weir examples": "tests/test_examples.py::test_the_examples_are_written_for_who_has_no_clone",
    "make mutants": "tests/test_commands.py::test_a_line_that_takes_a_minute_runs_as_it_stands",
    "make test-quick FOLDER=wire": "tests/test_commands.py::test_a_line_that_takes_a_minute_runs_as_it_stands",
    "make docs": "tests/test_site.py::test_links_of_the_site_lead_to_files",
    "make lock": "tests/test_packaging.py::test_pinned_versions_fit_the_declared_ranges",
    "make p4": "tests/p4src/test_build.py::test_compiling_again_gives_the_same_program",
    "make proto": "tests/wire/test_control_messages.py::test_the_code_is_generated_from_the_messages_as_they_stand",
    **dict.fromkeys(
        sorted(line for line in COMMANDS if re.match(r"pip install (-e )?['.]", line)),
        "tests/test_packaging.py::test_the_wheel_holds_packages_and_data_but_no_tests",
    ),
    "python -m weir.bench --write docs/results.md": "tests/experiments/test_page_tables.py::test_a_page_gets_its_table",
    "python -m weir.hosts.drivers.agent 127.0.0.1:9561 1234": (
        "tests/experiments/backends/test_mininet_run.py::test_sums_and_weights_are_the_virtual_fabrics"
    ),
    "make test-tofino-model": "tests/ptf/test_tofino_model.py::test_all_tests_run_on_what_answers",
    "python -m weir.controller.p4runtime.packing FOLDER p4src/build/fabric_tofino.p4info.txtpb OUTPUT": (
        "tests/controller/p4runtime/test_packing.py::test_the_command_writes_the_file_or_says_why_not"
    ),
    "make shell": "tests/emulator/p4runtime/test_p4runtime_shell.py::test_the_shell_connects",
    "pytest examples/p4_program": "tests/test_examples.py::test_a_p4_program_of_ones_own_under_pytest",
    "python examples/classify.py": "tests/test_examples.py::test_digits_are_classified_beside_a_job",
    "weir infer samples.csv --switch 10.255.0.1": (
        "tests/cli/test_model_command.py::test_samples_of_a_file_get_their_classes"
    ),
    "weir infer samples.csv --switch 10.255.0.1 --model digits.json": (
        "tests/cli/test_model_command.py::test_samples_of_a_file_get_their_classes"
    ),
    **dict.fromkeys(
        ("weir model load digits.json --switch s1", "weir model list", "weir model unload --switch s1"),
        "tests/cli/test_model_command.py::test_a_model_is_loaded_listed_and_unloaded",
    ),
    **dict.fromkeys(
        ("weir model convert digits.skops digits.json", "weir model convert digits.joblib digits.json --trust"),
        "tests/cli/test_model_command.py::test_a_classifier_becomes_a_model_file",
    ),
    "weir model test digits.json": "tests/cli/test_model_command.py::test_a_model_is_tested_and_a_pickle_refused",
    "python examples/data_cache.py": "tests/test_examples.py::test_a_cache_of_data_reads_and_decodes_once",
    "python examples/on_a_fabric.py": "tests/test_examples.py::test_processes_that_join_over_real_switches",
    "python examples/training_loop.py": (
        "tests/test_examples.py::test_a_training_loop_of_ones_own_on_an_emulated_fabric"
    ),
    "weir plan compression vgg19 --trace plan.json": (
        "tests/cli/test_plan_command.py::test_the_schedule_is_written_as_a_trace"
    ),
    "weir codec bench examples/codecs/terngrad.compll": "tests/cli/test_codec_command.py::test_a_codec_is_measured",
    "weir jobs register --count 4 --accelerators 2 --memory 16GiB": (
        "tests/cli/test_jobs_command.py::test_a_job_is_registered_by_size_and_listed_while_waiting"
    ),
    "weir jobs register h1 h2 --parent 1234": (
        "tests/controller/service/test_queueing.py::test_a_family_shares_policy_priority_hosts_and_end"
    ),
    "weir jobs register h1 h2 --traffic-class 2": (
        "tests/cli/test_jobs_command.py::test_a_job_keeps_the_traffic_class_that_it_was_given"
    ),
    "weir controller FILE --order grouper": (
        "tests/cli/test_jobs_command.py::test_jobs_are_shown_with_class_order_stage_and_reason"
    ),
    "weir controller FILE --order grouper --apply-order": (
        "tests/controller/jobs/test_job_classes.py::test_jobs_take_the_classes_of_their_order"
    ),
    "weir search FILE --processes": (
        "tests/experiments/search/test_search_command.py::test_processes_reach_the_accuracies_of_virtual_time"
    ),
    "python -m weir.tests.experiments.bound_search FIRST_SEED CLIMBS --runs 10": (
        "tests/experiments/test_bound_search.py::test_climbs_towards_full_queues_break_no_bound"
    ),
    "weir launch --timeout 300s": (
        "tests/cli/test_launch.py::test_a_run_has_a_time_out_losses_a_seed_a_history_and_a_page"
    ),
    "weir papers page docs/papers.md": "tests/experiments/test_papers.py::test_page_follows_from_the_records",
    "weir papers run my_paper.py": "tests/experiments/test_papers.py::test_a_users_file_is_repeated_beside_itself",
    "weir run my.yaml --pdf figures": (
        "tests/experiments/test_plots.py::test_plots_are_written_as_pdf_at_the_size_of_the_style"
    ),
    "weir run my.yaml --csv figures.csv": (
        "tests/experiments/test_start.py::test_run_in_an_event_loop_has_figures_as_csv_and_frame"
    ),
    "weir controller topologies/leaf_spine.yaml --sockets sockets": (
        "tests/test_commands.py::test_jobs_as_the_guide_has_them"
    ),
    "weir launch -n 4 my_loop.py": "tests/test_commands.py::test_the_first_loop_prints_what_its_page_shows",
    "weir ptf --program examples/p4_program/firewall.json --test-dir examples/ptf": (
        "tests/testing/test_ptf.py::test_the_example_passes"
    ),
    "weir ptf --program p4src/build/fabric.json --ports 1-4 --test-dir tests/ptf/fabric": (
        "tests/testing/test_ptf.py::test_the_switch_program_passes"
    ),
    'ptf --test-dir tests/ptf/fabric -i 1@veth1 -i 2@veth3 -i 3@veth5 -i 4@veth7 --test-params "grpcaddr='
    "'127.0.0.1:9559';device=0;target='bmv2-32';ports='1,2,3,4'\"": (
        "tests/bmv2/test_bmv2_ptf.py::test_the_program_passes"
    ),
    "weir replay runs/NAME": "tests/test_examples.py::test_a_workload_of_ones_own_in_a_run",
    "weir replay runs/digits-20260101-120000": "tests/test_examples.py::test_a_workload_of_ones_own_in_a_run",
    "weir run examples/user_workload.yaml": "tests/test_examples.py::test_a_workload_of_ones_own_in_a_run",
    "weir run examples/user_workload.yaml --strategy widest --strategy examples/user_strategy.py": (
        "tests/test_examples.py::test_a_strategy_of_ones_own"
    ),
    "weir run examples/tensor_parallel.yaml": "tests/training/parallel/test_parallel.py::test_the_run_file",
    "weir run examples/two_racks_run.yaml": "tests/test_examples.py::test_a_topology_of_ones_own",
    "weir run FILE --fabric mininet": (
        "tests/experiments/backends/test_mininet_run.py::test_sums_and_weights_are_the_virtual_fabrics"
    ),
    "weir run experiments/demo.yaml --strategy NAME": (
        "tests/test_commands.py::test_a_line_that_takes_a_minute_runs_as_it_stands"
    ),
    "weir run my.yaml --fabric mininet": (
        "tests/experiments/backends/test_mininet_run.py::test_sums_and_weights_are_the_virtual_fabrics"
    ),
    "weir stf --p4c P4C_SOURCE_TREE": (
        "tests/emulator/stf/test_stf_command.py::test_the_root_of_a_source_tree_stands_for_its_tests"
    ),
    "weir stf PROGRAM TEST.stf...": "tests/test_commands.py::test_a_line_runs_as_it_stands",
    "weir launch -n 4 examples/gossip_training.py": (
        "tests/hosts/torch/test_gossip_averager.py::test_the_example_learns_without_an_all_reduce_of_gradients"
    ),
    "weir topology check examples/two_racks.yaml": "tests/test_examples.py::test_a_topology_of_ones_own",
    "weir topology draw examples/two_racks.yaml two_racks.svg": "tests/test_examples.py::test_a_topology_of_ones_own",
    "weir torchrun -n 2 examples/balanced.py": (
        "tests/training/test_torch_steps.py::test_the_slow_rank_gets_fewer_samples"
    ),
    "weir torchrun -n 4 examples/tensor_parallel.py 2 1": "tests/training/parallel/test_parallel.py::test_the_example",
    "weir torchrun -n 8 --mesh 2x2x2 examples/tensor_parallel.py 2 2": (
        "tests/training/parallel/test_parallel.py::test_the_example"
    ),
    "weir torchrun -n 4 examples/tensor_parallel.py 1d": "tests/training/parallel/test_parallel.py::test_the_example",
    "weir torchrun -n 4 examples/ddp.py": "tests/hosts/torch/test_torchrun.py::test_the_example_has_the_bits",
    "weir torchrun -n 4 --fabric mininet examples/ddp.py": (
        "tests/hosts/torch/test_torchrun.py::test_the_example_has_the_same_bits_in_mininet"
    ),
    "weir torchrun -n 3 --max-restarts 1 examples/rejoin.py": (
        "tests/hosts/torch/test_torchrun.py::test_a_process_restarted_by_torchrun_rejoins"
    ),
    "weir-switch examples/p4_program/firewall.json": "tests/test_commands.py::test_a_switch_without_ports_waits",
    "weir-switch -i 1@veth1 -i 2@veth2 p4src/build/fabric.json": "tests/test_commands.py::test_a_switch_as_the_guide",
}
"""The beginning of a test that runs what the line does."""

BY_NONE: Final[Mapping[str, str]] = {
    r"apt-get install ": "what they install is the machine's",
    r"pip install (--no-deps ptf|pandas|pre-commit|setuptools|torchft)": "what they install is others'",
    r"weir controller FABRIC\.yaml --switch s1=ADDRESS:9559": "it wants a chip",
}


SMALL_SUITE: Final = """
name: small
seeds: 2
strategies: [ps, blind, widest]
grids:
  - name: one
    fabrics: [{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 3}]
    workers: [3]
    load: [0.4]
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Folder with a clone's files, and the files that the reader is to supply."""
    for path in ROOT.iterdir():
        if path.name == ".ci" or (not path.name.startswith(".") and path.name not in ("docs", "runs", "build")):
            (tmp_path / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")  # some lines write there
    here = Path(sys.prefix)
    (tmp_path / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (tmp_path / ".venv" / name).symlink_to(here / name)
    (tmp_path / ".venv" / ".ready").touch()
    exercise = ROOT / "examples" / "exercise"
    brought = {"my.yaml": ROOT / "experiments" / "demo.yaml", "train.py": ROOT / "examples" / "ddp.py"}
    brought |= dict.fromkeys(("FILE", "TOPOLOGY", "TOPOLOGY.yaml"), ROOT / "topologies" / "leaf_spine.yaml")
    brought |= {f"own.{ending}": exercise / "build" / f"router.{ending}" for ending in ("json", "p4info.txtpb")}
    brought |= {f"s{number}-runtime.json": exercise / "pod" / f"s{number}-runtime.json" for number in (1, 2)}
    for name, path in brought.items():
        (tmp_path / name).symlink_to(path)
    (tmp_path / "my_loop.py").write_text(python_of("docs/launch.md", "communicator.size"))
    for name in ("my_suite.yaml", "SUITE.yaml"):
        (tmp_path / name).write_text(SMALL_SUITE)
    (tmp_path / "LOADS.yaml").write_text("s1-p4: 700Mbit\n")
    (watched,) = [
        snippet.text for snippet in SNIPPETS if (snippet.page, snippet.language) == ("docs/telemetry.md", "yaml")
    ]
    (tmp_path / "FILE.yaml").write_text(watched)
    (tmp_path / "FOLDER").mkdir()
    for name in ("skeleton.p4", "selector.p4", "selector.stf"):
        (tmp_path / "FOLDER" / name).symlink_to(STF / name)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    """Environment with a separate place for the sockets of `weir-switch ctl`, which are named by device id."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "XDG_RUNTIME_DIR": str(folder)}


def output_of(words: Sequence[str], folder: Path, patience_s: float = PATIENCE_S) -> str:
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience_s,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_its_own_network(script: str) -> list[str]:
    """Command that runs a script with interfaces and names of network namespaces of its own."""
    mounted = "ip link set lo up && mkdir -p /run/netns && mount -t tmpfs none /run/netns"
    return ["unshare", "--net", "--mount", "bash", "-ec", f"{mounted}\n{script}"]


def test_no_line_is_left_out_and_none_is_named_in_vain() -> None:
    run = {
        *ALONE,
        *LAUNCHES,
        *IN_MININET,
        RUN_IN_MININET,
        *JOBS,
        *SWITCH,
        *WATCHED,
        *LONG,
        *OF_THIS_SUITE,
        *IN_CI,
        *BY_OTHERS,
    }
    left = [line for line in COMMANDS if line not in run and not any(re.fullmatch(f"{how}.*", line) for how in BY_NONE)]
    assert left == []
    assert {line for line in run if line not in COMMANDS} == set()
    assert {*IN_MININET} <= {on_switches(line, kind) for line in IN_MININET for kind in SwitchKind}
    assert {*IN_CI} <= {*(ROOT / ".ci" / "run").read_text().splitlines()}
    for how in BY_NONE:
        assert [line for line in COMMANDS if re.match(how, line)], how


@pytest.mark.parametrize("test", sorted(set(BY_OTHERS.values())))
def test_a_line_run_by_another_test_names_an_existing_one(test: str) -> None:
    path, _, name = test.partition("::")
    assert f"def {name}" in (ROOT / path).read_text()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, id=line, marks=() if line in QUICK else pytest.mark.long)
        for line in sorted({*ALONE, *LAUNCHES, *QUICK})
    ],
)
def test_a_line_runs_as_it_stands(line: str, clone: Path) -> None:
    skip_what_cannot_run(line)
    output_of(["bash", "-ec", line], clone)


def skip_what_cannot_run(line: str) -> None:
    for beginning, reason in NEEDS.items():
        if line.startswith(beginning) and (why := reason()) is not None:
            pytest.skip(why)


def evaluate_few_seeds(clone: Path) -> None:
    """One seed of twenty, which is every condition and every strategy in a twentieth of the half hour."""
    folder = clone / "experiments"
    folder.unlink()
    folder.mkdir()
    for path in (ROOT / "experiments").iterdir():
        (folder / path.name).symlink_to(path)
    for suite in (folder / "evaluation.yaml", folder / "strong_baselines.yaml"):
        text = suite.read_text()
        suite.unlink()
        assert text.count("\nseeds: 20") == 1
        suite.write_text(text.replace("\nseeds: 20", "\nseeds: 1"))


@pytest.mark.document
@pytest.mark.parametrize("line", OF_THIS_SUITE)
def test_a_line_that_runs_tests_finds_some(line: str, clone: Path) -> None:
    """The tests are not run: `make test`, `make test-long` and this run do that."""
    collect = "export PYTEST_ADDOPTS='--collect-only -q'"
    assert re.search(
        r"^\d+(/\d+)? tests? collected", output_of(["bash", "-ec", f"{collect}; {line}"], clone), re.MULTILINE
    )


@pytest.mark.document(minutes=4)
@pytest.mark.parametrize("line", LONG)
def test_a_line_that_takes_a_minute_runs_as_it_stands(line: str, clone: Path) -> None:
    skip_what_cannot_run(line)
    if "weir evaluate experiments/" in line:
        evaluate_few_seeds(clone)
    shown = output_of(["bash", "-ec", line], clone, 3000)
    if line.startswith("make bench"):
        assert re.search("[✓✗]", shown)  # an aim missed is this machine's; a benchmark that fails fails the line
    else:
        assert "✗" not in shown


@pytest.mark.long
def test_the_first_loop_prints_what_its_page_shows(clone: Path) -> None:
    (shown,) = [
        snippet.text
        for snippet in SNIPPETS
        if snippet.page == "docs/launch.md" and snippet.text.startswith("weir: job ")
    ]
    printed = output_of(["bash", "-ec", "weir launch -n 4 my_loop.py"], clone)
    assert sorted(printed.splitlines()) == sorted(line for line in shown.splitlines() if line.startswith("["))
    assert len(printed.splitlines()) == 4


def on_switches(line: str, kind: SwitchKind) -> str:
    """A line about a fabric in Mininet, for switches of this kind: weir's where it says nothing."""
    bare = re.sub(r" --switch \w+", "", line)
    if kind == SwitchKind.WEIR:
        return bare
    return f"{bare} SWITCH={kind}" if bare.startswith("make ") else f"{bare} --switch {kind}"


QUICK_IN_MININET: Final = 'weir mininet topologies/leaf_spine.yaml --exec "h1 ping -c1 h12"'


@pytest.mark.parametrize("kind", LONG_ON_BMV2)
@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, id=line, marks=() if line == QUICK_IN_MININET else pytest.mark.long)
        for line in sorted({on_switches(line, SwitchKind.WEIR) for line in IN_MININET})
    ],
)
def test_a_line_that_builds_a_fabric_in_mininet(line: str, kind: SwitchKind, clone: Path) -> None:
    shown = output_of(in_its_own_network(f"{on_switches(line, kind)} 2>&1"), clone)
    assert f"leaf-spine: 12 hosts, 6 {kind} switches, " in shown
    assert "--exec" not in line or "1 received" in shown


@pytest.mark.document(minutes=8)
@pytest.mark.parametrize("kind", WITHOUT_OBSTACLE)
def test_a_run_in_mininet_as_it_stands(kind: SwitchKind, clone: Path) -> None:
    shown = output_of(in_its_own_network(on_switches(RUN_IN_MININET, kind)), clone, 3000)
    assert "✗" not in shown
    assert f"✓ in Mininet with {kind} switches the final weights and the sums of all 100 steps are those of" in shown


@pytest.mark.long
@pytest.mark.parametrize("kind", WITHOUT_OBSTACLE)
def test_jobs_as_the_guide_has_them(kind: SwitchKind, clone: Path) -> None:
    """The fabric and the controller run meanwhile; the job's number is the one that was printed."""
    built, controller, register, jobs, end, measured, watching, link = JOBS
    fabric = on_switches(built, kind)
    script = f"""
mkfifo hold; {fabric} < hold > fabric.log 2>&1 & exec 3> hold
until grep -q P4Runtime fabric.log; do sleep 0.2; kill -0 %1; done
{controller} > controller.log 2>&1 &
until weir jobs > /dev/null 2>&1; do sleep 0.2; kill -0 %2; done
{register} > registered; cat registered
number=$(grep -oE '[0-9]+' registered | head -n 1)
{jobs}
{end.replace("1234", "$number")}
{link}
kill %2; wait %2 || true; rm controller.log
{measured} --sockets sockets > controller.log 2>&1 &
measured=$!; until grep -s served controller.log; do sleep 0.2; kill -0 $measured; done
python -c "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9100/metrics').read().decode())"
kill $measured; wait $measured || true; rm controller.log
{watching} --sockets sockets > controller.log 2>&1 &
watching=$!; until grep -s "UDP port" controller.log; do sleep 0.2; kill -0 $watching; done
kill $watching; wait $watching || true; exec 3>&-; wait %1; cat controller.log
"""
    shown = output_of(in_its_own_network(script), clone)
    assert all(host in shown for host in ("h1", "h2", "h4", "h12"))
    assert "alias weir" in shown, "a note of who made the link"
    assert 'weir_link_load_ratio{link="s1-p3"}' in shown
    assert "telemetry reports are taken at UDP port" in shown


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


@NEEDS_MININET
def test_a_switch_without_ports_waits_for_a_controller(clone: Path) -> None:
    script = """
weir-switch examples/p4_program/firewall.json > switch.log 2>&1 &
until grep -q P4Runtime switch.log; do sleep 0.1; kill -0 %1; done
kill %1; wait %1; cat switch.log
"""
    assert "P4Runtime on unix:" in output_of(in_its_own_network(script), clone)


@pytest.mark.document
def test_a_run_that_is_watched_as_the_guide_has_it(clone: Path) -> None:
    demo, top, *questions = WATCHED
    script = f"""
{demo} > demo.log 2>&1 &
until {top} --once > top.log 2>&1; do sleep 0.5; kill -0 %1; done
wait %1
{chr(10).join(questions)}
"""
    assert "s1-p4" in output_of(["bash", "-ec", script], clone)
