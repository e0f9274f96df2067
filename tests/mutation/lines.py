"""Map from lines to the tests that run them: `lines_run` runs pytest with this module as a plugin that records them.

Only a test that runs a mutant's line can detect it, so only those tests are used. Lines run by a child process are not
recorded, and a mutant is not imported there either.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

import coverage
import pytest

from weir.tests.paths import ROOT

_ASKED: Final = "WEIR_LINES"
"""The environment's: the modules whose lines are wanted and the file to write to, as JSON."""
IMPORT: Final = ""
"""Marker in place of a test: no test runs, modules are imported."""


@dataclass(frozen=True, slots=True)
class LinesRun:
    """Lines run of some modules, by paths from the repository's root."""

    seconds: dict[str, float]
    """Duration of each test, in seconds."""
    tests: dict[str, dict[int, list[str]]]
    """Tests by module and line; `IMPORT` is among them if the line runs as the module is imported."""

    def tests_of(self, path: str, line: int) -> list[str]:
        """Those that run the statement at a line, the quickest first.

        Where it runs at import, they are those that run anything of the module, and of one without functions all.
        """
        by_line = self.tests.get(path, {})
        found = {test for each in _statement(path, line) for test in by_line.get(each, ())}
        if IMPORT in found:
            found = {test for tests in by_line.values() for test in tests} - {IMPORT} or {*self.seconds}
        return sorted(found, key=lambda test: (self.seconds[test], test))


def lines_run(modules: Sequence[str], tests: Sequence[str]) -> LinesRun:
    """Runs the tests, which must pass."""
    with tempfile.TemporaryDirectory(prefix="weir-lines-") as folder:
        file = Path(folder) / "lines"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", __name__, "-p", "no:cacheprovider", *tests],
            cwd=ROOT,
            env={**os.environ, _ASKED: json.dumps([[*modules], str(file)])},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout.decode()
        seconds, by_module = json.loads(file.read_text())
    return LinesRun(seconds, {path: {int(line): on for line, on in of.items()} for path, of in by_module.items()})


def merged(runs: Iterable[LinesRun]) -> LinesRun:
    """Merge the records of several runs of different tests."""
    seconds: dict[str, float] = {}
    tests: defaultdict[str, defaultdict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        seconds |= run.seconds
        for module, by_line in run.tests.items():
            for line, of in by_line.items():
                tests[module][line] += of
    return LinesRun(seconds, {module: dict(by_line) for module, by_line in tests.items()})


def _statement(path: str, line: int) -> range:
    """The lines of the innermost statement at a line; of one with a body those before it."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            assert last is not None
            if node.lineno <= line <= max(last, node.lineno):
                found = range(node.lineno, max(last, node.lineno) + 1)
    return found


class _Recorder:
    """Recorder of one run of pytest."""

    def __init__(self, modules: Sequence[str], file: Path) -> None:
        self._modules = modules
        self._file = file
        self._seconds: defaultdict[str, float] = defaultdict(float)
        include = [str(ROOT / module) for module in modules] or [str(ROOT / "no module")]  # of an empty one all are
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=include)
        self._coverage.start()
        for module in modules:  # before the first test, which is not to pass for the only one that sees its constants
            import_module(".".join(("weir", *Path(module).with_suffix("").parts)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context(IMPORT)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        tests = {module: data.contexts_by_lineno(str(ROOT / module)) for module in self._modules}
        self._file.write_text(json.dumps([self._seconds, tests]))


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before anything of Weir's is imported."""
    if _ASKED in os.environ:
        modules, file = json.loads(os.environ.pop(_ASKED))
        early_config.pluginmanager.register(_Recorder(modules, Path(file)))
