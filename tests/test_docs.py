"""What the guides point at is there: files, folders, modules, and the names that their examples import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Final

import pytest

from weir.tests.paths import ROOT

PAGES: Final = {str(path.relative_to(ROOT)): path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))}
FOLDERS: Final = ["docs", *sorted({path.parent.name for path in ROOT.glob("[a-z]*/*.py")})]
CODE: Final = "|".join(FOLDERS)

_PATH: Final = re.compile(rf"(?<![\w./-])(?:{CODE})(?:/[\w.*-]+)+/?")
_MODULE_FILE: Final = re.compile(r"(?<![\w./-])\w+\.py\b")
_LINK: Final = re.compile(r'(?:\]\(|\bsrc(?:set)?=")([^)#:"]+)(?:#[^)]*)?[)"]')
_DOTTED: Final = re.compile(rf"(?<![\w./-])(?:weir|{CODE})(?:\.\w+)+")
_EXAMPLE: Final = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def paths_in(text: str) -> set[str]:
    return {path.rstrip(".") for path in _PATH.findall(text)}


def resolves(dotted: str) -> bool:
    """Whether a dotted name is a module of this package, or something in one."""
    module, thing = "weir", import_module("weir")
    if dotted.split(".")[0] != module:
        return False
    for part in dotted.split(".")[1:]:
        module += f".{part}"
        if hasattr(thing, part):
            thing = getattr(thing, part)
        elif hasattr(thing, "__path__") and find_spec(module) is not None:
            thing = import_module(module)
        else:
            return False
    return True


def imported_names(page: str) -> Iterator[str]:
    """By a page's Python examples, from this package: `weir.module.name`."""
    for example in _EXAMPLE.findall(PAGES[page].read_text()):
        for node in ast.walk(ast.parse(example)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "weir")
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "weir":
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    missing = {path for path in paths_in(PAGES[page].read_text()) if not list(ROOT.glob(path.rstrip("/")))}
    assert missing == set()


@pytest.mark.parametrize("page", PAGES)
def test_modules_that_are_named_alone_exist(page: str) -> None:
    files = [*ROOT.glob("*.py"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]
    there = {path.name for path in files}
    assert set(_MODULE_FILE.findall(PAGES[page].read_text())) - there == set()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    links = set(_LINK.findall(PAGES[page].read_text()))
    assert {link for link in links if not (PAGES[page].parent / link).exists()} == set()


@pytest.mark.parametrize("page", PAGES)
def test_dotted_names_exist(page: str) -> None:
    """Written as users import them: `weir.hosts.join`."""
    named = {name for name in _DOTTED.findall(PAGES[page].read_text()) if not (ROOT / name).exists()}
    assert {name for name in named if not resolves(name)} == set()


@pytest.mark.parametrize("page", PAGES)
def test_examples_import_what_is_there(page: str) -> None:
    assert {name for name in imported_names(page) if not resolves(name)} == set()
