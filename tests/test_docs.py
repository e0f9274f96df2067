"""References of the guides exist: files, folders, modules, and the names that their examples import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Final

import pytest

from weir.p4src.compile import products
from weir.p4src.fit import CHIPS
from weir.tests.paths import ROOT
from weir.tests.schedules.mutants import MUTANTS
from weir.tests.schedules.test_boundaries import BOUNDS, ROOTS
from weir.tests.schedules.test_liars import LIES
from weir.tests.schedules.test_schedules import LONG, MAX_FOR_MUTANTS, MORE, QUICK, QUICK_MUTANTS

PAGES: Final = {str(path.relative_to(ROOT)): path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))}
FOLDERS: Final = ["docs", *sorted({path.parent.name for path in ROOT.glob("[a-z]*/*.py")})]
CODE: Final = "|".join(FOLDERS)
READERS: Final = {"my_loop.py", "my_mode.py", "my_operation.py", "my_paper.py", "test_mine.py"}
"""Files that the guides have a reader write."""

_PATH: Final = re.compile(rf"(?<![\w./-])(?:{CODE})(?:/[\w.*-]+)+/?")
_MODULE_FILE: Final = re.compile(r"(?<![\w./-])\w+\.py\b")
_LINK: Final = re.compile(r'(?:\]\(|\bsrc(?:set)?=")([^)#:"]+)(?:#[^)]*)?[)"]')
_ANCHOR: Final = re.compile(r"\]\(([^)#:]*)#([^)]+)\)")
_DOTTED: Final = re.compile(rf"(?<![\w./-])(?:weir|{CODE})(?:\.\w+)+")
_EXAMPLE: Final = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def paths_in(text: str) -> set[str]:
    return {path.rstrip(".") for path in _PATH.findall(text)}


def resolves(dotted: str) -> bool:
    """Return True for a module of this package, a name in one, or, without PyTorch, a name that needs it."""
    try:
        return is_there(dotted)
    except ImportError as error:
        missing = error.__cause__ or error
        if isinstance(missing, ModuleNotFoundError) and missing.name == "torch":
            return True
        raise


def is_there(dotted: str) -> bool:
    """Return True for a module of this package, or a name in one."""
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
    """Names imported by a page's Python examples from this package: `weir.module.name`."""
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
    assert set(_MODULE_FILE.findall(PAGES[page].read_text())) - there - READERS == set()


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", PAGES[page].read_text(), flags=re.MULTILINE | re.DOTALL)
    links = set(_LINK.findall(text))
    assert {link for link in links if not (PAGES[page].parent / link).exists()} == set()


@pytest.mark.parametrize("page", PAGES)
def test_links_into_pages_lead_to_a_heading(page: str) -> None:
    for link, anchor in _ANCHOR.findall(PAGES[page].read_text()):
        there = (PAGES[page].parent / link).resolve() if link else PAGES[page]
        assert anchor in anchors(there.read_text()), f"{link}#{anchor}"


def anchors(text: str) -> set[str]:
    """Anchors of headings, as on GitHub: small letters and hyphens only."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_every_guide_is_in_the_readmes_table() -> None:
    listed = set(re.findall(r"^\| (\[.*?) \|", PAGES["README.md"].read_text(), re.MULTILINE))
    linked = {link for cell in listed for link in _LINK.findall(cell)}
    assert {page for page in PAGES if page.startswith("docs/")} - linked == set()


@pytest.mark.parametrize("page", PAGES)
def test_dotted_names_exist(page: str) -> None:
    """Written as users import them: `weir.hosts.join`."""
    named = {name for name in _DOTTED.findall(PAGES[page].read_text()) if not (ROOT / name).exists()}
    named = {name for name in named if not (ROOT / "docs" / name).exists()}  # links to pages that are named as packages
    assert {name for name in named if not resolves(name)} == set()


@pytest.mark.parametrize("page", PAGES)
def test_examples_import_what_is_there(page: str) -> None:
    assert {name for name in imported_names(page) if not resolves(name)} == set()


@pytest.mark.parametrize("page", PAGES)
def test_tests_that_are_named_exist(page: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGES[page].read_text()))
    assert {name for name in named if f"def {name}(" not in all_tests()} == set()


@cache
def all_tests() -> str:
    return "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))


def test_as_much_is_verified_as_is_told() -> None:
    """Numbers of random schedules, mutants, bounds and lies in the text equal those in the code."""
    page = " ".join(PAGES["docs/verification.md"].read_text().split())
    in_switches = sum(bool(mutant.rows or mutant.rewrite) for mutant in MUTANTS)
    told = [
        f"# {QUICK} random schedules, ",
        f"`make test`: seeds 0 to {QUICK - 1}, and {len(QUICK_MUTANTS)} mutants (seeds 0 to {MAX_FOR_MUTANTS - 1}, ",
        f"`make test-long`: seeds {QUICK} to {MORE - 1}, the other mutants, ",
        f"and {LONG:,} schedules from seed 1,000,000 ",
        f"**Mutants.** {len(MUTANTS)} rules are broken, {in_switches} of them in the compiled switch",
        f"| {len(BOUNDS)} bounds × {len(ROOTS)} trees ",
        f"| {len(LIES)} lies ",
    ]
    assert [each for each in told if each not in page] == []
    assert (
        f"(`make test-long` plays {LONG:,}, or as many as `WEIR_SCHEDULES` says)"
        in PAGES["CONTRIBUTING.md"].read_text()
    )


def test_the_searched_states_add_up() -> None:
    page = PAGES["docs/verification.md"].read_text()
    table, together = re.findall(r"((?:^\|.*\n)+)\nTogether ([\d,]+) states", page, re.MULTILINE)[0]
    states = [row.split("|")[2].strip().replace(",", "") for row in table.splitlines()[2:]]
    assert len(states) > 40
    assert sum(map(int, states)) == int(together.replace(",", ""))


def test_recipes_count_the_files_that_they_name() -> None:
    """First columns of their tables: `folder/` (6) stands for six files of it, without a number for one."""
    recipes = PAGES["CONTRIBUTING.md"].read_text().split("\n### ")[1:]
    counted = {}
    for recipe in recipes:
        cells = re.findall(r"^\| (.*?) \| ", recipe.split("\n## ")[0], re.MULTILINE)
        files = [int(count or 1) for cell in cells for count in re.findall(r"`[^`]+`\*?(?: \((\d+)\))?", cell)]
        compiled = re.findall(r"`p4src/build/` \((\d+)\)", recipe)
        assert [int(count) for count in compiled] in ([], [len(products()) + 1 + len(CHIPS)]), "with digest and reports"
        of_them = f", {compiled[0]} of them compiled" if compiled else ""
        counted[recipe.partition(":")[0]] = f"{sum(files)} files{of_them}"
    assert {recipe.partition(":")[0]: recipe.partition("\n")[0].partition(": ")[2] for recipe in recipes} == counted


def test_each_attack_of_the_threat_model_has_a_test() -> None:
    """The rows of section 2 name it in their last cell."""
    section = (ROOT / "docs" / "threat-model.md").read_text().partition("\n## 2. ")[2].partition("\n## 3. ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [row.strip("| ").rpartition(" | ")[2] for row in rows]
    attacks = [cell for cell in cells if cell != "test"]
    assert len(attacks) >= 38
    assert len(rows) - len(attacks) == 2, "both tables have the column"
    assert [cell for cell in attacks if not re.search(r"`(tests/[\w/]+/)?test_\w+(\.py)?`", cell)] == []
