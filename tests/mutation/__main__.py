"""Command line: break a number of places, and list those that no test has detected."""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate
from pathlib import Path
from typing import Final

from weir.tests.mutation.lines import LinesRun, lines_run, merged
from weir.tests.mutation.mutants import Mutant, mutant_of, places_of
from weir.tests.mutation.plugin import VARIABLE
from weir.tests.mutation.program import program_mutants
from weir.tests.mutation.targets import PROGRAM_TESTS, TARGETS, Target
from weir.tests.paths import ROOT

MIN_SHARE: Final = 0.95
"""Share of mutants to be killed."""
JUDGED: Final = 200
"""Number of mutants from which the share itself is required; for fewer, the share that such tests would reach in 19 of
20 draws.
"""
EQUIVALENT: Final = Path(__file__).with_name("equivalent.txt")
_TOLD: Final = 10
"""Interval of mutants after which progress is printed."""
_SLOWER: Final = 8
"""Factor on the slowest test's time, plus half a minute, after which a test counts as endless, which is a failure."""
_FAILED: Final = (1, 2, 3)
"""pytest's: a test failed, the run was interrupted, pytest itself failed (a module that cannot be imported)."""
_NOT_FOUND: Final = 4
"""pytest's, where a test is not found; for a mutant, where its module could not be collected."""


class Verdict(Enum):
    """Verdict of the tests on a mutant."""

    KILLED = "killed"
    LIVES = "lives"
    TIMED_OUT = "timed out"
    """No test failed, nor exceeded its limit, but together they took too long: the outcome is unknown."""


@dataclass(frozen=True, slots=True)
class Run:
    """Tests in the order of their use, until one fails."""

    tests: tuple[str, ...]
    each_s: float
    """Patience with one of them."""
    all_s: float
    """Patience with all, which is longer than with any one behind the others."""


def run_of(tests: Sequence[str], seconds: Mapping[str, float]) -> Run:
    """Make a run whose time limits grow with each test's time on unbroken code."""
    took = [seconds[test] for test in tests]
    each = 30 + _SLOWER * max(took)
    return Run(tuple(tests), each, 60 + _SLOWER * sum(took) + each)


