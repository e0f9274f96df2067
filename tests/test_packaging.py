"""Installed files: the wheel and the source distribution, in environments of their own, without any registry."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from weir import __version__
from weir.imports.extras import DISTRIBUTION, EXTRAS, PURPOSES
from weir.tests.paths import ROOT

USERS: Final = {"bench", "examples", "tests"}
"""Folders of the checkout that are not installed."""
DECOYS: Final = (
    "controller.py",
    "emulator.py",
    "experiments/__init__.py",
    "torch_entry.py",
    "cli.py",
    "hosts.py",
    "imports.py",
    "p4src.py",
    "topologies/__init__.py",
    "training.py",
    "wire.py",
)
OPTIONAL: Final = {"packaging", "torch"}
"""Imported where they are there already."""
PATIENCE_S: Final = 200.0


def run(*words: object, cwd: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    """A command with nothing of this checkout on its path."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")} | changes
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def output_of(*words: object, cwd: Path, **changes: str) -> str:
    done = run(*words, cwd=cwd, **changes)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def leave_out(folder: str, names: list[str]) -> Iterable[str]:
    """Files that a clone lacks, but a working checkout has."""
    made = {"build", "dist", "runs"} if Path(folder) == ROOT else set()
    return [
        name
        for name in names
        if name in made
        or name in {".git", "__pycache__", ".hypothesis"}
        or name.startswith(".venv")
        or name.endswith(("_cache", ".egg-info", ".log", ".pb.bin"))
    ]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(ROOT, tmp_path_factory.mktemp("clone") / "weir", ignore=leave_out))


@pytest.fixture(scope="module")
def sdist(clone: Path) -> Path:
    """Built in a copy, for setuptools leaves files where it works."""
    inside = {str(path.relative_to(clone)) for path in clone.rglob("*") if path.is_file()}
    code = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    printed = output_of(sys.executable, "-c", code, clone.parent, cwd=clone)
    path = clone.parent / printed.splitlines()[-1]
    with tarfile.open(path) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert inside - held == set(), "a clone has files that the source distribution has not"
    return path


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """Wheel built from the source distribution, as after a download."""
    words = ["-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", "."]
    output_of(sys.executable, *words, sdist, cwd=sdist.parent)
    (path,) = sdist.parent.glob("*.whl")
    return path


