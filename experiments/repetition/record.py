"""Record of a repetition: all samples, as a small JSON file, and the comparisons that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ..errors import ExperimentError
from ..evaluation import statistics
from ..evaluation.records import maker
from ..evaluation.statistics import Interval
from .paper import Contender, Paper, Quantity, Sample, command


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Series(_Stored):
    """Values of one contender under one condition, by seed."""

    figure: str
    condition: str
    contender: str
    values: tuple[float, ...]
    limited: tuple[int, ...] = ()
    """Seeds whose measurement ended at its limit."""


class PaperRecord(_Stored):
    """Everything that one repetition measured."""

    paper: str
    command: str
    seconds: int | None
    """Processor time of the repetition; None if it was not measured."""
    made_by: Mapping[str, str]
    """Versions, commit and processor."""
    series: tuple[Series, ...]

    @classmethod
    def of(cls, paper: Paper, name: str, samples: Iterable[Sample], seconds: float) -> PaperRecord:
        """Group samples by figure, condition and contender, in the order in which they came.

        Args:
            paper: The entry.
            name: Name or path by which it was called.
            samples: Seeds of a series are in ascending order.
            seconds: Processor time of the repetition.
        """
        groups: dict[tuple[str, str, str], list[Sample]] = {}
        for sample in samples:
            groups.setdefault((sample.figure, sample.condition, sample.contender), []).append(sample)
        series = tuple(
            Series(
                figure=figure,
                condition=condition,
                contender=contender,
                values=tuple(float(f"{sample.value:.6g}") for sample in own),
                limited=tuple(sample.seed for sample in own if sample.limited),
            )
            for (figure, condition, contender), own in groups.items()
        )
        return cls(paper=paper.name, command=command(name), seconds=round(seconds), made_by=maker(), series=series)

    @classmethod
    def load(cls, path: Path) -> PaperRecord:
        """Read a record. Raises ExperimentError if there is none, or it is damaged."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ExperimentError(f"{path}: no record can be read ({error.strerror})") from None
        except ValidationError as error:
            raise ExperimentError(f"{path}: is no record of a paper: {error.errors()[0]['msg']}") from None

    def save(self, path: Path) -> None:
        """Write the record, each series on a line of its own. Raises ExperimentError if it cannot be written."""
        head = self.model_dump_json(exclude={"series"}).removesuffix("}")
        lines = ",\n".join(entry.model_dump_json(exclude_defaults=True) for entry in self.series)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'{head},"series":[\n{lines}\n]}}\n', encoding="utf-8")
        except OSError as error:
            raise ExperimentError(f"{path}: the record cannot be written ({error.strerror})") from None


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """One contender under one condition."""

    figure: Quantity
    condition: str
    contender: Contender
    mean: Interval
    """Mean over seeds, in the figure's unit, with the 95 % interval by Student's t."""
    limited: int
    """Seeds whose measurement ended at its limit: the mean is a lower bound then."""
    change: Interval | None
    """Relative change of the figure from this baseline to the system, with the 95 % interval by bootstrap over paired
    seeds. None for the system itself, for a baseline with the mean 0, if the system's measurement was limited, and for
    a figure that is not compared.
    """


def results(paper: Paper, record: PaperRecord) -> Iterator[ConditionResult]:
    """Compare every baseline with the system, by figure and condition, in the record's order."""
    entries = {(entry.figure, entry.condition, entry.contender): entry for entry in record.series}
    known = {contender.name: contender for contender in paper.contenders}
    for series in record.series:
        mine = entries[series.figure, series.condition, paper.system.name]
        figure = paper.figure(series.figure)
        comparable = figure.compared and series is not mine and not mine.limited and any(series.values)
        yield ConditionResult(
            figure,
            series.condition,
            known[series.contender],
            statistics.mean(series.values),
            len(series.limited),
            statistics.paired(_change, mine.values, series.values) if comparable else None,
        )


def _change(own: float, other: float) -> float:
    return own / other - 1


def missing(paper: Paper, record: PaperRecord) -> list[str]:
    """Return what a record lacks to be that of an entry: contenders, figures or seeds, a line for each."""
    lines = [
        f"{series.contender}, {series.condition}: {len(series.values)} seeds instead of {paper.seeds}"
        for series in record.series
        if len(series.values) != paper.seeds
    ]
    conditions = dict.fromkeys(series.condition for series in record.series)
    there = {(series.figure, series.condition, series.contender) for series in record.series}
    lines += [
        f"{figure.name}, {condition}: no values of {contender.name}"
        for figure in paper.figures
        for condition in conditions
        for contender in paper.contenders
        if (not figure.contenders or contender.name in figure.contenders)
        and (figure.name, condition, contender.name) not in there
    ]
    return lines if conditions else [f"{paper.name}: no samples"]
