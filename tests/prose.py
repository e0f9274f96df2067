"""Check that docstrings name a thing or give an order: `python -m weir.tests.prose`, a part of `make lint`.

A docstring that opens with a question word or a preposition ("What is sent", "Of each worker, its parent") has no noun
to hold on to. Files that still have such docstrings are listed in prose_todo.txt. The list may only shrink: a file that
is not listed must have none, and a file without any must leave the list (`--shrink` removes it).
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from weir.tests.paths import ROOT

TODO: Final = Path(__file__).with_name("prose_todo.txt")
OPENING: Final = re.compile(
    r"(What|Who|Whose|Whom|Whoever|Whatever|Where|Which|Whether|How|Why"
    r"|Of|By|As|From|In|At|To|For|With|Without|On|Beside)\b"
)
"""First words that a docstring must not have. "If" and "When" are conditions, which tests may state."""


def openings(source: str) -> Iterator[tuple[int, str]]:
    """Find docstrings with a forbidden first word, those of attributes included.

    Args:
        source: Text of a Python module.

    Yields:
        Line number and first line of each such docstring.
    """
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))) if OPENING.match(text.strip()):
                    yield statement.lineno, text.strip().splitlines()[0]


def modules(root: Path) -> list[Path]:
    """Python files that git tracks or would add, without generated ones."""
    words = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return [root / name for name in sorted(set(names)) if not name.endswith("_pb2.py") and (root / name).is_file()]


def check(root: Path, todo: Path, shrink: bool = False) -> list[str]:
    """Compare the files under `root` with the list.

    Args:
        root: A git checkout.
        todo: The list: a path relative to `root` per line.
        shrink: Remove files without such docstrings from the list.

    Returns:
        Problems, a line each: docstrings in files that are not listed, and listed files that need no listing.
    """
    listed = set(todo.read_text().split())
    found = {path.relative_to(root).as_posix(): list(openings(path.read_text())) for path in modules(root)}
    open_files = {name for name, lines in found.items() if lines}
    if shrink:
        todo.write_text("".join(f"{name}\n" for name in sorted(listed & open_files)))
        listed &= open_files
    problems = [
        f'{name}:{line}: "{text}" opens with "{text.split()[0]}"; open with a noun phrase or an imperative verb'
        for name in sorted(open_files - listed)
        for line, text in found[name]
    ]
    return problems + [f"{todo.name}: {name} needs no listing; remove it" for name in sorted(listed - open_files)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the problems of this checkout; the exit status is 1 if there are some."""
    parser = argparse.ArgumentParser(prog="python -m weir.tests.prose", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shrink", action="store_true", help="remove files from the list that need no listing")
    problems = check(ROOT, TODO, parser.parse_args(arguments).shrink)
    sys.stdout.write("".join(f"{problem}\n" for problem in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