def environment(folder: Path, wheel: Path) -> Path:
    """A virtual environment with this wheel and nothing else."""
    output_of(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    words = ["-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel]
    output_of(sys.executable, *words, cwd=folder.parent)
    return folder


def site_packages(folder: Path) -> Path:
    (path,) = folder.glob("lib/python*/site-packages")
    return path


def always_required(distribution: str) -> set[str]:
    """Distributions that pip installs with it, by their metadata."""
    found = {distribution}
    for line in metadata.requires(distribution) or ():
        name = re.match(r"[\w.-]+", line)
        if name is not None and ";" not in line:
            found |= always_required(name[0])
    return found


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Environment of the bare distribution: only the packages required without an extra."""
    folder = environment(tmp_path_factory.mktemp("bare") / "venv", wheel)
    into = site_packages(folder)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    asked = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    asked = [re.split(r"[^\w.-]", line)[0] for line in asked if "extra ==" not in line]
    assert sorted(asked) == ["grpcio", "numpy", "protobuf", "rich", "typer"]
    for distribution in set().union(*map(always_required, asked)):
        for file in metadata.files(distribution) or ():
            size = 2 if file.parts[0] == "google" else 1  # a namespace that others live in, too
            link = into.joinpath(*file.parts[:size])
            if file.parts[0] not in {"..", "__pycache__"} and not link.is_symlink():
                link.parent.mkdir(exist_ok=True)
                link.symlink_to(str(metadata.distribution(distribution).locate_file(Path(*file.parts[:size]))))
    return folder


@pytest.fixture(scope="module")
def full(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Environment with the wheel and everything that is installed here, except the checkout."""
    folder = environment(tmp_path_factory.mktemp("full") / "venv", wheel)
    others = [path for path in sys.path if Path(path).name in {"site-packages", "dist-packages"}]
    (site_packages(folder) / "others.pth").write_text("\n".join(others) + "\n")
    return folder


@pytest.mark.long
def test_the_pytest_plugin_comes_with_the_package(full: Path, tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "def test_own(fabric, send, received):\n"
        f"    fabric(program={str(ROOT / 'examples' / 'p4_program' / 'firewall.json')!r}, ports=2)\n"
        "    send('h1', bytes(60))\n"
        "    assert received('h2') == [bytes(60)]\n"
    )
    assert "1 passed" in output_of(full / "bin" / "python", "-m", "pytest", "-q", cwd=tmp_path)


@pytest.mark.long
def test_a_strict_editable_install_has_its_types(tmp_path: Path) -> None:
    """The usual editable install is an import hook, which type checkers do not follow."""
    source = Path(shutil.copytree(ROOT, tmp_path / "weir", ignore=leave_out))
    code = (
        "import sys; from setuptools import build_meta; "
        "print(build_meta.build_editable(sys.argv[1], {'editable_mode': 'strict'}))"
    )
    wheel = tmp_path / output_of(sys.executable, "-c", code, tmp_path, cwd=source).splitlines()[-1]
    python = environment(tmp_path / "venv", wheel) / "bin" / "python"
    words = ["-m", "mypy", "--python-executable", python, "--follow-imports=skip", "--cache-dir", tmp_path / "cache"]
    output_of(sys.executable, *words, "-c", "import weir", cwd=tmp_path)  # else import-not-found


def test_users_without_a_clone_get_and_run_the_examples(full: Path, tmp_path: Path) -> None:
    output_of(full / "bin" / "weir", "examples", cwd=tmp_path)
    checked = output_of(full / "bin" / "weir", "topology", "check", "examples/two_racks.yaml", cwd=tmp_path)
    assert checked == "two-racks: 3 switches, 6 hosts, 8 links\n"
    words = ["-m", "pytest", "-q", "examples/p4_program"]
    assert re.search(r"\b9 passed\b", output_of(full / "bin" / "python", *words, cwd=tmp_path))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_list_of_packages_is_that_of_the_tree() -> None:
    folders = {
        path.parent.relative_to(ROOT)
        for room in ROOT.glob("*/__init__.py")
        for path in room.parent.rglob("__init__.py")
    }
    inside = {".".join(("weir", *folder.parts)) for folder in folders if folder.parts[0] not in USERS}
    assert sorted(project()["tool"]["setuptools"]["packages"]) == sorted({"weir", *inside})


def test_extras_have_the_packages_that_the_code_thinks_they_have() -> None:
    extras = project()["project"]["optional-dependencies"]
    distribution_of = {
        "prometheus_client": "prometheus-client",
        "sklearn": "scikit-learn",
        "yaml": "pyyaml",
    }  # others are imported by the names that they are installed by

    def brought(extra: str) -> set[str]:
        names = {re.split(r"[^\w.-]", line)[0] for line in extras[extra]} - {DISTRIBUTION}
        inner = [re.search(rf"{DISTRIBUTION}\[(.*)\]", line) for line in extras[extra]]
        return names.union(*(brought(name) for match in inner if match for name in match[1].split(",")))

    assert set(EXTRAS) == set(PURPOSES) == set(extras) - {"dev", "docs"}
    rows = re.findall(r"^\| `.*", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"\[(\w+)\](?:'`|`)", "\n".join(rows))) == set(extras) - {"docs"}
    for extra, packages in EXTRAS.items():
        assert {distribution_of.get(package, package) for package in packages} == brought(extra), extra
    assert brought("dev") >= brought("runs") | brought("debug")


@pytest.mark.parametrize(
    ("room", "extra"),
    [
        ("hosts", None),
        ("hosts/compression/language/native.py", "codecs"),
        ("hosts/numerics/lane_native.py", "codecs"),
        ("hosts/numerics/vectors.py", "codecs"),
        ("hosts/compression/language/syntax.py", "codecs"),
        ("wire", "controller"),
        ("wire/scapy_layers.py", "debug"),
        ("p4src", None),
        ("topologies", "controller"),
        ("topologies/drawing.py", "runs"),
        ("emulator", "emulator"),
        ("controller", "controller"),
        ("controller/inference/fitted.py", "models"),
        ("controller/live/history.py", "live"),
        ("controller/live/server.py", "live"),
        ("training", None),
        ("training/workloads/digits.py", "runs"),
        ("training/graphs/made.py", "controller"),
        ("training/optuna_source.py", "search"),
        ("training/batching/predictors/arima.py", "predictors"),
        ("experiments", "runs"),
    ],
)
def test_an_extra_brings_what_its_rooms_import(room: str, extra: str | None) -> None:
    """Imports inside functions count, those for type checkers do not."""
    brought = {"google", "grpc", "numpy", *(("rich", "typer", *EXTRAS[extra]) if extra else ())}
    apart = {"wire/scapy_layers.py", "topologies/drawing.py", "controller/live/history.py", "controller/live/server.py"}
    apart |= {"training/workloads/digits.py", "training/graphs/made.py", "training/optuna_source.py"}
    apart |= {f"hosts/compression/language/{module}.py" for module in ("native", "syntax")}
    apart |= {f"hosts/numerics/{module}.py" for module in ("lane_native", "vectors")}
    apart |= {"controller/inference/fitted.py", "training/batching/predictors/arima.py"}
    listed = apart - {room}
    files = [ROOT / room] if room.endswith(".py") else sorted((ROOT / room).rglob("*.py"))
    for path in files:
        if str(path.relative_to(ROOT)) not in listed:
            assert imported_by(path) - sys.stdlib_module_names - brought - OPTIONAL == set(), path


def imported_by(path: Path) -> set[str]:
    """First names of all absolute imports of a module, except those under `if TYPE_CHECKING`."""
    tree = ast.parse(path.read_text())
    unseen = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    names: set[str] = set()
    for node in set(ast.walk(tree)) - unseen:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_the_wheel_holds_packages_and_data_but_no_tests(wheel: Path, clone: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name.removeprefix("weir/") for name in archive.namelist() if name.startswith("weir/")}
        others = {name.partition("/")[0] for name in archive.namelist()} - {"weir"}
    assert others == {f"weir_fabric-{__version__}.dist-info"}
    rooms = {path.parent for path in clone.glob("*/__init__.py")} - {clone / name for name in USERS}
    code = {str(path.relative_to(clone)) for room in rooms for path in room.rglob("*.py")}
    data = {
        "py.typed",
        "controller/live/page.html",
        "experiments/demo.yaml",
        "experiments/evaluation.yaml",
        "experiments/modes.yaml",
        "experiments/striped.yaml",
        "experiments/strong_baselines.yaml",
        "experiments/records/page.html",
        "experiments/records/paper.mplstyle",
        "topologies/fat_tree.yaml",
        "topologies/leaf_spine.yaml",
        "topologies/live.yaml",
        "wire/weir.lua",
        "wire/control.proto",
        "wire/control_pb2.pyi",
    }
    data |= {
        str(path.relative_to(clone))
        for path in (clone / "p4src").rglob("*")
        if path.suffix in {".p4", ".json", ".txtpb", ".txt", ".sha256"}
    }
    data |= {
        str(path.relative_to(clone))
        for path in (clone / "experiments" / "papers").rglob("*")
        if path.suffix in {".yaml", ".json"}
    }
    for runs in ("gossip", "heartbeats", "queues", "scheduling"):
        data |= {str(path.relative_to(clone)) for path in (clone / "experiments" / runs).glob("*.yaml")}
    data |= {str(path.relative_to(clone)) for path in (clone / "examples").rglob("*") if path.is_file()}
    assert {"p4src/bmv2/fabric.p4", "p4src/common/headers.p4", "p4src/build/fabric.json"} <= data
    assert held == code | data | {"__init__.py", "torch_entry.py"}


def test_pinned_versions_fit_the_declared_ranges() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / ".ci" / "constraints.txt").read_text().splitlines()[1:]
    pinned = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in map(Requirement, lines)}
    extras = (
        project["optional-dependencies"][name] for name in ("runs", "emulator", "controller", "live", "codecs", "dev")
    )
    for needed in map(Requirement, [*project["dependencies"], *(each for extra in extras for each in extra)]):
        if needed.name != DISTRIBUTION:
            assert pinned[canonicalize_name(needed.name)] in needed.specifier, needed


