"""The page of an evaluation: its claims about its figures, and that the page in docs/ follows from its data."""

from __future__ import annotations

import csv
import gzip
import re
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from weir.controller.placement.reference_schemes import REFERENCE_SCHEMES
from weir.controller.placement.strategies import STRATEGIES
from weir.experiments.errors import ExperimentError
from weir.experiments.evaluation import page
from weir.experiments.evaluation.comparison import AIMED_AT, GridCondition, Row, conditions_of
from weir.experiments.evaluation.records import PointRecord, StrategyFigures
from weir.experiments.evaluation.statistics import Interval
from weir.experiments.evaluation.suite import Suite
from weir.tests.paths import ROOT

PAGES = {"evaluation": "evaluation", "strong-baselines": "strong_baselines"}
"""Pages in docs/ and their suites in experiments/."""
CANARY = ("rack", "atp", "hierarchy", "grid", "canary")


def interval(value: float) -> Interval:
    return Interval(value, value - 0.05, value + 0.05)


def condition(workers: int, saved: float, published: tuple[str, ...], **changed: Any) -> GridCondition:
    told = {"grid": "one", "fabric": "leaf-spine 4×2×6", "workers": workers, "load": 0.4, "background": "static"}
    usual = {
        "spread": "random",
        "rates": "equal",
        "memory": "ample",
        "telemetry": "fresh",
        "jobs": 1,
        "importance": "equal",
    }
    own = Row("widest", interval(2.0), interval(3.0), 0.5, 1.0, 0.0, 0, "", None, None, None, ())
    fields: dict[str, Any] = {
        "told": {**told, **usual},
        "reference": "widest",
        "seeds": 20,
        "background": 0.4,
        "rows": (own,),
        "against_best_spine": None,
        "against_others": interval(0.5),
        "published": published,
        "against_published": (published[0], interval(saved)),
        "against_blind": interval(0.2),
        "depth": interval(0.8),
        "looks": None,
        "telemetry": None,
        "against_blind_together": None,
        "agg": None,
    }
    return GridCondition(**{**fields, **changed})


def test_conditions_without_all_published_strategies_are_apart() -> None:
    told = page._verdict(
        [
            condition(1, 0.30, CANARY),
            condition(2, 0.29, CANARY[:4]),
            condition(3, 0.90, ("rack", "hierarchy", "canary")),
            condition(4, 0.80, ("rack", "hierarchy")),
            condition(5, 0.10, ("rack", "atp", "hierarchy")),
        ]
    )
    said = " ".join(told.split())
    assert "rack-only, two-level ATP, fixed hierarchy and GRID-like): it does in 1 of 2 conditions in which" in said
    assert "In 3 more some of them did not run" in said
    assert "the best one that ran it saves 30 % or more in 2 of 3." in said
    assert [line for line in told[told.index("Without") :].splitlines() if line] == [
        "Without two-level ATP, GRID-like:",
        "- 3 workers, load 0.4 static.",
        "- 4 workers, load 0.4 static.",
        "Without GRID-like:",
        "- 5 workers, load 0.4 static.",
        "Below 30 %:",
        "- 2 workers, load 0.4 static.",
        "- 5 workers, load 0.4 static.",
    ]
    assert "did not run" not in page._verdict([condition(1, 0.30, CANARY)])


def test_p95_and_depth_have_intervals_and_several_jobs_a_dagger() -> None:
    one, eight = condition(1, 0.3, CANARY), condition(2, 0.3, CANARY)
    eight.told["jobs"] = 8
    summary = page._summary_table([one, eight]).splitlines()
    assert summary[2].endswith("| 20 % (15 to 25) | 80 % (75 to 85) | 50 % (45 to 55) |")
    assert summary[3].endswith("| 20 % (15 to 25) † | 80 % (75 to 85) † | 50 % (45 to 55) |")
    assert page._summary_table([condition(1, 0.3, CANARY, depth=None)]).endswith(
        "| 20 % (15 to 25) | 50 % (45 to 55) |"
    )
    assert page._table(one).splitlines()[2].startswith("| widest | 2 ± 0.05 | 3 ± 0.05 |")


