"""Mutants change the code, and are detected by tests that check it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray")  # of the extra dev
pytest.importorskip("coverage")

from weir.tests.mutation import __main__ as tool
from weir.tests.mutation.__main__ import Run, Verdict, known_equivalent, run_of, tolerated, verdict_on
from weir.tests.mutation.lines import lines_run
from weir.tests.mutation.mutants import Mutant, mutant_of, places_of
from weir.tests.mutation.program import program_mutants
from weir.tests.mutation.targets import TARGETS
from weir.tests.paths import ROOT

FETCHING = "hosts/protocol/fetching.py"
MESSAGES = "hosts/protocol/messages.py"
CONSTANTS = "wire/int_shim.py"
NO_TEST = "tests/wire/test_package.py"


def killed(mutant: Mutant, test: str) -> bool:
    return verdict_on(mutant, (Run((test,), 300, 600),)) is Verdict.KILLED


def test_every_place_gives_a_mutant_that_differs_in_what_is_run() -> None:
    rng = random.Random(1)
    mutants = [mutant for place in places_of(FETCHING) if (mutant := mutant_of(place, rng)) is not None]
    source = (ROOT / FETCHING).read_text()
    assert len({mutant.content for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        assert mutant.content != source
        assert "import" not in mutant.before
        compile(mutant.content, mutant.path, "exec")
    texts = [str(mutant) for mutant in mutants]
    assert f"{FETCHING}:{source[: source.index('counters.answered +=')].count(chr(10)) + 1}: " in "".join(texts)


def test_tests_run_on_the_mutant_and_on_nothing_else() -> None:
    source = (ROOT / FETCHING).read_text()
    assert source.count("np.isin(asked.addresses, members)") == 1
    broken = source.replace("np.isin(asked.addresses, members)", "asked.addresses != 0")
    mutant = Mutant(FETCHING, 1, "before", "after", broken)
    stranger = "tests/hosts/protocol/test_host_cores.py::test_a_stranger_is_not_told_what_a_job_sums"
    assert killed(mutant, stranger)
    assert not killed(mutant, NO_TEST)
    assert not killed(Mutant(FETCHING, 1, "before", "after", source), stranger)


@pytest.mark.long
def test_a_mutant_that_computes_for_ever_is_noticed() -> None:
    """Within one operation, which lets no other thread run."""
    source = (ROOT / FETCHING).read_text()
    broken = source.replace("np.isin(asked.addresses, members)", "np.isin(asked.addresses, 3**10**9)")
    test = "tests/hosts/protocol/test_host_cores.py::test_a_stranger_is_not_told_what_a_job_sums"
    assert verdict_on(Mutant(FETCHING, 1, "before", "after", broken), (Run((test,), 2, 300),)) is Verdict.KILLED


@pytest.mark.long
def test_only_tests_that_run_a_line_are_used() -> None:
    """A line that one of two tests runs, one that both run, some that run at import, and one of another module."""
    cores = "tests/hosts/protocol/test_host_cores.py"
    stranger, other = (
        f"{cores}::{name}"
        for name in (
            "test_a_stranger_is_not_told_what_a_job_sums",
            "test_a_result_from_a_stranger_is_foreign",
        )
    )
    ran = lines_run([FETCHING, MESSAGES, CONSTANTS], [stranger, other])
    source = (ROOT / FETCHING).read_text().splitlines()
    number = {line.strip(): index for index, line in enumerate(source, 1)}
    told = next(at for line, at in number.items() if "np.isin(asked.addresses, members)" in line)
    assert ran.tests_of(FETCHING, told) == [stranger]
    first = next(at for line, at in number.items() if "if messages.lanes is not None" in line)
    assert {*ran.tests_of(FETCHING, first)} == {stranger, other}
    assert {*ran.tests_of(FETCHING, number["import numpy as np"])} == {stranger, other}
    for path, text in ((MESSAGES, "self._mask = "), (CONSTANTS, ": Final = ")):
        at_import = next(index for index, line in enumerate((ROOT / path).read_text().splitlines(), 1) if text in line)
        assert {*ran.tests_of(path, at_import)} == {stranger, other}
    assert ran.tests_of("hosts/protocol/stream.py", 30) == []
    assert {*ran.seconds} == {stranger, other}


@pytest.mark.long
def test_the_program_is_broken_in_its_tables() -> None:
    tables = {mutant.before.split()[0] for mutant in program_mutants(random.Random(1))}
    assert {"FabricIngress.aggregation.steps", "FabricIngress.aggregation.formats"} <= tables


@pytest.mark.long
def test_a_program_that_is_broken_in_a_table_is_noticed() -> None:
    mutants = program_mutants(random.Random(1))
    step = next(mutant for mutant in mutants if mutant.before.startswith("FabricIngress.aggregation.steps"))
    assert killed(step, "tests/p4src/test_aggregation_program.py")


def test_mutated_targets_exist() -> None:
    modules = [module for target in TARGETS for module in target.modules]
    assert len(set(modules)) == len(modules)
    for target in TARGETS:
        for path in (*target.modules, *target.tests):
            assert (ROOT / path).exists(), path
    for path, before, after in known_equivalent():
        assert path in modules
        assert before in " ".join(line.strip() for line in (ROOT / path).read_text().splitlines()), before
        assert before != after


@pytest.mark.long
@pytest.mark.parametrize("broken", ["hosts/protocol/fetching.py"])
def test_a_module_that_does_not_import_is_noticed(broken: str) -> None:
    assert killed(Mutant(broken, 1, "", "", "raise ImportError"), "tests/hosts/protocol/test_in_flight.py")


@pytest.mark.parametrize(("count", "lives"), [(1, 0), (20, 3), (100, 9), (200, 10), (400, 20)])
def test_few_mutants_are_judged_by_what_chance_may_draw(count: int, lives: int) -> None:
    """If 95 % are killed in the long run, P(more than 3 of 20 live) = 1.6 %, P(more than 9 of 100) = 2.8 %."""
    assert tolerated(count) == lives


ENDLESS = "def test_waits():\n    import time\n    while True:\n        time.sleep(1)\n"


@pytest.mark.long
@pytest.mark.parametrize(("each_s", "all_s", "verdict"), [(2, 300, Verdict.KILLED), (300, 8, Verdict.TIMED_OUT)])
def test_an_endless_test_kills_but_a_slow_sum_of_tests_does_not(
    tmp_path: Path, each_s: float, all_s: float, verdict: Verdict
) -> None:
    (tmp_path / "test_slow.py").write_text(ENDLESS)
    mutant = Mutant(FETCHING, 1, "before", "after", (ROOT / FETCHING).read_text())
    assert verdict_on(mutant, (Run((str(tmp_path / "test_slow.py"),), each_s, all_s),)) is verdict


def test_patience_grows_with_what_the_tests_took() -> None:
    """However long they are together, one that has no end is given up before all of them are."""
    seconds = {"quick": 1.0, "slow": 100.0, "slower": 200.0}
    run = run_of(tuple(seconds), seconds)
    assert run.each_s >= 5 * 200
    assert run.all_s >= 5 * sum(seconds.values()) + run.each_s
    assert run_of(("quick",), seconds).all_s < run.each_s


@pytest.mark.long
def test_files_that_are_none_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tool.main(["--only", "no_such_file"])
    assert "--only no_such_file: no file that is broken has this in its path" in capsys.readouterr().err


def test_timed_out_mutants_are_separate_and_not_killed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutants = [(Mutant(FETCHING, line, "before", "after", ""), None) for line in range(20)]
    verdicts = [Verdict.KILLED] * 15 + [Verdict.TIMED_OUT] * 4 + [Verdict.LIVES]
    monkeypatch.setattr(tool, "drawn", lambda *told: mutants)
    monkeypatch.setattr(tool, "asked", lambda *told: [])
    monkeypatch.setattr(tool, "results", lambda *told: zip([mutant for mutant, _ in mutants], verdicts, strict=True))
    assert tool.main(["--seed", "1"]) == 1
    told = capsys.readouterr().out
    assert told.count(": timed out: ") == 4
    assert told.endswith("15 of 20 killed, 75.0%; 4 timed out\n")


@pytest.mark.long(minutes=30)
@pytest.mark.timeout(3 * 3600)
def test_nearly_all_that_is_broken_is_noticed() -> None:
    """Other places each time, whose seed and survivors are printed."""
    assert tool.main(["--count", os.environ.get("WEIR_MUTANTS", "40")]) == 0
