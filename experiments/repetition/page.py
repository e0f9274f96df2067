"""The page of papers, docs/papers.md: the same bytes for the same entries and records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Final

from ..evaluation.statistics import Interval
from .paper import Paper
from .record import ConditionResult, PaperRecord, results

_WIDTH: Final = 120

_HEAD: Final = """\
# Papers: published systems beside their strongest baselines

Each system that Weir repeats is an entry of `experiments/papers/`: what its paper reports, and the same comparison at
a size that this project can run. `weir papers run NAME` measures an entry again in minutes and writes its record;
`weir papers page docs/papers.md` writes this page from the records.

*Change* is the system's figure relative to the baseline's, with the 95 % interval by bootstrap over seeds, which all
contenders share; a negative change is better where less is better. Means have the 95 % interval by Student's t. An
interval of one draw is the value itself. *≥*: some seeds ended at the time limit, so the value is a lower bound; a
change against such a baseline is at least as large as shown. **Strong** baselines are bold.
"""


def page(entries: Iterable[tuple[Paper, PaperRecord]]) -> str:
    """Return the whole page in Markdown, entries in the given order."""
    parts = list(entries)
    lines = [_HEAD, "## Summary", "", *_summary(parts)]
    for paper, record in parts:
        lines += ["", *_section(paper, record)]
    return "\n".join(lines) + "\n"


def _summary(entries: Sequence[tuple[Paper, PaperRecord]]) -> Iterator[str]:
    yield "| entry | figure | conditions | best strong baseline | change by the system |"
    yield "|---|---|---|---|---|"
    for paper, record in entries:
        for best in strongest(paper, record):
            yield (
                f"| [{paper.name}](#{_anchor(paper.title)}) | {best.figure.name} | {best.condition} | "
                f"{best.contender.label}: {amount(best)} | {change(best)} |"
            )


def strongest(paper: Paper, record: PaperRecord) -> Iterator[ConditionResult]:
    """Yield the best strong baseline by the first figure, for each condition."""
    groups: dict[str, list[ConditionResult]] = {}
    for result in results(paper, record):
        if result.contender.strong and result.figure == paper.figures[0]:
            groups.setdefault(result.condition, []).append(result)
    for own in groups.values():
        choose = min if paper.figures[0].less_is_better else max
        yield choose(own, key=lambda result: result.mean.value)


def _section(paper: Paper, record: PaperRecord) -> Iterator[str]:
    yield f"## {paper.title}"
    yield ""
    yield from _item(f"Paper: {paper.published}")
    yield from _item(f"Headline: {paper.headline}")
    facts = paper.regime.split("; ")
    yield from _item("Here:" if len(facts) > 1 else f"Here: {paper.regime}")
    for fact in facts if len(facts) > 1 else ():
        yield from _item(fact, indent="  ")
    if paper.run_files:
        yield from _item(f"Run files: {', '.join(f'`experiments/{file}`' for file in paper.run_files)}")
    cost = "" if record.seconds is None else f"; {record.seconds} s of processor time"
    yield from _item(f"Repeat: `{record.command}` ({paper.seeds} seeds or turns{cost})")
    yield ""
    shown = list(results(paper, record))
    for figure in paper.figures:
        better = "less is better" if figure.less_is_better else "more is better"
        yield f"| {figure.name}, {figure.unit} ({better}) | contender | mean | change by the system |"
        yield "|---|---|---|---|"
        for result in shown:
            if result.figure == figure:
                label = result.contender.label
                bold = f"**{label}**" if result.contender.strong else label
                own = result.contender == paper.system
                yield (
                    f"| {result.condition} | {f'*{label}* (system)' if own else bold} | {amount(result)} | "
                    f"{'' if own else change(result)} |"
                )
        yield ""
    yield from _wrapped(paper.findings)


def _item(text: str, indent: str = "") -> list[str]:
    """Return an item of a list as a sentence, in lines of the page's width."""
    return _wrapped(text if text.endswith((".", ":")) else f"{text}.", f"{indent}- ", f"{indent}  ")


def _wrapped(text: str, first: str = "", other: str = "") -> list[str]:
    return wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=other, break_long_words=False, break_on_hyphens=False
    )


def amount(result: ConditionResult) -> str:
    """Return the mean of a contender, with its interval."""
    value, low, high = result.mean.value, result.mean.low, result.mean.high
    mark = "≥ " if result.limited else ""
    return f"{mark}{_number(value)}" + (f" ({_number(low)} to {_number(high)})" if high > low else "")


def change(result: ConditionResult) -> str:
    """Return the relative change from a baseline to the system, in percent, with its interval; – where there is
    none.
    """
    if result.change is None:
        return "–"
    return _percent(result.change)


def _percent(interval: Interval) -> str:
    value, low, high = (100 * bound for bound in (interval.value, interval.low, interval.high))
    return f"{value:+.0f} %" + (f" ({low:+.0f} to {high:+.0f})" if high > low else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _anchor(title: str) -> str:
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")