def drawn(count: int, seed: int, only: str) -> list[tuple[Mutant, Target | None]]:
    """Draw mutants, each with its target; a tenth of them are the program's, without a target."""
    rng = random.Random(seed)
    known = known_equivalent()
    places = [
        (place, target)
        for target in TARGETS
        for module in target.modules
        if only in module
        for place in places_of(module)
    ]
    of_program = [mutant for mutant in program_mutants(rng) if only in mutant.path]
    share = 0 if not of_program else count if not places else max(count // 10, 1)
    chosen: list[tuple[Mutant, Target | None]] = [(mutant, None) for mutant in of_program[:share]]
    for place, target in rng.sample(places, len(places)):
        if len(chosen) == count:
            break
        mutant = mutant_of(place, rng)
        if mutant is not None and (mutant.path, mutant.before, mutant.after) not in known:
            chosen.append((mutant, target))
    return chosen


def asked(mutants: list[tuple[Mutant, Target | None]], jobs: int) -> list[tuple[Mutant, tuple[Run, ...]]]:
    """Pair each mutant with the tests that are to detect it. Each file or folder of tests runs once for all of its
    mutants.
    """
    targets = [target for target in TARGETS if any(target is whose for _, whose in mutants)]
    wanted: dict[str, list[str]] = {tests: [] for target in targets for tests in target.tests}
    for target in targets:
        for tests in target.tests:
            wanted[tests] += target.modules
    files = PROGRAM_TESTS if any(whose is None for _, whose in mutants) else ()
    wanted |= {file: [] for group in files for file in group}
    ran: dict[str, LinesRun] = {}
    with ThreadPoolExecutor(jobs) as pool:
        runs = {pool.submit(lines_run, modules, [tests]): tests for tests, modules in wanted.items()}
        try:
            for run in as_completed(runs):
                ran[runs[run]] = each = run.result()
                _say(f"{len(ran)} of {len(runs)}: {runs[run]}: {len(each.seconds)} tests")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    of = {target: merged(ran[tests] for tests in target.tests) for target in targets}
    seconds = [merged(ran[file] for file in group).seconds for group in files]
    of_program = tuple(replace(run_of((*each,), each), tests=group) for each, group in zip(seconds, files, strict=True))
    return [(mutant, of_program if target is None else _that_run(mutant, of[target])) for mutant, target in mutants]


def _that_run(mutant: Mutant, ran: LinesRun) -> tuple[Run, ...]:
    tests = ran.tests_of(mutant.path, mutant.line)
    return (run_of(tests, ran.seconds),) if tests else ()


def known_equivalent() -> dict[tuple[str, str, str], str]:
    """Path, lines before and after, and the reason why nothing can notice."""
    blocks = EQUIVALENT.read_text().strip().split("\n\n")
    known = {}
    for block in blocks:
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        if lines:
            path, before, after, *reason = lines
            assert reason, f"{EQUIVALENT.name}: {path}: {after} has no reason"
            known[path, before, after] = " ".join(reason)
    return known


def verdict_on(mutant: Mutant, runs: Sequence[Run]) -> Verdict:
    """Killed where some test fails, or takes longer than a test may."""
    with tempfile.TemporaryDirectory(prefix="weir-mutant-") as folder:
        file = Path(folder) / "mutant"
        file.write_text(f"{mutant.path}\n{mutant.content}")
        for run in runs:
            words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "weir.tests.mutation.plugin"]
            # a test that hangs ends its process, since the cleanup of its remains may hang as well
            words += ["-p", "no:cacheprovider", "--timeout", f"{run.each_s:.0f}", "--timeout-method", "thread"]
            words += run.tests
            try:
                done = subprocess.run(
                    words,
                    cwd=ROOT,
                    env={**os.environ, VARIABLE: str(file), "PYTHONDONTWRITEBYTECODE": "1"},
                    capture_output=True,
                    timeout=run.all_s,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return Verdict.TIMED_OUT
            if done.returncode in _FAILED or (
                done.returncode == _NOT_FOUND and b"ERROR collecting" in done.stdout + done.stderr
            ):
                return Verdict.KILLED
            assert done.returncode == 0, done.stdout.decode()
    return Verdict.LIVES


def results(mutants: list[tuple[Mutant, tuple[Run, ...]]], jobs: int) -> Iterator[tuple[Mutant, Verdict]]:
    with ThreadPoolExecutor(jobs) as pool:
        verdicts = pool.map(lambda each: verdict_on(*each), mutants)
        for (mutant, _), verdict in zip(mutants, verdicts, strict=True):
            yield mutant, verdict


def tolerated(count: int) -> int:
    """Number of mutants among `count` that may survive."""
    beyond = 1 - MIN_SHARE
    if count >= JUDGED:
        return int(beyond * count + 1e-9)
    chances = (math.comb(count, lives) * beyond**lives * MIN_SHARE ** (count - lives) for lives in range(count + 1))
    return next(lives for lives, chance in enumerate(accumulate(chances)) if chance >= 0.95)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="weir.tests.mutation", description="Break the code; do the tests notice?")
    parser.add_argument("--count", type=int, default=200, help="how many mutants; %(default)s")
    parser.add_argument("--seed", type=int, default=None, help="by which they are drawn; another one each time")
    parser.add_argument("--only", default="", metavar="TEXT", help="of files with this in their path")
    parser.add_argument("--jobs", type=int, default=1, help="runs of tests at once; %(default)s")
    options = parser.parse_args(words)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    mutants = drawn(options.count, seed, options.only)
    if not mutants:
        parser.error(f"--only {options.only}: no file that is broken has this in its path (tests/mutation/targets.py)")
    _say(f"{len(mutants)} mutants of seed {seed}; first, which tests run which lines")
    counts: Counter[Verdict] = Counter()
    for number, (mutant, verdict) in enumerate(results(asked(mutants, options.jobs), options.jobs), 1):
        counts[verdict] += 1
        if verdict is not Verdict.KILLED:
            _say(f"{number}: {verdict.value}: {mutant}")
        elif number % _TOLD == 0:
            _say(f"{number}: {counts[Verdict.KILLED]} killed so far")
    killed, count = counts[Verdict.KILLED], len(mutants)
    unknown = f"; {counts[Verdict.TIMED_OUT]} timed out" if counts[Verdict.TIMED_OUT] else ""
    _say(f"{killed} of {count} killed, {killed / max(count, 1):.1%}{unknown}")
    return int(count - killed > tolerated(count))


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
