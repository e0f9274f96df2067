"""Tables in pages: put where their marks are, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.experiments.errors import ExperimentError
from weir.experiments.page_tables import check_places, write_table
from weir.tests.support.errors import raises


def test_a_page_gets_its_table_between_the_marks_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a -->\nold\n<!-- end a -->\nafter\n<!-- b -->\n<!-- end b -->\n")
    for _ in range(2):
        write_table(page, "a", "| new \\1 |")
        expected = "before\n<!-- a -->\n\n| new \\1 |\n\n<!-- end a -->\nafter\n<!-- b -->\n<!-- end b -->\n"
        assert page.read_text() == expected
    check_places(page, ["a", "b"])


@pytest.mark.parametrize("text", ["", "<!-- a -->", "<!-- end a -->\n<!-- a -->\n", "<!-- ab -->\n<!-- end ab -->\n"])
def test_a_page_without_the_place_is_refused_and_stays(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with raises(ExperimentError, place=str(page), value="a"):
        write_table(page, "a", "| new |")
    assert page.read_text() == text


def test_a_page_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"page.md: cannot be read \(No such file or directory\)"):
        check_places(tmp_path / "page.md", [])
