"""Journal entries of a fabric and its jobs, and reading them when a controller starts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Final, TypeVar

from ...topologies.model import Endpoint, Topology
from ..errors import ControllerError
from ..p4runtime.loading import OWNER_BITS, new_owner
from ..planning.generations import GenerationHistory
from ..planning.planner import Planner
from .job import RunningJob
from .journal_file import JournalError, JournalFile
from .journal_records import JobRecord

NO_RECORD: Final = (KeyError, TypeError, ValueError, AttributeError)
"""Exceptions raised while reading a malformed record."""

T = TypeVar("T")

_JOB: Final = "job"
"""The records of running jobs, by number."""
_KEPT: Final = "kept"
"""The data that callers keep with running jobs, by number."""
_QUEUED: Final = "queued"
"""The jobs that wait for room, by number."""
_NUMBER: Final = "number"
"""The histories of numbers that no job has any more, by number."""
_MODEL: Final = "model"
"""The models of switches as (text, bank), by switch."""
_FABRIC: Final = "fabric"
"""The fabric's name, and which links and switches of it are down."""


class Journal:
    """The journal; without a file it is empty and stores nothing."""

    def __init__(self, journal: JournalFile | None, topology: Topology, planner: Planner, owner: int = 0) -> None:
        """`owner` counts if the file names none; 0: a new one is drawn.

        Raises:
            JournalError: It is the journal of another fabric.
        """
        self._journal = journal
        self._planner = planner
        self._host_at = {int(host.address): host.name for host in topology.hosts}
        self._changed: set[int] = set()
        self.owner = owner or new_owner()
        """Owner id of the controller's entries in the switches: the same as long as the journal exists."""
        self.is_new = True
        """True if nothing is known of the switches' state; always, without a journal."""
        if journal is None:
            return
        fabric = journal.all(_FABRIC).get("name", topology.name)
        if fabric != topology.name:
            raise JournalError(
                f"it is of the fabric {fabric}, this is {topology.name}; give each its own",
                place=f"journal {journal.path}",
                value=fabric,
            )
        journal.put(_FABRIC, "name", topology.name)
        if (kept := journal.all(_FABRIC).get("owner")) is None:
            journal.put(_FABRIC, "owner", self.owner)
        else:
            self.owner, self.is_new = self._read("the controller's owner", _owner, kept), False

    # --- writing ---

    @property
    def is_due(self) -> bool:
        """True if a job has changed since it was written."""
        return bool(self._changed)

    def change(self, number: int) -> None:
        """Note that a job has changed or ended, so that `write_jobs` is due."""
        if self._journal is not None:
            self._changed.add(number)

    def write_jobs(self, jobs: Mapping[int, RunningJob]) -> None:
        """Write the jobs that have changed. Raises JournalError; the next call writes the rest."""
        while self._journal is not None and self._changed:
            number = min(self._changed)
            job = jobs.get(number)
            if job is None:
                self._journal.put(_NUMBER, str(number), asdict(self._planner.history(number)))
            self._journal.put(_JOB, str(number), None if job is None else self._record(number, job).as_json())
            self._journal.put(_KEPT, str(number), None if job is None else job.kept or None)
            self._changed.discard(number)

    def write_fabric(self, down: Collection[Endpoint], lost: Collection[str]) -> None:
        """Write the links that are down, and the switches that are lost. Raises JournalError."""
        if self._journal is not None:
            self._journal.put(_FABRIC, "down", sorted([end.node, end.port] for end in down))
            self._journal.put(_FABRIC, "lost", sorted(lost))

    def write_queued(self, number: int, record: Mapping[str, Any] | None) -> None:
        """Write a job that waits for room, or None once it does not wait any more. Raises JournalError."""
        if self._journal is not None:
            self._journal.put(_QUEUED, str(number), record)

    def write_models(self, models: Mapping[str, tuple[str, int]]) -> None:
        """Write the model of each switch: its text, and its bank. Raises JournalError."""
        if self._journal is not None:
            for name in {*self._all(_MODEL), *models}:
                self._journal.put(_MODEL, name, list(models[name]) if name in models else None)

    def _record(self, number: int, job: RunningJob) -> JobRecord:
        held = self._planner.memory.held(number)
        move, plan = job.move, job.plan
        resumes = {} if move is None else move.resumes
        return JobRecord(
            spec=plan.spec,
            placement=plan.placement,
            generation=plan.generation if move is None or resumes else move.generation,
            allotments={name: held[name] for name in plan.switches},
            history=self._planner.history(number),
            gap_ns=plan.pacing.gap_ns,
            note=job.note,
            gone=job.gone,
            left=tuple(sorted(job.left)),
            joined=tuple(sorted(job.joined)),
            moving=job.why if move is not None else "",
            finals={self._host_at[address]: finals for address, finals in resumes.items()} if resumes else None,
            newcomer=job.newcomer,
            first_round=job.first_round,
            again=() if move is None else move.again,
        )

    # --- reading ---

    @property
    def down(self) -> frozenset[Endpoint]:
        """The links that were down when this was written."""
        return self._read("the links that were down", _endpoints, self._all(_FABRIC).get("down", ()))

    @property
    def lost(self) -> tuple[str, ...]:
        """The switches that were lost when this was written."""
        return self._read("the switches that were lost", tuple, self._all(_FABRIC).get("lost", ()))

    def models(self) -> dict[str, tuple[str, int]]:
        """Return the text and the bank of each switch's model, by switch."""
        return {name: self._read(f"the model of {name}", _model, saved) for name, saved in self._all(_MODEL).items()}

    @property
    def histories(self) -> dict[int, GenerationHistory]:
        """The histories of job numbers that are free again, by number."""
        read = self._read
        return {
            read("a free number", int, number): read(
                f"the history of number {number}", GenerationHistory.from_json, saved
            )
            for number, saved in self._all(_NUMBER).items()
        }

    def jobs(self) -> Iterator[tuple[int, JobRecord, Mapping[str, Any]]]:
        """Yield (number, record, application data). Raises JournalError for a malformed record."""
        kept = self._all(_KEPT)
        for number, saved in self._all(_JOB).items():
            try:
                record = JobRecord.from_json(saved)
            except (*NO_RECORD, ControllerError) as error:
                raise self.misfit(number, error) from None
            yield self._read("a job's number", int, number), record, kept.get(number, {})

    def queued(self, read: Callable[[int, Any], T]) -> list[T]:
        """Return the waiting jobs in the order of their arrival, each read from its number and its record.

        Raises:
            JournalError: `read` raised one of NO_RECORD.
        """
        return [
            self._read(f"queued job {number}", partial(read, self._read("a queued job's number", int, number)), saved)
            for number, saved in self._all(_QUEUED).items()
        ]

    def misfit(self, number: int | str, error: Exception) -> JournalError:
        """Return the error of a job of the journal that cannot go on."""
        return JournalError(f"{self._where}job {number} cannot go on: {error}")

    def _read(self, name: str, read: Callable[[Any], T], saved: Any) -> T:
        try:
            return read(saved)
        except NO_RECORD as error:
            raise JournalError(
                f"{self._where}{name} cannot be read: {error}; go on with the version of Weir that wrote it, or remove "
                "the file to begin without any job"
            ) from None

    @property
    def _where(self) -> str:
        return "" if self._journal is None else f"journal {self._journal.path}: "

    def _all(self, kind: str) -> Mapping[str, Any]:
        return {} if self._journal is None else self._journal.all(kind)


def _owner(saved: Any) -> int:
    owner = int(saved)
    if not 0 < owner < 1 << OWNER_BITS:
        raise ValueError(f"{owner} is not in 1…{(1 << OWNER_BITS) - 1}")
    return owner


def _model(saved: Any) -> tuple[str, int]:
    text, bank = saved
    return str(text), int(bank)


def _endpoints(saved: Any) -> frozenset[Endpoint]:
    return frozenset(Endpoint(str(node), int(port)) for node, port in saved)
