"""Tasks and answers of ranks that train until an accuracy (`process_course_rank`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class Course:
    """One training until an accuracy."""

    workload: str
    hidden: int
    accuracy: float
    """Held-out accuracy to reach, 0…1."""
    seed: int
    back_end: Literal["weir", "gloo"]
    hook: str
    """float32, packed8, packed15, bf16, powersgd, topk or dgc."""
    rate: float
    momentum: float
    limit: int
    """Maximum number of steps."""
    ratio: float
    """Share of the numbers that topk and dgc keep."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Steps and time that a course has taken."""

    steps: int | None
    """Number of steps after which the accuracy was reached; None: not within the limit."""
    seconds: float
    """Time of these steps, of the slowest rank in each: gradient, sum and update, without the test of the accuracy."""


COURSES: Final = TypeAdapter(list[Course])
OUTCOME: Final = TypeAdapter(Outcome)