def test_all_that_pinned_versions_need_is_pinned_too() -> None:
    """A package that another one brings in would else be of the day's version."""
    lines = (ROOT / ".ci" / "constraints.txt").read_text().splitlines()[1:]
    pins = [*map(Requirement, lines)]
    pinned = {canonicalize_name(pin.name) for pin in pins}
    assert len(pinned) == len(pins)
    assert {next(iter(pin.specifier)).operator for pin in pins} == {"=="}
    python = next(iter({str(pin.marker) for pin in pins})).partition('"')[2].rstrip('"')
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    missing = []
    for distribution in metadata.distributions():
        if canonicalize_name(distribution.name) in pinned - {"ptf"}:  # installed without what it lists
            for needed in map(Requirement, distribution.requires or ()):
                if needed.marker is None or needed.marker.evaluate(environment):
                    missing += [str(needed)] if canonicalize_name(needed.name) not in pinned else []
    assert not missing


def test_the_source_distribution_holds_the_tests_and_the_guides(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Makefile", "docs/design.md", "bench/__main__.py", "tests/test_packaging.py", ".ci/run", "LICENSE"} <= held


def test_a_worker_needs_numpy_grpcio_and_protobuf_alone(bare: Path, tmp_path: Path) -> None:
    """Two workers and their parameter server on loopback, with only a worker's packages."""
    port = 32_000 + os.getpid() % 2_000
    program = f"""
import sys
from ipaddress import IPv4Address
from threading import Thread
import numpy as np
import weir
from weir.hosts import Communicator, ParameterServerCore, UdpEndpoint, UdpWorker, WorkerCore, WorkerOptions
from weir.hosts.drivers import agent
from weir.wire.control import Child, ServerPlan, WorkerPlan

server, *workers = [int(IPv4Address(f"127.0.17.{{last}}")) for last in (1, 2, 3)]
children = tuple(Child(1 << rank, address) for rank, address in enumerate(workers))
plan = ServerPlan(job=7, generation=1, slots=16, children=children, workers=2)
options = WorkerOptions(initial_timeout_ns=100_000_000, min_timeout_ns=20_000_000)
sums = [None, None]

def work(rank):
    plan = WorkerPlan(job=7, generation=1, rank=rank, workers=2, aggregator=server,
                      child_bit=1 << rank, slots=16, window=8)
    with UdpWorker(WorkerCore(plan, options), workers[rank], {port}) as worker:
        sums[rank] = Communicator(worker, timeout_s=60).allreduce(np.arange(1000) * (rank + 1))
        Communicator(worker, timeout_s=60).barrier()

with UdpEndpoint(ParameterServerCore(plan), server, {port}):
    threads = [Thread(target=work, args=[rank]) for rank in (0, 1)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
assert all(np.array_equal(total, np.arange(1000) * 3) for total in sums), sums
assert callable(weir.join) and callable(weir.serve)
print(*sorted(name for name in sys.modules if "." not in name and name not in sys.stdlib_module_names))
"""
    loaded = output_of(bare / "bin" / "python", "-c", program, cwd=tmp_path).split()
    assert {"google", "grpc", "numpy", "weir"} <= set(loaded)
    assert set(loaded) & {name for packages in EXTRAS.values() for name in packages} == set()
    assert "token" in output_of(bare / "bin" / "python", "-m", "weir.hosts.drivers.agent", "--help", cwd=tmp_path)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["weir", "demo"],
            "weir: weir demo needs scipy, which is not installed: pip install 'weir-fabric[runs] @ file://",
        ),
        (
            ["weir", "strategies"],
            "weir: weir strategies needs scipy, which is not installed: pip install 'weir-fabric[controller] @ file://",
        ),
        (
            ["weir", "stf", "own.json", "own.stf"],
            "weir: weir stf needs llvmlite, which is not installed: pip install 'weir-fabric[emulator] @ file://",
        ),
        (
            ["weir-switch", "--no-p4"],
            "weir-switch: it needs llvmlite, which is not installed: pip install 'weir-fabric[emulator] @ file://",
        ),
    ],
)
def test_one_line_says_which_extra_is_missing(bare: Path, tmp_path: Path, words: list[str], line: str) -> None:
    done = run(bare / "bin" / words[0], *words[1:], cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(line), "and pip can take it"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "Fabric",
            "weir.emulator.Fabric needs llvmlite, which is not installed: pip install 'weir-fabric[emulator] @ file://",
        ),
        (
            "load_topology",
            "weir.topologies.load_topology needs yaml, which is not installed: pip install 'weir-fabric[controller] @ file://",
        ),
        (
            "leaf_spine(1, 1, 1).graph",
            "a fabric's graph needs networkx, which is not installed: pip install 'weir-fabric[controller] @ file://",
        ),
    ],
)
def test_a_name_says_which_extra_it_needs(bare: Path, tmp_path: Path, name: str, line: str) -> None:
    done = run(bare / "bin" / "python", "-c", f"import weir; weir.{name}", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"weir.imports.extras.MissingExtra: {line}")


