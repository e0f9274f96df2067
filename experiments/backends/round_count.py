"""Rounds of the sums of a run's jobs, and their bytes on a link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...hosts.numerics.quantization import chunk_count
from ...wire.aggregation import HEADER_BYTES, message_bytes
from ...wire.frames import FRAME_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of each sum of a job: first those that carry exponents only, then one for each chunk."""

    chunks: int
    scales: int

    @classmethod
    def of(cls, values: int, lanes: int, window: int, shares: Sequence[int] = (1,), shard: int = 0) -> Rounds:
        """Return rounds of the sums of one shard of a job.

        Args:
            values: Number of values of a tensor.
            lanes: Number of lanes in the job's messages.
            window: Window with which the job began, in rounds.
            shares: Proportions in which the shards divide the tensor's chunks.
            shard: Index of the shard.
        """
        whole = chunk_count(values, lanes)
        first, last = (whole * sum(shares[:at]) // sum(shares) for at in (shard, shard + 1))  # as `Tensor.cut` does
        return cls(last - first, min(last - first, window))

    def within(self, window: int) -> Rounds:
        """Return rounds of the same sums, in a job with at most this window."""
        return Rounds(self.chunks, min(self.scales, window))

    @property
    def total(self) -> int:
        """Rounds of both kinds together."""
        return self.chunks + self.scales

    def bytes(self, lanes: int) -> int:
        """Return bytes of one worker's stream on a link per sum, headers included."""
        with_lanes, without = message_bytes(lanes) + FRAME_HEADER_BYTES, HEADER_BYTES + FRAME_HEADER_BYTES
        return self.chunks * with_lanes + self.scales * without

    def chunks_in(self, rounds: int) -> int:
        """Return the number of chunks in a job's first rounds, sum after sum."""
        sums, rest = divmod(rounds, self.total)
        return sums * self.chunks + max(0, rest - self.scales)
