"""docs/int-conformance.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "int-conformance.md"
FOLDERS = "p4src", "wire", "topologies", "controller/int_config", "controller/telemetry"


def test_every_test_of_the_conformance_table_exists() -> None:
    named = re.findall(r"`(\w+\.py)::(\w+)`", PAGE.read_text())
    assert len(named) > 20
    for file, test in sorted(set(named)):
        folders = (ROOT / "tests" / folder for folder in FOLDERS)
        [path] = [path for folder in folders if (path := folder / file).exists()]
        assert f"def {test}(" in path.read_text(), f"{file} has no {test}"


def test_every_rule_that_is_kept_names_its_test() -> None:
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and cells[1].startswith("yes"):
            assert "::" in cells[2], line
