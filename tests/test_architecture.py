"""The house stands as docs/design.md §1 draws it: imports go downwards between rooms, and between the parts of each."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import networkx as nx
import pytest

from weir.tests.paths import ROOT

USERS: Final = ("bench", "examples", "tests")
"""Folders of the checkout whose code says `weir.…`, as everybody's does."""

CLOCKS_AND_NETWORKS: Final = {"asyncio", "finsy", "grpc", "random", "selectors", "socket", "threading", "time"}

PURE: Final = {
    "hosts/compression": {},
    "hosts/congestion": {},
    "hosts/numerics": {},
    "hosts/protocol": {},
    "controller/errors.py": {},
    "controller/leases.py": {},
    "controller/options.py": {},
    "controller/congestion": {},
    "controller/gossip": {},
    "controller/jobs": {},
    "controller/scheduling": {},
    "controller/planning": {"planner.py": {"random"}},  # a generator from the seed that it is given
    "controller/inference": {},
    "controller/int_config": {},
    "controller/telemetry": {
        "prober.py": {"asyncio"},  # sends the probes that `probes` plans
        "report_socket.py": {"socket"},  # the collector's input arrives there
    },
    "training": {
        "search_rank.py": {"time"},  # a process, which measures its stages
        "search.py": {"random"},  # generators from a seed that it is given
        "torch_steps.py": {"time"},  # on the wall clock
        "loader.py": {"time"},  # measures how long training waits for a batch
        "features.py": {"threading"},  # answers other hosts' requests
        "pipeline.py": {"threading", "time"},  # loads while training computes; a stage may take only so long
    },
}
"""Modules that get bytes, time and seed as arguments; by file, exceptions to the forbidden imports."""


@dataclass(frozen=True)
class Room:
    """A row of the table in docs/design.md §1."""

    may_import: set[str]
    """Other rooms."""
    parts: list[str]
    """Its wings and single modules, bottom first."""


def drawn_rooms() -> dict[str, Room]:
    section = (ROOT / "docs" / "design.md").read_text().split("\n## ")[1]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", section, re.MULTILINE)
    return {
        room: Room(set(re.findall(r"`(\w+)`", below)), re.findall(r"`(\w+)`", parts)) for room, below, parts in rows
    }


ROOMS: Final = drawn_rooms()


def name_of(path: Path) -> str:
    """A module's name as Python has it: `hosts/protocol/worker.py` is weir.hosts.protocol.worker."""
    parts = ("weir", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_under(*folders: str) -> dict[str, Path]:
    """Modules by name. A room that is one module stands next to the folders."""
    files = [path for folder in folders for path in (ROOT / f"{folder}.py", *sorted((ROOT / folder).rglob("*.py")))]
    return {name_of(path): path for path in files if path.exists()}


INSIDE: Final = {"weir": ROOT / "__init__.py", **modules_under(*ROOMS)}
"""Every module that is installed, and its file."""


@cache
def imports_of(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Every import, inside functions and for type checkers too."""
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]


def outside_names(path: Path) -> set[str]:
    """The first names of all that is imported absolutely."""
    names: set[str] = set()
    for node in imports_of(path):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif node.level == 0:
            names.add(node.module or "")
    return {name.split(".")[0] for name in names}


def imported_modules(name: str, path: Path) -> set[str]:
    """Our own modules that one imports, with the packages that Python loads on the way to them."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    found: set[str] = set()
    for node in imports_of(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = package[: len(package) - node.level + 1]
            base = ".".join([*above, node.module] if node.module else above)
            names = [alias.name for alias in node.names if (base, alias.name) != ("weir", "__version__")]  # everybody's
            found.update(full if (full := f"{base}.{name}") in INSIDE else base for name in names)
    loaded = {".".join(parts[:size]) for parts in (one.split(".") for one in found) for size in range(1, len(parts))}
    return found | {package for package in loaded if not f"{name}.".startswith(f"{package}.")}


@cache
def all_imports() -> dict[str, set[str]]:
    """Our own modules that each module imports."""
    return {name: imported_modules(name, path) for name, path in INSIDE.items()}


def room_of(name: str) -> str | None:
    """None for the package itself."""
    return name.split(".")[1] if name != "weir" else None


def height(name: str) -> int:
    """Position of a module in its room, from the bottom; the room's `__init__` is on top, unless the table differs."""
    _, room, *rest = name.split(".")
    parts = ROOMS[room].parts
    part = rest[0] if rest else "__init__"
    return parts.index(part) if part in parts else len(parts)


def test_every_room_is_drawn_with_all_its_parts() -> None:
    python = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {*USERS}
    python |= {path.stem for path in ROOT.glob("*.py")} - {"__init__"}
    assert set(ROOMS) == python
    for room, drawn in ROOMS.items():
        there = {path.stem for path in (ROOT / room).glob("*.py")} - {"__init__"}
        there |= {path.parent.name for path in (ROOT / room).glob("*/__init__.py")}
        assert len(drawn.parts) == len(set(drawn.parts))
        assert set(drawn.parts) - {"__init__"} == there, room


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_downwards(room: str) -> None:
    wrong = {
        f"{name} imports {other}"
        for name, others in all_imports().items()
        for other in others
        if room_of(name) == room and room_of(other) not in {room, *ROOMS[room].may_import}
    }
    assert wrong == set()


@pytest.mark.parametrize("room", ROOMS)
def test_parts_of_a_room_import_downwards(room: str) -> None:
    wrong = {
        f"{name} imports {other}"
        for name, others in all_imports().items()
        for other in others
        if room_of(name) == room_of(other) == room and height(other) > height(name)
    }
    assert wrong == set()


def test_no_imports_go_in_circles() -> None:
    graph = nx.DiGraph([(name, other) for name, others in all_imports().items() for other in others])
    assert [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1] == []


def test_imports_name_what_is_there() -> None:
    """A name that the tests above could not follow would go unseen."""
    assert {other for others in all_imports().values() for other in others} <= set(INSIDE)


def test_rooms_import_each_other_relatively() -> None:
    """Then nothing inside depends on the name under which the package is found."""
    assert {name for name, path in INSIDE.items() if "weir" in outside_names(path)} == set()


def test_nothing_is_imported_by_its_bare_name() -> None:
    """`import hosts` works in the checkout's root alone, and takes there what a user may have of that name."""
    bare = {*ROOMS, *USERS}
    files = {**INSIDE, **modules_under(*USERS)}
    assert {f"{name} imports {other}" for name, path in files.items() for other in outside_names(path) & bare} == set()


def test_parts_of_scipy_load_when_they_are_used() -> None:
    """`import scipy` loads a part at its first use. Else each command would load all at its start."""
    parts = {
        f"{name} imports {part}"
        for name, path in INSIDE.items()
        for node in imports_of(path)
        for part in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        if part is not None and part.startswith("scipy.")
    }
    assert parts == set()


@pytest.mark.parametrize("place", PURE)
def test_pure_modules_have_no_clock_and_no_network(place: str) -> None:
    where = ROOT / place
    paths = sorted(where.rglob("*.py")) if where.is_dir() else [where]
    impure = {path.name: outside_names(path) & CLOCKS_AND_NETWORKS for path in paths}
    assert {file: modules for file, modules in impure.items() if modules} == PURE[place]
