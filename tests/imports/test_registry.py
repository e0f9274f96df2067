"""Registries: names of a folder's modules, users' files, and errors for everything else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from weir.errors import PlacedError
from weir.imports.registry import Registry
from weir.tests.imports.colours import Colour


class ColourError(PlacedError):
    """Raised by the registry under test."""


MODULE = "from weir.tests.imports.colours import Colour\nDESCRIPTION = Colour({name!r})\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `colours` with two modules, importable for the test alone."""
    made = tmp_path / "colours"
    made.mkdir()
    (made / "__init__.py").touch()
    for module, name in (("blue_one", "blue"), ("red_one", "red")):
        (made / f"{module}.py").write_text(MODULE.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == "colours"]:
        del sys.modules[name]


def registry(folder: Path, first: str = "") -> Registry[Colour]:
    return Registry("colours", [str(folder)], Colour, "colour", ColourError, first=first)


def test_modules_are_found_by_the_names_of_their_descriptions(folder: Path) -> None:
    assert list(registry(folder)) == ["blue", "red"]
    assert list(registry(folder, first="red")) == ["red", "blue"]
    assert registry(folder).describe("red") == Colour("red")


def test_a_file_is_found_by_its_path_and_not_listed(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(MODULE.format(name="green"))
    known = registry(folder)
    assert known.describe(str(own)) == Colour("green")
    assert known.describe(str(own)) is known.describe(str(own))
    assert set(known) == {"blue", "red"}


def test_unknown_names_and_files_raise_the_kinds_error(folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.touch()
    for wrong in ("bleu", str(tmp_path / "absent.py"), str(empty)):
        with pytest.raises(ColourError):
            registry(folder).describe(wrong)
    with pytest.raises(ColourError, match='unknown colour "bleu", did you mean "blue"') as caught:
        registry(folder).describe("bleu")
    assert (caught.value.value, caught.value.allowed) == ("bleu", ("blue", "red", "the path of a Python file"))


def test_a_users_description_is_adopted_with_its_path(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(MODULE.format(name="green"))
    known = Registry(
        "colours", [str(folder)], Colour, "colour", ColourError, adopt=lambda colour, path: Colour(colour.name + path)
    )
    assert known.describe(str(own)) == Colour(f"green{own}")
    assert known.describe("red") == Colour("red")


def test_two_modules_of_one_name_are_refused(folder: Path) -> None:
    (folder / "second_red.py").write_text(MODULE.format(name="red"))
    with pytest.raises(ValueError, match='colour "red"'):
        registry(folder)
