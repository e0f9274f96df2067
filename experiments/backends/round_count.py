"""How many rounds the sums of a run's jobs take, and what those bring onto a link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...hosts.numerics.quantization import chunk_count
from ...wire.aggregation import HEADER_BYTES, message_bytes
from ...wire.frames import FRAME_HEADER_BYTES
from ..config import RunConfig


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of each sum of a job: first those that carry exponents only, then one for each chunk."""

    chunks: int
    scales: int

    @classmethod
    def of(cls, values: int, lanes: int, window: int) -> Rounds:
        """Of tensors of so many numbers, in a job that began with this window."""
        chunks = chunk_count(values, lanes)
        return cls(chunks, min(chunks, window))

    @classmethod
    def of_gradient(
        cls,
        config: RunConfig,
        lanes: int,
        shares: Sequence[int] = (1,),
        shard: int = 0,
        values: int | None = None,
    ) -> Rounds:
        """Of a step of the trained job, in one of its shards, which have its chunks in these proportions; of so many
        numbers, None: as many as the run's workload says.
        """
        whole = chunk_count(config.gradient_values if values is None else values, lanes)
        first, last = (whole * sum(shares[:at]) // sum(shares) for at in (shard, shard + 1))  # as `Tensor.cut` does
        return cls(last - first, min(last - first, config.job.window))

    def within(self, window: int) -> Rounds:
        """Of the same sums, in a job that was given no larger window than this one."""
        return Rounds(self.chunks, min(self.scales, window))

    @property
    def total(self) -> int:
        return self.chunks + self.scales

    def bytes(self, lanes: int) -> int:
        """What one worker's stream brings onto a link for a sum, headers included."""
        with_lanes, without = message_bytes(lanes) + FRAME_HEADER_BYTES, HEADER_BYTES + FRAME_HEADER_BYTES
        return self.chunks * with_lanes + self.scales * without

    def chunks_in(self, rounds: int) -> int:
        """How many chunks are in a job's first rounds, sum after sum."""
        sums, rest = divmod(rounds, self.total)
        return sums * self.chunks + max(0, rest - self.scales)
