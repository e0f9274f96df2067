"""A folder of STF tests, each with its P4 program, in the layout of p4c's own: compiled by p4c and played.

p4c's output is kept with the emulator's native code (`machine_code.cache`), under the digest of the program's text, of
its quoted includes, and of p4c's version.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final

from ...machine_code import cache
from ..bmv2.reader import P4C_HOME
from ..program import Program, UnsupportedProgram
from .player import play
from .reader import read_test
from .statements import StfError

P4C: Final = "p4c-bm2-ss"
SAMPLES: Final = Path("testdata", "p4_16_samples")
"""Folder of the tests in p4c's source tree."""
_KEPT: Final = "p4.json"
_INCLUDE: Final = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


class Verdict(StrEnum):
    """Outcome of one test of a suite."""

    PASSED = "passed"
    FAILED = "failed"
    REFUSED = "refused"
    """The emulated switch does not run a construct of the program, and says which."""
    NOT_V1MODEL = "not v1model"
    NOT_COMPILED = "does not compile"


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """Outcome of one test, with the reason if it did not pass."""

    test: str
    verdict: Verdict
    detail: str
    """Reason for not passing: the first failure, the refused construct, or p4c's first error; empty if it passed."""


class FailedCompilation(StfError):
    """p4c's first words about a program that it does not compile."""


def tests_in(folder: Path) -> list[Path]:
    """Return all `*.stf` of a folder, or of `SAMPLES` in it, by name.

    Raises `StfError` for a folder without any, or a machine without p4c.
    """
    tests = sorted(folder.glob("*.stf")) or sorted((folder / SAMPLES).glob("*.stf"))
    if not tests:
        raise StfError(
            f"no *.stf in this folder, nor in {SAMPLES} in it, where p4c's source tree has them",
            place=str(folder),
            value=SAMPLES,
        )
    _need_p4c(folder)
    return tests


def load_program(path: Path) -> Program:
    """Return a program from BMv2 JSON, or from P4 source (`*.p4`) by p4c. Raises `StfError`, `UnsupportedProgram`."""
    try:
        if path.suffix != ".p4":
            return Program.load(path)
        path.read_bytes()
    except OSError as error:
        raise StfError(f"cannot be read as a program: {error.strerror}", place=str(path)) from None
    except UnsupportedProgram as error:
        raise UnsupportedProgram(f"{error}", place=str(path)) from None
    _need_p4c(path)
    return Program.load(compile_v1model(path))


def _need_p4c(source: Path) -> None:
    if shutil.which(P4C) is None:
        raise StfError(
            f"{P4C}, which would compile it, is not on PATH; install p4c: {P4C_HOME}", place=str(source), value=P4C
        )


def run_test(test: Path) -> SuiteResult:
    """Compile a test's program, and play the test on it."""
    verdict, detail = _run(test, test.with_suffix(".p4"))
    return SuiteResult(test.stem, verdict, detail)


def _run(test: Path, source: Path) -> tuple[Verdict, str]:
    if not source.exists():
        return Verdict.NOT_COMPILED, f"{source.name} is not there"
    models = {name for name in _included(source) if name.endswith(("model.p4", "psa.p4", "pna.p4"))}
    if "v1model.p4" not in models:
        return Verdict.NOT_V1MODEL, f"written for {', '.join(sorted(models)) or 'no known architecture'}"
    try:
        failures = play(Program.load(compile_v1model(source)), read_test(test)).failures
    except FailedCompilation as error:
        return Verdict.NOT_COMPILED, str(error)
    except UnsupportedProgram as error:
        return Verdict.REFUSED, str(error)
    except StfError as error:
        return Verdict.FAILED, str(error)
    return (Verdict.FAILED, failures[0]) if failures else (Verdict.PASSED, "")


def compile_v1model(source: Path) -> bytes:
    """Return the BMv2 JSON of a v1model program, from p4c or from the cache; it names the source as p4c saw it,
    without a folder.

    Raises `FailedCompilation`.
    """
    key = _key(source)
    kept = cache.fetch(key, _KEPT)
    if kept is not None:
        return kept
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "program.json"
        done = subprocess.run(
            [P4C, "--arch", "v1model", "-o", made, source.name],
            cwd=source.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise FailedCompilation(_first_error(done.stderr) or f"{P4C} ended with status {done.returncode}")
        json = made.read_bytes()
    cache.keep(key, json, _KEPT)
    return json


def _first_error(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower() or "bug" in line.lower()), lines[0] if lines else "")


def _key(source: Path) -> str:
    digest = hashlib.sha256(_version() + source.name.encode())
    for path in _texts(source):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _version() -> bytes:
    return subprocess.run([P4C, "--version"], capture_output=True, check=False).stdout


def _texts(source: Path) -> list[Path]:
    """A program and everything that it includes by a quoted name that is there."""
    texts = [source]
    for path in texts:
        for quoted, _ in _INCLUDE.findall(path.read_text(errors="replace")):
            other = path.parent / quoted
            if quoted and other.exists() and other not in texts:
                texts.append(other)
    return texts


def _included(source: Path) -> Iterator[str]:
    """File names of all headers of p4c's own that a program includes."""
    for path in _texts(source):
        for quoted, angled in _INCLUDE.findall(path.read_text(errors="replace")):
            yield (quoted or angled).rsplit("/", 1)[-1]
