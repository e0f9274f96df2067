"""A running job as a record of the journal, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...wire.control import FinalRound
from ..placement import Placement
from ..planning.generations import GenerationHistory
from ..planning.memory import Allotment
from ..planning.plan import FailurePolicy, JobSpec


@dataclass(slots=True)
class JobRecord:
    """All that must be known of a job to go on with it after the controller has died."""

    spec: JobSpec
    placement: Placement
    generation: int
    allotments: Mapping[str, Allotment]
    history: GenerationHistory
    gap_ns: int
    """Between two rounds, as its hosts were told."""
    note: str
    gone: Mapping[str, str]
    left: tuple[str, ...]
    joined: tuple[str, ...]
    """The hosts that have been heard of at least once."""
    moving: str
    """Reason of the move under way; hosts may then be paused, in this generation."""
    finals: Mapping[str, tuple[FinalRound, ...]] | None
    """Rounds to fetch by host, if the move has reached its Resumes into this generation."""
    newcomer: str | None
    """The server, while it has not confirmed that it takes over."""
    first_round: int
    """The round at which that server begins to sum."""
    again: tuple[int, ...] = ()
    """Rounds that the workers in `finals` sum again in this generation."""

    def as_json(self) -> dict[str, Any]:
        """Return the record as values that `json.dumps` takes."""
        record = asdict(self)
        record["spec"]["policy"] = self.spec.policy.value
        if self.finals is not None:
            record["finals"] = {host: [[f.round, f.holder] for f in finals] for host, finals in self.finals.items()}
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> JobRecord:
        """Decode a record. Raises KeyError, TypeError, ValueError, AttributeError or ControllerError for a malformed
        one.
        """
        spec = dict(record["spec"])
        spec |= {name: tuple(spec[name]) for name in ("workers", "spares", "classes") if name in spec}
        spec["policy"] = FailurePolicy(spec["policy"])
        finals = record["finals"]
        return cls(
            spec=JobSpec(**spec),
            placement=Placement(**record["placement"]),
            generation=record["generation"],
            allotments={name: Allotment(**allotment) for name, allotment in record["allotments"].items()},
            history=GenerationHistory.from_json(record["history"]),
            gap_ns=int(record["gap_ns"]),
            note=record["note"],
            gone=record["gone"],
            left=tuple(record["left"]),
            joined=tuple(record["joined"]),
            moving=record["moving"],
            finals=None
            if finals is None
            else {host: tuple(FinalRound(*each) for each in rounds) for host, rounds in finals.items()},
            newcomer=record["newcomer"],
            first_round=record["first_round"],
            again=tuple(map(int, record.get("again", ()))),
        )