def test_shares_that_round_to_zero_have_no_sign() -> None:
    assert page._share(Interval(-0.004, -0.012, -0.001)) == "0 % (-1 to 0)"


def test_a_strategy_that_did_not_run_has_its_reason() -> None:
    suite = Suite.load(ROOT / "experiments" / "evaluation.yaml")
    point = next(iter(suite.points())).model_copy(update={"strategies": ("ps", "widest")})
    failed = StrategyFigures.of_failure("ps", 0.3, ExperimentError("no room"))
    ran = StrategyFigures(
        strategy="widest", mean_s=1.0, p95_s=1.0, max_link_load=0.5, decision_ms=1.0, moves=0, background=0.3
    )
    records = [PointRecord(point=point, figures=(failed, ran))]
    first, second = page.printed(suite, records, as_json=False).splitlines()[1:3]
    assert first.split()[0] == "ps"
    assert first.endswith("did not run at 1 of 1 seeds: no room")
    assert second.split()[:2] == ["widest", "1,000"]


@pytest.mark.parametrize("aims", [True, False])
def test_a_page_shows_savings_of_the_suites_reference(aims: bool, tmp_path: Path) -> None:
    whole = Suite.load(ROOT / "experiments" / "evaluation.yaml")
    grid = whole.grids[0]
    suite = whole.model_copy(update={"reference": "ps", "aims": aims, "grids": [grid], "findings": ""})
    point = next(iter(suite.points())).model_copy(update={"strategies": ("ps", "widest")})
    figures = [
        StrategyFigures(
            strategy=name, mean_s=mean_s, p95_s=1.0, max_link_load=0.5, decision_ms=1.0, moves=0, background=0.3
        )
        for name, mean_s in (("ps", 3.0), ("widest", 2.0))
    ]
    record = PointRecord(point=point, figures=tuple(figures))
    page.written(suite, [record], tmp_path / "suite.yaml", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| saved by ps |" in text
    assert "| ps, ms |" in text
    (row,) = re.findall(r"^\| widest \|.*$", text, re.MULTILINE)
    assert "-50 %" in row.replace("−", "-")
    assert ("Aims" in text) == aims
    plot = (tmp_path / "page" / f"{grid.name.replace(' ', '-')}.svg").read_text()
    assert "PathCollection" in plot, "dots: a bar's length means nothing on a logarithmic axis"


def test_a_reference_outside_the_suite_is_refused(tmp_path: Path) -> None:
    written = (ROOT / "experiments" / "strong_baselines.yaml").read_text()
    (tmp_path / "suite.yaml").write_text(f"reference: random\n{written}")
    with pytest.raises(ExperimentError, match='reference "random"'):
        Suite.load(tmp_path / "suite.yaml")


def test_tables_name_strategies_as_options_do() -> None:
    known = {*STRATEGIES, *REFERENCE_SCHEMES}
    tables = re.findall(
        r"^\| (strategy|conditions) \|.*?\n((?:\|.*\n)+)", (ROOT / "docs" / "evaluation.md").read_text(), re.M
    )
    assert len(tables) > 50
    for kind, rows in tables:
        for row in rows.splitlines()[1:]:
            if kind == "strategy":
                assert row.split("|")[1].partition("(")[0].strip() in known
            assert {name for name in re.findall(r"\(([a-zA-Z -]+)\)", row) if name != "most"} <= known


@cache
def published(name: str) -> tuple[Suite, list[GridCondition]]:
    """Conditions computed from a page's data, with their four digits."""
    suite = Suite.load(ROOT / "experiments" / f"{PAGES[name]}.yaml")
    data = (ROOT / "docs" / name / page.DATA).read_bytes()
    told = list(csv.DictReader(gzip.decompress(data).decode().splitlines()))
    rows = {(*(row.get(key, "equal") for key in _CONDITIONS), row["seed"], row["strategy"]): row for row in told}
    records = []
    for point in suite.points():
        mine = [str(point.conditions[key]) for key in _CONDITIONS]
        figures = tuple(figures_of(rows.pop((*mine, str(point.seed), name))) for name in point.strategies)
        records.append(PointRecord(point=point, figures=figures))
    assert not rows
    return suite, list(conditions_of(records))


_CONDITIONS = (
    "grid",
    "fabric",
    "workers",
    "spread",
    "rates",
    "load",
    "background",
    "jobs",
    "memory",
    "telemetry",
    "importance",
)


def figures_of(row: dict[str, str]) -> StrategyFigures:
    def number(key: str, factor: float = 1.0) -> float | None:
        return float(row[key]) * factor if row[key] else None

    return StrategyFigures(
        strategy=row["strategy"],
        mean_s=number("mean_ms", 1e-3),
        p95_s=number("p95_ms", 1e-3),
        max_link_load=number("max_link_load"),
        decision_ms=number("decision_ms"),
        moves=int(row["moves"]),
        background=float(row["background_load"]),
        failed=row["failed"],
    )


@pytest.mark.parametrize("name", PAGES)
def test_the_page_in_docs_is_what_its_data_come_to(name: str) -> None:
    """Aims and summary, figure by figure, and the words around them."""
    suite, conditions = published(name)
    text = (ROOT / "docs" / f"{name}.md").read_text()
    assert page._READING in text
    assert suite.findings in text
    assert page._verdict(page._loaded(conditions)) in text
    more = ["\n".join(told) for of in (page._several_jobs, page._agg) if (told := of(conditions))]
    tables = [page._summary_table(conditions), *more]
    shown = re.findall(r"^\| conditions \|.*?(?=\n\n)", text, re.M | re.S)
    for there, table in zip(shown, tables, strict=True):
        words, figures = split(table[table.index("| conditions |") :].strip())
        assert split(there)[0] == words
        assert split(there)[1] == pytest.approx(figures, rel=0.011, abs=1.01)  # the data have four digits


def split(table: str) -> tuple[list[str], list[float]]:
    """Its words, without who of equal ones is called the best published, and its figures."""
    table = re.sub(r" \([a-z -]+\) \|", " |", table)
    number = r"-?\d[\d.]*(?:e\+\d+)?"
    return re.split(number, table), [float(each) for each in re.findall(number, table)]


def test_readme_has_the_figures_of_the_data() -> None:
    _, conditions = published("evaluation")
    loaded = page._loaded(conditions)
    compared = [(one, one.against_published[1].value) for one in loaded if one.against_published is not None]
    all_ran = [saved for one, saved in compared if not set(AIMED_AT) - set(one.published)]
    text = (ROOT / "README.md").read_text()
    _, strong = published("strong-baselines")
    spines = [one.against_best_spine.value for one in strong if one.against_best_spine is not None]
    assert {one.seeds for one in loaded} == {20}
    assert f"under {len(strong)} and under {len(loaded)} loaded conditions of 20 seeds," in " ".join(text.split())
    rows = [re.findall(r"-?\d+", row) for row in re.findall(r"^\| [^|]+ (\| \d+ \| .* %\) \| \d+ \|)$", text, re.M)]
    assert [[int(figure) for figure in row] for row in rows] == [readme_row(saved) for saved in (spines, all_ran)]
    (lost,) = [saved for saved in all_ran if saved < 0]
    assert f"{lost:.0%}".replace("%", " %") + " is under traffic" in " ".join(text.split())


def readme_row(saved: list[float]) -> list[int]:
    """Number of conditions; minimum, maximum and median share of time saved in percent; how many save 30 %."""
    shares = [round(100 * value) for value in (min(saved), max(saved), median(saved))]
    return [len(saved), *shares, sum(value >= 0.3 for value in saved)]
