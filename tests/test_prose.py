"""The check of docstrings' first words, and its list of files that are still to be rewritten."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from weir.tests.prose import check, openings

PLAIN = '"""Queue bounds."""\n'
OPEN = '"""What is promised."""\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "plain.py").write_text(PLAIN)
    (tmp_path / "open.py").write_text(OPEN)
    return tmp_path


def listing(folder: Path, *names: str) -> Path:
    path = folder / "todo.txt"
    path.write_text("".join(f"{name}\n" for name in names))
    return path


def test_openings_are_found_in_docstrings_of_all_kinds() -> None:
    source = (
        '"""Whoever reads."""\nX = 1\n"""Of a link."""\nclass A:\n    """Base."""\n'
        '    def f(self) -> None:\n        """As `g`."""\n        "Of no meaning: the second statement of no name"\n'
        'Y = "Where a value is, no docstring is."\n"""Offer and Formula open with nouns."""\n'
    )
    assert [line for line, _ in sorted(openings(source))] == [1, 3, 7, 8]


def test_unlisted_file_with_an_opening_is_a_problem(checkout: Path) -> None:
    (problem,) = check(checkout, listing(checkout))
    assert problem.startswith('open.py:1: "What is promised." opens with "What"')


def test_listed_file_is_tolerated(checkout: Path) -> None:
    assert check(checkout, listing(checkout, "open.py")) == []


def test_list_may_only_shrink(checkout: Path) -> None:
    todo = listing(checkout, "open.py", "plain.py", "gone.py")
    assert len(check(checkout, todo)) == 2
    (checkout / "new.py").write_text(OPEN)
    assert [line.partition(":")[0] for line in check(checkout, todo, shrink=True)] == ["new.py"]
    assert todo.read_text() == "open.py\n"
