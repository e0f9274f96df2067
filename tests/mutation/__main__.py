"""Break so many places, and say which of them no test has noticed."""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Final

from weir.tests.mutation.lines import LinesRun, lines_run
from weir.tests.mutation.mutants import Mutant, mutant_of, places_of
from weir.tests.mutation.plugin import VARIABLE
from weir.tests.mutation.program import program_mutants
from weir.tests.mutation.targets import PROGRAM_TESTS, TARGETS, Target
from weir.tests.paths import ROOT

LEAST_SHARE: Final = 0.95
"""Of the mutants, to be killed."""
JUDGED: Final = 200
"""From so many mutants on, the share itself is asked for; of fewer, what such tests would reach in 19 of 20 draws."""
EQUIVALENT: Final = Path(__file__).with_name("equivalent.txt")
_PATIENCE_S: Final = 600.0
"""What runs for so long runs for ever, which is a failure, too."""
_SLOWER: Final = 8
"""A test that takes so many times as long as it did, and half a minute more, runs for ever."""
_FAILED: Final = (1, 2, 3)
"""pytest's: a test failed, the run was interrupted, pytest itself failed (a module that cannot be imported)."""

Runs = tuple[tuple[str, ...], ...]


def drawn(count: int, seed: int, only: str) -> list[tuple[Mutant, Target | None]]:
    """So many mutants, each with whose it is; a tenth of them are the program's, which are nobody's."""
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


def asked(mutants: list[tuple[Mutant, Target | None]], jobs: int) -> list[tuple[Mutant, Runs, float]]:
    """Each mutant with the tests that are to notice it, and how many seconds the slowest of them may take."""
    targets = [target for target in TARGETS if any(target is whose for _, whose in mutants)]
    with ThreadPoolExecutor(jobs) as pool:
        ran = dict(zip(targets, pool.map(lambda target: lines_run(target.modules, target.tests), targets), strict=True))
    return [
        (mutant, PROGRAM_TESTS, _PATIENCE_S) if target is None else (mutant, *_that_run(mutant, ran[target]))
        for mutant, target in mutants
    ]


def _that_run(mutant: Mutant, ran: LinesRun) -> tuple[Runs, float]:
    tests = ran.tests_of(mutant.path, mutant.line)
    return ((tuple(tests),), 30 + _SLOWER * ran.seconds[tests[-1]]) if tests else ((), 0)


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


def killed(mutant: Mutant, runs: Runs, patience_s: float = 300) -> bool:
    """Whether some test fails, or takes longer than `patience_s`."""
    with tempfile.TemporaryDirectory(prefix="weir-mutant-") as folder:
        file = Path(folder) / "mutant"
        file.write_text(f"{mutant.path}\n{mutant.content}")
        for tests in runs:
            words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "weir.tests.mutation.plugin"]
            words += ["-p", "no:cacheprovider", "--timeout", f"{patience_s:.0f}", *tests]
            try:
                done = subprocess.run(
                    words,
                    cwd=ROOT,
                    env={**os.environ, VARIABLE: str(file), "PYTHONDONTWRITEBYTECODE": "1"},
                    capture_output=True,
                    timeout=_PATIENCE_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return True
            if done.returncode in _FAILED:
                return True
            assert done.returncode == 0, done.stdout.decode()
    return False


def results(mutants: list[tuple[Mutant, Runs, float]], jobs: int) -> Iterator[tuple[Mutant, bool]]:
    with ThreadPoolExecutor(jobs) as pool:
        verdicts = pool.map(lambda each: killed(*each), mutants)
        for (mutant, *_), verdict in zip(mutants, verdicts, strict=True):
            yield mutant, verdict


def tolerated(count: int) -> int:
    """How many of so many may live."""
    beyond = 1 - LEAST_SHARE
    if count >= JUDGED:
        return int(beyond * count + 1e-9)
    chances = (math.comb(count, lives) * beyond**lives * LEAST_SHARE ** (count - lives) for lives in range(count + 1))
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
    print(f"{len(mutants)} mutants of seed {seed}; first, which tests run which lines", flush=True)  # noqa: T201
    lived = []
    for number, (mutant, dead) in enumerate(results(asked(mutants, options.jobs), options.jobs), 1):
        if not dead:
            lived.append(mutant)
            print(f"{number}: lives: {mutant}", flush=True)  # noqa: T201
    share = 1 - len(lived) / max(len(mutants), 1)
    print(f"{len(mutants) - len(lived)} of {len(mutants)} killed, {share:.1%}")  # noqa: T201
    return int(len(lived) > tolerated(len(mutants)))


if __name__ == "__main__":
    sys.exit(main())
