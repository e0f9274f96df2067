"""The rooms import downwards only (docs/design.md §1)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from weir.tests.paths import ROOT

MAY_IMPORT: dict[str, set[str]] = {
    "wire": set(),
    "topologies": set(),
    "emulator": set(),
    "hosts": {"wire"},
    "controller": {"wire", "topologies"},
    "experiments": {"wire", "topologies", "emulator", "hosts", "controller", "p4src"},
}
ROOMS = {*MAY_IMPORT, "bench", "tests", "p4src"}


def imported_rooms(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports name their room in full"
            names.add(node.module or "")
    return {name.split(".")[0] for name in names} & ROOMS


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_go_downwards(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    wrong = {
        f"{path.relative_to(ROOT)} imports {other}"
        for path in files
        for other in imported_rooms(path) - MAY_IMPORT[room] - {room}
    }
    assert wrong == set()


def test_protocol_cores_do_no_io() -> None:
    """The cores get their time and their bytes as arguments."""
    forbidden = {"socket", "time", "asyncio", "threading", "random", "grpc", "finsy"}
    cores = [
        "hosts/protocol/worker.py",
        "hosts/protocol/in_flight.py",
        "hosts/protocol/stream.py",
        "hosts/protocol/server.py",
        "hosts/numerics/quantization.py",
        "controller/planning/generations.py",
        "controller/jobs/job.py",
        "controller/leases.py",
        "controller/telemetry/link_watch.py",
        "controller/planning/plan.py",
        "controller/jobs/moves.py",
    ]
    for core in cores:
        tree = ast.parse((ROOT / core).read_text())
        modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {module.split(".")[0] for module in modules} & forbidden == set(), core