def test_the_bare_installation_has_its_commands(bare: Path, tmp_path: Path) -> None:
    assert output_of(bare / "bin" / "weir", "--version", cwd=tmp_path) == f"weir {__version__}\n"
    listed = output_of(bare / "bin" / "weir", "--help", cwd=tmp_path)
    assert {"demo", "launch", "jobs", "doctor"} <= {line.split()[0] for line in listed.splitlines() if line.strip()}
    assert "simple_switch_grpc" in output_of(bare / "bin" / "weir-switch", "--help", cwd=tmp_path)
    told = output_of(bare / "bin" / "weir", "doctor", cwd=tmp_path)
    assert "ok       Python packages: all 5\n         for joining jobs" in told
    for extra, purpose in PURPOSES.items():
        assert f"not here weir-fabric[{extra}]: " in told
        assert f"for {purpose} (optional)" in told
        assert f"-m pip install 'weir-fabric[{extra}] @ file://" in told
    assert "everything that joining jobs needs is there" in told
    assert not re.search(
        r"missing|ruff|mypy|pytest\b|hypothesis|grpcio-tools|make ",
        re.sub("file://[^']*", "", told.replace(str(bare), "")),
    )


@pytest.mark.long
def test_files_of_the_users_do_not_take_the_place_of_ours(full: Path, tmp_path: Path) -> None:
    for name in DECOYS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"raise ImportError('{name} of the user was imported')\n")
    for path in ("", str(tmp_path)):
        assert output_of(full / "bin" / "weir", "--version", cwd=tmp_path, PYTHONPATH=path) == f"weir {__version__}\n"
        helped = output_of(full / "bin" / "weir", "--help", cwd=tmp_path, PYTHONPATH=path)
        assert re.findall(r"(demo|controller|topology|doctor)  ", helped)
        output_of(full / "bin" / "weir-switch", "--help", cwd=tmp_path, PYTHONPATH=path)
    output_of(full / "bin" / "weir", "topology", "leaf-spine", "fabric.yaml", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    code = "import weir; weir.join, weir.Fabric; print(weir.load_topology('fabric.yaml').name, weir.__file__)"
    name, file = output_of(full / "bin" / "python", "-c", code, cwd=tmp_path).split()
    assert (name, Path(file).parents[1]) == ("leaf-spine", site_packages(full))


def test_the_version_stands_in_one_place() -> None:
    """The changelog begins with that version."""
    assert "version" not in project()["project"]
    assert project()["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "weir.__version__"}
    assert re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == __version__


def test_tests_run_in_a_checkout_of_any_name(tmp_path: Path) -> None:
    """pytest loads the root's `__init__.py` without a package where its folder's name (weir-main) can be none."""
    checkout = tmp_path / "weir-main"
    (checkout / "tests").mkdir(parents=True)
    (checkout / "imports").mkdir()
    for name in ("__init__.py", "imports/__init__.py", "imports/extras.py", "pyproject.toml"):
        shutil.copy(ROOT / name, checkout / name)
    (checkout / "tests" / "__init__.py").touch()
    (checkout / "tests" / "test_nothing.py").write_text("def test_nothing() -> None:\n    pass\n")
    assert "1 passed" in output_of(sys.executable, "-m", "pytest", "-q", "tests", cwd=checkout)


def test_ci_installs_the_pinned_versions() -> None:
    """`.ci/run` calls make, whose environment is made by these commands."""
    assert re.search(r"^make test$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    for ready in (".venv/.ready", ".venv/.docs-ready"):
        commands = run("make", "--dry-run", "--always-make", ready, cwd=ROOT).stdout
        installing = [line for line in commands.splitlines() if "pip install" in line]
        assert installing
        assert all("--constraint .ci/constraints.txt" in line for line in installing)
